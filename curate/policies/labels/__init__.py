"""Which labels are wrong, as a policy."""
