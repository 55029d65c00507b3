"""The checks of `curate doctor`: whether this machine and this installation can do the work, and how fast."""
