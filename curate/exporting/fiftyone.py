"""FiftyOne's dataset layout (`FiftyOneDataset`): metadata.json, samples.json and data/; written and read.

Source: the layout as FiftyOne 1.x writes and imports it, https://docs.voxel51.com/user_guide/export_datasets.html
(format FiftyOneDataset).
"""

import hashlib
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from curate.columns import KEY, URI
from curate.exporting.contract import Format, Plan
from curate.exporting.item import PREDICTED, PREFIX, PROBABILITY, Item, Value
from curate.exporting.labels import EMPTY, SEVERAL, UNUSABLE, Collector, ExpectedRows, Labels
from curate.exporting.names import KeyNames
from curate.exporting.parts import COMMA, AllParts, Part
from curate.exporting.rows import Rows, is_plain
from curate.manifest.text import read_json, to_json
from scoring.errors import InputError

VERSION = "1.0.0"  # version of the layout; newer FiftyOne migrates it on import
DATA = "data"
SAMPLES = "samples.json"
METADATA = "metadata.json"
PREDICTION = f"{PREFIX}prediction"  # field of the predicted label, which is never read back as a label
LABEL_FIELD = "ground_truth"  # FiftyOne's usual name
_WHAT = "a FiftyOneDataset export"
_FIELDS = "fiftyone.core.fields."
_LABELS = "fiftyone.core.labels."


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Copy or link the images of some rows into `data/`, and write their samples."""
    wide = _uint64_columns(plan.schema)
    images = part.store(rows, plan.names, lambda _: DATA)
    part.items(SAMPLES, (_sample(rows.items[each.index].updated(each.facts), each.name, wide) for each in images))


def finish(parts: AllParts, plan: Plan) -> tuple[str, ...]:
    """Write the files that `fiftyone.Dataset.from_dir` imports, next to the images."""
    parts.joined(SAMPLES, SAMPLES, b'{"samples": [\n', b"\n]\n}\n", COMMA)
    parts.write(METADATA, to_json(_metadata(plan)))
    return ()


def _uint64_columns(schema: pa.Schema) -> set[str]:
    """Return the columns of unsigned 64-bit integers, which the database cannot store."""
    return {field.name for field in schema if field.type == pa.uint64()}


def _field_name(column: str) -> str:
    """Return a valid field name for the database."""
    return re.sub(r"\W", "_", PREFIX + column.removeprefix(PREFIX))


def _values(item: Item, wide: set[str]) -> dict[str, Value]:
    """Return the fields of an item, with 64-bit unsigned integers as text."""
    names = (name for name in item.values if name not in (PREDICTED, PROBABILITY, KEY))
    values = {_field_name(name): str(item.values[name]) if name in wide else item.values[name] for name in names}
    return {f"{PREFIX}{KEY}": item.key, **values}


def _sample(item: Item, path: str, wide: set[str]) -> dict[str, Any]:
    tags = ["curate"] + ([f"round-{item.values['round']}"] if "round" in item.values else [])
    digest = int.from_bytes(hashlib.sha256(item.key.encode()).digest()[-4:], "big")
    sample: dict[str, Any] = {
        "_id": _object_id(item.key),
        "filepath": path,
        "tags": tags,
        "metadata": None,
        "_media_type": "image",
        "_rand": digest / 2**32,
        **_values(item, wide),
    }
    if item.predicted is not None:
        sample[PREDICTION] = _classification(item.key + "\0prediction", item.predicted, item.probability)
    if item.label is not None:
        sample[LABEL_FIELD] = _classification(item.key + "\0label", item.label, None)
    return sample


def _classification(identity: str, label: str, confidence: float | None) -> dict[str, Any]:
    return {"_id": _object_id(identity), "_cls": "Classification", "tags": [], "label": label, "confidence": confidence}


def _object_id(text: str) -> dict[str, str]:
    """Return a 12-byte id determined by the text."""
    return {"$oid": hashlib.sha256(text.encode()).hexdigest()[:24]}


def _metadata(plan: Plan) -> dict[str, Any]:
    kinds = {f"{PREFIX}{KEY}": "StringField"}
    wide = _uint64_columns(plan.schema)
    for field in plan.schema:
        if is_plain(field.type) and field.name not in (KEY, URI, plan.label, PREDICTED, PROBABILITY):
            kinds[_field_name(field.name)] = "StringField" if field.name in wide else _kind(field.type)
    fields = [
        _field("id", "ObjectIdField", stored_as="_id"),
        _field("filepath", "StringField"),
        _field("tags", "ListField", of="StringField"),
        _field("metadata", "EmbeddedDocumentField", document="fiftyone.core.metadata.Metadata"),
        *(_field(column, kind) for column, kind in kinds.items()),
    ]
    classified = {PREDICTION: PREDICTED in plan.schema.names, LABEL_FIELD: plan.labelled > 0}
    for name_of_field in (field for field, is_used in classified.items() if is_used):
        parts = [
            _field("id", "ObjectIdField", stored_as="_id"),
            _field("tags", "ListField", of="StringField"),
            _field("label", "StringField"),
            _field("confidence", "FloatField"),
            _field("logits", "VectorField"),
        ]
        document = f"{_LABELS}Classification"
        fields.append({**_field(name_of_field, "EmbeddedDocumentField", document=document), "fields": parts})
    return {
        "_id": _object_id(plan.name),
        "name": plan.name,
        "version": VERSION,
        "media_type": "image",
        "tags": ["curate"],
        "info": {},
        "classes": {LABEL_FIELD: list(plan.classes)} if plan.classes else {},
        "default_classes": [],
        "sample_fields": fields,
        "frame_fields": [],
        "saved_views": [],
        "annotation_runs": {},
        "brain_methods": {},
        "evaluations": {},
        "runs": {},
    }


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return "BooleanField"
    return "IntField" if pa.types.is_integer(kind) else "FloatField" if pa.types.is_floating(kind) else "StringField"


def _field(
    name: str, kind: str, *, of: str | None = None, document: str | None = None, stored_as: str | None = None
) -> dict[str, Any]:
    return {
        "name": name,
        "ftype": _FIELDS + kind,
        "embedded_doc_type": document,
        "subfield": _FIELDS + of if of else None,
        "fields": [],
        "db_field": stored_as or name,
        "description": None,
        "info": None,
    }


def read(path: Path, rows: ExpectedRows, name: str | None = None) -> Labels:
    """Read one Classification per sample, matched by `curate_key`, else by file name.

    ``name`` is the field; by default `ground_truth`, else the only Classification other than `curate_prediction`. The
    label's attribute `annotator` names the annotator.
    """
    if path.is_dir() and not (path / SAMPLES).is_file():
        raise InputError(f"expected {_WHAT} in {path}, got no {SAMPLES}; export with dataset_type=FiftyOneDataset")
    file = path / SAMPLES if path.is_dir() else path
    content = read_json(file, what=_WHAT)
    samples = content.get("samples") if isinstance(content, dict) else None
    if not isinstance(samples, list) or not all(isinstance(sample, dict) for sample in samples):
        raise InputError(f"expected {_WHAT} with a list 'samples' in {file}, got something else; export it again")
    chosen = _label_field(samples, name, file)
    collector = Collector(rows, str(path))
    names = KeyNames(rows.uris)
    by_uri = {uri: key for key, uri in rows.uris.items() if uri}
    for sample in samples:
        _add_label(collector, _find(sample, names, by_uri), sample.get(chosen))
    return collector.finish()


def _label_field(samples: list[dict[str, Any]], name: str | None, file: Path) -> str:
    kinds = ("Classification", "Classifications")
    named = (pair for sample in samples for pair in sample.items() if pair[0] != PREDICTION)
    fields = dict.fromkeys(field for field, value in named if isinstance(value, dict) and value.get("_cls") in kinds)
    if name is not None and name not in fields:
        raise InputError(
            f"expected a Classification {name!r} in {file}, got {', '.join(fields) or 'none'}; choose another"
        )
    if name is None and LABEL_FIELD not in fields and len(fields) != 1:
        got = ", ".join(fields) or "none"
        raise InputError(f"expected a Classification field {LABEL_FIELD!r} in {file}, got {got}; choose the field")
    return name or (LABEL_FIELD if LABEL_FIELD in fields else next(iter(fields)))


def _find(sample: dict[str, Any], names: KeyNames, by_uri: dict[str, str]) -> Any:
    if PREFIX + KEY in sample:
        return sample[PREFIX + KEY]
    path = sample.get("filepath")
    if not isinstance(path, str):
        return "a sample without curate_key and filepath"
    return by_uri.get(path) or names.key_of(path.rpartition("/")[2]) or path


def _add_label(collector: Collector, key: Any, label: Any) -> None:
    if label is None:
        collector.ignore(key, EMPTY)
    elif not isinstance(label, dict):
        collector.ignore(key, UNUSABLE, label)
    elif isinstance(several := label.get("classifications"), list):
        if len(several) > 1:
            collector.ignore(key, SEVERAL)
        else:
            _add_label(collector, key, several[0] if several else None)
    else:
        collector.add(key, label.get("label"), label.get("annotator"), label.get("at"))


FIFTYONE = Format(
    part,
    finish,
    read=read,
    out="a folder in the FiftyOneDataset layout: `data/`, `samples.json` with `curate_*` fields and "
    "known labels as `ground_truth`, `metadata.json`",
    back="a Classification field of the exported FiftyOneDataset, found by `curate_key`",
    folder=True,
    reads_images=True,
    links=True,
    load=("import fiftyone; data = fiftyone.Dataset.from_dir({out}, fiftyone.types.FiftyOneDataset)",),
)
