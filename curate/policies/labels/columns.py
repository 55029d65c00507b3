"""What is thought of labels, as columns of the subset."""

from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.policies.compare_arranged import Expected
from curate.policies.labels.examine import Examined
from curate.policies.labels.request import AGREEMENT, QUALITY, SUGGESTED, WHY, LabelsRequest
from curate.policies.reviewed import relabelled
from curate.tables.table import Table


class LabelColumns:
    """The columns that are added, of any rows.

    Args:
        table: whose labels were examined.
        request: what was requested.
        examined: what came of it.
    """

    def __init__(self, table: Table, request: LabelsRequest, examined: Examined) -> None:
        self.table, self.request, self.examined = table, request, examined

    @cached_property
    def names(self) -> pa.Array:
        """The classes, in the type of their column."""
        texts = pa.array(self.examined.classes, pa.string())
        if not self.request.columns:
            return texts
        kind = self.table.schema.field(self.request.columns[0]).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        try:
            return texts.cast(kind)
        except pa.ArrowException:  # several columns of other types, or one that text does not become
            return texts

    @property
    def same_classes(self) -> dict[str, str]:
        """Columns that hold classes of a column of the table, and which one; none where there are several."""
        reviewed = self.examined.reviewed
        if len(self.request.columns) != 1 or (reviewed is not None and reviewed.labels):
            return {}
        added = (SUGGESTED, *([self.request.relabel] if self.request.relabel else []))
        return dict.fromkeys(added, self.request.columns[0])

    def classes(self, codes: NDArray[np.int32]) -> pa.Array:
        """Return classes by their codes; null for -1."""
        return self.names.take(pa.array(codes, mask=codes < 0))

    def of(self, rows: NDArray[np.int64]) -> pa.Table:
        """Return the columns of some rows of the table."""
        examined, request = self.examined, self.request
        quality = examined.quality[rows]
        columns = {
            QUALITY: pa.array(quality, mask=np.isnan(quality)),
            SUGGESTED: self.classes(examined.suggested[rows]),
            WHY: examined.why().take(pa.array(rows)),
        }
        if examined.agreement is not None:
            columns[AGREEMENT] = pa.array(examined.agreement[rows], mask=np.isnan(examined.agreement[rows]))
        if request.relabel is not None:
            corrected = np.where(examined.suspected(request.below), examined.suggested, examined.labels)
            columns[request.relabel] = self.classes(corrected[rows].astype(np.int32))
        if examined.reviewed is not None:
            columns |= relabelled(examined.reviewed, self.table, rows)
        return pa.table(columns)

    def expected(self, rows: NDArray[np.int64]) -> Expected:
        """Return what a subset of some rows of the table should hold."""
        return Expected(self.of(rows), self.examined.hashes[rows], rows, ordered=False)
