"""A pipeline in a file: commands as steps, each reading what the one before it wrote, with one receipt over all."""
