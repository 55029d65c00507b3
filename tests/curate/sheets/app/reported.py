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


ABOUT = {
    "table": "scores <b>.parquet",
    "digest": "ab" * 32,
    "curate": "0.9",
    "model": "trio",
    "made": "2026-01-02T03:04:05+00:00",
}
COLUMNS = [
    {"name": "unc_losspred", "kind": "score", "direction": -1, "words": "loss expected <i>", "integer": False},
    {"name": "kappa", "kind": "score", "direction": 1, "words": "certainty", "integer": False},
    {"name": "u:label", "kind": "class", "direction": 0, "words": "", "integer": False},
    {"name": "u:size", "kind": "number", "direction": 0, "words": "", "integer": True},
]
MEASURED = {
    "title": "evaluate <1>",
    "columns": ["column", "AUROC"],
    "rows": [["unc_losspred", 0.91234], ["<kappa>", None]],
}


def overview(size, classes):
    n = len(size)
    names, sizes = np.unique(classes, return_counts=True)
    shown = [[str(name), int(k)] for name, k in zip(names, sizes, strict=True)]
    return {
        "status": [["ok", n - 3], ["<failed>", 3]],
        "format": [["jpeg", n - 20], ["png", 20]],
        "classes": {"shown": shown, "n_classes": len(names), "others": 0},
        "sizes": {"width": histogram(size), "height": histogram(size / 2), "n_bytes": histogram(size * 3)},
        "notes": ["a note & more"],
    }


def funnel(decision):
    n_dropped, n_undecided, n_kept = (int((decision == word).sum()) for word in ("drop", "undecided", "keep"))
    return {
        "step": "filter",
        "file": "kept <i>.parquet",
        "rows_in": len(decision),
        "kept": n_kept,
        "out": [
            {"reason": REASONS[0], "decision": "drop", "n": n_dropped},
            {"reason": REASONS[2], "decision": "undecided", "n": n_undecided},
        ],
    }


def distributions(unsure, classes):
    cuts = [{"value": 0.8, "words": "--max 0.8 of <filter>"}]
    return [
        {"column": "unc_losspred", "hist": histogram(unsure), "cuts": cuts, "by_class": by_class(unsure, classes)},
        {"column": "kappa", "hist": histogram(1 / (unsure + 0.1)), "cuts": [], "by_class": []},
    ]


def galleries(unsure, decision):
    order = np.argsort(unsure, kind="stable").tolist()
    dropped = np.flatnonzero(decision == "drop").tolist()
    flat = {"least-certain": ("Highest <unc>.", order[::-1]), "most-certain": ("Lowest.", order)}
    groups = {
        "duplicates": (
            "Groups.",
            [
                {"words": "group <1>", "items": [20, 21, 22], "kept": 21},
                {"words": "group 2", "items": [30, 31], "kept": 30},
            ],
        ),
        "dropped": ("", [{"words": REASONS[2], "items": dropped, "kept": None}]),
    }

    def titled(name, words):
        return {"id": name, "title": name.capitalize().replace("-", " "), "words": words}

    return [
        *({**titled(name, words), "kind": "flat", "items": items[:70]} for name, (words, items) in flat.items()),
        *({**titled(name, words), "kind": "groups", "groups": each} for name, (words, each) in groups.items()),
    ]


def rows(unsure, size, classes, decision):
    n = len(unsure)
    keys = [HOSTILE[at] if at < len(HOSTILE) else f"photos/{at:05d}.jpg" for at in range(n)]
    return {
        "n": n,
        "row": [10 * at for at in range(n)],
        "key": keys,
        "path": [f"/data/{key}" for key in keys],
        "status": ["ok"] * n,
        "decision": decision.tolist(),
        "reason": [REASONS[at % 3] if decision[at] != "keep" else None for at in range(n)],
        "unc_losspred": unsure.tolist(),
        "kappa": [None if at == 5 else 1 / (value + 0.1) for at, value in enumerate(unsure.tolist())],
        "u:label": classes.tolist(),
        "u:size": size.astype(int).tolist(),
    }


def map_of(unsure):
    n = len(unsure)
    return {
        "method": "t-SNE of <embedding>",
        "words": "seed 0",
        "row": list(range(n)),
        "x": floats([float(np.cos(at)) * (1 + at / n) for at in range(n)]),
        "y": floats([float(np.sin(at)) * (1 + at / n) for at in range(n)]),
        "uncertainty": floats(np.argsort(np.argsort(unsure)) / (n - 1)),
        "size_note": "unsure: large",
    }


def thumbnails(n, thumbs):
    seen = [at for at in range(n) if at % 11 != 10]
    place = {at: number for number, at in enumerate(seen)}
    return {
        "side": 48,
        "of": [place.get(at, -1) for at in range(n)],
        "data": [thumbs(at) for at in seen],
        "missing": n - len(seen),
        "words": f"{n - len(seen)} images are gone",
    }


def document(n=150, *, thumbs=thumbnail):
    """Return the facts of a table of n rows; the first keys and classes are hostile, every eleventh has no image."""
    generator = np.random.default_rng(7)
    unsure = generator.random(n)
    size = np.exp(generator.normal(11, 1, n)).round()
    classes = np.array([["cat", "dog", "owl", *HOSTILE[:6]][at % 9] for at in range(n)])
    decision = np.where(unsure > 0.8, "drop", np.where(unsure > 0.75, "undecided", "keep"))
    rho = [[1, -1, 0.1], [-1, 1, -0.1], [0.1, -0.1, 1]]
    return {
        "version": 1,
        "title": "scores </title><script>.parquet",
        "about": ABOUT,
        "n_rows": n,
        "sampled": None,
        "default_score": "unc_losspred",
        "class_column": "u:label",
        "columns": COLUMNS,
        "overview": overview(size, classes),
        "funnel": [funnel(decision)],
        "distributions": distributions(unsure, classes),
        "galleries": galleries(unsure, decision),
        "rows": rows(unsure, size, classes, decision),
        "thumbs": thumbnails(n, thumbs),
        "map": map_of(unsure),
        "ranks": {"columns": ["unc_losspred", "kappa", "u:size"], "rho": rho, "n": n},
        "measured": [MEASURED],
    }
