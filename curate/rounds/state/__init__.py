"""Where rounds stand, derived from their files."""
