"""The analyses of VI-SimSiam's appendices, on any table that a model has scored: what does its certainty follow?

    python examples/kappa_analyses.py histogram scores.parquet --label label [--column kappa_visimsiam] [--chart FILE]
    python examples/kappa_analyses.py views scores.parquet --label label --source images.parquet
    python examples/kappa_analyses.py crops scores.parquet --label label --source images.parquet
    python examples/kappa_analyses.py cosines scores.parquet --label label --source images.parquet
    python examples/kappa_analyses.py sheet scores.parquet --source images.parquet --images 4 --chart FILE
    python examples/kappa_analyses.py probes mine.parquet theirs.parquet --label label

- histogram: the column where a cross-validated linear classifier is right and where it is wrong, and the logistic
  regression between, with a permutation test (figure 9, table 4, appendices C and J).
- views: the column under blur, jitter, grey and random crops, where classified right and where wrong (table 3).
- crops: is an image classified better by the most certain of 30 random crops of it (table 5, appendix E)?
- cosines: does the cosine of an image's random views report what the column shows (appendix K)?
- sheet: images, their most and least certain of 30 random crops and every augmentation, with the column (figures 7, 8).
- probes: tables of the same rows by several models: linear probes with 1, 10 and 100 % of the labels of half the rows
  (tables 7 and 8: transfer, where the rows are of another data set; and few labels).

`curate evaluate` gives the slope, the means and the tests with intervals; `curate sheet` the galleries of the most and
least certain. Tables are read as `curate evaluate --degrade` does: a row whose image is no longer what was scored is
left out.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from analysis_measures import (
    DRAWS,
    Eye,
    Floats,
    Pictures,
    best_crop,
    by_view,
    cosines,
    few_labels,
    histogram,
    probe_of,
    shown_views,
)

from curate.columns import is_less_certain
from curate.evaluation.correctness import LINEAR, judge, label_tensor
from curate.evaluation.joined import class_names, named_column
from curate.evaluation.rows import MeasuredRows, embeddings, sampled, select_rows, squares
from curate.sheets.chart import Curve, Panel, draw_chart
from curate.sheets.style import drawing, new_axes, new_figure, save_chart
from curate.statistics.degradations import resize
from curate.tables.needs import default_column
from curate.tables.table import open_table
from scoring.cards import read_header, shipped_models
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.metrics.ranking import auroc, r_auroc, spearman
from scoring.scorers import columns_of

TWICE = 2  # images are held at so many times the model's side
SQUARE = 15.0  # mm of an image of a sheet
SHARES = (0.01, 0.1, 1.0)  # of the labels


def rows_of(a: argparse.Namespace, path: Path) -> tuple[MeasuredRows, np.ndarray, str]:
    """Return the labelled rows to study, their classes, and the column."""
    table = open_table(path)
    kappas = [name for name in ("kappa_visimsiam", *table.schema.names) if name.startswith("kappa_")]
    column = a.column or next((name for name in kappas if name in table.schema.names), None) or default_column(table)
    rows = select_rows(table, [column])
    if a.label:
        codes, _ = class_names(named_column(table, a.label, "--label", None), a.label)
    else:
        codes = np.zeros(table.n_rows, np.int64)
    rows = rows.part(codes[rows.index] >= 0)
    rows = rows.part(sampled(rows, a.images, seed=a.seed))
    return rows, label_tensor(codes[rows.index]).numpy(), column


def shown(a: argparse.Namespace) -> tuple[Eye, Pictures]:
    """Return the model, and the images behind the rows."""
    rows, label, column = rows_of(a, a.tables[0])
    shipped = {read_header(path)["digest"]: name for name, path in shipped_models().items()}
    name = a.model or shipped.get(rows.table.metadata.get("model", {}).get("digest"))
    if name is None:
        raise InputError(f"{a.tables[0]} was scored by a model that does not ship; name its checkpoint with --model")
    model, _ = load_model(name)
    if column not in columns_of(model.spec.heads):
        raise InputError(f"{column} is no column of {name}; name another with --column")
    side = TWICE * model.spec.preprocessing.size
    at, pixels = [], []
    for row, square in squares(rows.table, rows.index.tolist(), most=side, source=a.source):
        at.append(int(np.searchsorted(rows.index, row)))
        picture = torch.from_numpy(square).permute(2, 0, 1)[None].float()
        pixels.append(resize(picture, side).round().to(torch.uint8))
    if len(at) < 2:
        raise InputError(f"expected images behind the rows of {a.tables[0]}, got {len(at)}; check --source")
    order = np.argsort(at)
    return Eye(model.eval(), column), Pictures(torch.cat(pixels)[order], label[at][order], int(label.max()) + 1)


def halves(pictures: Pictures, seed: int) -> tuple[Pictures, Pictures]:
    """Return images to learn a classifier from, and others to ask."""
    order = np.random.default_rng(seed).permutation(len(pictures))
    return pictures.take(np.sort(order[: len(order) // 2])), pictures.take(np.sort(order[len(order) // 2 :]))


def sign_of(column: str) -> float:
    """Return 1 where a higher column is more certain, -1 where it is less."""
    return -1.0 if is_less_certain(column) else 1.0


def spread(values: Floats) -> str:
    """Return mean and standard deviation in words."""
    return f"{values.mean():.5g} +- {values.std():.3g}"


def tell_histogram(a: argparse.Namespace) -> None:
    """Print bins, means and the regression, and draw them."""
    rows, label, column = rows_of(a, a.tables[0])
    embedded = embeddings(rows)
    if isinstance(embedded, str):
        raise InputError(embedded)
    right = judge(embedded[0], torch.from_numpy(label), folds=5, seed=a.seed).right[LINEAR]
    values = rows.raw[column]
    said = histogram(sign_of(column) * values, right)
    print(f"| {column} | right | wrong | share right |\n| --- | --- | --- | --- |")
    for at in range(len(said.right)):
        low, high = (sign_of(column) * said.edges[at + step] for step in (0, 1))
        share = "[{1:.3f}, {2:.3f}]".format(*said.accuracy[at])
        print(f"| {low:.5g} to {high:.5g} | {said.right[at]} | {said.wrong[at]} | {said.accuracy[at][0]:.3f} {share} |")
    print(f"\n{column}: right {spread(values[right])}, wrong {spread(values[~right])}")
    print(f"slope {sign_of(column) * said.coefficient:.4g} per unit towards being right, p {said.p:.3f}")
    if a.chart:
        middle = ((said.edges[1:] + said.edges[:-1]) / 2).tolist()
        shares = said.accuracy.T
        both = [Curve("right", middle, said.right.tolist()), Curve("wrong", middle, said.wrong.tolist())]
        line = Curve("logistic regression", middle, said.curve(np.array(middle)).tolist())
        dots = Curve("share right", middle, shares[0].tolist(), shares[1].tolist(), shares[2].tolist())
        name = column if sign_of(column) > 0 else f"minus {column}"
        panels = [Panel(both, name, "pictures", zero=True), Panel([dots, line], name, "share right", percent=True)]
        save_chart(draw_chart(panels, title=f"{column} and a linear classifier being right"), a.chart, overwrite=True)
        print(f"drawn as {a.chart}")


def tell_views(a: argparse.Namespace) -> None:
    """Print the column under each augmentation."""
    eye, pictures = shown(a)
    learned, tested = halves(pictures, a.seed)
    probe = probe_of(eye, learned)
    rows, _ = eye.look(tested.pixels)
    right = probe.predict(rows.numpy()).argmax(1) == tested.label
    columns = by_view(eye, tested, right, seed=a.seed)
    plain, sign = columns["plain"]["all"][0], sign_of(eye.column)
    print(f"{eye.column}, {len(tested)} images, {right.mean():.1%} classified right; up to {DRAWS} draws of each view")
    print("| view | all | right | wrong | images less certain |\n| --- | --- | --- | --- | --- |")
    for name, by in columns.items():
        less = "" if name == "plain" else f"{(sign * by['all'] < sign * plain).mean():.1%}"
        print(f"| {name} | " + " | ".join(spread(by[which]) for which in ("all", "right", "wrong")) + f" | {less} |")


def tell_crops(a: argparse.Namespace) -> None:
    """Print how good the most certain crop is."""
    eye, pictures = shown(a)
    learned, tested = halves(pictures, a.seed)
    probe = probe_of(eye, learned)
    crops = [best_crop(eye, probe, tested, sign=sign_of(eye.column), n=a.crops, seed=seed) for seed in range(a.seeds)]
    print(f"{len(tested)} images, {a.crops} crops of each, {a.seeds} draws\n")
    print(f"| | accuracy | mean {eye.column} |\n| --- | --- | --- |")
    print(f"| as they are | {crops[0].plain[0]:.4f} | {crops[0].plain[1]:.5g} |")
    for name, each in (
        ("one random crop", [c.random for c in crops]),
        ("the most certain crop", [c.best for c in crops]),
    ):
        shares, means = np.array(each).T
        print(f"| {name} | {shares.mean():.4f} +- {shares.std():.4f} | {spread(means)} |")


def tell_cosines(a: argparse.Namespace) -> None:
    """Print what the agreement of views says next to the column."""
    eye, pictures = shown(a)
    rows, values = eye.look(pictures.pixels)
    agree, certainty = cosines(eye, pictures, seed=a.seed), sign_of(eye.column) * values
    low, middle, high = np.quantile(agree, (0.25, 0.5, 0.75))
    print(f"cosine of random views: median {middle:.3f}, quartiles {low:.3f} and {high:.3f}, {len(agree)} images")
    right = judge(rows, torch.from_numpy(pictures.label), folds=5, seed=a.seed).right[LINEAR]
    both, label = {eye.column: certainty, "cosine of views": agree}, torch.from_numpy(pictures.label)
    print("\n| | R-AUROC | AUROC of the linear classifier being right |\n| --- | --- | --- |")
    for name, each in both.items():
        print(f"| {name} | {r_auroc(each, rows, label):.3f} | {auroc(each, right):.3f} |")
    print(f"\nSpearman of the two: {spearman(certainty, agree):.3f}")


def tell_sheet(a: argparse.Namespace) -> None:
    """Draw views of some images with the column, and print it."""
    eye, pictures = shown(a)
    views = shown_views(eye, pictures, sign=sign_of(eye.column), crops=a.crops, seed=a.seed)
    print("| " + " | ".join(views) + " |\n|" + " --- |" * len(views))
    for at in range(len(pictures)):
        print("| " + " | ".join(f"{values[at]:.4g}" for _, values in views.values()) + " |")
    with drawing():
        figure = new_figure((SQUARE + 4) * len(pictures) + 6, SQUARE * len(views))
        axes = new_axes(figure, len(pictures) * len(views), len(views))
        for place, axis in enumerate(axes):
            (name, (pixels, values)), at = list(views.items())[place % len(views)], place // len(views)
            axis.imshow(pixels[at].permute(1, 2, 0).round().byte().numpy())
            axis.set_xlabel(f"{values[at]:.4g}")
            axis.set_title(name.replace(" crop", "\ncrop") if at == 0 else "", fontsize=6)
            axis.set(xticks=[], yticks=[])
        save_chart(figure, a.chart, overwrite=True)
    print(f"drawn as {a.chart}")


def tell_probes(a: argparse.Namespace) -> None:
    """Print what linear probes of each table reach."""
    tables: dict[str, np.ndarray] = {}
    label = None
    for path in a.tables:
        rows, codes, _ = rows_of(a, path)
        embedded = embeddings(rows)
        if isinstance(embedded, str):
            raise InputError(embedded)
        if label is not None and not np.array_equal(label, codes):
            raise InputError(f"expected the rows of {a.tables[0]} in {path}, got others; score the same source")
        label, tables[str(path)] = codes, embedded[0].numpy()
    if label is None:
        raise InputError("expected a table, got none")
    reached = few_labels(tables, label, SHARES, draws=a.seeds)
    print(
        "| | " + " | ".join(f"{share:.0%} of the labels" for share in SHARES) + " |\n|" + " --- |" * (len(SHARES) + 1)
    )
    for name, by in reached.items():
        print(f"| {name} | " + " | ".join(f"{v.mean():.3f} +- {v.std():.3f}" for v in by.values()) + " |")


TELL = {
    "histogram": tell_histogram,
    "views": tell_views,
    "crops": tell_crops,
    "cosines": tell_cosines,
    "sheet": tell_sheet,
    "probes": tell_probes,
}


def main() -> None:
    """Do what was requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("analysis", choices=list(TELL))
    parser.add_argument("tables", nargs="+", type=Path, metavar="TABLE", help="scored; probes takes several")
    parser.add_argument("--label", help="column of classes; a sheet needs none")
    parser.add_argument("--column", help="of the score; by default a kappa")
    parser.add_argument("--source", help="what was scored, where the table holds no path to an image")
    parser.add_argument("--model", help="by default the shipped one that the table names")
    parser.add_argument("--images", type=int, default=2000, help="rows to study, drawn by their keys")
    parser.add_argument("--crops", type=int, default=30, help="of each image")
    parser.add_argument("--seeds", type=int, default=3, help="draws of crops, and of labels")
    parser.add_argument("--seed", type=int, default=0, help="of the rows, folds and views")
    parser.add_argument("--chart", type=Path, help="PNG, SVG or PDF to draw the histogram or the sheet as")
    a = parser.parse_args()
    if a.analysis == "sheet" and not a.chart:
        parser.error("sheet draws a file; name it with --chart")
    if a.analysis != "sheet" and not a.label:
        parser.error(f"{a.analysis} needs --label, the column of classes")
    if a.analysis != "probes" and len(a.tables) > 1:
        parser.error(f"{a.analysis} takes one table, got {len(a.tables)}")
    try:
        TELL[a.analysis](a)
    except InputError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
