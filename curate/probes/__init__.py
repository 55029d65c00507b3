"""Small models (probes) fitted on embeddings."""
