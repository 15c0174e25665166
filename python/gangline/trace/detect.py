"""Detects the format of an input from its first 64 KiB."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gangline.errors import TraceError
from gangline.files.faults import short
from gangline.files.tar import is_tar
from gangline.files.text import BOM, header, not_text, simple
from gangline.trace.formats import FORMATS, Format
from gangline.trace.readers import _sacct_json as sacct_json
from gangline.trace.readers import dally, lsf, opendc, pbs, ray
from gangline.trace.readers.slurm import ADVICE, QUEUE_ADVICE, separator_of

if TYPE_CHECKING:
    from gangline.files.source import Source

SWF_FIELDS = 18
_SWF_STATUS = 11  # the number of the status field, counted from 1
_SWF_STATUSES = (b"-1", b"0", b"1", b"2", b"3", b"4", b"5")
GAVEL_NUMBERS = {7: (4, 5, 6), 10: (5, 6, 7, 8, 9), 12: (5, 6, 8, 9, 10, 11)}
"""Indices of the numeric columns of Gavel traces with 7, 10 and 12 columns."""

_PARQUET = b"PAR1"
_ARROW = (b"ARROW1", b"\xff\xff\xff\xff")
_WORK = frozenset({"duration_s", "iterations"})
# The beginnings of files that people mistake for traces.
_STRANGERS = (
    (b"\xff\xfe", "this is UTF-16 text; save it as UTF-8"),
    (b"\xfe\xff", "this is UTF-16 text; save it as UTF-8"),
    (b"[JobDetails(", "this is `ray job list` output; save the output of GET /api/jobs/"),
    (b"<", "this is a web page or XML; fetch the file itself"),
    (
        b"version https://git-lfs",
        "this is a pointer of Git LFS; fetch the file with `git lfs pull`",
    ),
    (b"\x80\x02", "this is a pickle, which gangline never opens"),
    (b"\x80\x03", "this is a pickle, which gangline never opens"),
    (b"\x80\x04", "this is a pickle, which gangline never opens"),
    (b"\x80\x05", "this is a pickle, which gangline never opens"),
    (b"PK\x03\x04", "this is a zip archive; unpack it, or compress the file with gzip, xz or zstd"),
    (b"BZh", "this is compressed with bzip2; decompress it, or use gzip, xz or zstd"),
)
_QUEUE_FOR_PEOPLE = re.compile(rb"JOBID +PARTITION +NAME +USER +ST ")
_FOR_PEOPLE = re.compile(rb"[^\n]*\bJobID\b[^\n]*\n-+ [- ]+\r?\n")
_NO_NAMES = re.compile(rb"\d+(_\d+)?(\.\w+)?\|")
_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_LOGS = ("kubernetes", "lsf", "pbs", "slurm")
"""Formats that are the logs of schedulers, with starts and ends of jobs."""
_OLD_TIRESIAS = {"start_time", "model_size", "aggr_interval"}
_PAI_TABLE = "pai_"
_CUT_DOWN = 3
"""If a file has at least this many columns, the only format that has all of them is named."""
_NEAREST = 2
_OWN = (
    "a trace of your own needs arrival_s, gpus and duration_s: say which columns hold them, for "
    "example `--columns arrival_s=submitted,gpus=cards,duration_s=hours@h`"
)
_FRAGMENTS = "these are the fragments of an OpenDC workload; read the file of its tasks instead"
# Our own choice: a file that lacks more than half of a format's columns has a different format.
_NEAR_ENOUGH = 0.5
_NAMES_SHOWN = 8
_TABLE_LEAST = 2  # Our own choice: one name with separators can look like two columns.


def detect(source: Source) -> str:
    """Return the name of a source's format.

    Raises
    ------
    TraceError
        If no format matches, or if two match equally well; the message says how well each format
        matches.
    """
    if source.is_folder or is_pai_table(source):
        return "pai"
    head = source.head
    if head.startswith(_PARQUET):
        return _of_parquet(source)
    if head.startswith(_ARROW):
        return "native"
    if is_tar(head):
        raise TraceError(
            f"{source.name}: this is an archive; name the member to read: {source.name}::MEMBER; "
            f"it holds {source.members()}",
            path=source.name,
            expected="a member",
        )
    found = _by_first_bytes(head)
    if found is not None:
        return found
    return _by_header(source, header(head))


def scheduler_log(head: bytes) -> str | None:
    """Describe a file that is the log of a scheduler, given its first bytes; None for others."""
    name = _by_first_bytes(head)
    if name in _LOGS:
        return f"this is a job log in the format {name}"
    text = head.removeprefix(BOM).lstrip()
    patterns = (_FOR_PEOPLE, _QUEUE_FOR_PEOPLE, _NO_NAMES)
    return _stranger(head) if any(pattern.match(text) for pattern in patterns) else None


def _of_parquet(source: Source) -> str:
    """Return the format that the column names of a Parquet file indicate."""
    names = opendc.names_of(source)
    if opendc.is_fragments(names) and not opendc.is_tasks(names):
        raise TraceError(
            f"{source.name}: {_FRAGMENTS}", path=source.name, expected="tasks of a workload"
        )
    return opendc.NAME if opendc.is_tasks(names) else "native"


def is_pai_table(source: Source) -> bool:
    """Return whether a file is a table from the PAI traces, whose headers are in separate files."""
    name = (source.member or source.path.name).rpartition("/")[2]
    stem = name.partition(".")[0]
    if stem.startswith(_PAI_TABLE) and stem.endswith("_table"):
        return True
    return source.member is None and source.path.with_name(f"{stem}.header").is_file()


def _by_first_bytes(head: bytes) -> str | None:
    text = head.removeprefix(BOM).lstrip()
    if text.startswith(b"{") and b'"apiVersion"' in text:
        return None if _is_nodes(text) else "kubernetes"
    if sacct_json.is_export(text):
        return "slurm"
    if text.startswith(b"{"):
        return "batsim" if b'"jobs"' in text or b'"profiles"' in text else None
    if ray.is_list(text):
        return "ray"
    if dally.is_list(text):
        return "dally"
    if text.startswith(b"["):
        return "philly-json" if b'"attempts"' in text or b'"submitted_time"' in text else None
    if text.startswith(b";"):
        return "swf"
    if pbs.is_log(text):
        return "pbs"
    if lsf.is_log(text):
        return "lsf"
    line = text.partition(b"\n")[0].rstrip(b"\r")
    if _is_swf(text):
        return "swf"
    if separator_of(text) is not None:
        return "slurm"
    cells = line.split(b"\t")
    if all(_is_number(cells[i]) for i in GAVEL_NUMBERS.get(len(cells), (0,))):
        return "gavel"
    return None


def _is_nodes(text: bytes) -> bool:
    """Return whether all Kubernetes objects in the first bytes of a file are nodes."""
    return b'"Node"' in text and not any(
        f'"{kind}"'.encode() in text for kind in ("Workload", "Job", "PodGroup", "Pod")
    )


def _is_swf(text: bytes) -> bool:
    """Return whether every complete line begins with the 18 numbers that describe a job."""
    whole, _, rest = text.rpartition(b"\n")
    lines = [line.split()[:SWF_FIELDS] for line in (whole or rest).splitlines() if line.strip()]
    return all(
        len(fields) == SWF_FIELDS
        and all(_is_number(field) for field in fields)
        and fields[0].isdigit()
        and fields[_SWF_STATUS - 1] in _SWF_STATUSES
        for fields in lines
        if not fields[0].startswith(b";")
    )


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _by_header(source: Source, names: list[str]) -> str:
    have = {simple(name) for name in names}
    matches = [item for item in FORMATS if item.columns and not _missing(item, have)]
    matches.sort(key=lambda item: len(_needs(item, have)), reverse=True)
    force = ""
    if matches:
        best = len(_needs(matches[0], have))
        equal = [item.name for item in matches if len(_needs(item, have)) == best]
        if len(equal) == 1:
            return equal[0]
        words = f"the header fits {' and '.join(equal)} equally well"
        force = "; force one with `--format` (or format=)"
    elif have >= _OLD_TIRESIAS:
        words = "this is the older demo format of the Tiresias simulator, which has no iterations"
    else:
        stranger = _stranger(source.head)
        words = f"unknown trace format: {stranger or _nearness(names)}"
    raise TraceError(
        f"{source.name}: {words}{force}",
        path=source.name,
        line=1,
        expected="a known header",
    )


def _stranger(head: bytes) -> str | None:
    """Describe a file that has no known header, if its first bytes identify it."""
    text = head.removeprefix(BOM).lstrip()
    for start, words in _STRANGERS:
        if text.startswith(start):
            return words
    if _FOR_PEOPLE.match(text):
        return f"this is sacct output for people; export it with: {ADVICE}"
    if _QUEUE_FOR_PEOPLE.match(text):
        return f"this is squeue output for people; export it with: {QUEUE_ADVICE}"
    if text.startswith(b"apiVersion: "):
        return "this is YAML; export it with `-o json` instead of `-o yaml`"
    if _NO_NAMES.match(text):
        return (
            "its first line has no names; for sacct output without a header, name the fields: "
            "`--format slurm --option fields=JobID,Submit,...`"
        )
    if text.startswith(b"{") and b'"apiVersion"' in text:
        return "this is a list of Kubernetes nodes, which describes a cluster: use `--cluster`"
    if text.startswith((b"{", b"[")):
        return "JSON without `jobs` and `profiles` (batsim), or `attempts` (philly-json)"
    if unreadable := _not_text(head):
        return unreadable
    if opendc.is_fragments(header(head)):
        return _FRAGMENTS
    if cluster := _cluster(head):
        return cluster
    for delimiter, name in _DELIMITERS.items():
        have = {simple(column) for column in header(head, delimiter)}
        found = [item for item in FORMATS if item.columns and not _missing(item, have)]
        if found:
            nearest = max(found, key=lambda item: len(item.columns)).name
            forced = "; `--format table` accepts them unchanged" if nearest == "native" else ""
            return (
                f"its columns, those of {nearest}, are separated by {name}; expected commas{forced}"
            )
        if len(have) > _TABLE_LEAST and len(header(head)) == 1:
            return (
                f"its columns, separated by {name}, are {_listed(header(head, delimiter))}; {_OWN}"
            )
    return None


def _cluster(head: bytes) -> str | None:
    """Return advice if the input describes a cluster, like a TOML file or a public node list."""
    from gangline.cluster.node_lists import FORMATS as NODE_LISTS

    have = {simple(name) for name in header(head)}
    for item in NODE_LISTS:
        if item.kind == "csv" and set(item.columns) <= have:
            return f"this is a node list ({item.name}), which describes a cluster: use `--cluster`"
    if b"[[servers]]" in head or b"[[gpu_types]]" in head:
        return "this is a cluster file, which describes a cluster: use `--cluster`"
    return None


def _not_text(head: bytes) -> str | None:
    """Describe the part of the first line that is not text; empty if the whole line is text."""
    line = head.split(b"\n", 1)[0]
    if b"\0" in line:
        return "its first line contains NUL bytes; expected text, Parquet or Arrow"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"its first line is not UTF-8 text ({not_text(error)})"
    return None


def _needs(item: Format, have: set[str]) -> frozenset[str]:
    """Return the columns that a header must have; the native format also needs one for work."""
    return item.columns | (_WORK & have) if item.name == "native" else item.columns


def _missing(item: Format, have: set[str]) -> list[str]:
    missing = sorted(item.columns - have)
    if item.name == "native" and not have & _WORK:
        missing.append("duration_s or iterations")
    return missing


def _nearness(names: list[str]) -> str:
    """Describe how well each format matches: its missing columns, or the share of columns found."""
    have = {simple(name) for name in names}
    near = []
    for item in FORMATS:
        missing = _missing(item, have)
        total = len(item.columns) + (item.name == "native")
        if item.columns:
            near.append((len(missing) / total, item.name, missing, total))
    near.sort(key=lambda entry: entry[0])
    owner = _owner(have)
    near = [entry for entry in near if entry[0] < 1.0]
    known = f"known: {', '.join(item.name for item in FORMATS)}"
    named = 0 if not near or near[0][0] > _NEAR_ENOUGH else _NEAREST
    if owner is not None and not named:
        near.sort(key=lambda entry: entry[1] != owner)
        named = 1
    parts = [f"{name} lacks {', '.join(missing)}" for _, name, missing, _ in near[:named]]
    rest = ", ".join(
        f"{name} {total - len(missing)} of {total}" for _, name, missing, total in near[named:]
    )
    found = f"columns found of {'others' if named else 'formats'}: {rest}" if rest else ""
    if named:
        return "; ".join([*parts, found or known, _OWN])
    return "; ".join(part for part in (_own(names), found, known) if part)


def _owner(have: set[str]) -> str | None:
    """Return the only format that has all columns of a file with at least three columns."""
    owners = [item.name for item in FORMATS if len(have) >= _CUT_DOWN and have <= item.columns]
    return owners[0] if len(owners) == 1 else None


def _own(names: list[str]) -> str:
    """Return advice on what a user's own trace needs, for a file that resembles no format."""
    shown = _listed(names)
    if any(_is_number(name.encode()) for name in names):
        return f"its first line names no columns ({shown}); `--format` forces a format without them"
    return f"its columns are {shown}; {_OWN}"


def _listed(names: list[str]) -> str:
    shown = ", ".join(short(name) for name in names[:_NAMES_SHOWN])
    return shown + (f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else "")
