"""`curate.models` and `curate.models_convert`: shipped models, cards, and conversion of published weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.options.function import callable_of
from curate.training.options import ModelsConvertOptions, ModelsOptions
from curate.training.train import check_out


def run_models(options: ModelsOptions) -> dict[str, Any]:
    """Return the card of a model; without a name the cards of all shipped models, by name.

    Raises:
        InputError: for an unknown name, or a file that does not match its digest.
    """
    from scoring.cards import find_checkpoint, read_card, shipped_models

    if options.name is None:
        return {stem: read_card(path) for stem, path in shipped_models().items()}
    return read_card(find_checkpoint(options.name))


models = callable_of(ModelsOptions, run_models)


@dataclass(frozen=True)
class ConvertResult:
    """The result of converting a checkpoint.

    Attributes:
        path: of the checkpoint.
        digest: of the model.
        size: side of its images in pixels.
        head: name of the converted head; None for weights of a backbone alone.
        facts: facts on the model in the file.
        metrics: measures in the file.
    """

    path: Path
    digest: str
    size: int
    head: str | None
    facts: dict[str, Any]
    metrics: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        return {"path": str(self.path), "digest": self.digest, **self.facts, **self.metrics}


def run_models_convert(options: ModelsConvertOptions) -> ConvertResult:
    """Convert published weights to a checkpoint without running code from them.

    Raises:
        InputError: for a file without such weights, or an output that cannot be written.
    """
    from scoring.checkpoint import save_checkpoint
    from scoring.convert import HEAD, convert

    file, out = Path(options.file), Path(options.out)
    check_out(out, options.overwrite)
    model, facts = convert(file, options.backbone)
    metrics = {"metric": facts.pop("metric")} if "metric" in facts else {}
    card = {
        "method": HEAD if model.heads else "timm",
        "training": {"converted from": facts},
        "metrics": metrics,
        "data_licence": options.licence,
    }
    digest = save_checkpoint(out, model, card, overwrite=options.overwrite)
    size = model.spec.preprocessing.size
    return ConvertResult(out, digest, size, HEAD if model.heads else None, dict(facts), metrics)


models_convert = callable_of(ModelsConvertOptions, run_models_convert)
