"""The facts of a report as one JSON value: counts over all rows, and a list of sampled rows."""
