"""The content of a report on a table, as one JSON value: counted over all rows, and shown for a sample of them."""
