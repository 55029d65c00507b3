"""A comparison of two tables in words."""

from pathlib import Path
from typing import TYPE_CHECKING

from curate.commands.printing import show, show_table
from curate.counted import counted

if TYPE_CHECKING:
    from curate.comparison.results import ColumnShift, Comparison, EmbeddingShift, Told
    from scoring.metrics import Interval

N_TOLD = 3
N_CLUSTERS = 8


def report(found: "Comparison") -> None:
    """Print what differs: the verdict last, where a person looks."""
    names = _names(found)
    for name, n, taken in zip(found.tables, found.rows, found.sampled, strict=True):
        part = "" if taken == n else f", {taken:,} of them compared (by a hash of their keys)"
        show(f"{name}: {counted(n, 'row')}{part}")
    for note in found.notes:
        show(f"note: {note}")
    if found.columns:
        show("")
        header = ["column", "distance", *names, "std. difference", "p"]
        show_table([_line(each) for each in found.columns], header=header)
    for side, only in enumerate(found.only_in):
        if only:
            show(f"only in {names[side]}: {', '.join(only)}")
    for name, why in found.left_out.items():
        show(f"not compared: {name} {why}")
    if found.clusters:
        _show_clusters(found, names)
    for side, told in enumerate(found.tell):
        if told:
            show(f"most unlike {names[1 - side]}, in {names[side]}: {_keys(told)}")
    show("")
    for line in verdict(found):
        show(line)


def verdict(found: "Comparison") -> list[str]:
    """Return what the comparison comes to: columns, embeddings, and the gate."""
    from curate.comparison.results import SIGNIFICANT

    shifted = [each.name for each in found.columns if each.adjusted_p <= SIGNIFICANT]
    more = f" and {len(shifted) - 8:,} more" if len(shifted) > 8 else ""
    lines = []
    if found.columns:
        asked = counted(len(found.columns), "column")
        lines.append(
            f"{len(shifted):,} of {asked} differ by more than chance: {', '.join(shifted[:8])}{more}"
            if shifted
            else f"none of {asked} differs by more than chance (p adjusted for all of them)"
        )
    if found.embedding is None:
        lines.append(f"embeddings were not compared: {found.without_embedding}")
        return lines
    lines += _embedding_lines(found.embedding)
    limit = found.settings.get("fail_above")
    if limit is not None:
        beyond = "above" if found.embedding.auroc.value > limit else "not above"
        lines.append(
            f"--fail-above {limit:g}: {'failed' if found.failed else 'passed'}, the AUROC is {beyond} it"
            + ("" if found.failed or beyond == "not above" else " but can be chance")
        )
    return lines


def _embedding_lines(shift: "EmbeddingShift") -> list[str]:
    from curate.comparison.results import SIGNIFICANT

    auroc = _interval(shift.auroc)
    lines = [
        f"a classifier tells the embeddings apart with AUROC {auroc}, p {shift.p:.3f}"
        + ("" if shift.p <= SIGNIFICANT else ": no more than chance"),
        f"MMD^2 {shift.mmd:.5f} above chance, p {shift.mmd_p:.3f}",
    ]
    if shift.shared:
        lines.append(
            f"{counted(shift.shared, 'image is', 'images are')} in both; an image in both counts on both sides"
        )
    return lines


def _line(each: "ColumnShift") -> list[str]:
    first = second = ""
    if each.means is not None:
        first, second = (f"{value:.4g}" for value in each.means)
    elif each.moved:
        first, second = (", ".join(f"{one.value[:24]} {share(one):.1%}" for one in each.moved) for share in _SHARES)
    if max(each.missing) > 0:
        first, second = (
            f"{text} ({missing:.1%} missing)" if missing else text
            for text, missing in zip((first, second), each.missing, strict=True)
        )
    known = each.standardised is not None and each.standardised == each.standardised
    return [each.name, f"{each.distance:.3f}", first, second, f"{each.standardised:+.2f}" if known else "", _p(each)]


_SHARES = (lambda one: one.first, lambda one: one.second)


def _p(each: "ColumnShift") -> str:
    return f"{each.adjusted_p:.3f}"


def _show_clusters(found: "Comparison", names: list[str]) -> None:
    from curate.comparison.results import SIGNIFICANT

    differing = [each for each in found.clusters if each.adjusted_p <= SIGNIFICANT]
    show("")
    if not differing:
        show(f"{counted(len(found.clusters), 'cluster')} of both: no share differs by more than chance")
        return
    header = ["cluster", f"share of {names[0]}", f"share of {names[1]}", "", "such as"]
    rows = []
    for each in differing[:N_CLUSTERS]:
        lacking = f"{names[('first', 'second').index(each.lacking)]} lacks it" if each.lacking else ""
        larger = each.examples[int(each.second.value > each.first.value)]
        shares = [_interval(one, percent=True) for one in (each.first, each.second)]
        rows.append([str(each.number), *shares, lacking, _keys(larger)])
    show_table(rows, header=header)
    n = len(found.clusters)
    show(f"the shares of {len(differing):,} of {counted(n, 'cluster')} of both differ by more than chance")


def _keys(told: "list[Told] | tuple[Told, ...]") -> str:
    return ", ".join(each.key for each in told[:N_TOLD])


def _interval(value: "Interval", *, percent: bool = False) -> str:
    shape = "{:.1%} [{:.1%}, {:.1%}]" if percent else "{:.3f} [{:.3f}, {:.3f}]"
    return shape.format(*value)


def _names(found: "Comparison") -> list[str]:
    """Return a short name for each table: its own, or first and second where these are alike."""
    names = [Path(name).stem for name in found.tables]
    return names if names[0] != names[1] else ["first", "second"]
