"""What is the same, and which row of it stays."""
