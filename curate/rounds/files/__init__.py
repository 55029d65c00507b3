"""The files in a folder of rounds, and how they notice a change."""
