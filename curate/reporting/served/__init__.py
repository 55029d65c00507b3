"""A report served from the table: pages and thumbnails on demand, over HTTP on this machine."""
