"""Lance: a columnar data set with the images inside, a fragment a part."""

import json
from types import ModuleType

from curate.exporting.contract import Format, Plan
from curate.exporting.parquet import schema_of, tables
from curate.exporting.parts import AllParts, Entry, Part
from curate.exporting.rows import Rows
from curate.manifest.text import to_json
from scoring.errors import InputError
from scoring.file_digest import file_sha256

FRAGMENTS = "fragments"
DATA = "data"  # where Lance puts the files of fragments


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write the rows as one fragment, `image` (bytes and name) first; what describes it is kept for the end.

    Raises:
        InputError: without pylance.
    """
    lance = _lance()
    reader = (batch for table in tables(rows, part, plan, schema_of(plan)) for batch in table.to_batches())
    written = lance.fragment.write_fragments(reader, str(part.folder), schema_of(plan), mode="create")
    for fragment in written:
        part.piece(FRAGMENTS, to_json(fragment.to_json(), indent=None))
        for file in fragment.files:
            path = part.folder / DATA / file.path
            part.entries.append(Entry(f"{DATA}/{file.path}", path.stat().st_size, file_sha256(path)))


def finish(parts: AllParts, plan: Plan) -> tuple[str, ...]:
    """Make one version of all fragments."""
    lance = _lance()
    lines = [line for path in parts.places(FRAGMENTS) for line in path.read_bytes().splitlines()]
    fragments = [lance.FragmentMetadata.from_json(json.dumps(json.loads(line))) for line in lines]
    known = {path for path in parts.folder.rglob("*") if path.is_file()}
    operation = lance.LanceOperation.Overwrite(schema_of(plan), fragments)
    lance.LanceDataset.commit(str(parts.folder), operation)
    for path in sorted(path for path in parts.folder.rglob("*") if path.is_file() and path not in known):
        name = path.relative_to(parts.folder).as_posix()
        parts.entries.append(Entry(name, path.stat().st_size, file_sha256(path)))
    return ()


def _lance() -> ModuleType:
    try:
        import lance
        import lance.fragment
    except ImportError:
        raise InputError("lance needs the package pylance: pip install 'kappa-curate[lance]'") from None
    module: ModuleType = lance
    return module


LANCE = Format(
    part,
    finish,
    out="a Lance data set: the images inside as `image`, and all columns; a fragment a shard (extra `lance`)",
    folder=True,
    reads_images=True,
    shards=True,
    minimal=True,
    load=("import lance; data = lance.dataset({out})",),
)
