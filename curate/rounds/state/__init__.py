"""The state of rounds, derived from their files."""
