"""Charts of a scored table for papers: one class per kind, which computes numbers and draws them."""
