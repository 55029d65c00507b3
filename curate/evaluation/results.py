"""The result of an evaluation: its measures and all messages about them."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from curate.counted import Grid, Printed
from curate.evaluation.measures import BASELINE, EMBEDDING, INFINITE, SEPARATED, Caveats, Measure
from scoring.metrics.resampling import Interval

CHANCE_LEVEL = 0.5
QUALITY_MEASURES = {  # measures of a score's quality by priority, and their prediction
    "AUROC, linear right": "linear",
    "AUROC, kNN right": "kNN",
    "R-AUROC": "neighbour",
}
NO_SCORES = ("rank average", "class entropy", "Laplacian")  # columns that are not scores of the table
NO_NORM = "the norm of embeddings, another common baseline, is not available: embeddings are stored at unit length"
NO_SLOPE = {  # why a column has no logistic slope
    INFINITE: "it holds infinite values",
    SEPARATED: "it is constant but for a few rows, or a threshold on it is never wrong",
}


def tables(measures: Sequence[Measure], columns: Sequence[str]) -> list[str | Grid]:
    """Return a table for each run of measures with the same columns; measures without values are left out."""
    known = [measure for measure in measures if measure.values]
    shared = [measure for measure in known if EMBEDDING in measure.values]
    lines: list[str | Grid] = []
    if shared:
        lines += [_grid(shared, [EMBEDDING, BASELINE]), ""]
    for section in _sections([measure for measure in known if measure not in shared]):
        names = [name for name in columns if any(name in measure_of_section.values for measure_of_section in section)]
        lines += [_grid(section, names), ""]
    return lines


def _grid(section: Sequence[Measure], columns: Sequence[str]) -> Grid:
    rows = [(_title(measure), *(_cell(measure.values.get(name)) for name in columns)) for measure in section]
    return Grid(rows, header=("measure", *columns))


def meanings(measures: Sequence[Measure]) -> list[str]:
    """Return the meaning of each measure, without repetition, and the leading column."""
    lines: list[str] = []
    earlier: set[str] = set()
    for measure in measures:
        if measure.missing or measure.meaning not in earlier:
            earlier.add(measure.meaning)
            lines += _meaning_lines(measure)
    return lines


def notes(known: Caveats, used: int) -> list[str]:
    """Return notes on the measures, one sentence each."""
    lines = [
        f"{name} is 1/kappa_{name[4:]}, with the same ranks; request it with --column" for name in known.same_ranks
    ]
    if known.other_model is not None:
        model, digest = known.other_model
        lines.append(f"corrupted images were scored by {model}, and the table by another model ({digest[:12]})")
    if known.without_embeddings:
        lines.append(f"measures against labels need embeddings: {known.without_embeddings}")
    if known.n_twins:
        lines.append(
            f"{known.n_twins:,} of {used:,} rows have an exact twin, an embedding equal in every bit; the nearest "
            "neighbour in Recall@1 and R-AUROC, and votes in kNN, are such copies: also measure the table without them"
        )
    lines += [
        f"the {name} prediction is wrong on {wrong:,} and right on {right:,} rows, too few for its intervals: "
        "AUROC has wide ones, areas and slopes too narrow ones; use the p values, or measure more rows"
        for name, (wrong, right) in known.few.items()
    ]
    lines += [f"no logistic slope of {column}: {NO_SLOPE[why]}" for column, why in known.without_slope.items()]
    if known.norm_unknown:
        lines.append(NO_NORM)
    if known.without_votes:
        lines.append(f"{known.without_votes:,} of {used:,} rows have no votes, and are left out of that measure")
    if known.shared:
        lines.append(f"{known.shared:,} rows of --train hold a measured image (equal sha256), and were left out")
    if known.unseen:
        lines.append(f"{known.unseen:,} of {used:,} rows are of classes that --train lacks, and count as wrong")
    if known.unread:
        lines.append(f"{known.unread:,} images could not be read again")
    return lines


def verdict(measures: Sequence[Measure], few: Collection[str] = ()) -> list[str]:
    """Return advice based on the scores and labels; empty without labels.

    A score is better than chance if the 95 % interval of its AUROC lies above 0.5.

    Args:
        measures: all of them.
        few: predictions with too few wrong or right rows to reject a score.
    """
    measure = _quality_measure(measures)
    if measure is None:
        return []
    scores, good = _scores_of(measure)
    wrong = [name for name, interval in scores.items() if interval.high < CHANCE_LEVEL]
    chance_level = [name for name in scores if name not in good and name not in wrong]
    lines = []
    too_few = QUALITY_MEASURES[measure.name] in few
    if chance_level and too_few:
        lines.append(f"cannot be determined, too few errors or too few right rows: {', '.join(chance_level)}")
    elif chance_level:
        lines.append(
            f"no better than chance on your labels: {', '.join(chance_level)} ({measure.name} around {CHANCE_LEVEL:g})"
        )
    if wrong:
        lines.append(f"worse than chance on your labels, most certain where it is wrong: {', '.join(wrong)}")
    if good:
        ties = [each.second for each in measure.differences if each.first == good[0] and each.interval.low <= 0]
        level = [name for name in good[1:] if name in ties]
        lines.append(
            f"use {good[0]}: {measure.name} {_in_words(scores[good[0]])}"
            + (f"; not clearly behind it: {', '.join(level)}" if level else "")
        )
    elif scores and not too_few:
        lines.append(
            "no score of this table predicts errors on your labels: learn one from them with curate fit --label "
            "COLUMN --apply FILE, which writes unc_class"
        )
    entropy = measure.values.get("class entropy")
    if good and entropy is not None and entropy.low > scores[good[0]].high:
        lines.append(
            f"class entropy, which uses labels, is more accurate, {_in_words(entropy)}: unc_class of curate fit --label"
        )
    return lines


def _quality_measure(measures: Sequence[Measure]) -> Measure | None:
    """Return the measured quality of scores that has priority; None without labels."""
    known = {measure.name: measure for measure in measures if measure.values}
    return next((known[name] for name in QUALITY_MEASURES if name in known), None)


def _scores_of(measure: Measure) -> tuple[dict[str, Interval], list[str]]:
    """Return the intervals of scores of the table, and the scores better than chance, best first."""
    known = measure.values.items()
    scores = {name: each for name, each in known if name not in NO_SCORES and each.value == each.value}
    good = [name for name, each in scores.items() if each.low > CHANCE_LEVEL]
    return scores, sorted(good, key=lambda name: -scores[name].value)


def _in_words(value: Interval) -> str:
    return f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"


def _sections(measures: Sequence[Measure]) -> list[list[Measure]]:
    """Return runs of measures with the same columns: one table each."""
    sections: list[list[Measure]] = []
    for measure in measures:
        if sections and set(measure.values) <= set(sections[-1][0].values):
            sections[-1].append(measure)
        else:
            sections.append([measure])
    return sections


def _title(measure: Measure) -> str:
    return measure.name + {"higher": " ↑", "lower": " ↓"}.get(measure.better, "")


def _cell(interval: Interval | None) -> str:
    if interval is None or interval.value != interval.value:
        return "-"
    return f"{_number(interval.value)} [{_number(interval.low)}, {_number(interval.high)}]"


def _number(value: float) -> str:
    value = 0.0 if abs(value) < 0.0005 else value  # never -0
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}"


def _meaning_lines(measure: Measure) -> list[str]:
    """Return the meaning of a measure, its direction, and significant differences of columns."""
    if measure.missing:
        return [f"{measure.name}: not measured: {measure.missing}"]
    better = f"; {measure.better} is better" if measure.better else ""
    lines = [f"{_title(measure)}: {measure.meaning}{better} (n = {measure.n:,})"]
    gaps = measure.differences
    if gaps and not (gaps[0].first == EMBEDDING and gaps[0].interval.low > 0):  # as expected
        clear = [gap.second for gap in gaps if gap.interval.low > 0 or gap.interval.high < 0]
        level = [gap.second for gap in gaps if gap.second not in clear]
        words = [f"ahead of {', '.join(clear)}"] if clear else []
        words += [f"not clearly ahead of {', '.join(level)}"] if level else []
        lines.append(f"  {gaps[0].first} is {' and '.join(words)}")
    worst = max(measure.p.values(), default=0.0)
    if measure.p and worst > 0.01:
        shown = ", ".join(f"{column} {p:.3f}" for column, p in measure.p.items() if p > 0.01)
        lines.append(f"  could be chance level (permutation test, p): {shown}")
    return lines


@dataclass
class Evaluation(Printed):
    """The result of ``curate evaluate``.

    Attributes:
        table: its path.
        rows: number of rows in the table.
        used: number of rows measured.
        left_out: number of rows by reason.
        columns: the scores in display order, baselines last.
        measures: in display order.
        curves: abstained accuracy by prediction and column, one entry per coverage.
        settings: that determine the numbers: folds, repeats, seed, ...
        caveats: further notes for the reader.
    """

    table: str
    rows: int
    used: int
    left_out: dict[str, int]
    columns: list[str]
    measures: list[Measure] = field(default_factory=list)
    curves: dict[str, dict[str, list[dict[str, float | None]]]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    caveats: Caveats = field(default_factory=Caveats)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        record = {name: value for name, value in self.__dict__.items() if name != "measures"}
        measures = [measure.to_json() for measure in self.measures]
        return {**record, "caveats": asdict(self.caveats), "measures": measures}

    def notes(self) -> list[str]:
        """Return notes on the measures, one sentence each."""
        return notes(self.caveats, self.used)

    def verdict(self) -> list[str]:
        """Return advice based on the scores and labels; empty without labels."""
        return verdict(self.measures, self.caveats.few)

    @property
    def no_score_predicts(self) -> bool:
        """Whether the verdict is that no score of the table predicts errors on the labels."""
        measure = _quality_measure(self.measures)
        if measure is None or QUALITY_MEASURES[measure.name] in self.caveats.few:
            return False
        scores, good = _scores_of(measure)
        return bool(scores) and not good

    def lines(self) -> list[str | Grid]:
        """Return the printed lines, tables at full width."""
        learned = self.settings.get("rows learned from")
        return [
            f"{self.used:,} of {self.rows:,} rows measured: {self.table}",
            *([f"{learned:,} rows learned from: {self.settings['train']}"] if learned else []),
            *(f"  left out: {n:,} {reason}" for reason, n in self.left_out.items()),
            *tables(self.measures, self.columns),
            *meanings(self.measures),
            *(f"note: {note}" for note in self.notes()),
            *(f"verdict: {line}" for line in self.verdict()),
        ]
