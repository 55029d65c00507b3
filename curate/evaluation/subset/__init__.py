"""What a subset is worth: models trained on it, on the whole and on random rows, and what it holds."""
