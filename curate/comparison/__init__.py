"""Two scored tables next to one another: what differs, by how much, and whether the difference is significant."""
