"""Verify a subset: derive it again from its receipt; on request also earlier receipts and pixels."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from curate.calibration.verify import verify_calibration
from curate.columns import KEY
from curate.lineage.options import VerifyOptions
from curate.lineage.pixels import PixelCheck, amount, check_pixels
from curate.manifest.store_path import path_to_read
from curate.options.function import callable_of
from curate.options.values import several
from curate.policies import verify as one
from curate.policies.chain import Link, links, receipt_of
from curate.policies.differences import Verification
from curate.policies.findings import OTHER_CHANCES, Finding
from curate.policies.moved import Searched
from curate.tables.table import Table, open_table
from scoring.errors import InputError


@dataclass
class VerifiedStep:
    """A receipt of a chain that was derived again.

    Attributes:
        policy: its name.
        receipt: where it lies.
        verification: what came of it.
    """

    policy: str
    receipt: str
    verification: Verification


@dataclass
class Proof(Verification):
    """The result of deriving a subset again, with the steps before it.

    Attributes:
        receipt: where it lies.
        earlier: the steps before the last, the latest first; empty unless the chain was requested.
        origin: what the first of them read: kind, rows, model, source; empty unless the chain was requested.
        pixels: images compared with their digests; None unless requested.
    """

    receipt: str = ""
    earlier: list[VerifiedStep] = field(default_factory=list)
    origin: dict[str, Any] = field(default_factory=dict)
    pixels: PixelCheck | None = None

    @property
    def identical(self) -> bool:
        """Whether nothing differs, in any step, nor in the pixels."""
        steps = all(step.verification.identical for step in self.earlier)
        return super().identical and steps and (self.pixels is None or self.pixels.identical)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {"identical": self.identical, **asdict(self)}


def run_verify(options: VerifyOptions) -> Proof:
    """Apply the receipt's policy to its input again and compare with the files next to the receipt.

    Returns:
        whether all is identical, and what is not. Rows may be in another order in the input.

    Raises:
        InputError: if a receipt, an input or an output is missing or cannot be read.
    """
    roots = several(options.root)
    if options.source is not None and options.pixels is None:
        raise InputError("--source is only used with --pixels; add --pixels all, or leave it out")
    n = amount(options.pixels) if options.pixels is not None else None
    path = receipt_of(path_to_read(options.receipt))
    first = one.verify(path, options.table, roots=roots)
    proof = Proof(**vars(first), receipt=str(path))
    if not options.chain and options.pixels is None:
        return proof
    searched = Searched(path.parent, tuple(map(Path, roots)))
    steps = list(links(path, searched, None if options.table is None else path_to_read(options.table)))
    if options.chain:
        proof.earlier = [_again(step, roots) for step in steps[1:]]
    scored = _first(steps[-1])
    proof.origin = _origin(scored)
    if options.pixels is not None:
        held = tuple(Path(each) for each in roots)
        proof.pixels = check_pixels(scored, n, seed=options.seed, source=options.source, roots=held)
    return proof


verify = callable_of(VerifyOptions, run_verify)


def _again(step: Link, roots: Sequence[str | Path]) -> VerifiedStep:
    if not step.is_calibration:
        return VerifiedStep(step.policy, str(step.path), one.verify(step.path, roots=roots))
    if step.source is None:
        raise _lost(step)
    applied = verify_calibration(step.path, str(step.source))
    verification = Verification(applied.rows, input=str(step.source))
    for words in applied.problems:
        verification.problem(Finding(OTHER_CHANCES, words))
    return VerifiedStep(step.policy, str(step.path), verification)


def _lost(step: Link) -> InputError:
    return InputError(f"the input {step.noted['input']['path']} of {step.path} no longer exists; see --root")


def _first(step: Link) -> Table:
    """The table that the first step read."""
    if step.source is None:
        raise _lost(step)
    return open_table(step.source, require=[KEY])


def _origin(table: Table) -> dict[str, Any]:
    """Return how a table that no policy wrote was made, from its own metadata."""
    about = table.metadata
    model = about.get("model")
    facts = {
        "table": str(table.path),
        "kind": about.get("kind", "table"),
        "n_rows": table.n_rows,
        "model": model.get("method") if isinstance(model, dict) else None,
        "model_digest": model.get("digest") if isinstance(model, dict) else None,
        "source": about.get("source"),
        "curate": about.get("curate"),
    }
    return {name: value for name, value in facts.items() if value is not None}
