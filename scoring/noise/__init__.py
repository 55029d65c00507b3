"""Labels that are wrong: what probabilities of classes, had from other rows, say of the labels that rows bear."""
