"""The state of rounds, computed from their files."""
