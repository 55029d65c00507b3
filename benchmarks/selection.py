"""Time and peak memory of the selectors, compared with widely used packages, in one run.

    python benchmarks/selection.py [--rows 50000] [--million] [--only k-center,auto] [--budget 10000] [--limit 3600]
                                   [--beside PYTHON]

Every entry runs in its own process on the same float16 rows, 512 wide: 200 groups with a decaying spectrum. The
time is of picking alone, ``busy`` what all threads of the process spent on it; the peak is the
resident memory of the whole process, rows and interpreter included.
``--million`` measures a million rows (1 GB on disk). Without ``--budget`` each entry has its own number of picks. One
that takes longer than ``--limit`` is killed, and its row says so. ``--beside`` names an interpreter that has
scikit-activeml, apricot-select and lightly-mundig; what is missing there is left out. Compare ratios: other work slows
all alike.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

WIDTH, CLASSES = 512, 10
OURS = """
import json, sys, time, resource
import numpy as np
from curate.selectors.contract import Pool
from curate.selectors.table import SELECTORS
folder, name, budget = sys.argv[1], sys.argv[2], int(sys.argv[3])
vectors = np.load(folder + "/vectors.npy")
needs = SELECTORS[name].needs
probabilities = np.load(folder + "/chances.npy") if "probabilities" in needs or name == "auto" else None
pool = Pool(np.arange(len(vectors)), vectors=vectors, probabilities=probabilities)
start, busy = time.perf_counter(), time.process_time()
found = SELECTORS[name]()(pool, budget)
seconds, busy = time.perf_counter() - start, time.process_time() - busy
print(json.dumps([seconds, busy, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, found.notes]))
"""
OTHER_PACKAGE = """
import json, sys, time, resource
import numpy as np
folder, name, budget = sys.argv[1], sys.argv[2], int(sys.argv[3])
vectors = np.load(folder + "/vectors.npy")[: int(sys.argv[4])].astype(np.float32)
unknown = np.full(len(vectors), np.nan)
if name == "scikit-activeml k-center":
    from skactiveml.pool import CoreSet
    pick = lambda: CoreSet(random_state=0).query(vectors, unknown, batch_size=budget)
elif name == "scikit-activeml TypiClust":
    from skactiveml.pool import TypiClust
    pick = lambda: TypiClust(random_state=0).query(vectors, unknown, batch_size=budget)
elif name == "apricot facility location":
    from apricot import FacilityLocationSelection
    pick = lambda: FacilityLocationSelection(budget, metric="cosine", optimizer="lazy").fit(vectors)
else:
    from lightly_mundig import Selection
    selection = Selection()
    def pick():
        selection.add_diversifying_strategy(vectors.tolist(), 1.0, None)
        return selection.run_selection([], len(vectors), budget)
start, busy = time.perf_counter(), time.process_time()
pick()
seconds, busy = time.perf_counter() - start, time.process_time() - busy
print(json.dumps([seconds, busy, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, []]))
"""
PICKS = {  # selector -> picks
    "auto": 1000,
    "herding": 1000,
    "k-center": 1000,
    "k-means": 500,
    "typiclust": 500,
    "hierarchical": 1000,
    "margin": 1000,
    "stratified": 1000,
}
BESIDE = {  # package -> picks, and the most rows that it is given: their memory or time grows with the square
    "lightly-mundig diversity": (1000, 50_000),
    "scikit-activeml k-center": (100, 50_000),
    "scikit-activeml TypiClust": (100, 10_000),
    "apricot facility location": (100, 10_000),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--million", action="store_true", help="a million rows instead of --rows")
    parser.add_argument("--only", default=",".join([*PICKS, *BESIDE]), help="entries, separated by commas")
    parser.add_argument("--beside", type=Path, default=None, help="an interpreter with the other packages")
    parser.add_argument("--folder", type=Path, default=None, help="where rows are written; default a temporary folder")
    parser.add_argument("--budget", type=int, default=None, help="picks of every entry; default each entry's own")
    parser.add_argument(
        "--limit", type=float, default=None, help="seconds after which an entry is killed; default none"
    )
    options = parser.parse_args()
    rows = 1_000_000 if options.million else options.rows
    names = options.only.split(",")
    unknown = [name for name in names if name not in PICKS and name not in BESIDE]
    if unknown or not 1 <= (1 if options.budget is None else options.budget) <= rows:
        parser.error(f"no entry {unknown[0]!r}" if unknown else f"--budget must be between 1 and the {rows:,} rows")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        make(Path(folder), rows)
        print(f"{'':30}{'rows':>10}{'picks':>8}{'seconds':>10}{'busy':>8}{'ms a pick':>12}{'peak MB':>10}", flush=True)
        for name, usual in PICKS.items():
            if name in names:
                picks = min(options.budget or usual, rows)
                command = [sys.executable, "-c", OURS, folder, name, str(picks)]
                report(name, rows, picks, measure(command, options.limit))
        for name, (usual, most) in BESIDE.items():
            if options.beside and name in names:
                picks = min(options.budget or usual, rows, most)
                command = [str(options.beside), "-c", OTHER_PACKAGE, folder, name, str(picks), str(most)]
                report(name, min(rows, most), picks, measure(command, options.limit))
    return 0


def make(folder: Path, rows: int) -> None:
    """Write unit rows around 200 directions, float16, and class probabilities."""
    generator = np.random.default_rng(0)
    scale = (1 / np.arange(1, WIDTH + 1) ** 0.3).astype(np.float32)
    centres = generator.standard_normal((200, WIDTH), np.float32)
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float16, (rows, WIDTH))
    chances = np.empty((rows, CLASSES), np.float32)
    for start in range(0, rows, 16_384):
        n = min(16_384, rows - start)
        block = (generator.standard_normal((n, WIDTH), np.float32) + centres[generator.integers(0, 200, n)]) * scale
        vectors[start : start + n] = block / np.linalg.norm(block, axis=1, keepdims=True)
        chances[start : start + n] = generator.dirichlet(np.full(CLASSES, 0.3), n)
    np.save(folder / "chances.npy", chances)


Measured = tuple[float, float, float, list[str]]


def measure(command: list[str], limit: float | None) -> Measured | str:
    """Run an entry in its own process: seconds, busy, peak MB, notes; or why there is nothing to determine."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:  # the process is killed
        return f"cut off after {limit:g} s, with the reading of the rows"
    if done.returncode:
        return f"left out: {(done.stderr.strip().splitlines() or [f'exit status {done.returncode}'])[-1][:200]}"
    seconds, busy, peak, notes = json.loads(done.stdout.splitlines()[-1])
    return seconds, busy, peak, notes


def report(name: str, rows: int, picks: int, result: Measured | str) -> None:
    head = f"{name:30}{rows:>10,}{picks:>8,}"
    if isinstance(result, str):
        print(f"{head}{'-':>10}  {result}", flush=True)
        return
    seconds, busy, peak, notes = result
    print(f"{head}{seconds:>10.2f}{busy:>8.1f}{1000 * seconds / picks:>12.2f}{peak:>10,.0f}", flush=True)
    for note in notes:
        print(f"  {note}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
