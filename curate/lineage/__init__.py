"""How a subset came about: its receipts as one chain down to the pixels, compared and explained."""
