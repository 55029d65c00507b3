"""Selectors: which rows to label or to train on, from arrays alone; none opens a file."""
