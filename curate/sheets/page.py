"""A page of HTML that stands alone: images inside, nothing fetched, nothing run but the one script we wrote."""

import base64
import hashlib
import html
import io
from collections.abc import Iterable
from math import isnan
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from curate.sheets.captions import number, plain_line
from curate.sheets.doubtful import Group, Member
from curate.sheets.tiles import Shown

JPEG_QUALITY = 82
BITS = "hash"  # the finder whose similarity is a count of bits that differ

STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1rem; color: #222; background: #fff; }
h1 { font-size: 1.2rem; } h2 { font-size: 1rem; margin: 0 0 .4rem; }
header { position: sticky; top: 0; background: #fff; padding: .4rem 0; border-bottom: 1px solid #ccc; z-index: 1; }
header > * { margin-right: 1rem; }
section { padding: .6rem; border-bottom: 1px solid #ddd; }
section.conflict { border-left: 6px solid #c00; }
.labels { color: #c00; font-weight: bold; }
ul { display: flex; flex-wrap: wrap; gap: .6rem; list-style: none; margin: 0; padding: 0; }
li { width: 172px; overflow-wrap: anywhere; font-size: 12px; }
li > * { display: block; }
img, .unreadable { border: 3px solid transparent; }
.kept img, .kept .unreadable { border-color: #080; }
.unreadable { width: 160px; height: 120px; line-height: 120px; text-align: center; color: #666; background: #eee; }
.similarity { font-weight: bold; }
.key { color: #555; }
[hidden] { display: none; }
"""

GROUPS_SCRIPT = """
"use strict";
const groups = Array.from(document.querySelectorAll("section"));
const texts = groups.map((group) => group.textContent.toLowerCase());
const filter = document.getElementById("filter");
const conflicts = document.getElementById("conflicts");
const count = document.getElementById("count");
function show() {
  const wanted = filter.value.trim().toLowerCase();
  let shown = 0;
  groups.forEach((group, at) => {
    group.hidden = !texts[at].includes(wanted) || (conflicts.checked && !group.classList.contains("conflict"));
    shown += group.hidden ? 0 : 1;
  });
  count.textContent = `${shown} of ${groups.length} groups`;
}
filter.addEventListener("input", show);
conflicts.addEventListener("change", show);
show();
"""


def escaped(text: str, most: int = 200) -> str:
    """Return the user's text for HTML, between tags or quotes: on one line, bounded, in its own direction of writing.

    >>> escaped('<img src="x">')
    '&lt;img src=&quot;x&quot;&gt;'
    """
    return html.escape(plain_line(text, most), quote=True)


def isolated(text: str, most: int = 200) -> str:
    """Return the user's text as an element whose direction of writing cannot reach what stands around it."""
    return f"<bdi>{escaped(text, most)}</bdi>"


def page(title: str, body: str, *, style: str, script: str) -> str:
    """Return a whole page in which only this style and this script may act.

    The policy names both by their digest and allows images that are inside the page; everything else is forbidden.

    Args:
        title: the user's text.
        body: HTML, with the user's text escaped.
        style: CSS of ours, with nothing of the user's in it.
        script: the same.
    """
    policy = (
        "default-src 'none'; img-src data:; "
        f"style-src '{digest_of(style)}'; script-src '{digest_of(script)}'; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{escaped(title)}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n{body}\n<script>{script}</script>\n</body>\n</html>\n"
    )


def digest_of(text: str) -> str:
    """Return the digest of a style or script, as a policy of a page names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def picture_html(pixels: NDArray[np.uint8] | None, key: str) -> str:
    """Return the image as an element with its bytes inside, or a box that says that none is given.

    Args:
        pixels: RGB uint8, shape (H, W, 3), or None where the image cannot be read.
        key: of the image; the text instead for those who do not see it.
    """
    if pixels is None:
        return '<span class="unreadable">not readable</span>'
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=JPEG_QUALITY)
    data = base64.b64encode(buffer.getvalue()).decode()
    height, width = pixels.shape[:2]
    return f'<img src="data:image/jpeg;base64,{data}" width="{width}" height="{height}" alt="{escaped(key)}">'


def groups_page(groups: Iterable[tuple[Group, Iterable[Shown]]], *, title: str, note: str) -> str:
    """Return the page of groups, in the order given, with a filter by text and one for conflicts.

    Args:
        groups: each with what is shown of its members; drawn one by one, so that pixels need not all be in memory.
        title: the user's text.
        note: what is shown, in words.
    """
    head = (
        f"<h1>{isolated(title)}</h1>\n<p>{escaped(note, 400)}</p>\n"
        '<header><input id="filter" type="search" placeholder="key, label, reason" aria-label="show groups with">'
        '<label><input id="conflicts" type="checkbox"> conflicts only</label><output id="count"></output></header>'
    )
    return page(title, "\n".join([head, *(_section(*group) for group in groups)]), style=STYLE, script=GROUPS_SCRIPT)


def group_facts(group: Group) -> list[str]:
    """Return the number of a group, its size, and how alike the least alike of its pairs are, in words."""
    facts = [f"group {group.number}", f"{group.size:,} images"]
    if group.smallest is None or isnan(group.smallest):
        return facts
    if group.measure == BITS:
        facts.append(f"up to {number(group.smallest)} bits differ")
    else:
        facts.append(f"smallest similarity {number(group.smallest)}" + (f" ({group.measure})" if group.measure else ""))
    return facts


def _section(group: Group, shown: Iterable[Shown]) -> str:
    words = escaped(" · ".join(group_facts(group))) + (f" · {isolated(group.finders)}" if group.finders else "")
    if group.is_conflict:
        words += f' · <span class="labels">labels differ: {isolated(group.labels)}</span>'
    elif group.labels:
        words += f" · label {isolated(group.labels)}"
    tiles = [_tile(*pair) for pair in zip(group.members, shown, strict=True)]
    more = f"<p>and {group.n_hidden:,} more</p>" if group.n_hidden else ""
    kind = ' class="conflict"' if group.is_conflict else ""
    return f"<section{kind}><h2>{words}</h2><ul>{''.join(tiles)}</ul>{more}</section>"


def _tile(member: Member, shown: Shown) -> str:
    lines = [f'<span class="key">{isolated(member.key)}</span>']
    if shown.label:
        lines.append(f"<span>label {isolated(shown.label)}</span>")
    if member.is_kept:
        kind, call = ' class="kept"', "kept"
    else:
        bound = "" if member.threshold is None else f" (threshold {number(member.threshold)})"
        decided = "" if member.decision == "drop" else f", {escaped(member.decision)}"
        kind, call = "", f"{number(member.similarity)}{bound}{decided}"
        lines.append(f"<span>{isolated(member.reason, 400)}</span>")
    picture = picture_html(shown.pixels, member.key)
    return f'<li{kind}>{picture}<span class="similarity">{call}</span>{"".join(lines)}</li>'


def save_page(text: str, path: Path, *, overwrite: bool = False) -> None:
    """Write a page, whole or not at all.

    Raises:
        InputError: if there is a file of that name and it may not be replaced, or the place refuses.
    """
    from scoring.atomic import AtomicFile

    with AtomicFile(path, overwrite=overwrite) as file:
        file.write(text.encode())
