"""What a number measured on a sample is worth: intervals, tests, guarantees, calibration."""
