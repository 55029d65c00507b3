"""User errors: the command line prints one line and exits with 1; any other exception is a bug."""


class InputError(Exception):
    """A file, option or value of the user cannot be used.

    The text says in one line what was expected, what was received, and what to do next.
    """


class MissingExtraError(InputError):
    """An optional package is not installed; the text names the pip command."""

    def __init__(self, need: str, extra: str) -> None:
        super().__init__(f"{need} needs an extra package; run: pip install 'kappa-curate[{extra}]'")
