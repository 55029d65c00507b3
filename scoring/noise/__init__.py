"""Labels that are wrong: what chances of classes, had from other rows, say of the labels that rows bear."""
