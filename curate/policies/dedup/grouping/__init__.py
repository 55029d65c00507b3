"""Who stays, and which rows go for it."""
