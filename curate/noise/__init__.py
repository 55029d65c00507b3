"""Wrong labels, found by comparing labels with class probabilities predicted from other rows."""
