"""What can be trained: one file a method, one line in the table."""
