"""Choosing rows of a table: to label next, or to train on."""
