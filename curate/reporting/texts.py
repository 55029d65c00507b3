"""Shortening of user texts for pages."""

MOST_TEXT = 200  # characters of a text that is no key


def shortened(text: str) -> str:
    """Return a text cut at ``MOST_TEXT`` characters.

    >>> len(shortened("x" * 1000)), shortened("cat")
    (200, 'cat')
    """
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"
