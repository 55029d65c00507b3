"""Rounds of labelling as files: what was requested, what came back, how good it was."""
