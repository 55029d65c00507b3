"""Uncertainty of numbers measured on a sample: intervals, tests, guarantees, calibration."""
