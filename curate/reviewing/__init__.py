"""Review of groups of suspected images: the queue, the file of decisions, and the server."""
