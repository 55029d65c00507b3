"""Scored tables: reading, writing, digests, columns as arrays, and the images of rows."""
