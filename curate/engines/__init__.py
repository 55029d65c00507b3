"""Engines: the same shard function, scheduled."""
