"""The user's mistakes. The command line prints one line and exits 1; anything else is a bug."""


class InputError(Exception):
    """A file, flag or value of the user's cannot be used.

    The text says what was expected, what came, and what to do next, in one line.
    """


class MissingExtraError(InputError):
    """A package that only some users need is not installed; the text names the pip line."""

    def __init__(self, need: str, extra: str) -> None:
        super().__init__(f"{need} needs an extra package; run: pip install 'kappa-curate[{extra}]'")
