"""Images of a scored table for papers: one file a kind, numbers first and then how they are drawn."""
