"""Guarantees for a filter: samples for reviewers, and the bounds that follow from their verdicts."""
