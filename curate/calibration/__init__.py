"""Scores as probabilities: calibration maps fitted on labelled rows, stored, applied to tables and verified."""
