"""Growth of a table with its source: new and changed images are scored, every other row is kept."""
