"""What rounds are worth, and whether to stop."""
