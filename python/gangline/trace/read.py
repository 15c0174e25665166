"""Opens a trace: finds its format, reads it, and builds the internal table."""

from __future__ import annotations

import hashlib
from os import PathLike
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from gangline._support.builtin_values import finite
from gangline.errors import TraceError
from gangline.files.origins import lookup
from gangline.files.quantities import mapping_of
from gangline.files.source import Source
from gangline.files.text import BOM, header, simple
from gangline.trace.detect import detect
from gangline.trace.formats import FORMATS, TABLE, find, reader_of, special_of
from gangline.trace.jobs import options as trace_options
from gangline.trace.jobs.table import Trace, build, raw_of_arrow
from gangline.trace.readers.native import NAME as NATIVE
from gangline.trace.reference import SYNTH, TraceReference, hashes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.table import ArrowStream


def read_trace(path: str | PathLike[str], *, format: str | None = None, **options: object) -> Trace:  # noqa: A002
    """Read a trace of any known format.

    Parameters
    ----------
    path : str or path
        A file, which may be compressed with gzip, xz or zstandard; a member
        `archive.tar.xz::member`; a folder of PAI tables; a generator
        `synth:philly?jobs=1000&seed=1`; or a trace that comes with gangline: `mini:philly`,
        `mini:helios`, `mini:pai`, `mini:sacct` or `mini:kueue`.
    format : str, optional
        Name of the format; by default, it is detected from the first 64 KiB.
    **options
        limit, window, rescale, min_duration_s, max_gpus, status, models, models_seed,
        models_reference, cpu_jobs, zone, on_bad_row, max_bytes, max_errors: see
        `gangline.trace.jobs.options.Options`. Options of single formats: run_time ("sum" or "span")
        of `philly-json`, unit ("task" or "job") of `pai`, procs_per_gpu of `swf`, flops of
        `batsim`, throughput and reference of `gavel`, durations, profiles and placements of
        `pollux`; columns (a dict, or text NATIVE=THEIRS,...), separator, comment, decimal, header
        and status_words of `table`; fields, separator, vc, types, run_time and arrival of `slurm`;
        vc, run_time and arrival of `pbs` and `lsf`; metadata_gpus of `ray`; run_time ("simulated"
        or "stated") of `dally`.

    Returns
    -------
    Trace
        The trace, sorted by arrival; its `notes` count rows that were dropped.

    Raises
    ------
    TraceError
        If the format of the file is unknown, or if the file has invalid rows; the error names the
        file, the line, the column, the value, and what was expected.
    OSError
        If the file cannot be opened.

    Examples
    --------
    >>> trace = read_trace("synth:philly?jobs=20&seed=1", limit=10)
    >>> len(trace), trace.notes["over_limit"]
    (10, 10)
    """
    return read_raw(path, format, options)[0]


def read_raw(
    path: ArrowStream | str | PathLike[str],
    format: str | None,  # noqa: A002
    options: dict[str, Any],
    adapt: Callable[[Raw], object] | None = None,
) -> tuple[Trace, float]:
    """Read a trace; `adapt` may change the columns that the reader found before they are checked.

    Returns
    -------
    Trace
        The trace, as `read_trace` returns it.
    float
        The amount in seconds that was subtracted from all times, so that the clock starts at the
        first job.
    """
    if adapt is not None and hasattr(path, "__arrow_c_stream__"):
        raw, chosen = raw_of_arrow(path, options)
        adapt(raw)
        return build(raw, chosen), raw.shift_s
    if not isinstance(path, (str, PathLike)):
        kind = type(path).__name__
        raise TraceError(f"expected the name of a trace, or a path, got {kind}", value=kind)
    if str(path).startswith(SYNTH):
        from gangline.trace.synth import from_uri

        _refuse_options_of_files(str(path), format, options)
        return from_uri(str(path), **options), 0.0
    if not str(path):
        raise TraceError("expected the name of a trace, got an empty text", value="")
    size = trace_options.make({"max_bytes": options.get("max_bytes")})
    options = _with_columns(options)
    source = Source(str(path), size.max_bytes)
    if not source.is_folder and not source.head.removeprefix(BOM).strip():
        message = f"{path}: expected a trace, got an empty file"
        raise TraceError(message, path=str(path), value="an empty file", expected="a trace")
    name = format or _found(source, options, is_queue=adapt is not None)
    reader = reader_of(name)
    _refuse_options_of_others(options, name)
    chosen = trace_options.make(options, special_of(reader))
    try:
        # A value that overflows becomes infinite, and the bounds of every column exclude infinity.
        with np.errstate(over="ignore", invalid="ignore"):
            raw = reader.read(source, chosen)
            source.start_hash()
            if adapt is not None:
                adapt(raw)
            trace = build(raw, chosen, lambda: _provenance(source, raw.metadata))
            trace.reference = _reference(source, name, chosen)
            return trace, raw.shift_s
    finally:
        source.release()


def refer(
    path: str | PathLike[str],
    *,
    format: str | None = None,  # noqa: A002
    **options: object,
) -> TraceReference:
    """Return the reference of the trace that `read_trace` would return, without reading the jobs.

    A file is hashed, not parsed. Invalid options raise the same errors as in `read_trace`.
    """
    if str(path).startswith(SYNTH):
        from gangline.trace.synth.generators import refer as refer_drawn

        _refuse_options_of_files(str(path), format, options)
        return refer_drawn(str(path), **options)
    size = trace_options.make({"max_bytes": options.get("max_bytes")})
    options = _with_columns(options)
    source = Source(str(path), size.max_bytes)
    name = format or _found(source, options)
    _refuse_options_of_others(options, name)
    chosen = trace_options.make(options, special_of(reader_of(name)))
    try:
        return _reference(source, name, chosen)
    finally:
        source.release()


def read_again(reference: TraceReference, place: str | PathLike[str] | None = None) -> Trace:
    """Read or draw the trace that a reference describes; `place` is the new path of a moved file.

    Raises
    ------
    TraceError
        If a file is missing or has changed, or if the trace was a table in memory.
    OSError
        If a file cannot be opened.
    """
    source = str(place or reference.source)
    if not source:
        raise TraceError("the trace was a table in memory; in Python pass it as `trace`")
    try:
        trace = read_trace(source, format=reference.format or None, **reference.options)
    except FileNotFoundError as error:
        path = str(error.filename or source)
        message = f"{path}: a file that the run read is missing; put it back, or pass "
        raise TraceError(message + "its new path as `trace`", path=path) from None
    check_inputs(reference, trace)
    return trace


def redrawn(reference: TraceReference, seed: int) -> TraceReference:
    """Return the trace that the same generator, parameters and options give with a different seed.

    Raises
    ------
    TraceError
        If the trace does not come from a generator, or if the generator used a table in memory.
    """
    from gangline.trace.synth.generators import with_seed

    source = reference.source
    if not source.startswith(SYNTH):
        message = f"{source or 'table'}: no generator drew this trace, so it has no seed; use a"
        message += (
            " `synth:` address, a sweep with {trace_seed} in the name of the file, or no seed"
        )
        raise TraceError(message, path=source)
    options: dict[str, Any] = reference.options
    return refer(with_seed(source, seed), **options)


def check_inputs(reference: TraceReference, trace: Trace) -> None:
    """Raise a TraceError if a trace is not the one that a reference describes."""
    now = trace.reference.inputs
    for name, expected in reference.inputs.items():
        if now.get(name) != expected:
            what = trace.path if name == "trace" else f"{reference.options.get(name, name)}"
            how = "pass" if name == "trace" else "restore"
            where = "as `trace`" if name == "trace" else "at this path"
            raise TraceError(
                f"{what}: not the file of the run: expected SHA-256 {expected}, got "
                f"{now.get(name)}; {how} the original file {where}",
                path=trace.path,
                value=now.get(name),
                expected=expected,
            )
    wanted, given = (finite(one.identity) for one in (reference, trace.reference))
    for name in wanted:
        if wanted[name] != given[name]:
            raise TraceError(
                f"{trace.path}: not the jobs of the run: {name} is {given[name]!r}, but was "
                f"{wanted[name]!r} in the run; leave `trace` out, or pass the file's name",
                path=trace.path,
            )


def _reference(source: Source, name: str, options: trace_options.Options) -> TraceReference:
    given = msgspec.to_builtins(trace_options.given(options))
    inputs = {"trace": source.sha256, **hashes(given)}
    return TraceReference(source=source.name, format=name, options=given, inputs=inputs)


def as_trace(value: object) -> Trace:
    """Return a trace, given a Trace, a path, a `synth:` address or any Arrow table."""
    if isinstance(value, Trace):
        return value
    if isinstance(value, str) or hasattr(value, "__fspath__"):
        return read_trace(value)
    if hasattr(value, "__arrow_c_stream__"):
        return Trace.from_arrow(value)
    kind = type(value).__name__
    raise TraceError(f"expected a Trace, a path or an Arrow table, got {kind}", value=kind)


def _with_columns(options: dict[str, Any]) -> dict[str, Any]:
    """Parse the option `columns` if it is a string."""
    columns = options.get("columns")
    return {**options, "columns": mapping_of(columns)} if isinstance(columns, str) else options


def _found(source: Source, options: Mapping[str, Any], *, is_queue: bool = False) -> str:
    """Return the format of a file; it is `table` if columns are mapped.

    A queue snapshot with native column names needs no run times, because these are still unknown.
    """
    if options.get("columns") is not None:
        return TABLE
    if is_queue and not source.is_folder:
        names = {simple(name) for name in header(source.head)}
        if {"arrival_s", "gpus"} <= names and not {"duration_s", "iterations"} & names:
            return NATIVE
    return detect(source)


def _refuse_options_of_files(
    uri: str,
    format: str | None,  # noqa: A002
    options: Mapping[str, Any],
) -> None:
    if format is not None:
        raise _changes_nothing("format", format, f"{uri} is drawn, not read")
    if options.get("zone") is not None:
        raise _changes_nothing("zone", options["zone"], f"{uri} has no local times")
    if options.get("columns") is not None:
        raise _changes_nothing("columns", options["columns"], f"{uri} is drawn, not read")


def _changes_nothing(option: str, value: object, why: str) -> TraceError:
    message = f"options: {option}: has no effect, because {why}; leave it out"
    return TraceError(message, column=option, value=value)


def _refuse_options_of_others(options: Mapping[str, Any], name: str) -> None:
    if options.get("zone") is not None and not find(name).has_local_times:
        raise _changes_nothing("zone", options["zone"], f"format {name} has no local times")
    own = find(name).options
    for option, value in options.items():
        owner = next((item.name for item in FORMATS if option in item.options), name)
        if option not in own and owner != name and value is not None:
            raise TraceError(
                f"option `{option}` belongs to format {owner}; this trace is {name}",
                column=option,
                expected=", ".join(own) or "no option that belongs to a single format",
            )


def _provenance(source: Source, metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the hash of the input, and its origin if it is a public file."""
    digest = metadata.get("sha256") or source.sha256
    known = lookup(digest)
    if not known and not source.is_plain and not source.is_folder:
        known = lookup(hashlib.sha256(source.data).hexdigest())
    return {**known, "sha256": digest}
