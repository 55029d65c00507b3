"""A report whose rows stay in the table: pages of them and thumbnails on demand, over HTTP on this machine alone."""
