"""The files in a folder of rounds, each with a digest that detects changes."""
