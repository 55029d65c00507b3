"""Models with uncertainty: tensors in, tensors out, without Parquet or folders."""
