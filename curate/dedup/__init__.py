"""Deduplication: equal files, equal or edited pictures, the same content; one row of each group stays."""
