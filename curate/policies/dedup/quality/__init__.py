"""How many duplicates are found, and how many finds are right."""
