"""The checks of `curate doctor`: whether this machine and installation can do the work, and how fast."""
