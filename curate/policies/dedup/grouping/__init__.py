"""Grouping of copies: the kept image of each group, and the rows dropped for it."""
