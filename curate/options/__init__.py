"""Options declared once: request fields from which the option, the keyword and the reference are made."""
