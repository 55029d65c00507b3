"""Facts of a report made by hand: small, whole and hostile in every word, as the page is handed them."""

import base64
import io

import numpy as np
from PIL import Image

HOSTILE = [
    "<script>window.broken = 1</script>",
    "</script><script>window.broken = 1</script>",
    "<!--<script>",
    "\"><img src=x onerror='window.broken = 1'>",
    "__proto__",
    "constructor",
    "\u202egnp.elif/\u05e9\u05dc\u05d5\u05dd",
    'line\u2028separators\u2029and\nbreaks\r\n,"quotes"',
    "long/" + "x" * 300 + ".png",
    "{a|b}${c}%s",
    " spaces ",
    "",
]
REASONS = ["unc_losspred > 0.8", "same as another", "<b>too dark</b>"]


def thumbnail(at, side=48):
    """An image of its number: a colour, and a box that says which."""
    generator = np.random.default_rng(at)
    pixels = np.full((side, side + at % 17, 3), generator.integers(60, 220, 3), np.uint8)
    pixels[at % side :, : 4 + at % 20] = generator.integers(0, 255, 3)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=80)
    return base64.b64encode(buffer.getvalue()).decode()


def histogram(values, *, log=False):
    counts, edges = np.histogram(values, 30)
    return {"edges": edges.tolist(), "counts": counts.tolist(), "log": log}


def floats(values):
    return base64.b64encode(np.asarray(values, "<f4").tobytes()).decode()


def by_class(values, names):
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    each = ((name, values[names == name]) for name in dict.fromkeys(names.tolist()))
    return [{"name": name, "n": len(of_class), "q": np.quantile(of_class, levels).tolist()} for name, of_class in each]


def document(n=150, *, thumbs=thumbnail):
    """Return the facts of a table of n rows; the first keys and classes are hostile, every eleventh has no image."""
    generator = np.random.default_rng(7)
    keys = [HOSTILE[at] if at < len(HOSTILE) else f"photos/{at:05d}.jpg" for at in range(n)]
    unsure = generator.random(n)
    size = np.exp(generator.normal(11, 1, n)).round()
    classes = np.array([["cat", "dog", "owl", *HOSTILE[:6]][at % 9] for at in range(n)])
    decision = np.where(unsure > 0.8, "drop", np.where(unsure > 0.75, "undecided", "keep"))
    reason = [REASONS[at % 3] if decision[at] != "keep" else None for at in range(n)]
    order = np.argsort(unsure, kind="stable").tolist()
    seen = [at for at in range(n) if at % 11 != 10]
    of = [-1] * n
    for place, at in enumerate(seen):
        of[at] = place
    names, sizes = np.unique(classes, return_counts=True)
    dropped = np.flatnonzero(decision == "drop").tolist()
    places = {at: (float(np.cos(at)) * (1 + at / n), float(np.sin(at)) * (1 + at / n)) for at in range(n)}
    return {
        "version": 1,
        "title": "heap </title><script>.parquet",
        "about": {
            "table": "heap <b>.parquet",
            "digest": "ab" * 32,
            "curate": "0.9",
            "model": "trio",
            "made": "2026-01-02T03:04:05+00:00",
        },
        "n_rows": n,
        "sampled": None,
        "default_score": "unc_losspred",
        "class_column": "u:label",
        "columns": [
            {"name": "unc_losspred", "kind": "score", "direction": -1, "words": "loss expected <i>", "integer": False},
            {"name": "kappa", "kind": "score", "direction": 1, "words": "certainty", "integer": False},
            {"name": "u:label", "kind": "class", "direction": 0, "words": "", "integer": False},
            {"name": "u:size", "kind": "number", "direction": 0, "words": "", "integer": True},
        ],
        "overview": {
            "status": [["ok", n - 3], ["<failed>", 3]],
            "format": [["jpeg", n - 20], ["png", 20]],
            "classes": {
                "shown": [[str(name), int(k)] for name, k in zip(names, sizes, strict=True)],
                "n_classes": len(names),
                "others": 0,
            },
            "sizes": {"width": histogram(size), "height": histogram(size / 2), "n_bytes": histogram(size * 3)},
            "notes": ["a note & more"],
        },
        "funnel": [
            {
                "step": "filter",
                "file": "kept <i>.parquet",
                "rows_in": n,
                "kept": int((decision == "keep").sum()),
                "out": [
                    {"reason": REASONS[0], "decision": "drop", "n": int((decision == "drop").sum())},
                    {"reason": REASONS[2], "decision": "undecided", "n": int((decision == "undecided").sum())},
                ],
            }
        ],
        "distributions": [
            {
                "column": "unc_losspred",
                "hist": histogram(unsure),
                "cuts": [{"value": 0.8, "words": "--max 0.8 of <filter>"}],
                "by_class": by_class(unsure, classes),
            },
            {"column": "kappa", "hist": histogram(1 / (unsure + 0.1)), "cuts": [], "by_class": []},
        ],
        "galleries": [
            {
                "id": "least-certain",
                "title": "Least certain",
                "words": "Highest <unc>.",
                "kind": "flat",
                "items": order[::-1][:70],
            },
            {"id": "most-certain", "title": "Most certain", "words": "Lowest.", "kind": "flat", "items": order[:70]},
            {
                "id": "duplicates",
                "title": "Duplicates",
                "words": "Groups.",
                "kind": "groups",
                "groups": [
                    {"words": "group <1>", "items": [20, 21, 22], "kept": 21},
                    {"words": "group 2", "items": [30, 31], "kept": 30},
                ],
            },
            {
                "id": "dropped",
                "title": "Dropped",
                "words": "",
                "kind": "groups",
                "groups": [{"words": REASONS[2], "items": dropped, "kept": None}],
            },
        ],
        "rows": {
            "n": n,
            "row": [10 * at for at in range(n)],
            "key": keys,
            "path": [f"/data/{key}" for key in keys],
            "status": ["ok"] * n,
            "decision": decision.tolist(),
            "reason": reason,
            "unc_losspred": unsure.tolist(),
            "kappa": [None if at == 5 else 1 / (value + 0.1) for at, value in enumerate(unsure.tolist())],
            "u:label": classes.tolist(),
            "u:size": size.astype(int).tolist(),
        },
        "thumbs": {
            "side": 48,
            "of": of,
            "data": [thumbs(at) for at in seen],
            "missing": n - len(seen),
            "words": f"{n - len(seen)} images are gone",
        },
        "map": {
            "method": "t-SNE of <embedding>",
            "words": "seed 0",
            "row": list(range(n)),
            "x": floats([places[at][0] for at in range(n)]),
            "y": floats([places[at][1] for at in range(n)]),
            "uncertainty": floats(np.argsort(np.argsort(unsure)) / (n - 1)),
            "size_note": "unsure: large",
        },
        "ranks": {
            "columns": ["unc_losspred", "kappa", "u:size"],
            "rho": [[1, -1, 0.1], [-1, 1, -0.1], [0.1, -0.1, 1]],
            "n": n,
        },
        "strengths": [
            {
                "kind": kind,
                "unit": "<share>",
                "strength": [0, 0.5, 1],
                "columns": {
                    name: {"value": [0.5, 0.6, 0.9], "low": [0.4, 0.5, 0.8], "high": [0.6, 0.7, 1]}
                    for name in ("unc_losspred", "<kappa>")
                },
            }
            for kind in ("zoom", "<blur>")
        ],
        "measured": [
            {
                "title": "evaluate <1>",
                "columns": ["column", "AUROC"],
                "rows": [["unc_losspred", 0.91234], ["<kappa>", None]],
            }
        ],
    }
