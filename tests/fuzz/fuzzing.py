"""What fuzz tests share: how many examples, broken documents, and what a parser may do with them.

`make test` runs a third of the examples that a test names, the same every time. `CURATE_FUZZ=100` runs a hundred times
as many as it names, others every time; what fails is kept in `.hypothesis` and tried first the next time.
"""

import json
import math
import os
import random
import time
import unicodedata

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from curate.counted import single_line
from scoring.errors import InputError

TIMES = float(os.environ.get("CURATE_FUZZ", "0.33"))
SECONDS = 5.0  # of processor time, for one example; all but the slowest take a few milliseconds
NASTY = ("", "\0", "\n", "\x1b[31m", "\u202e", "\ud800", "=cmd()", "../../x", "/etc/passwd", "a" * 5000, "9" * 5000)
NUMBERS = (0, -1, 2**31, 2**63, 2**64, 10**400, 1e308, float("inf"), float("-inf"), float("nan"), -0.0)

values = st.recursive(
    st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.sampled_from(NASTY) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def fuzz(examples):
    """Run a test on so many examples, the same every time unless more are requested."""
    return settings(
        max_examples=math.ceil(examples * TIMES),
        derandomize=TIMES <= 1,
        database=None if TIMES <= 1 else settings.default.database,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def survives(parse, *arguments, **options):
    """Call a parser: it returns a value, or raises InputError with one printable line of bounded length, in time."""
    began, result = time.thread_time(), None
    try:
        result = parse(*arguments, **options)
    except InputError as error:
        said = single_line(error)  # as every command prints it
        assert said
        assert len(said) < 2000, len(said)
        assert not any(unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") for letter in said), said
    assert time.thread_time() - began < SECONDS
    return result


@st.composite
def broken_json(draw, document):
    """The text of a JSON document with some of its values taken out or replaced, or some of its letters."""
    copied = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(0, 3))):
        place = copied
        while isinstance(place, dict | list) and place:
            name = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            if not isinstance(place[name], dict | list) or draw(st.booleans()):
                if isinstance(place, dict) and draw(st.integers(0, 3)) == 0:
                    del place[name]
                else:
                    place[name] = draw(values)
                break
            place = place[name]
    text = json.dumps(copied).encode()
    kind = draw(st.sampled_from(["whole"] * 6 + ["bytes", "cut", "deep", "other"]))
    if kind == "deep":
        return b"[" * 100_000
    if kind == "other":
        return draw(st.binary(max_size=40))
    return (
        draw(broken_bytes(text))
        if kind == "bytes"
        else text[: draw(st.integers(0, len(text)))]
        if kind == "cut"
        else text
    )


@st.composite
def broken_bytes(draw, whole):
    """Bytes with some of them changed, taken out, repeated or put in, at places that a seed gives."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    out = bytearray(whole)
    for _ in range(draw(st.integers(0, 4))):
        at, run = rng.randrange(len(out) + 1), rng.choice((1, 1, 2, 8, 100))
        kind = rng.randrange(5)
        if kind == 0:
            out[at : at + run] = rng.randbytes(len(out[at : at + run]))
        elif kind == 1:
            del out[at : at + run]
        elif kind == 2:
            out[at:at] = out[at : at + run] * rng.choice((1, 3, 200))
        elif kind == 3:
            out[at : at + 1] = rng.choice((b"\0", b"\xff", b'"', b",", b"\n", b"\r", b"'", b"9999999999", b"-", b"["))
        else:
            del out[at:]
    return bytes(out)
