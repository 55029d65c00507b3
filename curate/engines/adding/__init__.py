"""A table that grows with its source: what is new or changed is scored, and every other row is kept."""
