"""Detection of wrong labels, as a policy."""
