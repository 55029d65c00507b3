"""Small models fitted on embeddings."""
