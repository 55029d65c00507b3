"""The page of a report as one text, with its facts embedded or loaded from the server.

User strings are embedded as JSON in non-executable blocks; scripts insert them as text.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from curate.sheets.page import digest_of, escaped

# In this order: each may use what those before it define.
SCRIPTS = (
    *("dom", "format", "source", "served", "state", "charts", "overview", "funnel", "distributions"),
    *("tile", "filters", "gallery", "detail", "map", "against", "measured", "tray", "keys", "main"),
)
STYLES = ("base", "parts")
OF_REVIEW = ("dom", "format", "review"), ("base", "review")  # its scripts and styles
THUMBS_A_BLOCK = 100  # a block of thumbnails is read when the first of them is shown
INLINE = ("rows", "thumbs")  # what the server answers for
_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="8" fill="#00224e"/>'
    '<g fill="#fee838"><circle cx="12" cy="19" r="8" fill-opacity=".45"/><circle cx="21" cy="12" r="4"/></g></svg>'
)
ICON = f"data:image/svg+xml;base64,{base64.b64encode(_SVG.encode()).decode()}"


def page_pieces(document: dict[str, Any]) -> Iterator[str]:
    """Yield the page with all facts embedded, in parts: first what is visible first, thumbnails last.

    Args:
        document: the facts of a report, `curate.reporting.document`; strings are untrusted.

    Raises:
        ValueError: if a number in it is not finite.
    """
    thumbs = document.get("thumbs") or {"of": [], "data": []}
    facts = {name: value for name, value in document.items() if name not in INLINE}
    facts["thumbs"] = {name: value for name, value in thumbs.items() if name != "data"}
    yield _head(document["title"], images="data:", connect="'none'")
    yield _text_of(("page.html",))
    yield _block("rows", document["rows"])
    yield _block("facts", facts)
    yield f"<script>{_script()}</script>\n"
    for start in range(0, len(thumbs["data"]), THUMBS_A_BLOCK):
        lines = "\n".join(thumbs["data"][start : start + THUMBS_A_BLOCK])
        if "<" in lines:
            raise ValueError("expected thumbnails in base64, got other text")
        yield f'<script type="text/plain" class="thumbs" data-per="{THUMBS_A_BLOCK}">\n{lines}\n</script>\n'
    yield _foot()


def served_page(document: dict[str, Any], token: str) -> str:
    """Return the page without rows and thumbnails, which it loads from the server below its token path."""
    facts = {name: value for name, value in document.items() if name not in INLINE}
    head = _head(document["title"], images="'self' data:", connect="'self'", base=f"/{token}/")
    return "".join([head, _text_of(("page.html",)), _block("facts", facts), f"<script>{_script()}</script>\n", _foot()])


def review_page(facts: dict[str, Any], token: str) -> str:
    """Return the page for reviewing groups, which loads everything from the server below its token path.

    Args:
        facts: ``title``, ``next`` (the command that uses the decisions), ``sampled`` and ``classes``; strings are
            untrusted.
        token: of the server.
    """
    scripts, styles = OF_REVIEW
    script = _script(scripts)
    head = _head(
        facts["title"], images="'self' data:", connect="'self'", base=f"/{token}/", scripts=(script,), styles=styles
    )
    return f"{head}{_text_of(('review.html',))}{_block('facts', facts)}<script>{script}</script>\n</body>\n</html>\n"


def _head(
    title: str,
    *,
    images: str,
    connect: str,
    base: str = "",
    scripts: Sequence[str] = (),
    styles: Sequence[str] = STYLES,
) -> str:
    style = _text_of(tuple(f"css/{name}.css" for name in styles))
    run = " ".join(f"'{digest_of(script)}'" for script in scripts or (_script(), _charts()))
    policy = (
        f"default-src 'none'; img-src {images}; connect-src {connect}; style-src '{digest_of(style)}'; "
        f"script-src {run}; base-uri 'none'; form-action 'none'"
    )
    place = f' data-base="{escaped(base)}"' if base else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en"{place}>\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="color-scheme" content="light dark">\n'
        f'<link rel="icon" href="{ICON}">\n'
        f"<title>{escaped(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
    )


def _foot() -> str:
    return f"<script>{_charts()}</script>\n</body>\n</html>\n"


def _block(name: str, value: Any) -> str:
    r"""Return a value as JSON that contains no HTML tag.

    >>> _block("facts", {"a": "</script>"})
    '<script type="application/json" id="facts">{"a":"\\u003c/script>"}</script>\n'
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def _script(names: Sequence[str] = SCRIPTS) -> str:
    return f'(() => {{\n"use strict";\n{_text_of(tuple(f"js/{name}.js" for name in names))}}})();\n'


def _charts() -> str:
    return _text_of(("vendor/echarts.min.js",))


@cache
def _text_of(names: tuple[str, ...]) -> str:
    """Return files of this folder, concatenated; none may close the element that contains it."""
    text = "".join(files(__package__).joinpath(name).read_text("utf-8") for name in names)
    if "</script" in text or "</style" in text:
        raise ValueError(f"one of {names} ends its own element")
    return text
