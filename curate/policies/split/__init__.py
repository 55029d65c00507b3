"""Splits into train, validation and test that no group of rows, and no copy, crosses."""
