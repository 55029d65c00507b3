"""The kinds of duplicates, and their finders."""
