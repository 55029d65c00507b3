"""Two scored tables next to one another: what differs, by how much, and whether that can be chance."""
