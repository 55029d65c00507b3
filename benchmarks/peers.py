"""What commands cost next to other packages that answer the same question, in one run.

    pip install --no-deps --target SITE imagededup cleanvision cleanlab imagehash PyWavelets
    pip install --no-deps --target SITE pandas tabulate matplotlib termcolor
    python benchmarks/peers.py --site SITE [--fastdup PYTHON] [--data DATA] [--rounds 5] [--csv FILE]

The 2,663 photographs of caltech_subset, as files in a folder of each class. Processor time of whole processes, imports
included, all in turn; ratios are medians over rounds with 95 % bootstrap intervals. ``curate`` scores once, by default,
and its commands read that table; the others read the files, or the embeddings of the table. fastdup needs an older
NumPy, so it is in another environment, whose Python is given. `filter` next to Polars and DuckDB: filter_peers.py.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from filter_peers import cost, interval, show
from named_data import add_data, open_data

PHOTOGRAPHS = "caltech_subset"
DUPLICATES = """
import sys
from imagededup.methods import PHash
PHash(verbose=False).find_duplicates(image_dir=sys.argv[1], recursive=True, num_enc_workers=0, num_dist_workers=0)
"""
FASTDUP = """
import sys, tempfile
import fastdup
with tempfile.TemporaryDirectory() as folder:
    fastdup.create(work_dir=folder, input_dir=sys.argv[1]).run(overwrite=True)
"""
ISSUES = """
import sys
from cleanvision import Imagelab
Imagelab(data_path=sys.argv[1]).find_issues(n_jobs=1, verbose=False)
"""
LABELS = """
import sys
import numpy as np
import pyarrow.parquet as pq
from cleanlab.filter import find_label_issues
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
rows = pq.read_table(sys.argv[2], columns=["label", "embedding"])
rows = rows.filter(rows["embedding"].is_valid())
vectors = np.stack(rows["embedding"].to_numpy()).astype(np.float32)
labels = np.unique(rows["label"].to_numpy(), return_inverse=True)[1]
answers = cross_val_predict(LogisticRegression(max_iter=400), vectors, labels, cv=5, method="predict_proba")
find_label_issues(labels, answers, n_jobs=1)
"""
PAIRS = {  # package -> question, commands of ours, its script
    "imagededup": ("duplicates", ["dedup"], DUPLICATES),
    "fastdup": ("duplicates", ["dedup"], FASTDUP),
    "CleanVision": ("issues", ["issues"], ISSUES),
    "cleanlab": ("wrong labels", ["labels"], LABELS),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--site", type=Path, required=True, help="where pip installed the other packages")
    add_data(parser)
    parser.add_argument("--fastdup", metavar="PYTHON", default=None, help="Python that imports fastdup; else left out")
    parser.add_argument("--packages", nargs="+", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--rounds", type=int, default=5, help="of all in turn")
    parser.add_argument("--csv", type=Path, default=None, help="file for the numbers")
    options = parser.parse_args()
    packages = [name for name in options.packages if name != "fastdup" or options.fastdup is not None]
    data = open_data(options.data, (PHOTOGRAPHS,))
    data.need(PHOTOGRAPHS)
    with tempfile.TemporaryDirectory() as folder:
        images = written(data.folder / f"{PHOTOGRAPHS}.parquet", Path(folder) / "images")
        others = {name: (options.fastdup if name == "fastdup" else sys.executable) for name in packages}
        costs = [measured_round(images, Path(folder), options.site, others) for _ in range(options.rounds)]
    show(summary({name: np.array([each[name] for each in costs]) for name in costs[0]}, packages), options.csv)
    return 0


def written(table: Path, folder: Path) -> Path:
    """Write each image of a table into a folder of its class; return the folder that holds these."""
    rows = pq.read_table(table, columns=["label", "image"]).to_pylist()
    for number, row in enumerate(rows):
        path = folder / str(row["label"]) / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(row["image"])
    return folder


def measured_round(images: Path, folder: Path, site: Path, others: dict[str, str]) -> dict[str, float]:
    """Return the processor seconds of every command and package; ``others``: package -> its Python."""
    table, ours = folder / "scores.parquet", [sys.executable, "-m", "curate"]
    classes = ["--label-from-folder"]
    seconds = {"score": cost([*ours, "score", str(images), *classes, "--overwrite", "-o", str(table)])[0]}
    for package, python in others.items():
        question, command, script = PAIRS[package]
        out = ["--overwrite", "-o", str(folder / f"{command[0]}.parquet")]
        if question not in seconds:
            seconds[question] = cost([*ours, command[0], str(table), *command[1:], *out])[0]
        path = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = str(site) if python == sys.executable else ""
        seconds[package] = cost([python, "-c", script, str(images), str(table)])[0]
        os.environ["PYTHONPATH"] = path
    seconds["report"] = cost([*ours, "report", str(table), "--overwrite", "-o", str(folder / "report.html")])[0]
    return seconds


def summary(costs: dict[str, np.ndarray], packages: list[str]) -> list[list[str]]:
    """Return a line for each package: seconds of ours, with and without scoring, of the other package, and ratios."""
    score = costs["score"]
    lines = [["question", "curate: s", "package", "its s", "ratio", "ratio with scoring"]]
    lines.append(["score", f"{np.median(score):.1f}", "", "", "", ""])
    for package in packages:
        name = PAIRS[package][0]
        ours, other = costs[name], costs[package]
        both = [interval(ours / other), interval((score + ours) / other)]
        lines.append([name, f"{np.median(ours):.1f}", package, f"{np.median(other):.1f}", *both])
    return [*lines, ["report", f"{np.median(costs['report']):.1f}", "", "", "", ""]]


if __name__ == "__main__":
    sys.exit(main())
