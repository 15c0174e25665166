"""The formats that are known, and how a file is recognised."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from gangline.errors import TraceError
from gangline.trace.text import header, simple

if TYPE_CHECKING:
    from gangline.trace.normalise import Raw
    from gangline.trace.options import Options
    from gangline.trace.source import Source


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One format.

    Attributes
    ----------
    name : str
        As `--format` takes it.
    reader, writer : str
        Module in `gangline.trace.readers` with `read(source, options) -> Raw`, and in
        `gangline.trace.writers`; empty where the format cannot be read, or not written.
    columns : frozenset
        Header names, in lower case, that a CSV file of this format must have.
    summary : str
        One line for people.
    """

    name: str
    columns: frozenset[str]
    summary: str
    reader: str = ""
    writer: str = ""


FORMATS = (
    Format(
        name="native",
        reader="native",
        columns=frozenset({"arrival_s", "gpus"}),
        summary="Parquet, Arrow or CSV with job_id, arrival_s, gpus, duration_s or iterations",
    ),
    Format(
        name="philly-csv",
        reader="philly_csv",
        columns=frozenset({"timestamp", "duration", "num_gpus", "gpu_time", "cluster"}),
        summary="Philly extract: timestamp, duration, num_gpus, gpu_time, cluster",
    ),
    Format(
        name="four-column",
        reader="four_column",
        columns=frozenset({"job_id", "arrival_s", "service_sec", "gpu_count"}),
        summary="Helios Venus and PAI conversions: job_id, arrival_s, service_sec, gpu_count",
    ),
    Format(
        name="tiresias",
        reader="tiresias",
        columns=frozenset(
            {"job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval"}
        ),
        summary="Tiresias simulator: seconds",
    ),
    Format(
        name="muri",
        reader="muri",
        columns=frozenset(
            {
                "job_id",
                "num_gpu",
                "submit_time",
                "iterations",
                "model_name",
                "duration",
                "interval",
                "iteration_time",
                "resource_time_0",
            }
        ),
        summary="Muri simulator: the Tiresias header and stage times; milliseconds",
    ),
)

_WORK = {"duration_s", "iterations"}
_OLD_TIRESIAS = {"start_time", "model_size", "aggr_interval"}


class Reader(Protocol):
    """What a format's module offers."""

    def read(self, source: Source, options: Options) -> Raw:
        """Read the columns of one input."""


def reader_of(name: str) -> Reader:
    """Return the module of a format."""
    found = find(name)
    if not found.reader:
        known = ", ".join(item.name for item in FORMATS if item.reader)
        raise TraceError(f"format `{name}` cannot be read; these can: {known}", value=name)
    return cast("Reader", importlib.import_module(f"gangline.trace.readers.{found.reader}"))


def find(name: str) -> Format:
    """Return a format by its name.

    Raises
    ------
    TraceError
        If there is none; it lists the known.
    """
    for item in FORMATS:
        if item.name == name:
            return item
    known = ", ".join(item.name for item in FORMATS)
    raise TraceError(f"unknown trace format `{name}`; known: {known}", value=name, expected=known)


def detect(source: Source) -> str:
    """Return the name of the format, from the first 64 KiB.

    Raises
    ------
    TraceError
        If no format matches, or two match equally well; it says how near each is.
    """
    head = source.head
    if head[:4] == b"PAR1" or head[:6] == b"ARROW1" or head[:4] == b"\xff\xff\xff\xff":
        return "native"
    names = {simple(name) for name in header(head)}
    matches = [item for item in FORMATS if _matches(item, names)]
    matches.sort(key=lambda item: len(item.columns), reverse=True)
    if matches and (len(matches) == 1 or len(matches[0].columns) > len(matches[1].columns)):
        return matches[0].name
    raise TraceError(
        f"{source.name}: not a trace format that is known: {_nearness(names)}; "
        "force one with `--format` (or format=)",
        path=source.name,
        line=1,
        expected="a known header",
    )


def _matches(item: Format, names: set[str]) -> bool:
    return item.columns <= names and (item.name != "native" or bool(names & _WORK))


def _nearness(names: set[str]) -> str:
    if names >= _OLD_TIRESIAS:
        return "this is the older demo format of the Tiresias simulator, which has no iterations"
    parts = []
    for item in FORMATS:
        missing = sorted(item.columns - names)
        if item.name == "native" and not names & _WORK:
            missing.append("duration_s or iterations")
        parts.append(f"{item.name} lacks {', '.join(missing) or 'nothing'}")
    return "; ".join(parts)
