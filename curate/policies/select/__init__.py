"""Selection of rows to label next, or to train on."""
