"""What the small CSV readers share: read named columns, demand the required ones, rename them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangline.errors import TraceError
from gangline.trace.normalise import Raw
from gangline.trace.text import CsvFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from gangline.trace.options import Options
    from gangline.trace.source import Source


def read_columns(
    source: Source,
    options: Options,
    reader: str,
    wanted: Mapping[str, tuple[str, pa.DataType]],
    optional: Mapping[str, tuple[str, pa.DataType]] | None = None,
) -> Raw:
    """Read a CSV file whose columns map one to one.

    Parameters
    ----------
    source, options : Source, Options
        The input and what was asked.
    reader : str
        Name of the format.
    wanted, optional : mapping
        Name in the file, in lower case, to (internal name, Arrow type).
    """
    file = CsvFile(source)
    notes: dict[str, int] = {}
    both = {**wanted, **(optional or {})}
    table = file.read(
        {name: kind for name, (_, kind) in both.items()},
        drop_bad=options.on_bad_row == "drop",
        notes=notes,
    )
    missing = [name for name in wanted if name not in table.column_names]
    if missing:
        raise TraceError(
            f"{source.name}:1: missing column {', '.join(missing)}; "
            f"{reader} needs {', '.join(wanted)}",
            path=source.name,
            line=1,
            column=missing[0],
        )
    return Raw(
        columns={both[name][0]: table.column(name) for name in table.column_names},
        path=source.name,
        reader=reader,
        names={internal: name for name, (internal, _) in both.items()},
        line_of=file.line_of,
        cell=file.cell,
        notes=notes,
    )
