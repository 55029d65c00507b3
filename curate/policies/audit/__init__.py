"""What a reviewer must judge for a filter with a guarantee, and what follows from the verdicts."""
