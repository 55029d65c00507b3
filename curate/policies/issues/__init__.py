"""Images with a problem, by kind, with thresholds that adapt to the dataset."""
