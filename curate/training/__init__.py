"""What train and cache share: options to a recipe, a source to a data set."""
