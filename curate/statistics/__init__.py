"""How certain a number measured on a sample is: intervals, tests, guarantees, calibration."""
