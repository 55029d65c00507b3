"""The spine: a request is decided for every row, written with its reasons, and verified."""
