"""Pipelines: a file of commands as steps, each reading the output of the previous one, with one receipt for all."""
