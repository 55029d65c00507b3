"""Filters: rules that keep and drop rows by their scores."""
