"""Reads Slurm's accounting records as printed by `sacct --parsable2` or `sacct --json`.

A record is one line of fields. Because sacct does not quote fields, free text such as job names may
contain separators and line breaks. Steps repeat the GPUs of their job and are left out. All records
of a job are merged: its attempts after a requeue, copies of a record in two exports, and the
components of a heterogeneous job.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline.errors import TraceError
from gangline.files.columns import one_chunk
from gangline.files.quantities import by_value, durations, gib_of, gres_gpus
from gangline.files.text import BOM, LABEL, TIME, ZONED_TIME, TextFile, header, simple
from gangline.trace.jobs.normalise import Raw, numbers, statuses, surely_distinct, valid
from gangline.trace.jobs.schema import EXPORT_WORDS, STATUSES
from gangline.trace.readers import _sacct_json as sacct_json
from gangline.trace.readers._columns import lists_of, note_ignored, refuse
from gangline.trace.readers._records import mended
from gangline.trace.readers._times import column, to_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from gangline.files.source import Source
    from gangline.trace.jobs.options import Options

NAME = "slurm"
_KNOWN = """
    jobid jobidraw jobname user account partition qos state submit eligible start end elapsed
    elapsedraw timelimit timelimitraw priority nnodes allocnodes alloctres reqtres allocgres
    exitcode ncpus alloccpus reqcpus reqmem cluster nodelist
"""
FIELDS = frozenset(_KNOWN.split())
"""Some of sacct's fields, in lower case, that identify its header."""
ADVICE = (
    "sacct -a -P -S 2024-01-01 -E now --format="
    "JobID,User,Account,Partition,QOS,State,Submit,Eligible,Start,End,Elapsed,Timelimit,NNodes,"
    "AllocTRES,ReqTRES"
)
QUEUE_ADVICE = 'squeue -a -r -o "%i|%u|%a|%P|%q|%T|%V|%S|%M|%l|%D|%b"'
_SQUEUE = {
    "submit_time": "submit",
    "start_time": "start",
    "end_time": "end",
    "time": "elapsed",
    "time_limit": "timelimit",
    "nodes": "nnodes",
    "tres_alloc": "alloctres",
    "name": "jobname",
}
"""squeue's names for some of sacct's fields."""
_TIMES = ("submit", "eligible", "start", "end")
_NULLS = ("Unknown", "None", "N/A", "INVALID", "(null)")
_NO_LIMIT = ("unlimited", "partition_limit")
_FREE = ("jobname", "comment", "admincomment", "systemcomment", "submitline", "workdir", "reason")
_TRES = re.compile(rb"([^=,]+=[^=,]*(,[^=,]+=[^=,]*)*)?")
_CHECKS = {
    "jobid": re.compile(rb"\d+(_\d+|_\[[^\]]*\])?(\+\d+)?(\.\w+)?"),
    "state": re.compile(rb"[A-Z_]+( by \d+)?\+?"),
    **{name: re.compile(rb"\d{4}-\d\d-\d\dT\S+|\d+|Unknown|None|N/A|") for name in _TIMES},
    "elapsed": re.compile(rb"(\d+-)?\d\d:\d\d:\d\d(\.\d+)?|"),
    "alloctres": _TRES,
    "reqtres": _TRES,
}
_GPU = "gres/gpu"
_SLICE = re.compile(r"\dg\.\d+gb")
_MUST = ("arrival_s", "gpus", "duration_s")
_SAME_S = 1.0  # the times of the log are whole seconds


class Special(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of this format.

    Parameters
    ----------
    fields : str
        Comma-separated names of the fields, for a file without a header.
    separator : str
        Separator of the fields; by default, it is detected in the header.
    vc : str
        Field that becomes the virtual cluster: partition, account, qos or user.
    types : str
        The GPU types that a job may use: those that it asked for by name ("requested"), or those
        that it got ("allocated").
    run_time : str
        Duration of a job that was requeued: the total duration of all attempts ("sum"), or the
        duration of the last attempt ("last").
    arrival : str
        The arrival of a job: its submission ("submit"), or the time at which it became eligible to
        run ("eligible").
    """

    fields: str | None = None
    separator: str | None = None
    vc: Literal["partition", "account", "qos", "user"] = "partition"
    types: Literal["requested", "allocated"] = "requested"
    run_time: Literal["sum", "last"] = "sum"
    arrival: Literal["submit", "eligible"] = "submit"


def separator_of(head: bytes) -> str | None:
    """Return the separator of the fields if these bytes look like output of sacct."""
    for separator in "|,;\t":
        names = [_field(name) for name in header(head, separator)]
        if "jobid" in names and len(FIELDS.intersection(names)) >= 4:
            return separator
    return None


def _field(name: str) -> str:
    """Return the sacct field that a column header names."""
    return _SQUEUE.get(simple(name), simple(name))


def read(source: Source, options: Options) -> Raw:
    """Read the records of jobs; steps are left out and counted."""
    special = options.special
    if source.head.removeprefix(BOM).lstrip().startswith(b"{"):
        return _read_json(source, special, options)
    notes: dict[str, int] = {}
    file = _open(source, special, notes)
    ours = [_field(name) for name in file.names]
    if ours != [simple(name) for name in file.names]:
        file.names = ours  # the file is from squeue
    names = [simple(name) for name in file.names]
    _require(file, names)
    clock = _clock(source.head, names, special)
    wanted = {name: kind for name, kind in _kinds(clock).items() if name in names}
    columns: dict[str, Any] = file.read(wanted)
    raw = Raw(columns={}, path=file.path, reader=NAME, faults=file.faults, notes=notes)
    raw.bad, raw.lost, raw.locate, raw.cpu_jobs = file.bad, file.dropped, file.locate, True
    raw.names = {"job_id": "JobID", "gpus": "AllocTRES", "duration_s": "Elapsed"}
    kept = np.flatnonzero(~_mask(pc.match_substring(columns["jobid"], ".")))
    if steps := len(columns["jobid"]) - len(kept):
        notes["job_step"] = steps
        columns = {name: array.take(pa.array(kept)) for name, array in columns.items()}
        raw.bad = None if raw.bad is None else raw.bad[kept]
    raw.records = lambda rows: file.records_of(kept[rows])
    _fill(raw, columns, special, clock, options)
    known = [*wanted, ""]
    ignored = [name for name in file.names if simple(name) not in known]
    note_ignored(ignored, raw.notes, raw.metadata)
    return raw


def _read_json(source: Source, special: Special, options: Options) -> Raw:
    """Read the output of `sacct --json`."""
    for name in ("fields", "separator"):
        if getattr(special, name) is not None:
            message = f"options: {name}: has no effect, because the file is JSON; leave it out"
            raise TraceError(message, column=name, value=getattr(special, name))
    notes: dict[str, int] = {}
    columns, records = sacct_json.jobs(source, notes)
    raw = Raw(columns={}, path=source.name, reader=NAME, cpu_jobs=True, notes=notes)
    records.attach(raw)
    _fill(raw, columns, special, pa.float64(), options)
    raw.names, raw.moments = sacct_json.NAMES, {"arrival_s": "seconds since 1970"}
    return raw


def _open(source: Source, special: Special, notes: dict[str, int]) -> TextFile:
    given = None
    if special.fields is not None:
        given = [name.strip() for name in special.fields.split(",")]
    separator = special.separator or separator_of(source.head) or "|"
    if len(separator) != 1 or not separator.isascii() or separator in '"\r\n\0':
        raise TraceError.at("options", None, "separator", separator, "one ASCII character")
    names = given
    if given is not None and _has_trailing(source.head, separator, len(given)):
        names = [*given, ""]

    def mend(data: bytes) -> bytes:
        whole, counts = mended(data, separator, file.names, _FREE, _CHECKS)
        notes.update(counts)
        return whole

    file = TextFile(source, names=names, delimiter=separator, quoted=False, nulls=_NULLS, mend=mend)
    return file


def _has_trailing(head: bytes, separator: str, fields: int) -> bool:
    """Return whether lines end with a separator, as with `sacct --parsable`."""
    line = head.lstrip().split(b"\n", 1)[0].rstrip(b"\r")
    return line.count(separator.encode()) == fields and line.endswith(separator.encode())


def _require(file: TextFile, names: list[str]) -> None:
    choices = (
        ("jobid",),
        ("submit",),
        ("elapsed", "elapsedraw", "end"),
        ("alloctres", "reqtres", "allocgres", "tres_per_node"),
    )
    for some in choices:
        if not set(some) & set(names):
            words = " or ".join(some)
            message = f"{file.path}:1: missing field {words}; export with: {ADVICE}"
            raise TraceError(message, path=file.path, line=1, column=some[0], expected=words)


def _kinds(clock: pa.DataType) -> dict[str, pa.DataType]:
    texts = ("jobid", "state", "user", "account", "partition", "qos", "alloctres", "reqtres")
    kinds: dict[str, pa.DataType] = dict.fromkeys(texts, LABEL)
    kinds["jobid"] = pa.string()
    kinds |= dict.fromkeys(_TIMES, clock)
    kinds |= dict.fromkeys(("elapsed", "timelimit", "allocgres", "tres_per_node"), LABEL)
    kinds |= dict.fromkeys(("elapsedraw", "timelimitraw", "priority", "nnodes"), pa.float64())
    return kinds


def _clock(head: bytes, names: list[str], special: Special) -> pa.DataType:
    """Return the form of the times: local times, times with an offset, or seconds since 1970."""
    separator = (special.separator or separator_of(head) or "|").encode()
    at = names.index("submit")
    for line in head.splitlines()[0 if special.fields else 1 :]:
        cells = line.split(separator)
        text = cells[at].decode("ascii", "replace") if at < len(cells) else ""
        if text.isdigit():
            return pa.float64()
        if re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(Z|[+-]\d\d:?\d\d)", text):
            return ZONED_TIME
        if re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\S+", text):
            return TIME
    return TIME


def _fill(
    raw: Raw, columns: dict[str, Any], special: Special, clock: pa.DataType, options: Options
) -> None:
    """Fill the internal columns with one row per record, then merge the rows of each job."""
    if special.arrival == "eligible" and "eligible" not in columns:
        expected = "submit, because the file has no field Eligible"
        raise TraceError.at("options", None, "arrival", special.arrival, expected)
    rows = len(columns["jobid"])
    made: dict[str, Any] = {"job_id": columns["jobid"]}
    stamps = {"arrival_s": "submit", "eligible": "eligible"}
    stamps |= {"observed_start_s": "start", "observed_finish_s": "end"}
    raw.columns = {name: columns[field] for name, field in stamps.items() if field in columns}
    raw.names |= {name: field.capitalize() for name, field in stamps.items()}
    _to_seconds(raw, tuple(raw.columns), clock, options)
    for name in stamps:
        made[name] = _numbers(raw.columns.get(name), rows)
    status = columns.get("state")
    words = None if status is None else statuses(_first_words(status), EXPORT_WORDS, raw.notes)
    running = np.zeros(rows, np.bool_)
    if words is not None:
        made["trace_status"] = words
        running = numbers(words.indices) == STATUSES.index("running")
    for name in ("user", "account", "partition", "qos"):
        if name in columns:
            made[name] = columns[name]
    made["time_limit_s"] = _limits(raw, columns, rows)
    made["priority"] = _numbers(columns.get("priority"), rows)
    resources = _resources(raw, columns, special, rows)
    made |= resources
    made["duration_s"] = _elapsed(raw, columns, made, running)
    granted = columns.get("alloctres", columns.get("allocgres"))
    absent = np.isnan(made["observed_start_s"]) if "start" in columns else np.zeros(rows, np.bool_)
    if granted is not None:
        absent |= (made["duration_s"] == 0.0) & ~valid(granted) & ~running
    pending = absent & (numbers(words.indices) == STATUSES.index("unknown") if words else absent)
    in_arrays = pending & _mask(pc.match_substring(columns["jobid"], "["))
    if count := int(in_arrays.sum()):
        raw.notes["pending_array"] = count
    made["absent"], made["pending"], made["running"] = absent, pending, running
    made, raw.bad = _one_row_a_job(raw, made, special, raw.bad)
    absent, pending, running = (made.pop(name) for name in ("absent", "pending", "running"))
    if "differs" in made:
        raw.marks["elapsed_differs"] = made.pop("differs")
    unknown = np.isnan(made["gpus"])
    raw.drops = [("still_waiting", pending), ("never_ran", absent), ("still_running", running)]
    raw.drops.append(("unknown_gpus", unknown))
    late = made.pop("eligible")
    later = late > made["arrival_s"] + _SAME_S
    raw.marks["eligible_later"] = later
    if special.arrival == "eligible":
        made["arrival_s"] = np.where(later, late, made["arrival_s"])
    labels = made.get(special.vc)
    if labels is not None:
        made["vc"] = labels
    raw.columns = {
        name: column(array) if isinstance(array, np.ndarray) else array
        for name, array in made.items()
        if name in _MUST or not isinstance(array, np.ndarray) or not np.isnan(array).all()
    }


def _to_seconds(raw: Raw, names: tuple[str, ...], clock: pa.DataType, options: Options) -> None:
    if clock != TIME and options.zone is not None:
        raise TraceError(
            "options: zone: has no effect, because the times of the file are not local; leave it "
            "out",
            column="zone",
            value=options.zone,
        )
    if clock == pa.float64():
        for name in names:
            micros = pc.multiply(raw.columns[name], 1e6)
            near = pc.if_else(pc.less(pc.abs(micros), 9e18), micros, pa.scalar(None, pa.float64()))
            raw.columns[name] = near.cast(pa.int64(), safe=False).cast(ZONED_TIME)
    to_seconds(raw, names, options.zone, place="local time" if clock == TIME else "UTC")
    # Only the time of the submission must be known.
    raw.moments = {"arrival_s": raw.moments["arrival_s"]}


def _first_words(states: Any) -> Any:
    """Return the first word of each state: `CANCELLED` for `CANCELLED by 75200` or `CANCELLED+`."""
    words = pc.replace_substring_regex(states.dictionary, pattern=r"[ +].*$", replacement="")
    return pa.DictionaryArray.from_arrays(states.indices, words)


def _limits(raw: Raw, columns: Mapping[str, Any], rows: int) -> npt.NDArray[np.float64]:
    """Return the time limits in seconds; unknown if the partition's limit applies."""
    if "timelimit" not in columns:
        return _numbers(columns.get("timelimitraw"), rows) * 60.0
    limits = columns["timelimit"]
    lower = pc.ascii_lower(limits.dictionary)
    none = pc.is_in(lower, value_set=pa.array(_NO_LIMIT))
    plain = pc.if_else(none, pa.scalar("", pa.string()), limits.dictionary)
    values, wrong = durations(pa.DictionaryArray.from_arrays(limits.indices, plain), 60.0)
    raw.names["time_limit_s"] = "Timelimit"
    refuse(raw, "time_limit_s", wrong, "a limit such as 1-00:00:00, UNLIMITED or Partition_Limit")
    return values


def _elapsed(
    raw: Raw, columns: Mapping[str, Any], made: dict[str, Any], running: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    """Return the run times, which exclude suspended time between start and end."""
    between = np.asarray(made["observed_finish_s"] - made["observed_start_s"], np.float64)
    if "elapsed" in columns:
        values, wrong = durations(columns["elapsed"])
        refuse(raw, "duration_s", wrong, "a duration such as 1-02:03:04")
    elif "elapsedraw" in columns:
        raw.names["duration_s"] = "ElapsedRaw"
        values = _numbers(columns["elapsedraw"], len(between))
    else:
        return between
    with np.errstate(invalid="ignore"):
        made["differs"] = (np.abs(between - values) > _SAME_S) & ~running
    return np.where(np.isnan(values), between, values)


def _resources(raw: Raw, columns: Mapping[str, Any], special: Special, rows: int) -> dict[str, Any]:
    """Return the allocation's GPUs, types, cores, memory and servers, or else the request's."""
    found: dict[str, Any] = {}
    granted = _tres(raw, "AllocTRES", columns.get("alloctres"), rows)
    asked = _tres(raw, "ReqTRES", columns.get("reqtres"), rows)
    if "alloctres" not in columns and "allocgres" in columns:
        granted = {**granted, "gpus": _gres(columns["allocgres"])}
    per_node = columns.get("tres_per_node")
    if per_node is not None and not {"alloctres", "reqtres", "allocgres"} & set(columns):
        # squeue writes N/A for a job that requests no GPUs
        each = np.nan_to_num(_gres(per_node))
        granted = {**granted, "gpus": each * _numbers(columns.get("nnodes"), rows)}
    # the request counts only without an allocation; a job whose allocation has no GPUs needs none
    for name in ("gpus", "cpus", "host_memory_gb", "servers"):
        found[name] = np.where(np.isnan(granted[name]), asked[name], granted[name])
    nodes = _numbers(columns.get("nnodes"), rows)
    found["servers"] = np.where(np.isnan(found["servers"]), nodes, found["servers"])
    slices = np.isfinite(granted["slices"]) & (granted["slices"] > 0)
    if count := int(slices.sum()):
        raw.notes["slices_as_gpus"] = count
    texts = columns.get("alloctres" if special.types == "allocated" else "reqtres")
    if texts is not None:
        lists = lists_of(texts, lambda text: sorted(_types_of(text)))
        if lists.null_count < rows:
            found["gpu_types"] = lists
    elif per_node is not None:
        lists = lists_of(per_node, lambda text: sorted(filter(None, gres_gpus(text))))
        if lists.null_count < rows:
            found["gpu_types"] = lists
    return found


def _tres(raw: Raw, name: str, texts: Any, rows: int) -> dict[str, npt.NDArray[np.float64]]:
    """Parse the trackable resources; each distinct string is parsed once."""
    keys = ("gpus", "cpus", "host_memory_gb", "servers", "slices")
    if texts is None:
        return {key: np.full(rows, np.nan) for key in keys}
    distinct = texts.dictionary.to_pylist()
    table = np.full((len(distinct) + 1, len(keys)), np.nan)
    for row, text in enumerate(distinct):
        table[row] = _amounts(text)
    codes = np.asarray(texts.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False))
    raw.names["gpus"] = name
    wrong = np.isinf(table[:, 0])[codes]
    refuse(raw, "gpus", wrong, "resources such as cpu=8,mem=64G,gres/gpu=4")
    return dict(zip(keys, np.where(np.isinf(table), np.nan, table)[codes].T, strict=True))


def _amounts(text: str) -> tuple[float, float, float, float, float]:
    """Return GPUs, cores, GiB, nodes and GPU slices; for malformed text, infinitely many GPUs."""
    total = typed = slices = 0.0
    has_total = False
    cpus = memory = nodes = np.nan
    for item in text.split(","):
        key, _, value = item.partition("=")
        try:
            if key == _GPU:
                total, has_total = float(value), True
            elif key.startswith(f"{_GPU}:"):
                typed += float(value)
                slices += _SLICE.search(key) is not None
            elif key == "cpu":
                cpus = float(value)
            elif key == "node":
                nodes = float(value)
            elif key == "mem":
                memory = gib_of(value, "M")
        except ValueError:
            return np.inf, cpus, memory, nodes, slices
    return (total if has_total else typed), cpus, memory, nodes, slices


def _types_of(text: str) -> set[str]:
    """Return the GPU types that the resources name."""
    items = (item.partition("=")[0] for item in text.split(","))
    return {item[len(_GPU) + 1 :] for item in items if item.startswith(f"{_GPU}:")}


def _gres(texts: Any) -> npt.NDArray[np.float64]:
    """Return the number of GPUs in a field such as `gpu:4` or `gpu:a100:4` (older versions)."""

    def parse(distinct: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        counts = [sum(gres_gpus(text).values()) for text in distinct.to_pylist()]
        return np.asarray(counts, np.float64), np.zeros(len(counts), np.bool_)

    return by_value(texts, parse)[0]


def _one_row_a_job(
    raw: Raw, made: dict[str, Any], special: Special, bad: npt.NDArray[np.bool_] | None
) -> tuple[dict[str, Any], npt.NDArray[np.bool_] | None]:
    """Merge the records of each job."""
    ids = made["job_id"]
    codes = np.empty(0, np.int64) if surely_distinct(ids) else _codes(ids, made.get("user"))
    if codes.max(initial=-1) + 1 < len(codes):
        # if several exports contain a record of the same attempt, the most complete one counts: one
        # that has ended, or else one that has started
        started = np.bincount(codes, ~made["absent"])[codes] > 0
        kept = np.flatnonzero(~(made["absent"] & started))
        times = [_ranks(made[name][kept]) for name in ("arrival_s", "observed_start_s")]
        kept = kept[_last_of(np.stack([~made["running"][kept], *times, codes[kept]]))]
        if repeated := len(codes) - len(kept):
            raw.notes["repeated_record"] = repeated
            made, bad = _take(raw, made, bad, kept)
            codes = codes[kept]
        if (attempts := len(codes) - len(np.unique(codes))) > 0:
            raw.notes["requeued"] = attempts
            time = np.add if special.run_time == "sum" else None
            made, bad = _joined(raw, made, bad, codes, duration=time, resources=np.maximum)
    ids = made["job_id"]
    if _mask(pc.match_substring(ids, "+")).any():
        base = pc.replace_substring_regex(ids, pattern=r"\+\d+", replacement="")
        codes = _codes(base, None)
        if (joined := len(codes) - len(np.unique(codes))) > 0:
            raw.notes["het_components"] = joined
        made["job_id"] = base
        made, bad = _joined(raw, made, bad, codes, duration=np.maximum, resources=np.add)
    return made, bad


_FIRSTS, _LASTS = ("arrival_s", "eligible", "observed_start_s"), ("observed_finish_s",)


def _joined(
    raw: Raw,
    made: dict[str, Any],
    bad: npt.NDArray[np.bool_] | None,
    codes: npt.NDArray[np.int64],
    *,
    duration: np.ufunc | None,
    resources: np.ufunc,
) -> tuple[dict[str, Any], npt.NDArray[np.bool_] | None]:
    """Merge rows with equal codes: keep the extreme times, and the last row's other values."""
    order = np.lexsort((np.nan_to_num(made["observed_start_s"], nan=np.inf), codes))
    starts = np.flatnonzero(np.r_[True, np.diff(codes[order]) != 0])
    ends = np.r_[starts[1:], len(order)] - 1

    def over(name: str, function: np.ufunc, empty: float) -> npt.NDArray[np.float64]:
        values = made[name][order]
        known = np.isfinite(values)
        found = function.reduceat(np.where(known, values, empty), starts)
        return np.where(np.logical_or.reduceat(known, starts), found, np.nan)

    joined: dict[str, npt.NDArray[Any]] = {}
    for name in _FIRSTS:
        joined[name] = over(name, np.minimum, np.inf)
    for name in _LASTS:
        joined[name] = over(name, np.maximum, -np.inf)
    for name in ("gpus", "cpus", "host_memory_gb", "servers"):
        joined[name] = over(name, resources, 0.0)
    if duration is not None:
        joined["duration_s"] = over("duration_s", duration, 0.0)
    joined["running"] = np.logical_or.reduceat(made["running"][order], starts)
    joined["absent"] = np.logical_and.reduceat(made["absent"][order], starts)
    wrong = None if bad is None else np.logical_or.reduceat(bad[order], starts)
    last = order[ends]
    place = np.argsort(last, kind="stable")
    made, _ = _take(raw, made, None, last[place])
    made |= {name: values[place] for name, values in joined.items()}
    return made, None if wrong is None else wrong[place]


def _take(
    raw: Raw,
    made: dict[str, Any],
    bad: npt.NDArray[np.bool_] | None,
    rows: npt.NDArray[np.int64],
) -> tuple[dict[str, Any], npt.NDArray[np.bool_] | None]:
    """Keep only the given rows; errors still name the original records."""
    records = raw.records
    assert records is not None, "the reader of the file has set it"
    raw.records = lambda places: records(rows[places])
    taken = pa.array(rows)
    chosen = {
        name: array[rows] if isinstance(array, np.ndarray) else array.take(taken)
        for name, array in made.items()
    }
    return chosen, None if bad is None else bad[rows]


def _codes(ids: Any, users: Any) -> npt.NDArray[np.int64]:
    """Return a number for each job (id and user), because ids are reused after years."""
    encoded = ids.dictionary_encode()
    codes = np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    absent = codes < 0
    codes[absent] = len(encoded.dictionary) + np.arange(absent.sum())
    if users is None or len(encoded.dictionary) + absent.sum() == len(ids):
        return codes
    people = np.asarray(users.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64) + 1
    both = codes * (people.max(initial=0) + 1) + people
    return np.asarray(np.unique(both, return_inverse=True)[1], np.int64)


def _ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    return np.asarray(np.unique(values, return_inverse=True)[1], np.int64)


def _last_of(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the last row of each group of equal keys; the first key only sorts within groups."""
    order = np.lexsort(keys)
    ordered = keys[1:, order]
    ends = np.flatnonzero(np.r_[(ordered[:, 1:] != ordered[:, :-1]).any(axis=0), True])
    return np.sort(order[ends])


def _numbers(array: Any, rows: int) -> npt.NDArray[np.float64]:
    if array is None:
        return np.full(rows, np.nan)
    return np.asarray(numbers(one_chunk(array)), np.float64)


def _mask(array: Any) -> npt.NDArray[np.bool_]:
    return np.asarray(array.fill_null(fill_value=False).to_numpy(zero_copy_only=False), np.bool_)
