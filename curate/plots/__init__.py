"""Images of a scored table for papers: one class a kind, numbers first and then how they are drawn."""
