"""Training curves: loss, learning rate, and measures of the probe, by epoch."""

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from curate.manifest.store_path import path_to_read
from curate.reporting.plots.request import Numbers, PlotRequest
from curate.sheets.chart import Curve, Panel, draw_chart
from curate.sheets.style import WIDTH
from scoring.errors import InputError
from scoring.lookup import require_known

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARES = ("knn", "recall_at_1", "r_auroc", "accuracy")  # in [0, 1], and drawn together
PANEL = 34.0  # mm
FILE = "course.csv"
Row = dict[str, float | None]


@dataclass
class TrainingCourse(Numbers):
    """Measures of a run by epoch.

    Attributes:
        epoch: numbers of the epochs, shape (E,).
        measures: name -> value after each epoch, shape (E,); NaN if not measured.
    """

    epoch: list[float]
    measures: dict[str, list[float]]

    @classmethod
    def measure(cls, request: PlotRequest) -> Self:
        """Read the folder of ``curate train --course``."""
        path = Path(str(path_to_read(request.table)))
        rows = read_course(path.parent if path.is_file() else path)
        if not rows:
            raise InputError(f"{path} has no epoch yet; draw it after the first")
        names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in ("epoch", "step")]
        for name in request.column:
            require_known(name, names, "the course has no", "it has")
        usual = [name for name in names if name in ("loss", "lr", *SHARES)]
        chosen = list(request.column) or usual
        values = {name: [_number(row.get(name)) for row in rows] for name in chosen}
        return cls([_number(row["epoch"]) for row in rows], values)

    def draw(self, *, title: str = "", width: float = WIDTH) -> "Figure":
        """Draw one panel per measure, measures in [0, 1] together, without missing points."""
        shares = {name: values for name, values in self.measures.items() if name in SHARES}
        groups = [{name: values} for name, values in self.measures.items() if name not in SHARES]
        panels = []
        for group in [*groups, *([shares] if shares else [])]:
            curves = []
            for name, values in group.items():
                taken = [(at, value) for at, value in zip(self.epoch, values, strict=True) if math.isfinite(value)]
                curves.append(Curve(name, [at for at, _ in taken], [value for _, value in taken]))
            is_shares = group is shares
            name = "on the probe" if is_shares else next(iter(group)).replace("_", " ")
            panels.append(Panel(curves, "epoch", name, percent=is_shares, legend=is_shares, height=PANEL))
        return draw_chart(panels, title=title, width=width)


def read_course(folder: str | Path) -> list[Row]:
    """Return the rows of a course, one per epoch, None for a missing measure; InputError if it is not valid."""
    path = Path(folder) / FILE
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [
                {name: float(value) if value else None for name, value in row.items()} for row in csv.DictReader(file)
            ]
    except FileNotFoundError:
        raise InputError(f"expected a folder that curate train --course wrote, got no {FILE} in {folder}") from None
    except (OSError, ValueError, TypeError, AttributeError, csv.Error) as error:
        raise InputError(f"{path} is not the course of a run ({error}); remove it, or choose another folder") from None
    if any(row.get("step") is None or row.get("epoch") is None for row in rows):
        raise InputError(f"{path} is not the course of a run (no step or epoch); remove it, or choose another folder")
    return rows


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
