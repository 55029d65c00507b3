"""Engines: where the shards of a scoring run are processed."""
