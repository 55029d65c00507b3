"""How many decisions a review in groups takes, by simulation with true labels on planted datasets.

    python benchmarks/review.py --data DATA [--work FOLDER] [--set NAME] [--rows N] [--share S] [--json OUT]

Of each set up to N clean images are written to a folder, with junk of ten kinds (a share S of the rows, 0.3 for a
crowd), 40 exact copies and 40 at half the size and JPEG quality 80. `crawl` is 697 images with 310 copies of three
placeholders instead. The folder is cleaned by `curate clean`; what that keeps is reviewed. The simulated reviewer knows
which images are junk or copies, but sees of a group only what the page shows: where all that is shown is bad it drops,
where all is good it keeps, up to three exceptions it takes out, one click each, else it splits. Clicks and splits count
as decisions.

Achievable is what is bad and in any group. Counted are decisions until 99 % of that is dropped; until the same is found
image by image, in the order of the report (junk by p_junk, near copies by similarity, other findings, the rest by
p_junk); and image by image at random, on average. Also: the share of all planted junk and copies that is gone after at
most 10 decisions, what `clean` dropped among it, and the good images that were dropped.
"""

import argparse
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import polars as pl
from clean import write_folder
from harm_sets import CLEAN, CRAWL, SETS, clean_images, crawl, data_and_sets
from named_data import add_data

from curate.policies.verdicts import COPY, DROP, KEEP, SPLIT
from curate.reporting.review import read_findings
from curate.reviewing.serve import review
from curate.reviewing.session import Review

DEFAULT_SETS = ("photographs", "steel", "plankton", CRAWL)
OURS = (CLEAN, "exact", "near")  # kinds that are no junk
FEW = 3  # exceptions that are taken out rather than the group split
EARLY = 10  # decisions after which recall is counted
MOST = 2_000
GOAL = 0.99


def write_crawl(data: Path, out: Path) -> None:
    """Write a crawl: KIND.NUMBER.EXTENSION."""
    out.mkdir(parents=True)
    images = crawl(clean_images(data, "photographs"))
    for number, (content, kind) in enumerate(zip(images.data, images.kind, strict=True)):
        ending = "png" if content[:4] == b"\x89PNG" else "jpg"
        (out / f"{kind}.{number:05}.{ending}").write_bytes(content)


def original(key: str) -> str:
    """Return the number of the image that a key is or is a copy of."""
    parts = key.split(".")
    return parts[2] if parts[1] == "of" else parts[1]


def is_junk(key: str) -> bool:
    """Whether an image was planted as junk."""
    return key.split(".")[0] not in OURS


@dataclass
class Simulated:
    """A reviewer who knows the truth and sees what the page shows.

    Attributes:
        review: under way.
        decisions: so far, clicks and splits among them.
        seen: images that were looked at.
        mistakes: good images that were dropped.
        found: bad images that are dropped, after each decision.
    """

    review: Review
    decisions: int = 0
    seen: int = 0
    mistakes: int = 0
    progress: list[tuple[int, int]] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)

    def is_bad(self, item: dict[str, Any], question: str) -> bool:
        """Whether an image that is shown is to be dropped."""
        if question == COPY and item["beside"] is not None:
            return original(item["key"]) == original(item["beside"]["key"])
        return is_junk(item["key"])

    def step(self) -> bool:
        """Decide about the first group; False where none is left."""
        state = self.review.state()
        if not state["groups"]:
            return False
        id, question = state["queue"][0]["id"], state["queue"][0]["question"]
        shown = self.review.group(id)["items"]
        bad = [self.is_bad(item, question) for item in shown]
        self.seen += len(shown)
        drops = sum(bad) * 2 > len(bad)
        exceptions = [item["row"] for item, each in zip(shown, bad, strict=True) if each != drops]
        action = DROP if drops else KEEP
        if len(exceptions) > FEW and state["queue"][0]["n"] > FEW + 1:
            action, exceptions = SPLIT, []
        concerned = self._all(id) if action == DROP else []
        self.review.act(state["seq"], action, id, rows=exceptions)
        self.decisions += 1 + len(exceptions)
        for item in concerned:
            if item["row"] not in exceptions:
                self.dropped.add(item["key"])
                self.mistakes += not self.is_bad(item, question)
        self.progress.append((self.decisions, len(self.dropped) - self.mistakes))
        return self.decisions < MOST

    def _all(self, id: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        while True:
            page = self.review.group(id, len(items))
            items += page["items"]
            if len(items) >= page["n"] or not page["items"]:
                return items


def until(progress: list[tuple[int, int]], goal: int) -> int | None:
    """Return the decisions until so many bad images are dropped; None where they never are."""
    return next((decisions for decisions, n in progress if n >= goal), None)


def gone(planted: list[str], kept: set[str], dropped: set[str]) -> int:
    """Return how many planted images are gone: junk that is dropped, and copies of which one of the pair is."""
    left = kept - dropped
    numbers = [original(key) for key in left if not is_junk(key)]
    alone = {number for number in numbers if numbers.count(number) == 1}
    return sum(key not in left or (not is_junk(key) and original(key) in alone) for key in planted)


def looked_at_in_order(folder: Path, kept: list[str], junk: dict[str, float], goal: int) -> int:
    """Return how many images are looked at, in the order of the report, until so many bad ones are found."""
    listed = list(dict.fromkeys(line["key"] for line in read_findings(folder / "cleaned/review")))
    rest = sorted((key for key in kept if key not in set(listed)), key=lambda key: -junk[key])
    hits, seen_numbers = 0, set()
    for place, key in enumerate([*listed, *rest], 1):
        hits += is_junk(key) or original(key) in seen_numbers
        if not is_junk(key):
            seen_numbers.add(original(key))
        if hits >= goal:
            return place
    return len(kept)


def measure(folder: Path) -> dict[str, Any]:
    """Return what a simulated review of a cleaned folder took and found."""
    keys = pl.read_parquet(folder / "cleaned/steps/score.parquet", columns=["key", "p_junk"])
    kept = pl.read_parquet(folder / "cleaned/subset.parquet", columns=["key"])["key"].to_list()
    planted = [key for key in keys["key"] if not key.startswith(f"{CLEAN}.")]
    (folder / "cleaned/subset.verdicts.jsonl").unlink(missing_ok=True)
    server = review(folder / "cleaned")
    server.server_close()
    simulated = Simulated(server.site.review)  # type: ignore[attr-defined]
    early = gone(planted, set(kept), set())
    before, groups = early, len(simulated.review.state()["queue"])
    while simulated.step():
        if simulated.decisions <= EARLY:
            early = gone(planted, set(kept), simulated.dropped)
    numbers = [original(key) for key in kept if not is_junk(key)]
    bad = sum(map(is_junk, kept)) + len(numbers) - len(set(numbers))
    achieved = len(simulated.dropped) - simulated.mistakes
    goal = ceil(GOAL * achieved)
    ours = until(simulated.progress, goal)
    ordered = looked_at_in_order(folder, kept, dict(zip(keys["key"], keys["p_junk"].fill_null(0), strict=True)), goal)
    by_chance = goal * (len(kept) + 1) / (bad + 1) if bad else 0
    return {
        "kept": len(kept),
        "bad": bad,
        "groups": groups,
        "achievable": achieved,
        "decisions": ours,
        "all decisions": simulated.decisions,
        "seen": simulated.seen,
        "in order": ordered,
        "at random": round(by_chance),
        "times": round(ordered / ours, 1) if ours else None,
        "planted": len(planted),
        "gone before": before,
        f"gone after {EARLY}": early,
        "gone": gone(planted, set(kept), simulated.dropped),
        "good dropped": simulated.mistakes,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--work", type=Path, default=Path("review"))
    parser.add_argument("--set", action="append", choices=(*SETS, CRAWL), dest="sets")
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = {}
    data, sets = data_and_sets(options.data, options.sets, DEFAULT_SETS)
    for name in sets:
        folder = options.work / f"{name}-{options.share:g}"
        if not (folder / "cleaned/subset.parquet").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            if name == CRAWL:
                write_crawl(data, folder / "images")
            else:
                write_folder(data, name, options.rows, folder / "images", share=options.share)
            line = [sys.executable, "-m", "curate", "clean", "images", "-o", "cleaned", "--quiet"]
            subprocess.run(line, cwd=folder, check=True)
        results[name] = measure(folder)
        print(f"{name}: {json.dumps(results[name])}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
