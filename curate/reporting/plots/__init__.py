"""Charts of a scored table for papers: one class per kind, which computes the numbers and draws them."""
