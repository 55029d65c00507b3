"""How accurate the model is after each round, and whether to stop."""
