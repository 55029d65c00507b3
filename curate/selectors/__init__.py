"""Selectors: strategies for which rows to label or to train on, from arrays alone."""
