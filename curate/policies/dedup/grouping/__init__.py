"""Which image is kept, and which rows are dropped for it."""
