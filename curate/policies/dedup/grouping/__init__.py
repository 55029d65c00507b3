"""The choice of the image to keep, and the rows dropped for it."""
