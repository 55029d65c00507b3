"""WebDataset: tar files of images, each with its columns as JSON."""

import tarfile
from typing import Any

from curate.columns import KEY, LABEL, URI
from curate.exporting.contract import Format, Plan, nothing_more
from curate.exporting.parts import HashedFile, Part
from curate.exporting.rows import RECORD_STEP, Rows, is_json
from curate.manifest.text import to_json

BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write a shard: `NUMBER.jpg` and `NUMBER.json` for each row, in table order.

    NUMBER is the row number in nine digits: a sample's name ends at its first dot, and keys contain dots. The key is in
    the JSON. Times and owners are zero, so that equal rows give equal bytes.
    """
    records: list[dict[str, Any]] = []
    first = 0
    with part.file(f"shard-{part.number:06d}.tar") as tar:
        for image in part.read(rows):
            if image.index >= first + len(records) or not records:
                first = image.index - image.index % RECORD_STEP
                records = rows.records(first, min(first + RECORD_STEP, len(rows)))
            record = records[image.index - first]
            record |= {name: value for name, value in image.facts.items() if name in record}
            record[KEY] = rows.keys[image.index]
            if plan.label is not None:
                record[LABEL] = rows.labels[image.index]
            if not plan.takes_uri:
                record.pop(URI, None)
            name = f"{rows.start + image.index:09d}"
            _add(tar, f"{name}.{image.suffix}", image.data)
            _add(tar, f"{name}.json", to_json(record, indent=None))
        tar.write(END)


def _add(tar: HashedFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.write(info.tobuf(tarfile.USTAR_FORMAT))
    tar.write(data)
    tar.write(bytes(-len(data) % BLOCK))


WEBDATASET = Format(
    part,
    nothing_more,
    takes=is_json,
    out="`shard-000000.tar`, ... with `NUMBER.jpg` and `NUMBER.json` a row: key, `label` and columns",
    folder=True,
    reads_images=True,
    shards=True,
    minimal=True,
    load=(
        "import pathlib, webdataset; "
        "shards = [str(path) for path in sorted(pathlib.Path({out}).glob('*.tar'))]; "
        "data = webdataset.WebDataset(shards, shardshuffle=False).decode('pil')",
    ),
)
