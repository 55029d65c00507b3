"""What `curate doctor` finds: whether this machine and this installation can do the work, and how fast."""
