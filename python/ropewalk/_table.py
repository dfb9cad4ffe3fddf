"""Tables of results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk import _native


class Table:
    """Typed columns, all of one length.

    Every library that knows Arrow's PyCapsule interface takes it without a copy:
    `pandas.DataFrame.from_arrow(table)`, `polars.DataFrame(table)`, `pyarrow.table(table)`, and
    `duckdb.sql("from table_")`. Names of columns end in their unit; `units` and `meanings` say the rest.

    >>> import ropewalk
    >>> run = ropewalk.simulate("equal-paths", size="64 KiB")
    >>> run.runs["scheduler"]
    ['minrtt']
    >>> run.runs.units["fct_s"]
    's'
    """

    def __init__(self, native: _native.Table) -> None:
        self._native = native

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._native.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._native.__arrow_c_schema__()

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
        return self._native.column_names

    @property
    def metadata(self) -> dict[str, str]:
        """The schema's metadata: version, units and meanings as JSON, and where the table comes from."""
        return self._native.metadata

    @property
    def units(self) -> dict[str, str]:
        """Unit of each column that has one."""
        return self._native.units

    @property
    def meanings(self) -> dict[str, str]:
        """What each column is, in a line."""
        return self._native.meanings

    def __len__(self) -> int:
        return self._native.num_rows

    def __getitem__(self, name: str) -> list[Any]:
        """Give a column as a list; missing values are None."""
        return self._native.column(name)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Go through the rows as dictionaries."""
        names = self.column_names
        columns = [self[name] for name in names]
        for values in zip(*columns, strict=True):
            yield dict(zip(names, values, strict=True))

    def to_pandas(self) -> Any:
        """Give it as a pandas data frame (through pyarrow)."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Give it as a Polars data frame."""
        import polars

        return polars.DataFrame(self)

    def to_arrow(self) -> Any:
        """Give it as a PyArrow table."""
        try:
            import pyarrow
        except ImportError as error:
            raise ImportError("to_arrow() and to_pandas() need pyarrow: pip install pyarrow") from error
        return pyarrow.table(self)

    def __repr__(self) -> str:
        return f"Table({len(self)} rows: {', '.join(self.column_names)})"
