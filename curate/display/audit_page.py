"""Pages on which a reviewer judges images, pairs or single ones, and saves the answers as CSV."""

import hashlib
import html
import json
from collections.abc import Mapping, Sequence

from curate.display.page import page

PAIR_SIDE = 320
ANSWER = "answer"

STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1rem; color: #222; background: #fff; }
h1 { font-size: 1.2rem; }
header { position: sticky; top: 0; background: #fff; padding: .4rem 0; border-bottom: 1px solid #ccc; z-index: 1; }
header > * { margin-right: 1rem; }
section { padding: .6rem; border-left: 6px solid transparent; border-bottom: 1px solid #ddd; scroll-margin-top: 4rem; }
section.current { border-left-color: #06c; }
.pair { display: flex; gap: .6rem; }
figure { margin: 0; width: 320px; overflow-wrap: anywhere; font-size: 12px; }
.unreadable { display: block; width: 320px; height: 200px; line-height: 200px; text-align: center; color: #666;
  background: #eee; }
button { font: inherit; padding: .3rem .8rem; }
button[aria-pressed="true"] { background: #06c; color: #fff; }
"""

# Answers live in the page, are kept by the browser until they are saved, and leave as the CSV that came, filled in.
SCRIPT = """
"use strict";
const sections = Array.from(document.querySelectorAll("section"));
const rows = sections.map((section) => JSON.parse(section.dataset.row));
const columns = JSON.parse(document.body.dataset.columns);
const words = JSON.parse(document.body.dataset.words);
const column = columns.indexOf("answer");
const count = document.getElementById("count");
const place = "curate review verdicts " + document.body.dataset.digest;
let current = 0;
let unsaved = false;
function remembered() {
  try { return JSON.parse(localStorage.getItem(place)) || []; } catch (error) { return []; }
}
function remember() {
  try {
    localStorage.setItem(place, JSON.stringify(rows.map((row) => row[column])));
  } catch (error) {
    unsaved = true;  // no room: the page asks before it is left
  }
}
function show() {
  sections.forEach((section, at) => {
    section.classList.toggle("current", at === current);
    section.querySelectorAll("button").forEach((button) => {
      button.setAttribute("aria-pressed", String(rows[at][column] === button.value));
    });
  });
  const answered = rows.filter((row) => row[column] !== "").length;
  count.textContent = `${answered} of ${rows.length} ${document.body.dataset.noun} answered`;
}
function move(to) {
  current = Math.min(Math.max(to, 0), sections.length - 1);
  show();
  sections[current].scrollIntoView({block: "start"});
}
function answer(at, word) {
  rows[at][column] = rows[at][column] === word ? "" : word;
  unsaved = true;
  remember();
  move(rows[at][column] === "" ? at : at + 1);
}
function quoted(cell) {
  // no spreadsheet is to run a key as a formula: one more ' in front, which curate takes away again
  const value = /^'*[=+\\-@\\t\\r＝＋－＠]/.test(cell) && !/^-?[0-9.e-]+$/.test(cell) ? `'${cell}` : cell;
  return /[",\\r\\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
}
function save() {
  const text = [columns, ...rows].map((row) => row.map(quoted).join(",") + "\\n").join("");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type: "text/csv;charset=utf-8"}));
  link.download = document.body.dataset.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  unsaved = false;
}
remembered().forEach((word, at) => {
  if (at < rows.length && rows[at][column] === "" && Object.values(words).includes(word)) rows[at][column] = word;
});
sections.forEach((section, at) => section.addEventListener("click", (event) => {
  if (event.target.tagName === "BUTTON") answer(at, event.target.value); else move(at);
}));
document.getElementById("save").addEventListener("click", save);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || rows.length === 0) return;
  const key = event.key.toLowerCase();
  if (key in words) answer(current, words[key]);
  else if (key === "arrowdown" || key === "arrowright") move(current + 1);
  else if (key === "arrowup" || key === "arrowleft") move(current - 1);
  else return;
  event.preventDefault();
});
window.addEventListener("beforeunload", (event) => { if (unsaved) event.preventDefault(); });
current = Math.max(rows.findIndex((row) => row[column] === ""), 0);
show();
if (current > 0) move(current);
"""


def answers_page(
    title: str,
    parts: Sequence[str],
    *,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    answers: Mapping[str, str],
    noun: str,
    name: str,
) -> str:
    """Return a page whose sections are answered by a key or a button, and saved as CSV.

    Args:
        title: of the page.
        parts: HTML: the head, and of each row a ``<section>`` by ``answer_section``.
        columns: of the CSV, ``answer`` among them.
        rows: of the CSV, as text.
        answers: key to press -> answer.
        noun: what is answered, in the plural.
        name: of the CSV when it is saved.
    """
    keys = "".join(json.dumps(row[: columns.index(ANSWER)]) for row in rows)
    words = html.escape(json.dumps(dict(answers), ensure_ascii=True), quote=True)
    attributes = (
        f' data-columns="{_exact(columns)}" data-name="{html.escape(name, quote=True)}" data-words="{words}"'
        f' data-noun="{noun}" data-digest="{hashlib.sha256(keys.encode()).hexdigest()}"'
    )
    return page(title, "\n".join(parts), style=STYLE, script=SCRIPT, attributes=attributes)


def answer_section(row: Sequence[str], words: str, figures: str, answers: Mapping[str, str]) -> str:
    """Return the section of a row.

    Args:
        row: of the CSV, as text.
        words: HTML that stands above the images.
        figures: HTML of the images.
        answers: key to press -> answer.
    """
    buttons = " ".join(
        f'<button type="button" value="{word}" aria-pressed="false">{word} ({key})</button>'
        for key, word in answers.items()
    )
    return (
        f'<section data-row="{_exact(row)}"><p>{words}</p><div class="pair">{figures}</div><p>{buttons}</p></section>'
    )


SAVED_BY_SCRIPT = (
    "<noscript><p>Answers need the script of this page; it is blocked here.</p></noscript>\n"
    '<header><output id="count"></output><button id="save" type="button">Save CSV</button></header>'
)


def _exact(values: Sequence[str]) -> str:
    """Texts as an attribute that the script reads back letter by letter, whatever is in them."""
    return html.escape(json.dumps(values, ensure_ascii=True), quote=True)
