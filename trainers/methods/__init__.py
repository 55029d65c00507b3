"""Training methods: one file a method, one line in the table."""
