"""Models that know how sure they are: tensors in, tensors out. Nothing here knows of Parquet or folders."""
