"""Which model made a table's embeddings: a fit is added to that one."""

from pathlib import Path

from curate.tables.provenance import model_of
from curate.tables.table import Table
from scoring.checkpoint import find_checkpoint, load_model, read_header, shipped_models
from scoring.errors import InputError
from scoring.model_names import is_published


def digest_of(model: str | Path) -> str:
    """Return the digest of the model whose embeddings a checkpoint gives: a fitted one has its base's."""
    card = load_model(model)[1] if is_published(model) else read_header(find_checkpoint(model))
    return str(card.get("base", card["digest"]))


def base_of(table: Table, model: str | Path | None) -> str | Path:
    """Return the model that made a table's embeddings, as ``load_model`` takes it.

    Args:
        table: scored.
        model: as named by the user; None looks among those that ship.

    Raises:
        InputError: if it is another model, or none is named and none that ships made them.
    """
    made_by = model_of(table)
    if model is not None:
        check_same(table, model)
        return model
    for path in shipped_models().values():
        if made_by and digest_of(path) == made_by:
            return path
    who = f"by the model {made_by[:12]}..., which does not ship" if made_by else "by a model that it does not name"
    raise InputError(f"{table.path} was scored {who}; name it with --model, as it was when scoring")


def check_same(table: Table, model: str | Path) -> None:
    """Refuse a model whose embeddings cannot be compared with a table's.

    Raises:
        InputError: naming both; a table that does not say who made its embeddings is taken at its word.
    """
    made_by, digest = model_of(table), digest_of(model)
    if made_by and made_by != digest:
        raise InputError(
            f"expected the model that scored {table.path} ({made_by[:12]}...), got {model} ({digest[:12]}...): their "
            "embeddings cannot be compared; name the other, or score the images with this one"
        )
