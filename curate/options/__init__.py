"""Command options, declared once as request fields: the source of options, keywords and reference pages."""
