"""Reads accounting logs of OpenPBS, PBS Professional and Torque: one event on each line.

Each job that ended has a record of type E; each attempt before a requeue has a record of type R.
The other types show which jobs never ran and which are still running. Times are seconds since 1970;
the local time at the beginning of each line is not used.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from gangline.files.quantities import gib_of
from gangline.trace.readers import _gangs as gangs
from gangline.trace.readers._gangs import Gang, joined, raw_of
from gangline.trace.readers._lines import LogLines, Wrong, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options

NAME = "pbs"
Special = gangs.Special
_LINE = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;([A-Za-z]);([^;]*);?(.*)")
_START = re.compile(rb"\s*\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z];[^;\s]*(;|\s|$)")
_PAIR = re.compile(r"""(?:^|\s)([A-Za-z_][\w.-]*)=("[^"]*"|'[^']*'|\S*)""")
_BEGAN = re.compile(r"\sstart=(\d{1,12})(?!\S)")
_CLOCK = re.compile(r"(?:(?:(\d{1,9}):)?(\d{1,9}):)?(\d{1,9})(?:\.\d*)?")
_RECORD = "MM/DD/YYYY HH:MM:SS;TYPE;JOB;KEY=VALUE ..."
_INSTANT = "seconds since 1970"
_REQUEST = "Resource_List."
_GPUS = ("ngpus", "gpus")  # the names in PBS and in Torque
_TYPES = ("accelerator_model", "gpu_type", "gpu_model")
_SIGNAL = 256  # at or above this exit status, a signal ended the job, for example that of qdel
_SLACK_S = 60.0  # Time for prologue, epilogue and sampling of the walltime; our own choice.
_NO_PROJECT = "_pbs_project_default"


class _Job(msgspec.Struct):
    """The records of a job that the reader has read so far."""

    attempts: list[Gang] = []
    last_start: float = -np.inf
    is_deleted: bool = False
    is_wrong: bool = False

    @property
    def is_running(self) -> bool:
        """Whether the job started again after its last known end; records may be in any order."""
        return self.last_start > max((one.start for one in self.attempts), default=-np.inf)


def is_log(head: bytes) -> bool:
    """Return whether these bytes look like the beginning of an accounting log."""
    return _START.match(head) is not None


def read(source: Source, options: Options) -> Raw:
    """Read the records of jobs, in any order."""
    special: Special = options.special
    notes: dict[str, int] = {}
    lines = LogLines(source, _fields)
    jobs: dict[str, _Job] = {}
    shorter: set[int] = set()
    for number, line in lines:
        found = _LINE.fullmatch(line)
        if found is None:
            lines.refuse(number, Wrong(None, _RECORD, line))
            continue
        kind, name = found[1], found[2]
        if kind not in "QSERDA":
            _count(notes, "other_record")
        elif "[]" in name:  # the record of a whole array, whose tasks have separate records
            if kind == "E":
                _count(notes, "array_parent")
        else:
            job = jobs.setdefault(name, _Job())
            job.is_deleted |= kind in "DA"
            if kind == "S":
                began = _BEGAN.search(line)
                job.last_start = max(job.last_start, float(began[1]) if began else 0.0)
            elif kind in "ER":
                try:
                    gang, is_shorter = _attempt(number, name, _fields(line))
                except Wrong as wrong:
                    lines.refuse(number, wrong)
                    job.is_wrong = True
                    continue
                gang.is_unended = kind == "R"
                if kind == "E" or not np.isnan(gang.start):
                    job.attempts.append(gang)
                if is_shorter:
                    shorter.add(number)
    found_gangs = list(_gangs(jobs, special, notes))
    raw = raw_of(found_gangs, source.name, NAME, notes, special)
    raw.names = {"arrival_s": "ctime", "gpus": "exec_vnode", "duration_s": "end"}
    raw.names |= {"time_limit_s": f"{_REQUEST}walltime"}
    places = [gang.place for gang in found_gangs]
    raw.marks["walltime_shorter"] = np.asarray([one in shorter for one in places], np.bool_)
    lines.attach(raw, places)
    return raw


def _gangs(jobs: Mapping[str, _Job], special: Special, notes: dict[str, int]) -> Iterator[Gang]:
    """Yield the jobs that have an attempt; count the other jobs."""
    for job in jobs.values():
        is_running = job.is_running
        if job.attempts:
            gang = joined(job.attempts, special, notes)
            if is_running:
                gang.status = "running"
            gang.is_unended &= not job.is_deleted
            yield gang
        elif not job.is_wrong:
            _count(notes, "still_running" if is_running else "never_ran")


def _fields(line: str) -> dict[str, str]:
    """Return the keys and values of a record; if a key occurs twice, the first value counts."""
    fields: dict[str, str] = {}
    found = _LINE.fullmatch(line)
    for key, value in _PAIR.findall(found[3] if found else ""):
        fields.setdefault(key, value.strip("\"'"))
    return fields


def _attempt(number: int, name: str, fields: Mapping[str, str]) -> tuple[Gang, bool]:
    """Return an attempt of a job, and whether its walltime is shorter than its time on the GPUs."""
    start = _instant(fields, "start")
    gang = Gang(
        place=number,
        name=name,
        arrival=float(whole(fields, "ctime" if "ctime" in fields else "qtime", _INSTANT)),
        eligible=_instant(fields, "etime"),
        start=start,
        finish=_instant(fields, "end"),
        user=fields.get("user"),
        vc=fields.get("queue"),
        partition=fields.get("queue"),
        account=_account(fields),
        limit=_clock(fields, f"{_REQUEST}walltime"),
    )
    if not np.isnan(start):
        gang.status = _status(fields)
    _set_resources(gang, fields)
    used = _clock(fields, "resources_used.walltime")
    return gang, used is not None and gang.finish - start > used + _SLACK_S


def _instant(fields: Mapping[str, str], name: str) -> float:
    """Return an instant; NaN if it is absent or 0."""
    if not fields.get(name):
        return float(np.nan)
    return float(whole(fields, name, _INSTANT)) or float(np.nan)


def _account(fields: Mapping[str, str]) -> str | None:
    project = fields.get("project", "")
    return fields.get("account") or project.replace(_NO_PROJECT, "") or fields.get("group")


def _status(fields: Mapping[str, str]) -> str:
    if "Exit_status" not in fields:
        return "unknown"
    status = whole(fields, "Exit_status", "an exit status")
    return "finished" if status == 0 else "killed" if status >= _SIGNAL else "failed"


def _clock(fields: Mapping[str, str], name: str) -> float | None:
    """Convert a time such as `[[hours:]minutes:]seconds` to seconds."""
    text = fields.get(name, "")
    if not text:
        return None
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise Wrong(name, "a duration HH:MM:SS", text)
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return 3600.0 * hours + 60.0 * minutes + seconds


def _set_resources(gang: Gang, fields: Mapping[str, str]) -> None:
    """Set GPUs and other resources from the allocation, or else from requested totals or chunks."""
    granted = [(1, chunk) for chunk in _chunks(fields.get("exec_vnode", ""))]
    listed = {
        key.removeprefix(_REQUEST): value
        for key, value in fields.items()
        if key.startswith(_REQUEST)
    }
    asked = []
    for text in (listed.get("select", ""), listed.get("nodes", "")):
        for chunk in _chunks(text):
            many = chunk[""]
            is_number = many.isascii() and many.isdigit()
            asked.append((_number("a number of chunks", many) if is_number else 1, chunk))
    sources = (granted, [(1, listed)], asked)
    gang.gpus = next((sum(found) for found in (_gpus(part) for part in sources) if found), 0.0)
    cores = [_number("ncpus", chunk["ncpus"]) for _, chunk in granted if "ncpus" in chunk]
    sizes = [chunk["mem"] for _, chunk in granted if "mem" in chunk]
    if not granted and "ncpus" in listed:
        cores = [_number(f"{_REQUEST}ncpus", listed["ncpus"])]
    if not sizes and "mem" in listed:
        sizes = [listed["mem"]]
    gang.cpus = float(sum(cores)) if cores else gang.cpus
    gang.memory_gb = sum(map(_gib, sizes)) if sizes else gang.memory_gb
    servers = {chunk[""].partition("[")[0] for _, chunk in granted}
    gang.servers = float(len(servers)) if servers else gang.servers
    gang.types = frozenset(
        chunk[key] for _, chunk in [*sources[1], *asked] for key in _TYPES if chunk.get(key)
    )


def _chunks(text: str) -> Iterator[dict[str, str]]:
    """Yield the chunks in a string such as `(a:ncpus=8:ngpus=4)+(b:ncpus=8)` or `2:ngpus=4`."""
    for part in text.replace("(", "").replace(")", "").split("+") if text else ():
        items = [item.partition("=") for item in part.split(":")]
        chunk = {key: value for key, equals, value in items if equals}
        yield {"": "" if items[0][1] else items[0][0], **chunk}


def _gpus(part: list[tuple[int, dict[str, str]]]) -> list[float]:
    """For each group of equal chunks with GPUs, return the total number of GPUs."""
    return [
        float(many * _number(key, chunk[key]))
        for many, chunk in part
        for key in _GPUS
        if key in chunk
    ]


def _number(name: str, text: str) -> int:
    return whole({name: text}, name, "a whole number")


def _gib(text: str) -> float:
    """Convert a size such as `4gb`, in bytes or in 8-byte words, to GiB."""
    is_words = text.endswith("w")
    try:
        return gib_of(text.removesuffix("w"), "") * (8.0 if is_words else 1.0)
    except ValueError:
        raise Wrong("mem", "a size such as 64gb", text) from None


def _count(notes: dict[str, int], reason: str) -> None:
    notes[reason] = notes.get(reason, 0) + 1
