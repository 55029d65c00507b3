"""Which rows to label next, or to train on."""
