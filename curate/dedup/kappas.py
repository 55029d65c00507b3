"""Which kappa says how sure the model is of an image, where a table has several."""

from curate.table import Table

BEST = "kappa_visimsiam"  # of several, the one that told copies and originals apart best (docs/dedup.md)


def kappa_of(table: Table) -> str | None:
    """Return the kappa of a table: of the model's own method, else the best that was measured, else the only one.

    None where there is none, or several of which none is better than the others.
    """
    kappas = [name for name in table.schema.names if name.startswith("kappa_")]
    model = table.metadata.get("model")
    own = f"kappa_{model.get('method')}" if isinstance(model, dict) else ""
    for name in (own, BEST):
        if name in kappas:
            return name
    return kappas[0] if len(kappas) == 1 else None
