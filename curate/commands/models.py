"""``curate models``: shipped models, model cards, and third-party weights."""

from typing import Any

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, Output, emit, say, show, suggest
from curate.training.options import ModelsConvertOptions, ModelsOptions

SUBCOMMANDS = ("convert",)
RUNS_ALONE = True  # without arguments
GOOD_FOR = {  # purpose of shipped models by name; a card may have the same key
    "trio": (
        "small images, and where speed matters: one small network, complete in this package; on domains "
        "it was not trained on, its columns show junk and little else"
    ),
    "world": (
        "photographs of any kind: trained on ImageNet, and on small images as trio is; scores are fitted "
        "on its embeddings"
    ),
}


@command_of(ModelsOptions)
def run(request: ModelsOptions, json_: options.Json = False) -> NextCommand:
    """List the shipped models, or show a model card.

    The subcommand convert turns third-party weights into a checkpoint; see its --help.

    Example:

        curate models
        curate models world
        curate models convert uncertainties.pth.tar -o mine.safetensors
    """
    from curate.training.models import run_models
    from scoring.model_names import DEFAULT

    cards = run_models(request)
    if json_:
        emit(cards)
    elif request.name is not None:
        for line in (*card_lines(cards), *about_lines(str(request.name), cards)):
            show(line)
    elif not cards:
        say("no model ships with this installation; train one with `curate train`, and pass its file as --model")
    else:
        for stem, card in cards.items():
            show(headline(stem, card, is_default=stem == DEFAULT))
            for line in about_lines(stem, card):
                show(f"  {line}")
    return suggest("models", DEFAULT) if request.name is None and DEFAULT in cards else suggest("doctor")


@command_of(ModelsConvertOptions)
def convert(request: ModelsConvertOptions, output: Output) -> NextCommand:
    """Convert third-party weights into a checkpoint; no code in them is run.

    Reads the published models of Pretrained Visual Uncertainties (.pth.tar), whose head becomes the column
    unc_losspred, and weights of any timm model, for --backbone of `curate train` and `curate cache`. Preprocessing is
    as in timm.

    Example:

        curate models convert vit_base_uncertainty.pth.tar -o uncertain.safetensors
        curate models convert weights.pth --backbone vit_small_patch16_224 -o small.safetensors
    """
    from curate.training.models import run_models_convert

    result = run_models_convert(request)
    if output.json:
        emit(result.to_json())
    elif not output.quiet:
        head = f"with the head {result.head}" if result.head else "without a head: `curate train --freeze` adds one"
        say(f"{result.facts['architecture']} at {result.size} pixels, {head}")
        say(f"model {result.digest[:12]}: {request.out}")
    return suggest("models", request.out)


def headline(stem: str, card: dict[str, Any], *, is_default: bool) -> str:
    """Return the columns of a model and its backbone on one line."""
    from scoring.heads import head_from_json
    from scoring.scorers import main_column

    heads = {name: head_from_json(head) for name, head in card["heads"].items()}
    columns = ", ".join(main_column(name, head) for name, head in heads.items() if head.columns)
    backbone, size = card["backbone"]["name"], card["preprocessing"]["size"]
    about = f"{columns or 'embedding'} on {backbone}, {size} px, {card['data_licence']}"
    return f"{stem}{' (default)' if is_default else ''}: {about}"


def about_lines(stem: str, card: dict[str, Any]) -> list[str]:
    """Return the purpose of a model, and its backbone's packages with whether each is installed."""
    from scoring.cards import parts_of
    from scoring.errors import InputError

    good_for = card.get("good for", GOOD_FOR.get(stem))
    lines = [f"good for: {good_for}"] if good_for else []
    for part in parts_of(card):
        if part.packaged is None:
            lines.append(f"backbone {part.name} at {part.size} px: in the checkpoint")
            continue
        package = part.packaged.package
        try:
            part.packaged.read()
            state = "installed, the exact file"
        except InputError as error:
            state = f"not usable: {error}"
        lines.append(f"backbone {part.name} at {part.size} px: in the package {package}, {state}")
    return lines


def card_lines(card: dict[str, Any], indent: int = 0) -> list[str]:
    """Return a card as indented lines, one per value."""
    lines = []
    for name, value in card.items():
        if isinstance(value, dict) and value:
            lines.append(f"{' ' * indent}{name}:")
            lines += card_lines(value, indent + 2)
        else:
            shown = f"{value:.4g}" if isinstance(value, float) else value
            lines.append(f"{' ' * indent}{name}: {shown}")
    return lines
