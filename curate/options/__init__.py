"""Options declared once: the fields of a request, from which the option, the keyword and the reference are made."""
