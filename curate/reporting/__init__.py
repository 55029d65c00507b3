"""The facts of a report as one JSON value: counted over all rows, listed for a sample of them."""
