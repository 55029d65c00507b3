"""Statistics of samples: intervals, tests, guarantees, calibration."""
