"""Training of the models that ``scoring`` runs."""
