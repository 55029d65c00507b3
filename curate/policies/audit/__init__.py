"""What a person must judge for a filter with a guarantee, and what the verdicts say."""
