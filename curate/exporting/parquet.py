"""Parquet with embedded images, as Hugging Face `datasets` loads it."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.columns import LABEL, URI
from curate.exporting.contract import Format, Plan, nothing_more
from curate.exporting.parts import Part
from curate.exporting.row_images import ExportedImage, Lost
from curate.exporting.rows import Rows, is_any
from curate.exporting.sides import THEIR_NAMES, TRAIN

IMAGE = "image"
KIND = pa.struct([pa.field("bytes", pa.binary()), pa.field("path", pa.string())])
GROUP_BYTES = 32 << 20  # bytes of images per row group, which a reader of one row has to load
GROUP_ROWS = 1000


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write a shard of each split, `data/train-00000-of-00012.parquet`: `image` (bytes and name), `label`, columns."""
    sides = plan.sides.of(rows.keys, rows.labels, rows.texts(plan.per) if plan.per else [])
    lost: list[Lost] = []
    for side in plan.sides.names or ("",):
        places = [place for place, of_row in enumerate(sides) if of_row == side]
        if places or not plan.sides.names:
            _write(rows.take(places), part, plan, THEIR_NAMES.get(side, side) or TRAIN)
            lost += [replace(lost_image, index=places[lost_image.index]) for lost_image in part.lost]
            part.lost = []
    part.lost = lost


def _write(rows: Rows, part: Part, plan: Plan, split: str) -> None:
    schema = schema_of(plan)
    name = f"data/{split}-{part.number:05d}-of-{len(plan.starts):05d}.parquet"
    with (
        part.file(name) as file,
        pq.ParquetWriter(file, schema, compression="none", use_dictionary=False, write_page_checksum=True) as writer,
    ):
        for table in tables(rows, part, plan, schema):
            writer.write_table(table, row_group_size=GROUP_ROWS)


def tables(rows: Rows, part: Part, plan: Plan, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows that have an image, with it, in pieces of about 32 MB; ``schema`` comes from ``schema_of``."""
    columns = rows.table.select([field.name for field in _passed_fields(plan)])
    if plan.label is not None:
        classes = pa.array(plan.classes, pa.string())
        labels = pc.index_in(pa.array(rows.labels, pa.string()), classes).cast(pa.int64())
        columns = columns.set_column(columns.column_names.index(plan.label), LABEL, labels)
    held: list[ExportedImage] = []
    n_bytes = 0
    for image in part.read(rows):
        held.append(image)
        n_bytes += image.n_bytes
        if n_bytes >= GROUP_BYTES or len(held) >= GROUP_ROWS:
            yield _table(rows.start, columns, held, schema)
            held, n_bytes = [], 0
    if held:
        yield _table(rows.start, columns, held, schema)


def _table(start: int, columns: pa.Table, images: list[ExportedImage], schema: pa.Schema) -> pa.Table:
    table = columns.take(pa.array([image.index for image in images]))
    for name in ("width", "height", "format", "n_bytes", "sha256"):
        if name in table.column_names and any(name in image.facts for image in images):
            old = table[name].to_pylist()
            new = [image.facts.get(name, was) for image, was in zip(images, old, strict=True)]
            table = table.set_column(table.column_names.index(name), name, pa.array(new, table[name].type))
    names = [f"{start + image.index:09d}.{image.suffix}" for image in images]
    bytes_ = pa.array([image.data for image in images], pa.binary())
    structs = pa.StructArray.from_arrays([bytes_, pa.array(names, pa.string())], fields=list(KIND))
    return pa.Table.from_arrays([structs, *table.columns], schema=schema)


def schema_of(plan: Plan) -> pa.Schema:
    """Return `image`, `label` and the columns; a column of the same name becomes `source_NAME`.

    The metadata declares images and class names to `datasets`.
    """
    label = pa.field(LABEL, pa.int64())
    taken = {IMAGE} if plan.label is None else {IMAGE, LABEL}
    fields = [
        label if field.name == plan.label else field.with_name(f"source_{field.name}") if field.name in taken else field
        for field in _passed_fields(plan)
    ]
    features: dict[str, dict[str, object]] = {IMAGE: {"_type": "Image"}}
    if plan.label is not None:
        features[LABEL] = {"_type": "ClassLabel", "names": list(plan.classes)}
    noted = {"huggingface": json.dumps({"info": {"features": features}}, ensure_ascii=False)}
    return pa.schema([pa.field(IMAGE, KIND), *fields], noted)


def _passed_fields(plan: Plan) -> list[pa.Field]:
    return [field for field in plan.schema if plan.takes_uri or field.name != URI]


PARQUET = Format(
    part,
    nothing_more,
    takes=is_any,
    out="`data/train-00000-of-00012.parquet`, ...: the images inside as `image`, `label` as a ClassLabel, key, columns",
    folder=True,
    reads_images=True,
    shards=True,
    per=True,
    sides=True,
    minimal=True,
    load=("import datasets; data = datasets.load_dataset({out}, split='train')",),
)
