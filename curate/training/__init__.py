"""The shared part of train and cache: options to a recipe, a source to a data set."""
