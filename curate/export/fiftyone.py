"""FiftyOne's own dataset layout (`FiftyOneDataset`): metadata.json, samples.json and data/, both ways.

Source: the layout as FiftyOne 1.x writes and imports it, https://docs.voxel51.com/user_guide/export_datasets.html
(format FiftyOneDataset).
"""

import hashlib
import re
from pathlib import Path
from typing import Any

from curate.columns import KEY
from curate.export.batch import PREFIX, Batch, Item, Value
from curate.export.contract import ExportOptions, Format, Written
from curate.export.folders import add_image, new_folder
from curate.export.labels import EMPTY, SEVERAL, UNUSABLE, Collector, ExpectedRows, Labels
from curate.export.names import KeyNames
from curate.manifest.text import read_json, to_json, to_json_list
from scoring.errors import InputError

VERSION = "1.0.0"  # of the layout; newer FiftyOne migrates it as it imports
DATA = "data"
SAMPLES = "samples.json"
METADATA = "metadata.json"
PREDICTION = f"{PREFIX}prediction"  # field of the predicted label, which never counts as one that came back
LABEL_FIELD = "ground_truth"  # FiftyOne's usual name
_WHAT = "a FiftyOneDataset export"
_FIELDS = "fiftyone.core.fields."
_LABELS = "fiftyone.core.labels."
_KINDS = {bool: "BooleanField", int: "IntField", float: "FloatField", str: "StringField"}


def write(batch: Batch, out: Path, options: ExportOptions) -> Written:
    """Write a folder that `fiftyone.Dataset.from_dir(dataset_type=fiftyone.types.FiftyOneDataset)` imports.

    Images are copied into `data/`, or linked where ``options.link`` says so.

    Raises:
        InputError: also if an image cannot be had; names the key.
    """
    KeyNames(item.key for item in batch)  # no two keys of one name
    wide = _wide(batch)
    with new_folder(out, batch, options, images=DATA, files=(SAMPLES, METADATA)) as folder:
        samples = [_sample(item, f"{DATA}/{add_image(folder, item, DATA, options)}", wide) for item in batch]
        folder.write(SAMPLES, b'{"samples": ' + to_json_list(samples) + b"}\n")
        folder.write(METADATA, to_json(_metadata(batch, out.name, options.classes, wide)))
    return Written((out,), len(batch))


def _wide(batch: Batch) -> set[str]:
    """Return the columns of whole numbers that the database cannot hold (more than 64 bits with a sign)."""
    found = ((name, value) for item in batch for name, value in item.prefixed.items())
    return {name for name, value in found if isinstance(value, int) and not -(2**63) <= value < 2**63}


def _values(item: Item, wide: set[str]) -> dict[str, Value]:
    """Return an item's fields, under names that the database takes; wide numbers as text."""
    said = (f"{PREFIX}predicted", f"{PREFIX}probability")
    values = {name: value for name, value in item.prefixed.items() if name not in said}
    return {re.sub(r"\W", "_", name): str(value) if name in wide else value for name, value in values.items()}


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
    return {
        "_id": _object_id(identity),
        "_cls": "Classification",
        "tags": [],
        "label": label,
        "confidence": confidence,
    }


def _object_id(text: str) -> dict[str, str]:
    """Return an id of 12 bytes that only the text decides."""
    return {"$oid": hashlib.sha256(text.encode()).hexdigest()[:24]}


def _metadata(batch: Batch, name: str, classes: tuple[str, ...], wide: set[str]) -> dict[str, Any]:
    kinds: dict[str, str] = {}
    for item in batch:
        for column, value in _values(item, wide).items():
            kinds.setdefault(column, _KINDS[type(value)])
    fields = [
        _field("id", "ObjectIdField", stored_as="_id"),
        _field("filepath", "StringField"),
        _field("tags", "ListField", of="StringField"),
        _field("metadata", "EmbeddedDocumentField", document="fiftyone.core.metadata.Metadata"),
        *(_field(column, kind) for column, kind in kinds.items()),
    ]
    classified = {
        PREDICTION: any(item.predicted is not None for item in batch),
        LABEL_FIELD: any(item.label is not None for item in batch),
    }
    for name_of_field in (field for field, is_there in classified.items() if is_there):
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
        "_id": _object_id(name),
        "name": name,
        "version": VERSION,
        "media_type": "image",
        "tags": ["curate"],
        "info": {},
        "classes": {LABEL_FIELD: list(classes)} if classes else {},
        "default_classes": [],
        "sample_fields": fields,
        "frame_fields": [],
        "saved_views": [],
        "annotation_runs": {},
        "brain_methods": {},
        "evaluations": {},
        "runs": {},
    }


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
    """Read one Classification a sample, found by `curate_key`, else by the name of the file.

    ``name`` is the field; without it `ground_truth`, else the only Classification that is not `curate_prediction`.
    An attribute `annotator` of the label says who.
    """
    if path.is_dir() and not (path / SAMPLES).is_file():
        raise InputError(f"expected {_WHAT} in {path}, got no {SAMPLES}; export with dataset_type=FiftyOneDataset")
    file = path / SAMPLES if path.is_dir() else path
    whole = read_json(file, what=_WHAT)
    samples = whole.get("samples") if isinstance(whole, dict) else None
    if not isinstance(samples, list) or not all(isinstance(sample, dict) for sample in samples):
        raise InputError(f"expected {_WHAT} with a list 'samples' in {file}, got something else; export it again")
    chosen = _label_field(samples, name, file)
    collector = Collector(rows, str(path))
    names = KeyNames(rows.uris)
    by_uri = {uri: key for key, uri in rows.uris.items() if uri}
    for sample in samples:
        _take(collector, _find(sample, names, by_uri), sample.get(chosen))
    return collector.finish()


def _label_field(samples: list[dict[str, Any]], name: str | None, file: Path) -> str:
    found: dict[str, None] = {}
    for sample in samples:
        for field, value in sample.items():
            if isinstance(value, dict) and value.get("_cls") in ("Classification", "Classifications"):
                found[field] = None
    found.pop(PREDICTION, None)
    if name is not None and name not in found:
        raise InputError(
            f"expected a Classification {name!r} in {file}, got {', '.join(found) or 'none'}; name another"
        )
    if name is None and LABEL_FIELD not in found and len(found) != 1:
        got = ", ".join(found) or "none"
        raise InputError(f"expected a Classification field {LABEL_FIELD!r} in {file}, got {got}; name the field")
    return name or (LABEL_FIELD if LABEL_FIELD in found else next(iter(found)))


def _find(sample: dict[str, Any], names: KeyNames, by_uri: dict[str, str]) -> Any:
    if PREFIX + KEY in sample:
        return sample[PREFIX + KEY]
    path = sample.get("filepath")
    if not isinstance(path, str):
        return "a sample without curate_key and filepath"
    return by_uri.get(path) or names.key_of(path.rpartition("/")[2]) or path


def _take(collector: Collector, key: Any, label: Any) -> None:
    if label is None:
        collector.ignore(key, EMPTY)
    elif not isinstance(label, dict):
        collector.ignore(key, UNUSABLE, label)
    elif isinstance(several := label.get("classifications"), list):
        if len(several) > 1:
            collector.ignore(key, SEVERAL)
        else:
            _take(collector, key, several[0] if several else None)
    else:
        collector.add(key, label.get("label"), label.get("annotator"), label.get("at"))


FIFTYONE = Format(
    write,
    read,
    out="a folder in the FiftyOneDataset layout: `data/`, `samples.json` with `curate_*` fields and "
    "known labels as `ground_truth`, `metadata.json`",
    back="a Classification field of the exported FiftyOneDataset, found by `curate_key`",
    folder=True,
    reads_images=True,
)
