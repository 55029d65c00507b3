"""Every kind of `curate plot` on real images: the images of docs/plots.md.

    python benchmarks/plots.py [--data DATA] [--work plots-work] [--out docs/plots]

Scores 2,663 photographs of 22 classes once, into --work; filters, deduplicates, selects and evaluates them, and draws.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from named_data import add_data, open_data

import curate

PHOTOGRAPHS = "caltech_subset"  # of the layout

BEST = "unc_losspred"
KAPPA = "kappa_visimsiam"
KEYWORDS: dict[str, dict[str, Any]] = {
    "histogram": {"column": [BEST, KAPPA]},
    "gains": {},
    "abstained-accuracy": {"label": "class", "column": [BEST, KAPPA]},
    "risk-coverage": {"label": "class", "column": [BEST, KAPPA]},
    "roc": {"label": "class", "column": [BEST, KAPPA]},
    "reliability": {"label": "class"},
    "degradation": {},
    "strengths": {"column": [BEST, KAPPA, "unc_junk", "Laplacian"]},
}


def prepare(data: Path, work: Path) -> dict[str, Path]:
    """Return the table, the batch and the evaluation, made where they are missing."""
    work.mkdir(parents=True, exist_ok=True)
    source = data / f"{PHOTOGRAPHS}.parquet"
    made = {name: work / f"{name}.parquet" for name in ("images", "table", "kept", "unique", "batch")}
    made["report"] = work / "report.json"
    if not made["images"].exists():
        curate.score(str(source), made["images"], key="id", fit=False)
    if not made["table"].exists():
        images = pq.read_table(made["images"])
        names = [text.partition("/")[0] for text in images["file"].to_pylist()]
        pq.write_table(images.append_column("class", pa.array(names)), made["table"])
    if not made["batch"].exists():
        curate.filter(made["table"], made["kept"], drop_bottom="10%")
        curate.dedup(made["kept"], made["unique"])
        curate.select(made["unique"], made["batch"], budget=400)
    if not made["report"].exists():
        evaluation = curate.evaluate(made["table"], label="class", degrade=300, strengths=True, source=str(source))
        made["report"].write_text(json.dumps(evaluation.to_json()))
    return made


def main() -> None:
    """Draw every kind, and say how long it took and how large it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--work", type=Path, default=Path("plots-work"))
    parser.add_argument("--out", type=Path, default=Path("docs/plots"))
    a = parser.parse_args()
    made = prepare(open_data(a.data, [PHOTOGRAPHS]).need(PHOTOGRAPHS), a.work)
    a.out.mkdir(parents=True, exist_ok=True)
    of = {"gains": made["batch"], "degradation": made["report"], "strengths": made["report"]}
    print("| kind | seconds | kB of SVG |\n| --- | --- | --- |")
    for kind, named in KEYWORDS.items():
        start = time.perf_counter()
        drawn = curate.plot(of.get(kind, made["table"]), kind, out=a.out / f"{kind}.svg", overwrite=True, **named)
        took = time.perf_counter() - start
        print(f"| {kind} | {took:.1f} | {(a.out / f'{kind}.svg').stat().st_size / 1000:.0f} |")
        for note in drawn.numbers.notes:
            print(f"<!-- {kind}: {note} -->")


if __name__ == "__main__":
    main()
