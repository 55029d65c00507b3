"""Every kind of `curate plot` on real images: the images of docs/plots.md.

    python benchmarks/plots.py [--data DATA] [--work plots-work] [--out docs/plots]

Scores 2,663 photographs of 22 classes once, into --work, and draws; the test of the scores draws strengths.svg.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from named_data import add_data, open_data

import curate
from curate.sheets.style import save_chart

PHOTOGRAPHS = "caltech_subset"  # of the layout

BEST = "unc_losspred"
KAPPA = "kappa_visimsiam"
KEYWORDS: dict[str, dict[str, Any]] = {
    "histogram": {"column": [BEST, KAPPA]},
    "abstained-accuracy": {"label": "class", "column": [BEST, KAPPA]},
    "risk-coverage": {"label": "class", "column": [BEST, KAPPA]},
    "roc": {"label": "class", "column": [BEST, KAPPA]},
    "reliability": {"label": "class"},
}


def prepare(data: Path, work: Path) -> dict[str, Path]:
    """Return the images and the table, made where they are missing."""
    work.mkdir(parents=True, exist_ok=True)
    source = data / f"{PHOTOGRAPHS}.parquet"
    made = {name: work / f"{name}.parquet" for name in ("images", "table")}
    if not made["images"].exists():
        curate.score(str(source), made["images"], key="id", fit=False)
    if not made["table"].exists():
        images = pq.read_table(made["images"])
        names = [text.partition("/")[0] for text in images["file"].to_pylist()]
        pq.write_table(images.append_column("class", pa.array(names)), made["table"])
    return made


def main() -> None:
    """Draw every kind, and say how long it took and how large it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--work", type=Path, default=Path("plots-work"))
    parser.add_argument("--out", type=Path, default=Path("docs/plots"))
    a = parser.parse_args()
    data = open_data(a.data, [PHOTOGRAPHS]).need(PHOTOGRAPHS)
    made = prepare(data, a.work)
    a.out.mkdir(parents=True, exist_ok=True)
    print("| kind | seconds | kB of SVG |\n| --- | --- | --- |")
    for kind, named in KEYWORDS.items():
        start = time.perf_counter()
        drawn = curate.plot(made["table"], kind, out=a.out / f"{kind}.svg", overwrite=True, **named)
        took = time.perf_counter() - start
        print(f"| {kind} | {took:.1f} | {(a.out / f'{kind}.svg').stat().st_size / 1000:.0f} |")
        for note in drawn.numbers.notes:
            print(f"<!-- {kind}: {note} -->")
    source = str(data / f"{PHOTOGRAPHS}.parquet")
    checked = curate.selftest(made["table"], column=[BEST, KAPPA, "unc_junk"], images=300, source=source)
    save_chart(checked.figure(), a.out / "strengths.svg", overwrite=True)


if __name__ == "__main__":
    main()
