"""Simulation of labelling rounds on fully labelled data."""
