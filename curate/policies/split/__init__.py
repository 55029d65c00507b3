"""Splits into train, validation and test that keep groups of rows, and copies, together."""
