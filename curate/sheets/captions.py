"""Conversion of user text to one readable line."""


def plain_line(text: str, most: int = 200) -> str:
    r"""Return the text on one line of bounded length, with invisible characters escaped.

    Line breaks, control characters and changes of writing direction are escaped, so that no name can imitate another. A
    long text is shortened in the middle, to ``most`` >= 3 characters.

    >>> plain_line("two\nlines"), plain_line("abcdefghij", 6)
    ('two\\x0alines', 'abc…ij')
    """
    if len(text) > most:
        tail = (most - 1) // 2
        text = f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"
    return "".join(letter if letter.isprintable() else escaped(letter) for letter in text)


def escaped(letter: str) -> str:
    """Return a character as its code."""
    code = ord(letter)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def number(value: float | None) -> str:
    """Return a similarity with few digits, or a dash if missing; 0.99996 is never shown as 1.

    >>> number(0.96234), number(3.0), number(0.99996), number(1.0), number(None)
    ('0.9623', '3', '0.99996', '1', '–')
    """
    if value is None:
        return "–"
    for digits in range(4, 17):
        text = f"{value:.{digits}g}"
        if float(text) == value or not float(text).is_integer():
            return text
    return repr(value)
