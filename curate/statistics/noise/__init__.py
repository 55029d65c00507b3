"""Label errors, found by comparing labels with class probabilities predicted from other rows."""
