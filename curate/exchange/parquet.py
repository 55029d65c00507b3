"""Parquet with the images inside, as Hugging Face `datasets` loads it."""

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from curate.exchange.contract import Format, nothing_more
from curate.exchange.parts import Part
from curate.exchange.pictures import Picture
from curate.exchange.plan import Plan
from curate.exchange.rows import Rows

IMAGE = "image"
KIND = pa.struct([pa.field("bytes", pa.binary()), pa.field("path", pa.string())])
GROUP_BYTES = 32 << 20  # of images in a row group: what a reader of one row has to load
GROUP_ROWS = 1000


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write a shard `data/train-00000-of-00012.parquet`: `image` (bytes and name), then all columns."""
    schema = schema_of(plan)
    name = f"data/train-{part.number:05d}-of-{len(plan.starts):05d}.parquet"
    with (
        part.file(name) as file,
        pq.ParquetWriter(file, schema, compression="none", use_dictionary=False, write_page_checksum=True) as writer,
    ):
        for table in tables(rows, part, schema):
            writer.write_table(table, row_group_size=GROUP_ROWS)


def tables(rows: Rows, part: Part, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows that have an image, with it, in pieces of about 32 MB."""
    held: list[Picture] = []
    n_bytes = 0
    for picture in part.read(rows):
        held.append(picture)
        n_bytes += picture.n_bytes
        if n_bytes >= GROUP_BYTES or len(held) >= GROUP_ROWS:
            yield _table(rows, held, schema)
            held, n_bytes = [], 0
    if held:
        yield _table(rows, held, schema)


def _table(rows: Rows, pictures: list[Picture], schema: pa.Schema) -> pa.Table:
    table = rows.table.take(pa.array([picture.index for picture in pictures]))
    for name in ("width", "height", "format", "n_bytes", "sha256"):
        if name in table.column_names and any(name in picture.facts for picture in pictures):
            old = table[name].to_pylist()
            new = [picture.facts.get(name, was) for picture, was in zip(pictures, old, strict=True)]
            table = table.set_column(table.column_names.index(name), name, pa.array(new, table[name].type))
    names = [f"{rows.start + picture.index:09d}.{picture.suffix}" for picture in pictures]
    bytes_ = pa.array([picture.data for picture in pictures], pa.binary())
    image = pa.StructArray.from_arrays([bytes_, pa.array(names, pa.string())], fields=list(KIND))
    return pa.Table.from_arrays([image, *table.columns], schema=schema)


def schema_of(plan: Plan) -> pa.Schema:
    """Return `image` and all columns; one that has this name already is `source_image`.

    The metadata tells `datasets` that it holds pictures.
    """
    fields = [field.with_name(f"source_{IMAGE}") if field.name == IMAGE else field for field in plan.schema]
    features = {"info": {"features": {IMAGE: {"_type": "Image"}}}}
    return pa.schema([pa.field(IMAGE, KIND), *fields], {"huggingface": json.dumps(features)})


PARQUET = Format(
    part,
    nothing_more,
    out="`data/train-00000-of-00012.parquet`, ...: the images inside as `image`, and all columns",
    folder=True,
    reads_images=True,
    shards=True,
    load='datasets.load_dataset("subset")',
)
