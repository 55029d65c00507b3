"""Detection of image issues, by kind, with thresholds that adapt to the dataset."""
