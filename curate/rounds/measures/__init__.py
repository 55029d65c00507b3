"""How good rounds are, and whether to stop."""
