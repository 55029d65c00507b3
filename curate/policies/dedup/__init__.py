"""Groups of rows that show the same, and the kept row of each."""
