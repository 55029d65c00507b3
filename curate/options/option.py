"""A field of a request: an option of the command and a keyword of the function."""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

from curate.options.texts import MEANS


@dataclass(frozen=True)
class Note:
    """A field that is only a keyword in Python, such as a progress callback.

    Attributes:
        text: its description, a phrase that ends with a full stop.
    """

    text: str


@dataclass(frozen=True)
class Option:
    """A field that is an option of a command, and a keyword in Python.

    Attributes:
        text: its description, a phrase that ends with a full stop.
        name: on the command line; by default the name of the field. Shared options are in ``MEANS``.
        python: description in Python, if different from ``text``.
        metavar: its value in the help; by default its type.
        path: kind of path: ``table`` is read and ``output`` is written, on a disk or in a store; ``local`` is on a
            disk; ``name`` may also be another name.
        argument: whether it is positional.
        required: whether the command requires it, though Python has a default.
        least: the smallest valid number.
        most: the largest valid number.
        default: whether the help shows the default.
        parse: parser of a typed word; its InputError or ValueError is a usage error.
        example: a setting NAME=VALUE, for messages.
        offers: whether shell completion suggests the values of the shared option of that name.
        alone: omit its second spelling, which means something else in this command.
        commas: whether several names are typed as one text with commas, which the function splits.
        repeats: whether it may be repeated; the command reads all values in order.
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
        name: its keyword.
        kind: its type in Python.
        default: its default; ``MISSING`` if required.
        about: its declaration.
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
        more: what this command does with it, added to the shared text.
        default: whether help shows the default.
        named: other fields of ``Option``.
    """
    text = MEANS[name] + more
    return Option(text if text.endswith("]") else f"{text}.", name, default=default, **named)


def declared(request: Any) -> Iterator[Field]:
    """Yield the fields of a request, in order; TypeError for a field without an ``Option`` or ``Note``."""
    for field in fields(request):
        if (known := field_of(field.name, field.type, field.default)) is None:
            raise TypeError(f"expected an Option or a Note for {request.__name__}.{field.name}, got neither; add one")
        yield known


def field_of(name: str, hint: Any, default: Any) -> Field | None:
    """Return the field that a type hint ``Annotated[KIND, Option(...)]`` declares; None for other hints."""
    notes = getattr(hint, "__metadata__", ())
    about = next((note for note in notes if isinstance(note, Option | Note)), None)
    return None if about is None else Field(name, hint.__origin__, default, about)


def is_required(field: Field) -> bool:
    """Return whether a field has no default."""
    return field.default is MISSING
