"""A report served from the table: pages and thumbnails on demand, by a local HTTP server."""
