"""Scores as probabilities: maps fitted on judged rows, stored, applied to tables and verified."""
