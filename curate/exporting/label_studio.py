# Paths are bytes where names need not be UTF-8, and pathlib holds text.
# ruff: noqa: PTH100, PTH120
"""Label Studio: writes tasks; reads its JSON and JSON-MIN exports."""

import base64
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from curate.columns import KEY
from curate.exporting.contract import Format, Plan
from curate.exporting.item import PREFIX, Item
from curate.exporting.labels import CANCELLED, EMPTY, SEVERAL, UNUSABLE, Collector, ExpectedRows, Labels, text_of
from curate.exporting.parts import COMMA, AllParts, Part
from curate.exporting.rows import Rows
from curate.manifest.text import MOST_BYTES, read_json, xml_text
from curate.version import __version__
from scoring.errors import InputError
from scoring.images.sniff import sniff

LOCAL = "/data/local-files/?d="
CONTROL = "label"  # name of the choice in the labelling configuration
OBJECT = "image"
CONFIG_SUFFIX = ".xml"
TASKS, SERVED = "tasks", "served"
_WHAT = "a Label Studio export (JSON or JSON-MIN)"
_END = "\n  </Choices>\n</View>\n"  # first line of a labelling configuration
_MIME = {"jpeg": "image/jpeg", "png": "image/png", "webp": "image/webp", "gif": "image/gif", "bmp": "image/bmp"}


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write tasks to import; images that a browser cannot reach are embedded."""
    served = _served_folder(plan.common)
    addresses = {index: address for index, item in enumerate(rows.items) if (address := _address(item, served))}
    inside = [index for index in range(len(rows)) if index not in addresses]
    if inside:
        for image in part.read(rows.take(inside)):
            kind = _MIME.get(sniff(image.data) or "", "image/jpeg")
            addresses[inside[image.index]] = f"data:{kind};base64,{base64.b64encode(image.data).decode()}"
        part.lost = [replace(lost, index=inside[lost.index]) for lost in part.lost]
    tasks = [_task(rows.items[index], address) for index, address in sorted(addresses.items())]
    part.written = len(tasks)
    part.items(TASKS, tasks)
    part.piece(SERVED, b"." if any(address.startswith(LOCAL) for address in addresses.values()) else b"")


def finish(parts: AllParts, plan: Plan) -> tuple[str, ...]:
    """Write the tasks, and a labelling configuration if the classes are known.

    Raises:
        InputError: also if the file exceeds 1 GiB, the import limit.
    """
    n_bytes = sum(path.stat().st_size for path in parts.places(TASKS))
    if n_bytes > MOST_BYTES:
        raise InputError(
            f"expected at most 1 GiB of tasks, got {n_bytes:,} bytes: images inside a table or a tar are "
            "embedded; export fewer rows, or move the images into their own folder, two below the root, which "
            "Label Studio "
            "can serve"
        )
    config = parts.out.with_suffix(CONFIG_SUFFIX)
    file = parts.target(parts.out)
    file.write(b"[\n")
    parts.join(file, TASKS, COMMA)
    file.write(b"\n]\n")
    if plan.classes:
        settings = parts.target(config, overwrite=parts.overwrite and _is_ours(config))
        settings.write(labelling_configuration(plan.classes).encode())
    if not any(path.stat().st_size for path in parts.places(SERVED)):
        return ()
    folder = os.fsdecode(_served_folder(plan.common) or b"")
    return (
        "local files are shown if Label Studio runs with LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true and "
        f"LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={os.path.dirname(folder)}, and the project has {folder} as a "
        "local storage",
    )


def labelling_configuration(classes: tuple[str, ...]) -> str:
    """Return the XML of a project that asks for one class per image."""
    choices = "\n".join(f"    <Choice value={quoteattr(xml_text(name))}/>" for name in classes)
    return (
        f'<View>\n  <Image name="{OBJECT}" value="${OBJECT}"/>\n'
        f'  <Choices name="{CONTROL}" toName="{OBJECT}" choice="single" required="true">\n{choices}{_END}'
    )


def _is_ours(config: Path) -> bool:
    """Return whether a path is free or contains a configuration by ``labelling_configuration``."""
    head = labelling_configuration(()).encode()[: -len(_END)]
    try:
        with config.open("rb") as file:
            return file.read(len(head)) == head
    except FileNotFoundError:
        return True


def _served_folder(common: bytes | None) -> bytes | None:
    """Return the folder that contains all local images; None if serving it would serve the whole disk.

    Label Studio serves files below its document root, and a local storage must be a folder below that root: so the root
    is the parent of the image folder, which must not be `/`.
    """
    return None if common is None or os.path.dirname(common) == b"/" else common


def _address(item: Item, served: bytes | None) -> str:
    """Return a URL, or a path below the folder that Label Studio serves; empty if the image has to be embedded."""
    if item.url is not None:
        return item.url
    if item.path is None or served is None:
        return ""
    return LOCAL + quote(os.path.relpath(os.path.abspath(item.path), os.path.dirname(served)), safe="/")


def _task(item: Item, address: str) -> dict[str, Any]:
    data: dict[str, Any] = {OBJECT: address, **item.prefixed}
    if "gain" in item.values:
        data[f"{PREFIX}score"] = item.values["gain"]
    task: dict[str, Any] = {"data": data}
    if item.label is not None:
        task["annotations"] = [{"result": [_choice(item.label)]}]
    if item.predicted is not None:
        prediction: dict[str, Any] = {"model_version": f"curate-{__version__}", "result": [_choice(item.predicted)]}
        if item.probability is not None:
            prediction["score"] = item.probability
        task["predictions"] = [prediction]
    return task


def _choice(name: str) -> dict[str, Any]:
    return {"from_name": CONTROL, "to_name": OBJECT, "type": "choices", "value": {"choices": [name]}}


def read(path: Path, rows: ExpectedRows, name: str | None = None) -> Labels:
    """Read annotations; predictions never count as labels.

    A task is found by `data.curate_key`, else by `data.image` if it is the key or path of exactly one. ``name`` is the
    control (`from_name`), if there are several.
    """
    tasks = read_json(path, what=_WHAT)
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        kind = "an object" if isinstance(tasks, dict) else "something else"
        raise InputError(f"expected {_WHAT} in {path}, a list of tasks, got {kind}; export the project as JSON")
    collector = Collector(rows, str(path))
    # every address that belongs to exactly one key
    places = rows.by_text(lambda item: {item.key, item.uri, item.path_text, *_served_addresses(item)})
    if tasks and not any("data" in task for task in tasks):
        _read_min(tasks, collector, places, name or CONTROL, path)
    else:
        control = _control(tasks, name, path)
        for task in tasks:
            _read_task(task, collector, places, control)
    return collector.finish()


def _served_addresses(item: Item) -> Iterator[str]:
    """Yield every address that a local file may have, since the document root is unknown."""
    parts = [] if item.path is None else os.path.abspath(item.path).lstrip(b"/").split(b"/")
    for start in range(len(parts)):
        yield LOCAL + quote(b"/".join(parts[start:]), safe="/")


def _find(data: dict[str, Any], places: dict[str, str]) -> Any:
    """Return the key of a task, or its file name if there is none."""
    if PREFIX + KEY in data:
        return data[PREFIX + KEY]
    image = data.get(OBJECT)
    return places.get(image, image) if isinstance(image, str) else "a task without curate_key and image"


def _annotations(task: dict[str, Any]) -> list[Any]:
    annotations = task.get("annotations")
    return annotations if isinstance(annotations, list) else []


def _choices(annotation: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the control and the chosen value for every choice of an annotation."""
    results = annotation.get("result")
    for answer in results if isinstance(results, list) else []:
        value = answer.get("value") if isinstance(answer, dict) else None
        if isinstance(value, dict) and "choices" in value:
            yield str(answer.get("from_name", CONTROL)), value["choices"]


def _control(tasks: list[dict[str, Any]], name: str | None, path: Path) -> str | None:
    """Return the control to read; None if the file has none."""
    controls: dict[str, None] = {}
    for task in tasks:
        for annotation in _annotations(task):
            if isinstance(annotation, dict):
                controls.update((control, None) for control, _ in _choices(annotation))
    if name is None and len(controls) > 1:
        raise InputError(
            f"expected choices of one control in {path}, got {', '.join(controls)}; choose the one to read"
        )
    if name is not None and controls and name not in controls:
        raise InputError(f"expected choices of the control {name!r} in {path}, got choices of {', '.join(controls)}")
    return name or next(iter(controls), None)


def _read_task(task: dict[str, Any], collector: Collector, places: dict[str, str], control: str | None) -> None:
    data = task.get("data")
    key = _find(data, places) if isinstance(data, dict) else "a task without data"
    annotations = _annotations(task)
    if not annotations:
        collector.ignore(key, EMPTY)
    for annotation in annotations:
        if not isinstance(annotation, dict):
            collector.ignore(key, UNUSABLE, annotation)
        elif annotation.get("was_cancelled") is True:
            collector.ignore(key, CANCELLED)
        else:
            chosen = [choice for name, choice in _choices(annotation) if name == control]
            kinds = _kinds(annotation)
            if not chosen and kinds:
                collector.ignore(key, UNUSABLE, ", ".join(kinds))
            else:
                _add_annotation(collector, key, chosen[0] if len(chosen) == 1 else chosen, annotation)


def _kinds(annotation: dict[str, Any]) -> list[str]:
    """Return the kinds of annotations, such as `rectanglelabels`."""
    results = annotation.get("result")
    parts = results if isinstance(results, list) else []
    return sorted({str(part.get("type")) for part in parts if isinstance(part, dict)})


def _add_annotation(collector: Collector, key: Any, chosen: Any, annotation: dict[str, Any]) -> None:
    """Add one annotation; only a single choice is a label."""
    if isinstance(chosen, list):
        if len(chosen) > 1:
            collector.ignore(key, SEVERAL, chosen)
            return
        chosen = chosen[0] if chosen else None
    time = annotation.get("updated_at") or annotation.get("created_at")
    collector.add(key, chosen, _annotator(annotation), time)


def _annotator(annotation: dict[str, Any]) -> str | None:
    """Return the annotator: the e-mail address if exported, else the number."""
    annotator = annotation.get("completed_by", annotation.get("annotator"))
    if isinstance(annotator, dict):
        annotator = annotator.get("email") or annotator.get("id")
    return text_of(annotator)


def _read_min(
    rows: list[dict[str, Any]], collector: Collector, places: dict[str, str], control: str, path: Path
) -> None:
    """Read JSON-MIN: one object per annotation, with data and choice in one object."""
    if not any(control in row for row in rows):
        names = ", ".join(name for name in rows[0] if not name.startswith(PREFIX))[:200]
        raise InputError(f"expected the choices as {control!r} in {path}, got the names {names}; choose the control")
    for row in rows:
        chosen = row.get(control)
        if isinstance(chosen, dict):
            chosen = chosen.get("choices", chosen)
        _add_annotation(collector, _find(row, places), chosen, row)


LABEL_STUDIO = Format(
    part,
    finish,
    read=read,
    out="a JSON list of tasks with `data.image`, `data.curate_*`, known and predicted labels, and the labelling "
    "configuration (XML) where the classes are known",
    back="the JSON or JSON-MIN export, found by `data.curate_key`",
    reads_images=True,
    suffix=".json",
    load=("import json; data = json.load(open({out}))  # or import it into a project",),
)
