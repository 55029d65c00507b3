"""Fits the models that ``scoring`` runs."""
