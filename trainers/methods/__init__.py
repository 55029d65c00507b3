"""Training methods: one file per method, one line in the table."""
