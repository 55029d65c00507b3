"""Monitoring of a training run: one CSV row per epoch, probes on labelled images, and the best model so far."""

import csv
import hashlib
import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from curate.manifest.text import json_object
from curate.reporting.plots.course import FILE, Row, read_course
from scoring.atomic import AtomicFile
from scoring.errors import InputError
from scoring.metrics.neighbours import knn_vote, nearest
from scoring.metrics.ranking import auroc
from scoring.model import ScoringModel
from scoring.scorers import main_column
from trainers.half import autocast

if TYPE_CHECKING:
    from curate.training.recipe import TrainRequest
    from trainers.monitor import Epoch

RUN = "run.json"
VOTERS, TEMPERATURE = 20, 0.07
MEASURES = ("knn", "recall_at_1", "r_auroc")  # of a probe; higher is better
FEWEST = 3  # images of a probe


@dataclass(frozen=True)
class Probe:
    """Labelled images for measuring a model during training, not for training.

    Attributes:
        pixels: model input, uint8, shape (N, 3, S, S).
        labels: int64, shape (N,).
        precision: of the backbone: fp32, bf16 or fp16.
        every: epochs between two measurements; the last epoch is always measured.
    """

    pixels: Tensor
    labels: Tensor
    precision: str = "fp32"
    every: int = 1

    def is_due(self, number: int, epochs: int) -> bool:
        """Return whether the model is measured after this epoch."""
        return number % self.every == 0 or number == epochs

    @torch.inference_mode()
    def measure(self, model: ScoringModel) -> Row:
        """Return accuracies of the labels by the embedding and the first score of a model.

        Returns:
            ``knn``: accuracy of the vote of the 20 nearest other images, each weighing e^(cosine / 0.07);
            ``recall_at_1``: share of images whose nearest other image has their label; ``r_auroc``: AUROC of the score
            for that, None without a score or without both cases.
        """
        device, outputs = model.mean.device, []
        for batch in self.pixels.split(256):
            with autocast(device, self.precision):
                outputs.append(model(batch.to(device).contiguous(memory_format=torch.channels_last)))
        embedding = torch.cat([each.embedding.float().cpu() for each in outputs])
        cosine, index = nearest(embedding, embedding, min(VOTERS, len(embedding) - 1), same=True)
        near = self.labels[index]
        voted = knn_vote(cosine, near, temperature=TEMPERATURE)
        is_right = (near[:, 0] == self.labels).numpy()
        measured: Row = {"knn": float((voted == self.labels).float().mean()), "recall_at_1": float(is_right.mean())}
        score = next((main_column(*head) for head in model.spec.heads.items() if head[1].columns), None)
        if score is not None and is_right.any() and not is_right.all():
            values = torch.cat([batch.columns[score].float().cpu() for batch in outputs]).double().numpy()
            certainty = values if score.startswith("kappa_") else -values
            measured["r_auroc"] = auroc(certainty, is_right)
        return measured


Best = tuple[str, Callable[["Epoch", Row], None]]  # the measure that chooses the best model, and what saves it


class RunCourse:
    """Writes the course of one run to a folder; a resumed run keeps the rows of finished epochs.

    Args:
        folder: created if missing.
        run: settings that identify the run, as plain JSON.
        schedule: settings that may change when a run is resumed.
        probe: labelled images, or None.
        best: the best model to keep, or None.

    Raises:
        InputError: if the folder holds the course of another run, or cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        run: Mapping[str, Any],
        *,
        schedule: Mapping[str, Any] | None = None,
        probe: Probe | None = None,
        best: Best | None = None,
    ) -> None:
        self._folder, self._probe, self._best = folder, probe, best
        self._run = {"digest": _digest(run), "run": run, "schedule": schedule}
        self._rows: list[Row] = []
        self._board: Any = None
        self._since: tuple[float, int] = (time.monotonic(), 0)
        if (folder / FILE).exists() or (folder / RUN).exists():
            if _recorded(folder / RUN).get("digest") != self._run["digest"]:
                raise self._refusal()
            self._rows = read_course(folder)

    def _refusal(self) -> InputError:
        return InputError(f"{self._folder} holds the course of another run; choose another folder with --course")

    def begin(self, step: int) -> None:
        """Drop the rows after a step, since their epochs are repeated; InputError for a new run of another schedule."""
        if step == 0 and self._rows and _recorded(self._folder / RUN).get("schedule") != self._run["schedule"]:
            raise self._refusal()
        with AtomicFile(self._folder / RUN, overwrite=True) as file:
            file.write(json.dumps(self._run, indent=1, sort_keys=True).encode())
        self._rows = [row for row in self._rows if (row["step"] or 0) <= step]
        self._since = time.monotonic(), step
        self._write()
        if find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(self._folder), purge_step=step + 1)

    def add(self, epoch: "Epoch") -> None:
        """Measure the model if due, write the row of an epoch, and save the model if it is the best."""
        (since, before), now = self._since, time.monotonic()
        speed = (epoch.step - before) / max(now - since, 1e-9)
        row: Row = {"epoch": epoch.number, "step": epoch.step, "lr": epoch.lr, "steps_per_second": speed}
        row |= epoch.measures
        if self._probe is not None and self._probe.is_due(epoch.number, epoch.epochs):
            row |= self._probe.measure(epoch.model)
        self._rows.append(row)
        self._write()
        if self._board is not None:
            for name, value in row.items():
                if value is not None and name not in ("epoch", "step"):
                    self._board.add_scalar(name, value, epoch.step)
            self._board.flush()
        if self._best is not None:
            measure, save = self._best
            *earlier, new = (row.get(measure) for row in self._rows)
            if new is not None and all(old is None or old < new for old in earlier):
                save(epoch, row)
        self._since = time.monotonic(), epoch.step

    def _write(self) -> None:
        names = list(dict.fromkeys(name for row in self._rows for name in row)) or ["epoch", "step"]
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        counts = ("epoch", "step")  # integers that are read as floats when a run is resumed
        writer.writerows({**row, **{name: f"{row[name]:.0f}" for name in counts}} for row in self._rows)
        with AtomicFile(self._folder / FILE, overwrite=True) as file:
            file.write(text.getvalue().encode())


def is_begun(folder: Path, run: Mapping[str, Any], epochs: int) -> bool:
    """Return whether a folder holds the unfinished course of this run."""
    if _recorded(folder / RUN).get("digest") != _digest(run) or not (folder / FILE).exists():
        return False
    rows = read_course(folder)
    return bool(rows) and (rows[-1]["epoch"] or 0) < epochs


def _digest(run: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()


def _recorded(path: Path) -> dict[str, Any]:
    """Return the settings recorded in a folder; empty if unreadable."""
    try:
        return json_object(path.read_bytes()) or {}
    except OSError:
        return {}


def load_probe(
    table: Sequence[str], request: "TrainRequest", model: ScoringModel, *, precision: str, line: Callable[[str], None]
) -> Probe:
    """Return labelled images for measuring, decoded as model input.

    Args:
        table: the source, as ``data`` of ``curate train``.
        request: how to read the source, the column of classes, and how often to measure.
        model: the trained model.
        precision: of its backbone.
        line: called with a text on excluded images.

    Raises:
        InputError: if there are too few images, or they have no labels.
    """
    from curate.training.dataset import label_column, open_source, report_failures, white_of
    from trainers.data import load_training_set

    manifest = open_source(table, replace(request, limit=None))
    labels = label_column(manifest, request.label, "--measure-on").to_pylist()
    if manifest.n_rows < FEWEST:
        raise _too_few(manifest.n_rows)
    try:
        images = load_training_set(
            manifest.readers(0, manifest.n_rows),
            labels,
            n=manifest.n_rows,
            preprocessing=model.spec.preprocessing,
            white=white_of(manifest, request.white, line),
        )
    except InputError as error:
        raise InputError(f"--measure-on: {error}") from None
    report_failures(images.failures, line)
    if images.n < FEWEST or images.labels is None:
        raise _too_few(images.n)
    return Probe(images.pixels, images.labels, precision, request.every)


def _too_few(n: int) -> InputError:
    return InputError(f"expected at least {FEWEST} labelled images in --measure-on, got {n}; pass more")
