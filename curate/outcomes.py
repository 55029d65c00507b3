"""What can become of a row under a policy."""

KEEP, DROP, UNDECIDED, FAILED = range(4)
OUTCOMES = ("keep", "drop", "undecided", "failed")  # by the codes above, as they stand in the decisions
