"""Tests of scores on the user's own images: what must change a score, and what must not."""
