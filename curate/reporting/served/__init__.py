"""A report that reads its rows from the table: pages and thumbnails on demand, over HTTP on this machine."""
