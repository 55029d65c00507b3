"""What score columns are worth: every measure with its interval."""
