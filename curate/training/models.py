"""`curate.models`: the models that ship, and the cards of others."""

from typing import Any

from curate.options.function import callable_of
from curate.training.options import ModelsOptions


def run_models(options: ModelsOptions) -> dict[str, Any]:
    """Return the card of a model; without a name the cards of all models that ship, by name.

    Raises:
        InputError: for a name that no model has, or a file whose contents do not match its digest.
    """
    from scoring.checkpoint import find_checkpoint, read_checkpoint, shipped_models

    if options.name is None:
        return {stem: read_checkpoint(path)[0] for stem, path in shipped_models().items()}
    return read_checkpoint(find_checkpoint(options.name))[0]


models = callable_of(ModelsOptions, run_models)
