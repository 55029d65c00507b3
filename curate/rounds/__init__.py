"""Rounds of labelling as files: what was asked, what came back, what it was worth."""
