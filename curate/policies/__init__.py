"""Policies: decide every row of a table, write the decisions with their reasons, and verify them."""
