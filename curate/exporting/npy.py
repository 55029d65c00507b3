"""NumPy: a file a column, rows in one order in all."""

import io

import numpy as np
import pyarrow as pa

from curate.columns import URI
from curate.exporting.contract import Format, Plan
from curate.exporting.names import folder_names
from curate.exporting.parts import AllParts, Part
from curate.exporting.rows import Rows
from curate.tables.digests import numpy_type
from curate.tables.table import embedding_matrix
from scoring.errors import InputError

SUFFIX = ".npy"


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write the values of each column."""
    for name in _columns(plan):
        part.piece(name, _values(rows.table[name], plan, name).tobytes())


def finish(parts: AllParts, plan: Plan) -> tuple[str, ...]:
    """Write `key.npy`, `embedding.npy`, and a file for each other column; a null is NaN, or an empty text."""
    names = _columns(plan)
    files = folder_names(names)
    for name in names:
        kind, shape = _type(plan, name)
        header = io.BytesIO()
        described = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False}
        np.lib.format.write_array_header_1_0(header, {**described, "shape": (parts.n_rows, *shape)})
        parts.joined(files[name] + SUFFIX, name, header.getvalue())
    left_out = [field.name for field in plan.schema if field.name not in (*names, URI)]
    return (f"left out, as NumPy holds no such values: {', '.join(left_out)}",) if left_out else ()


def _columns(plan: Plan) -> list[str]:
    return [field.name for field in plan.schema if field.name != URI and _known(field.type) is not None]


def _known(kind: pa.DataType) -> str | None:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return "number"
    if pa.types.is_fixed_size_list(kind) and (
        pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)
    ):
        return "vector"
    return None


def _type(plan: Plan, name: str) -> tuple[np.dtype, tuple[int, ...]]:
    """Return the type of a column's file, and the shape of a row of it."""
    kind = plan.schema.field(name).type
    match _known(kind):
        case "text":
            return np.dtype(f"<U{max(1, plan.longest.get(name, 1))}"), ()
        case "vector":
            return numpy_type(kind.value_type), (kind.list_size,)
    nullable = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return numpy_type(kind) if not nullable or name not in plan.nullable else np.dtype("f8"), ()


def _values(column: pa.ChunkedArray, plan: Plan, name: str) -> np.ndarray:
    kind, _ = _type(plan, name)
    if kind.kind == "U":
        return np.array(["" if value is None else value for value in column.to_pylist()], kind)
    if pa.types.is_fixed_size_list(column.type):
        if pa.types.is_floating(column.type.value_type):
            return embedding_matrix(column).astype(kind)
        if column.null_count:
            raise InputError(
                f"npy: expected a value in every row of {name!r}, got none in some; leave it out of --take"
            )
        flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return flat.astype(kind)
    return column.to_numpy().astype(kind)


NPY = Format(
    part,
    finish,
    out="`key.npy`, `embedding.npy` and a file for each other column, rows in one order in all",
    folder=True,
    measures=True,
    load=("import numpy, pathlib; data = numpy.load(pathlib.Path({out}) / 'key.npy', mmap_mode='r')",),
)
