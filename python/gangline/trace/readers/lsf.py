"""Reads LSF's accounting log `lsb.acct`, which has one line for each finished job.

Fields are separated by blanks and have no names. Fields that are lists begin with their length.
Newer versions add fields at the end, so a missing field counts as unknown.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from gangline.trace.readers import _gangs as gangs
from gangline.trace.readers._gangs import Gang, joined, raw_of
from gangline.trace.readers._lines import LogLines, Wrong, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options

NAME = "lsf"
Special = gangs.Special
_RECORD = '"JOB_FINISH" "'
_EVENT = re.compile(r'"[A-Z_]+" "[\d.]+" \d+ ')
_START = re.compile(rb'\s*"[A-Z_]+" "[\d.]+" \d{9,10} ')
_CELL = re.compile(r'"([^"]*(?:""[^"]*)*)"|([^\s"]+)')
_LINES = 100  # Our own choice: text that spans more lines is not a single record.
_RUSAGE = " ".join(f"rusage{number}" for number in range(19))
# A field whose name ends with :N gives the number of items that follow it; each item has N fields.
_ORDER = f"""
    event version event_time job_id user_id options processors submit_time begin_time term_time
    start_time user queue res_req depend_cond pre_exec from_host cwd in_file out_file err_file
    job_file asked_hosts:1 exec_hosts:1 status host_factor job_name command {_RUSAGE}
    mail_user project exit_status max_processors login_shell time_event index max_memory max_swap
    in_file_spool command_spool reservation sla except_mask additional_info exit_info
    warning_action warning_period charged_saap licence_project application post_exec
    runtime_estimation job_group requeue_values options2 resize_command last_resize reservation_id
    description submit_ext:2 host_rusage:5 options3 run_limit average_memory effective_res_req
    source_cluster source_job target_cluster target_job forward_time flow_id wait_time
    provision_time out_dir run_time sub_cwd networks:2 affinity energy cpi gips gbs gflops
    slots:1 ineligible_time
"""
# Groups of single fields, each with the number of fields per item of the list that follows it.
_LAYOUT = [
    (tuple(names.split()), int(width or 0))
    for names, width in re.findall(r"([^:]+)(?::(\d))?", _ORDER)
]
_INSTANT = "seconds since 1970"
_SECONDS = "seconds"
_NONE = 2**31 - 1  # LSF writes this for "no limit"
_DONE, _EXIT = 64, 32
# The reasons why a job ended: preempted, or ended by its owner or an administrator.
_KILLED = (1, 8, 9, 10, 11, 14, 15, 23)
_SAME_S = 1.0  # the times of the log are whole seconds
_USED = re.compile(r"rusage\[([^\]]*)\]")
_GPUS = re.compile(r"\bngpus(?:_physical|_excl_p|_excl_t|_shared)?=(\(?[^\s,:/()\]]*)(?:/(\w+))?")
_WHOLE = re.compile(r"(\d{1,9})(?:\.0*)?")
_ASKED = re.compile(r"(?:^|:)num=(\d{1,9})(?:/(\w+))?(?=:|$)")
_MODEL = re.compile(r"(?:^|:)gmodel=([^:\s]+)")
_COMPOUND = re.compile(r"\*\{|\|\|")

Fields = dict[str, str]


def is_log(head: bytes) -> bool:
    """Return whether these bytes look like the beginning of the log."""
    return _START.match(head) is not None


def read(source: Source, options: Options) -> Raw:
    """Read the records of jobs; other events are counted."""
    special: Special = options.special
    notes: dict[str, int] = {}
    lines = LogLines(source, lambda line: _fields(line)[0])
    jobs: dict[tuple[str, str], list[Gang]] = {}
    suspended: set[int] = set()
    compound: set[int] = set()
    for number, line in _records(lines, notes):
        if not line.startswith(_RECORD):
            if _EVENT.match(line):
                notes["other_record"] = notes.get("other_record", 0) + 1
            else:
                lines.refuse(number, Wrong(None, '"JOB_FINISH" "VERSION" TIME ...', line))
            continue
        try:
            fields, extensions = _fields(line)
            gang = _gang(number, fields)
            requests = [fields.get("effective_res_req") or fields.get("res_req", ""), *extensions]
            if any(_COMPOUND.search(text) for text in requests if _GPUS.search(text)):
                compound.add(number)
            _set_gpus(gang, fields, requests)
        except Wrong as wrong:
            lines.refuse(number, wrong)
            continue
        if gang.finish - gang.start > gang.run_time + _SAME_S:
            suspended.add(number)
        jobs.setdefault((gang.name, fields["submit_time"]), []).append(gang)
    found = [joined(attempts, special, notes) for attempts in jobs.values()]
    raw = raw_of(found, source.name, NAME, notes, special)
    raw.names = {"arrival_s": "submit_time", "gpus": "effective_res_req", "duration_s": "run_time"}
    raw.names |= {"time_limit_s": "run_limit"}
    places = [gang.place for gang in found]
    raw.drops.append(("compound_request", _among(places, compound)))
    raw.marks["elapsed_differs"] = _among(places, suspended)
    lines.attach(raw, places)
    return raw


def _among(places: list[int], rows: set[int]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray([place in rows for place in places], np.bool_)


def _records(lines: LogLines, notes: dict[str, int]) -> Iterator[tuple[int, str]]:
    """Yield the records; quoted text over several lines is joined and counted."""
    begun: list[str] = []
    first = 0
    for number, line in lines:
        if begun and (_EVENT.match(line) or len(begun) == _LINES):
            yield first, " ".join(begun)  # the quoted text has no end; the next record begins here
            begun = []
        if not begun:
            first = number
        begun.append(line)
        if sum(part.count('"') for part in begun) % 2 == 0:
            if len(begun) > 1:
                notes["mended_record"] = notes.get("mended_record", 0) + 1
            yield first, " ".join(begun)
            begun = []
    if begun:
        yield first, " ".join(begun)


def _fields(line: str) -> tuple[Fields, list[str]]:
    """Return a record's fields, keyed by name (for a list, its length), and its extensions.

    Raises
    ------
    Wrong
        If a list is longer than the record.
    """
    cells = [bare or quoted.replace('""', '"') for quoted, bare in _CELL.findall(line)]
    fields: Fields = {}
    extensions: list[str] = []
    at = 0
    for names, width in _LAYOUT:
        fields.update(zip(names, cells[at : at + len(names)], strict=False))
        at += len(names)
        if at > len(cells):
            break
        if width:
            name = names[-1]
            many = whole(fields, name, "a number of items") * width
            if not 0 <= many <= len(cells) - at:
                raise Wrong(name, "a number of items that follow it", fields[name])
            listed = cells[at : at + many]
            at += many
            if name == "submit_ext":
                extensions = listed[1::2]
            elif name in ("exec_hosts", "slots"):
                fields[f"{name}_names"] = " ".join(listed)
    return fields, extensions


def _gang(number: int, fields: Fields) -> Gang:
    """Return the job of a record, still without its GPUs."""
    job, index = (whole(fields, name, "a whole number") for name in ("job_id", "index"))
    submitted = whole(fields, "submit_time", _INSTANT)
    start = _seconds(fields, "start_time")
    finish = whole(fields, "event_time", _INSTANT)
    waited, begin = (
        max(whole(fields, name, _SECONDS), 0) if name in fields else 0
        for name in ("ineligible_time", "begin_time")
    )
    gang = Gang(
        place=number,
        name=f"{job}[{index}]" if index > 0 else f"{job}",
        arrival=float(submitted),
        eligible=float(max(begin, submitted + waited)),
        start=start,
        finish=float(finish),
        ran=_seconds(fields, "run_time"),
        limit=_limit(fields),
        user=fields.get("user"),
        vc=fields.get("queue"),
        partition=fields.get("queue"),
        account=fields.get("project"),
    )
    status = whole(fields, "status", f"{_DONE} (done) or {_EXIT} (exit)")
    if not np.isnan(start):
        reason = whole(fields, "exit_info", "a whole number") if "exit_info" in fields else 0
        ended = "killed" if reason in _KILLED else "failed"
        gang.status = {_DONE: "finished", _EXIT: ended}.get(status, "unknown")
    hosts = _hosts(fields)
    gang.servers = float(len(hosts)) if hosts else gang.servers
    gang.cpus = float(sum(hosts.values())) if hosts else gang.cpus
    return gang


def _seconds(fields: Fields, name: str) -> float:
    """Return a time in seconds; NaN if it is absent, 0 or negative."""
    value = whole(fields, name, _SECONDS) if name in fields else 0
    return float(value) if value > 0 else float(np.nan)


def _limit(fields: Fields) -> float | None:
    value = _seconds(fields, "run_limit")
    return None if np.isnan(value) or value >= _NONE else value


def _hosts(fields: Fields) -> dict[str, int]:
    """Return the slots of each host; a host is listed once per slot, or as `4*name`."""
    hosts: dict[str, int] = {}
    for word in (fields.get("slots_names") or fields.get("exec_hosts_names", "")).split():
        many, star, name = word.partition("*")
        is_short = bool(star) and many.isascii() and many.isdigit()
        count = whole({"exec_hosts": many}, "exec_hosts", "a number of slots") if is_short else 1
        host = name if is_short else word
        hosts[host] = hosts.get(host, 0) + count
    return hosts


def _set_gpus(gang: Gang, fields: Fields, requests: list[str]) -> None:
    """Set the GPUs from a reservation that applies to each host, to each task, or to the job."""
    found = [
        match for text in requests for part in _USED.findall(text) for match in _GPUS.findall(part)
    ]
    found = found or [match for text in requests for match in _ASKED.findall(text)]
    if not found:
        return
    text, scope = found[0]
    number = _WHOLE.fullmatch(text)
    if number is None:
        raise Wrong("effective_res_req", "a whole number of GPUs", text)
    gang.types = frozenset(name for one in requests for name in _MODEL.findall(one))
    slots = gang.cpus if np.isfinite(gang.cpus) else float(whole(fields, "processors", "slots"))
    hosts = gang.servers if np.isfinite(gang.servers) else 1.0
    gang.gpus = float(number[1]) * {"task": slots, "job": 1.0}.get(scope, hosts)
