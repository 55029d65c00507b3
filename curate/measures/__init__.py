"""What a scored table's columns are worth: rows, labels and images in, numbers with intervals out."""
