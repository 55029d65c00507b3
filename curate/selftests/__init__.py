"""Tests of scores on the user's images: changes that must and must not affect a score."""
