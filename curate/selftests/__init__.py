"""The contract of scores, tried on the user's own images: what must move a score, and what must not."""
