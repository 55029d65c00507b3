"""Measures of the model after each round, and advice on when to stop."""
