"""Search by example: the request, the searched rows, and the answers with the certainty of both images."""
