"""What is in a folder of rounds, and how files notice a change."""
