"""The lineage of a subset: its receipts as one chain down to the pixels, compared and explained."""
