"""A field of a request: an option of the command and a keyword of the function."""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

from curate.options.texts import MEANS


@dataclass(frozen=True)
class Note:
    """A field that is only a keyword in Python, such as a progress callback.

    Attributes:
        text: what it is, a phrase that ends in a full stop.
    """

    text: str


@dataclass(frozen=True)
class Option:
    """A field that is an option of a command, and a keyword in Python.

    Attributes:
        text: what it is, a phrase that ends in a full stop.
        name: on the command line; by default the name of the field. A shared one is in ``MEANS``.
        python: what it is in Python, where that is more than ``text`` says.
        metavar: what it takes, for help; by default its type.
        path: of a path, what of it: ``table`` is read and ``output`` is written, here or in a store; ``local`` is here;
            ``name`` is a text that may name something else.
        argument: whether it is typed without its name.
        required: whether it must be typed, though Python has a default.
        least: the smallest number that may be typed.
        most: the largest.
        default: whether help shows the default.
        parse: what reads a word that is typed; an InputError or ValueError is a mistake in usage.
        example: of a setting NAME=VALUE, for messages.
        offers: whether the shell offers what the option of that name takes elsewhere.
        alone: without its second spelling, which means something else in this command.
        commas: whether several names are typed as one text with commas, which the function reads.
        repeats: whether it may be typed several times, so that the command reads all from the line, in their order.
    """

    text: str
    name: str = ""
    python: str = ""
    metavar: str | None = None
    path: Literal["", "table", "output", "local", "name"] = ""
    argument: bool = False
    required: bool = False
    least: float | None = None
    most: float | None = None
    default: bool = True
    parse: Callable[[str], Any] | None = None
    example: str = ""
    offers: bool = True
    alone: bool = False
    commas: bool = False
    repeats: bool = False


@dataclass(frozen=True)
class Field:
    """A field of a request with its declaration.

    Attributes:
        name: of the keyword.
        kind: its type in Python.
        default: its value without one; ``MISSING`` where it must be given.
        about: what it is.
    """

    name: str
    kind: Any
    default: Any
    about: Option | Note

    @property
    def option(self) -> str:
        """Its name on the command line."""
        typed = isinstance(self.about, Option) and self.about.name
        return typed or f"--{self.name.replace('_', '-')}"


def shared(name: str, more: str = "", *, default: bool = False, **named: Any) -> Option:
    """Return an option shared by several commands.

    Args:
        name: a name in ``MEANS``.
        more: what this command does with it, said after what it is.
        default: whether help shows the default.
        named: anything else that an ``Option`` has.
    """
    text = MEANS[name] + more
    return Option(text if text.endswith("]") else f"{text}.", name, default=default, **named)


def declared(request: Any) -> Iterator[Field]:
    """Yield the fields of a request, in order.

    Raises:
        TypeError: for a field that does not say what it is.
    """
    for field in fields(request):
        hint: Any = field.type
        notes = getattr(hint, "__metadata__", ())
        about = next((note for note in notes if isinstance(note, Option | Note)), None)
        if about is None:
            raise TypeError(f"expected an Option or a Note for {request.__name__}.{field.name}, got neither; add one")
        yield Field(field.name, hint.__origin__, field.default, about)


def is_required(field: Field) -> bool:
    """Return whether a field has no default."""
    return field.default is MISSING
