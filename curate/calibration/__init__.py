"""Scores as probabilities: maps fitted on rows that were judged, stored, applied to tables and checked."""
