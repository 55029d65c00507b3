"""Quality of score columns: every measure with its interval."""
