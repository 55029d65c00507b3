"""Train, validation and test: sides that no group of rows, and no copy, crosses."""
