"""Two scored tables beside one another: what differs, by how much, and whether that can be chance."""
