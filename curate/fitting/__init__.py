"""Scores fitted to a heap: from a scored table to a model that scores this heap and what comes after it."""
