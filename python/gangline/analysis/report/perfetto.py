"""Writes Gantt charts for Perfetto (ui.perfetto.dev), with a track per GPU and cluster counters.

The file consists of Perfetto's trace packets, written as a stream, so memory does not grow with the
file. No other module uses the perfetto library.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from gangline._support.safe import safe
from gangline.analysis.report.gantt import gantt
from gangline.analysis.report.output import check_target
from gangline.analysis.report.shapes import gangs
from gangline.errors import MissingExtraError
from gangline.files.places import unsealed, whole
from gangline.runs.explain.life import Segments

if TYPE_CHECKING:
    from os import PathLike

    from gangline.analysis.report.gantt import Gantt
    from gangline.cluster.description import Cluster
    from gangline.runs.result import Result

__all__ = ["write_gantt"]

KIND = "Gantt chart"
"""The kind of file, as it is named in the chart's seal."""
_INSTALL = "pip install 'gangline[gantt]'"
_SEQUENCE = 1  # all packets come from one writer
_COUNTERS = (("gpus_busy", "GPUs busy"), ("jobs_waiting", "Jobs waiting"))
_TEXTS = ("user", "model", "tier", "types", "end", "beside")


def write_gantt(
    result: Result,
    path: str | PathLike[str],
    *,
    from_s: float | None = None,
    to_s: float | None = None,
) -> Gantt:
    """Write a Gantt chart that ui.perfetto.dev can open.

    Parameters
    ----------
    result : Result
        A run with segments.
    path : path
        Path of the file. An existing chart is replaced; any other existing file raises an error.
    from_s, to_s : float, optional
        Bounds of the interval [from_s, to_s) to keep, in seconds on the clock of the tables.

    Returns
    -------
    Gantt
        The chart that was drawn.

    Raises
    ------
    MissingExtraError
        If the extra `gantt` is not installed.
    ResultError
        If there are no segments, more than two million slices, or the existing file is not such a
        chart.
    OSError
        If the file cannot be written.

    Notes
    -----
    The cost is about 25 microseconds and 150 bytes per slice on a laptop.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> result = gl.simulate(lab, "synth:philly?jobs=40&seed=3&max_gpus=8", "srtf", segments=True)
    >>> slices = gl.report.write_gantt(result, "run.pftrace")
    >>> slices.unplaced_jobs
    0
    """
    if importlib.util.find_spec("perfetto") is None:
        message = f"Gantt charts need the library perfetto: {_INSTALL}"
        raise MissingExtraError(message, extra="gantt")
    path = Path(path)
    check_target(path, KIND)
    drawn = gantt(result, from_s=from_s, to_s=to_s)
    with whole(path, KIND) as part, part.open("wb") as file:
        writer = _Writer(file)
        _tracks(writer, result, drawn)
        _slices(writer, result, drawn)
        _counters(writer, result, from_s, to_s)
    return drawn


class _Writer:
    """A stream of packets in which each repeated string is written only once."""

    def __init__(self, file: IO[bytes]) -> None:
        from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

        self._builder = StreamingTraceProtoBuilder(file)
        self._known: dict[tuple[str, str], int] = {}
        self._is_first = True
        first = self.packet()
        self.text(first, "debug_annotation_string_values", unsealed(KIND))  # viewers do not show it
        self.write(first)

    def packet(self) -> Any:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        # Bit 1 means that the table of strings begins here, and bit 2 that the packet needs it.
        packet.sequence_flags = 3 if self._is_first else 2
        self._is_first = False
        return packet

    def write(self, packet: Any) -> None:
        self._builder.write_packet(packet)

    def text(self, packet: Any, kind: str, text: str) -> int:
        """Return the number of a string; a new string is written with the packet."""
        key = (kind, text)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self._known) + 1
            entry = getattr(packet.interned_data, kind).add()
            entry.iid = number
            if kind == "debug_annotation_string_values":
                entry.str = _utf8(text).encode()
            else:
                entry.name = _utf8(text)
        return number


def _utf8(text: str) -> str:
    return safe(text.encode("utf-8", "replace").decode("utf-8"))


def _gpu_track(server: int, slot: int, lane: int) -> int:
    """Return a track's id, which is unique, never 0, and the same in every file."""
    return 1 << 40 | server << 16 | slot << 8 | lane


def _server_track(server: int) -> int:
    return 2 << 40 | server


def _rack_track(rack: int) -> int:
    return 3 << 40 | rack


_ROOT, _FIRST_COUNTER = 4 << 40, (4 << 40) + 1
_EXPLICIT = 3  # children are shown in the order of their rank


def _tracks(writer: _Writer, result: Result, drawn: Gantt) -> None:
    """Write the tracks of racks, servers and GPUs, in the order of the cluster, with all lanes."""
    cluster = _cluster(result)
    names = [kind.name for kind in cluster.gpu_types]
    arrays = {key: values.tolist() for key, values in cluster.server_arrays().items()}
    has_racks = len(set(arrays["rack"])) > 1
    _track(writer, _ROOT, None, f"gangline: {result.policy}", 0)
    for i, (_, title) in enumerate(_COUNTERS):
        _track(writer, _FIRST_COUNTER + i, _ROOT, title, i, is_counter=True)
    lanes: dict[tuple[int, int], int] = {}
    deep = np.flatnonzero(drawn.lane)
    for server, slot, lane in zip(
        drawn.server[deep].tolist(), drawn.slot[deep].tolist(), drawn.lane[deep].tolist(),
        strict=True,
    ):  # fmt: skip
        lanes[server, slot] = max(lanes.get((server, slot), 0), lane)
    seen: set[int] = set()
    for server, rack in enumerate(arrays["rack"]):
        above = _rack_track(rack) if has_racks else _ROOT
        if has_racks and rack not in seen:
            seen.add(rack)
            _track(writer, above, _ROOT, f"Rack {rack}", len(_COUNTERS) + rack)
        kind = names[arrays["type"][server]]
        _track(writer, _server_track(server), above, f"Server {server}, {kind}", 100 + server)
        for slot in range(arrays["gpus"][server]):
            for lane in range(lanes.get((server, slot), 0) + 1):
                title = f"GPU {slot}" + (f", job {lane + 1} on it" if lane else "")
                uuid = _gpu_track(server, slot, lane)
                _track(writer, uuid, _server_track(server), title, slot * 8 + lane)


def _track(
    writer: _Writer,
    uuid: int,
    parent: int | None,
    name: str,
    rank: int,
    *,
    is_counter: bool = False,
) -> None:
    packet = writer.packet()
    track = packet.track_descriptor
    track.uuid = uuid
    track.name = _utf8(name)
    track.sibling_order_rank = rank
    if is_counter:
        track.counter.SetInParent()
    else:
        track.child_ordering = _EXPLICIT
    if parent is not None:
        track.parent_uuid = parent
    writer.write(packet)


def _slices(writer: _Writer, result: Result, drawn: Gantt) -> None:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

    begin, end = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END
    facts = _Facts(result, drawn)
    columns = (drawn.server, drawn.slot, drawn.lane, drawn.row)
    times = (drawn.start_ns, drawn.overhead_ns, drawn.end_ns)
    for server, slot, lane, row, start, overhead, stop in zip(
        *(column.tolist() for column in (*columns, *times)), strict=True
    ):
        track = _gpu_track(server, slot, lane)
        packet = _event(writer, begin, track, start)
        packet.track_event.name_iid = writer.text(packet, "event_names", facts.name(row))
        facts.annotate(writer, packet, row)
        writer.write(packet)
        if overhead > start:
            packet = _event(writer, begin, track, start)
            packet.track_event.name_iid = writer.text(packet, "event_names", "overhead")
            writer.write(packet)
            writer.write(_event(writer, end, track, overhead))
        writer.write(_event(writer, end, track, stop))


def _event(writer: _Writer, kind: int, track: int, time_ns: int) -> Any:
    packet = writer.packet()
    packet.timestamp = time_ns
    packet.track_event.type = kind
    packet.track_event.track_uuid = track
    return packet


def _mixed(result: Result, drawn: Gantt) -> list[str | None]:
    """Return the GPU types of each row's gang if there are several, such as `K80 + V100`."""
    cluster = _cluster(result)
    of_server = cluster.server_arrays()["type"].astype(np.int64)
    found = gangs(Segments(drawn.segments, result.jobs), of_server)
    names = [kind.name for kind in cluster.gpu_types]
    known: dict[int, str | None] = {}
    for bits in np.unique(found.types).tolist():
        kinds = [name for i, name in enumerate(names) if bits >> i & 1]
        known[bits] = " + ".join(kinds) if len(kinds) > 1 else None
    return [known[bits] for bits in found.types[found.of_row].tolist()]


def _cluster(result: Result) -> Cluster:
    from gangline.cluster.description import Cluster

    return Cluster.from_dict({k: result.spec["cluster"][k] for k in ("gpu_types", "servers")})


class _Facts:
    """The facts about each slice, as plain columns."""

    def __init__(self, result: Result, drawn: Gantt) -> None:
        jobs, segments = result.jobs, drawn.segments
        self._job: list[int] = drawn.job.tolist()
        self._names = [str(name) for name in jobs["job_id"].to_pylist()]
        self._gang = jobs["gpus"].to_pylist()
        self._of_job = {name: jobs[name].to_pylist() for name in ("user", "model")}
        beside = "co_runner" if "co_runner" in segments.column_names else None
        self._of_row = {
            "tier": segments["tier"].to_pylist(),
            "types": _mixed(result, drawn),
            "end": segments["end_reason"].to_pylist(),
            "beside": segments[beside].to_pylist() if beside else None,
        }
        self._rate = segments["rate"].to_pylist()
        self._part: list[int] = drawn.part.tolist()
        self._forked = set(drawn.job[drawn.part > 0].tolist())  # jobs that had several parts

    def name(self, row: int) -> str:
        """Return the name of the row's job, with the part if the job had several."""
        job = self._job[row]
        part = f", part {self._part[row]}" if job in self._forked else ""
        return self._names[job] + part

    def annotate(self, writer: _Writer, packet: Any, row: int) -> None:
        """Add the details that the viewer shows for a selected slice."""
        job = self._job[row]
        for key in _TEXTS:
            column = self._of_job.get(key)
            value = column[job] if column is not None else self._text_of_row(key, row)
            if value:
                note = self._note(writer, packet, key)
                kind = "debug_annotation_string_values"
                note.string_value_iid = writer.text(packet, kind, str(value))
        self._note(writer, packet, "gang").int_value = self._gang[job]
        if job in self._forked:
            self._note(writer, packet, "part").int_value = self._part[row]
        self._note(writer, packet, "rate").double_value = self._rate[row]

    def _text_of_row(self, key: str, row: int) -> object:
        column = self._of_row[key]
        return None if column is None else column[row]

    def _note(self, writer: _Writer, packet: Any, key: str) -> Any:
        note = packet.track_event.debug_annotations.add()
        note.name_iid = writer.text(packet, "debug_annotation_names", key)
        return note


def _counters(writer: _Writer, result: Result, from_s: float | None, to_s: float | None) -> None:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

    time_s = result.timeline["t_s"].to_numpy()
    first = 0 if from_s is None else max(int(np.searchsorted(time_s, from_s, "right")) - 1, 0)
    last = len(time_s) if to_s is None else int(np.searchsorted(time_s, to_s, "left"))
    for i, (column, _) in enumerate(_COUNTERS):
        values = result.timeline[column].to_numpy()
        before = None
        for time, value in zip(
            time_s[first:last].tolist(), values[first:last].tolist(), strict=True
        ):
            if value == before:
                continue  # a counter keeps its value until it changes
            before = value
            at = time if from_s is None else max(time, from_s)
            packet = _event(writer, TrackEvent.TYPE_COUNTER, _FIRST_COUNTER + i, round(at * 1e9))
            packet.track_event.counter_value = value
            writer.write(packet)
