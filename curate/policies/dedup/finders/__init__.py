"""The kinds of sameness, and what finds them."""
