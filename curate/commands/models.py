"""``curate models``: what ships, and what a model's card says."""

from typing import Annotated, Any

import typer

from curate.commands import options
from curate.commands.report import emit, say, show


def run(
    name: Annotated[
        str | None, typer.Argument(help="A shipped model or a .safetensors file.", show_default=False)
    ] = None,
    json_: options.Json = False,
) -> None:
    """List the models that ship, or show one model's card.

    The word convert in place of a name makes a checkpoint out of other people's weights; it has a --help of its own.

    Example:

    \b
        curate models
        curate models trio
        curate models convert uncertainties.pth.tar -o mine.safetensors
    """
    from scoring.checkpoint import DEFAULT, find_checkpoint, read_header, shipped_models
    from scoring.heads import head_from_json
    from scoring.scorers import main_column

    if name is None:
        cards = {stem: read_header(path) for stem, path in shipped_models().items()}
        if json_:
            emit(cards)
            return
        if not cards:
            say("no model ships with this installation; `curate train` makes one, and --model takes its file")
        for stem, card in cards.items():
            default = " (default)" if stem == DEFAULT else ""
            size = card["preprocessing"]["size"]
            heads = {name: head_from_json(head) for name, head in card["heads"].items()}
            columns = ", ".join(main_column(name, head) for name, head in heads.items() if head.columns)
            about = f"{columns or 'embedding'} on {card['backbone']['name']}, {size} px, {card['data_licence']}"
            show(f"{stem}{default}: {about}")
        return
    card = read_header(find_checkpoint(name))
    if json_:
        emit(card)
        return
    for line in card_lines(card):
        show(line)


def card_lines(card: dict[str, Any], indent: int = 0) -> list[str]:
    """Return a card as indented lines, one a value."""
    lines = []
    for name, value in card.items():
        if isinstance(value, dict) and value:
            lines.append(f"{' ' * indent}{name}:")
            lines += card_lines(value, indent + 2)
        else:
            shown = f"{value:.4g}" if isinstance(value, float) else value
            lines.append(f"{' ' * indent}{name}: {shown}")
    return lines
