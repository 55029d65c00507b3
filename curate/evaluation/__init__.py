"""How good score columns are: every measure with its interval."""
