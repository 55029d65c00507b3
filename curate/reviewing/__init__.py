"""Groups of suspected images that a reviewer decides in one look: the queue, the file of decisions, and the server."""
