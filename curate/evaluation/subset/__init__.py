"""How good a subset is: models trained on it, on the whole and on random rows, and what it holds."""
