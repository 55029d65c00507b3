"""What a reviewer must judge for a filter with a guarantee, and what the verdicts say."""
