"""Reads the profiles of elastic jobs from the Pollux experiments, one folder per application.

A folder contains `placements.csv` (placement, local_bsz, step_time, sync_time), `scalability.csv`
(num_nodes, num_replicas, local_bsz, step_time, sync_time) and `validation-<total batch>.csv`
(progress, iteration, metric, grad_sqr, grad_var). Times are in seconds. A placement is a string
with one digit per server: "31" is one server with three GPUs and one with a single GPU.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from gangline._support.safe import safe
from gangline.errors import TraceError
from gangline.files.faults import Fault
from gangline.files.source import Source
from gangline.files.tar import is_tar
from gangline.files.text import TextFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

__all__ = ["PolluxProfile", "PolluxProfiles", "Step", "read_pollux"]

MAX_BYTES = 2**30
PLACEMENTS = "placements.csv"
# Limits that the public experiments set, but that are missing in the tables of the application.
LOCAL_MAX = {"yolov3": 8}
_TIMES = {"local_bsz": pa.int64(), "step_time": pa.float64(), "sync_time": pa.float64()}
_PLACEMENTS = {"placement": pa.string(), **_TIMES}
_SCALABILITY = {"num_nodes": pa.int64(), "num_replicas": pa.int64(), **_TIMES}
_VALIDATION = {
    "progress": pa.float64(),
    "iteration": pa.float64(),
    "metric": pa.float64(),
    "grad_sqr": pa.float64(),
    "grad_var": pa.float64(),
}
_LEAST = {"num_nodes": 1, "num_replicas": 1, "local_bsz": 1, "step_time": 0, "sync_time": 0}
_VALIDATION_NAME = re.compile(r"validation-(\d{1,9})\.csv")


class Step(NamedTuple):
    """The time of one iteration and of its synchronisation, in seconds."""

    step_s: float
    sync_s: float


_Curve = dict[int, Step]  # keyed by samples per GPU and pass


class PolluxProfile:
    """The measurements of one application.

    Attributes
    ----------
    application : str
        Name of the application.
    placements : dict
        Mapping from placements such as "44" to measurements: {samples per GPU and pass: Step}.
    scalability : dict
        Mapping from (servers, GPUs) to measurements: {samples per GPU and pass: Step}.
    validation : dict
        Mapping from total batch sizes to tables of progress, iteration, metric, grad_sqr and
        grad_var, with one row per epoch.

    Examples
    --------
    >>> import gangline as gl
    >>> from gangline.cluster.tables.pollux import Step
    >>> curve = {8: Step(0.2, 0.0), 16: Step(0.3, 0.0)}
    >>> profile = gl.tables.PolluxProfile("mine", {"1": curve}, {}, {})
    >>> round(profile.step("1", 12).step_s, 3)
    0.25
    """

    def __init__(
        self,
        application: str,
        placements: Mapping[str, _Curve],
        scalability: Mapping[tuple[int, int], _Curve],
        validation: Mapping[int, pa.Table],
        *,
        path: str = "profiles",
    ) -> None:
        self.application = application
        self.placements = dict(placements)
        self.scalability = dict(scalability)
        self.validation = dict(sorted(validation.items()))
        self.path = path

    @property
    def batch_range(self) -> tuple[int, int]:
        """The smallest and the largest validated total batch size."""
        return min(self.validation), max(self.validation)

    @property
    def local_range(self) -> tuple[int, int]:
        """The minimum and the maximum number of samples per GPU and pass."""
        locals_ = [size for curve in self.placements.values() for size in curve]
        return min(locals_), LOCAL_MAX.get(self.application, max(locals_))

    def step(self, placement: str, local: int) -> Step:
        """Return the time of one pass, interpolated linearly within the measured range.

        For a measured placement, only `local` is interpolated. For other placements, the time is
        also interpolated over (servers, GPUs). At a measured number of servers, the interpolation
        is linear in GPUs. Between two measured numbers, it is linear in servers at the same number
        of GPUs per server.

        Raises
        ------
        TraceError
            If the point lies outside the measured range.
        """
        shape = "".join(sorted(placement))
        if not shape.isdigit() or "0" in shape:
            raise self._error("placement", placement, 'one digit from 1 to 9 per server ("44")')
        if shape in self.placements:
            return self._on_curve(self.placements[shape], local, shape)
        return self._on_surface(len(shape), sum(map(int, shape)), local)

    def iterations(self, total_batch: int) -> float:
        """Return the number of iterations up to the last epoch at a validated total batch size."""
        if total_batch not in self.validation:
            known = ", ".join(map(str, self.validation))
            raise self._error("batch_size", total_batch, f"a validated total batch: {known}")
        return float(self.validation[total_batch].column("iteration")[-1].as_py())

    def passes(self, gpus: int, total_batch: int) -> tuple[int, int]:
        """Return (samples per GPU and pass, extra accumulation passes) for a total batch size."""
        least, most = self.local_range
        share = math.ceil(total_batch / gpus)
        extra = math.ceil(share / most) - 1
        if gpus == 1 and total_batch > self.batch_range[0]:
            extra = max(extra, 1)
        local = math.ceil(share / (extra + 1))
        if local < least:
            raise self._error("batch_size", total_batch, f"at least {least} per GPU")
        return local, extra

    def alone_s(self, gpus: int, total_batch: int, *, gpus_per_server: int = 4) -> float:
        """Return the seconds that a complete training run takes alone on the fewest servers."""
        local, extra = self.passes(gpus, total_batch)
        full, rest = divmod(gpus, gpus_per_server)
        placement = (str(rest) if rest else "") + str(gpus_per_server) * full
        step = self.step(placement, local)
        return self.iterations(total_batch) * (step.step_s + extra * (step.step_s - step.sync_s))

    def _on_curve(self, curve: _Curve, local: float, what: str) -> Step:
        sizes = sorted(curve)
        if not sizes[0] <= local <= sizes[-1]:
            expected = f"{sizes[0]} to {sizes[-1]} samples per GPU on {what}"
            raise self._error("local_bsz", local, expected)
        if local in curve:
            return curve[int(local)]
        high = next(size for size in sizes if size > local)
        low = sizes[sizes.index(high) - 1]
        return _between(curve[low], curve[high], (local - low) / (high - low))

    def _on_surface(self, servers: int, gpus: float, local: int) -> Step:
        counts = sorted({nodes for nodes, _ in self._surface})
        if servers in counts:
            return self._at_servers(servers, gpus, local)
        below = [nodes for nodes in counts if nodes < servers]
        above = [nodes for nodes in counts if nodes > servers]
        if not below or not above:
            raise self._error("servers", servers, f"{counts[0]} to {counts[-1]} servers")
        low, high = below[-1], above[0]
        each = gpus / servers
        return _between(
            self._at_servers(low, each * low, local),
            self._at_servers(high, each * high, local),
            (servers - low) / (high - low),
        )

    def _at_servers(self, servers: int, gpus: float, local: int) -> Step:
        sizes = sorted(size for nodes, size in self._surface if nodes == servers)
        if not sizes[0] <= gpus <= sizes[-1]:
            raise self._error("gpus", gpus, f"{sizes[0]} to {sizes[-1]} GPUs on {servers} servers")
        what = f"{gpus:g} GPUs of {servers} servers"
        if gpus in sizes:
            return self._on_curve(self._surface[servers, int(gpus)], local, what)
        high = next(size for size in sizes if size > gpus)
        low = sizes[sizes.index(high) - 1]
        return _between(
            self._on_curve(self._surface[servers, low], local, what),
            self._on_curve(self._surface[servers, high], local, what),
            (gpus - low) / (high - low),
        )

    @property
    def _surface(self) -> dict[tuple[int, int], _Curve]:
        """Return the curves by (servers, GPUs), from the scalability table and even placements."""
        even = {
            (len(text), sum(map(int, text))): curve
            for text, curve in self.placements.items()
            if int(max(text)) - int(min(text)) <= 1
        }
        return {**even, **self.scalability}

    def _error(self, column: str, value: object, expected: str) -> TraceError:
        return TraceError.at(f"{self.path} {self.application}", None, column, value, expected)


class PolluxProfiles:
    r"""Mapping from applications to profiles, as `gangline.tables.read_pollux` returns it.

    Attributes
    ----------
    path : str
        The folder or archive from which the profiles were read.

    Examples
    --------
    >>> from pathlib import Path
    >>> import gangline as gl
    >>> Path("profiles/bert").mkdir(parents=True)
    >>> head = "local_bsz,step_time,sync_time\n"
    >>> count = Path("profiles/bert/placements.csv").write_text(f"placement,{head}1,8,0.2,0.0\n")
    >>> rows = f"num_nodes,num_replicas,{head}1,1,8,0.2,0.0\n"
    >>> count = Path("profiles/bert/scalability.csv").write_text(rows)
    >>> profiles = gl.tables.read_pollux("profiles")
    >>> list(profiles), "vgg" in profiles
    (['bert'], False)
    """

    def __init__(
        self, files: Mapping[str, Mapping[str, Source]], path: str, placements: str
    ) -> None:
        self._files = dict(sorted(files.items()))
        self._placements = placements
        self._read: dict[str, PolluxProfile] = {}
        self.path = path

    def __getitem__(self, application: str) -> PolluxProfile:
        if application not in self._files:
            known = ", ".join(self._files)
            raise TraceError.at(
                self.path, None, "application", application, f"a profile; there are {known}"
            )
        if application not in self._read:
            files = self._files[application]
            profile = _read_application(self.path, application, files, self._placements)
            self._read[application] = profile
        return self._read[application]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, application: object) -> bool:
        return application in self._files

    def __repr__(self) -> str:
        return safe(f"PolluxProfiles({', '.join(self._files)})")


def read_pollux(path: str | PathLike[str], *, placements: str = PLACEMENTS) -> PolluxProfiles:
    r"""Open the profiles in a folder or tar archive that contains one folder per application.

    Parameters
    ----------
    path : path
        The folder or archive.
    placements : str
        Name of the placements file in each folder, for folders with several GPU types. With
        `placements-TYPE.csv`, a `scalability-TYPE.csv` is read as well if it exists.

    Returns
    -------
    PolluxProfiles
        Each profile is read on first access. A damaged or incomplete profile then raises a
        TraceError that names the file, the line and the column.

    Raises
    ------
    TraceError
        If there is no application, or if the archive is damaged.
    OSError
        If the folder cannot be opened.

    Examples
    --------
    >>> from pathlib import Path
    >>> import gangline as gl
    >>> Path("measured/bert").mkdir(parents=True)
    >>> head = "local_bsz,step_time,sync_time\n"
    >>> count = Path("measured/bert/placements.csv").write_text(f"placement,{head}1,8,0.2,0.0\n")
    >>> rows = f"num_nodes,num_replicas,{head}1,1,8,0.2,0.0\n"
    >>> count = Path("measured/bert/scalability.csv").write_text(rows)
    >>> gl.tables.read_pollux("measured")
    PolluxProfiles(bert)
    """
    root = Path(path)
    files = _folder(root) if root.is_dir() else _archive(root)
    by_application: dict[str, dict[str, Source]] = {}
    for name, source in files.items():
        folder, _, file = name.rpartition("/")
        if file.endswith(".csv") and folder:
            by_application.setdefault(folder.rpartition("/")[2], {})[file] = source
    if not by_application:
        raise TraceError(
            f"{root}: expected one folder per application, each with a placements.csv, got none",
            path=str(root),
        )
    return PolluxProfiles(by_application, str(root), placements)


class _Member(Source):
    """An unpacked file of an archive."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.max_bytes = MAX_BYTES
        self.__dict__["data"] = data


def _folder(root: Path) -> dict[str, Source]:
    found = sorted(root.glob("*/*.csv"))
    return {file.relative_to(root).as_posix(): Source(file, MAX_BYTES) for file in found}


def _archive(root: Path) -> dict[str, Source]:
    """Unpack the archive once; without an index, every access would have to unpack all of it."""
    root.stat()  # a missing path raises the error of the operating system
    source = Source(root, MAX_BYTES)
    if not is_tar(source.head):
        raise TraceError(f"{root}: expected a folder or a tar archive", path=str(root))
    return source.guarded(lambda: dict(_members(source)))


def _members(source: Source) -> Iterator[tuple[str, Source]]:
    with source.archive() as archive:
        for name in archive:
            if name.endswith(".csv"):
                data = b"".join(archive.chunks())
                yield name, _Member(f"{source.name}::{name}", data)


def _read_application(
    root: str, application: str, files: Mapping[str, Source], measured: str
) -> PolluxProfile:
    def table(name: str, wanted: dict[str, Any]) -> pa.Table:
        if name not in files:
            raise TraceError(f"{root}: {application}: missing {name}", path=root)
        return _read_csv(files[name], wanted)

    placements: dict[str, _Curve] = {}
    for row in table(measured, _PLACEMENTS).to_pylist():
        shape = "".join(sorted(row["placement"]))
        placements.setdefault(shape, {})[row["local_bsz"]] = _step(row)
    scalability: dict[tuple[int, int], _Curve] = {}
    other = measured.replace("placements", "scalability")
    is_needed = measured == PLACEMENTS or other in files
    for row in table(other, _SCALABILITY).to_pylist() if is_needed else []:
        place = (row["num_nodes"], row["num_replicas"])
        scalability.setdefault(place, {})[row["local_bsz"]] = _step(row)
    validation = {}
    for file in sorted(files):
        match = _VALIDATION_NAME.fullmatch(file)
        if match is not None:
            validation[int(match[1])] = table(match[0], _VALIDATION)
    if not validation or not placements:
        raise TraceError(
            f"{root}: {application}: expected placements and at least one validation-<batch>.csv",
            path=root,
        )
    return PolluxProfile(application, placements, scalability, validation, path=root)


def _read_csv(source: Source, wanted: dict[str, Any]) -> pa.Table:
    file = TextFile(source)
    table = file.table(wanted)
    for name in wanted:
        if name not in table.column_names:
            raise TraceError(
                f"{source.name}:1: missing column {name}; expected {', '.join(wanted)}",
                path=source.name,
                line=1,
                column=name,
            )
        least = _LEAST.get(name)
        words = "a value" if least is None else f"at least {least}"
        for row, value in enumerate(table.column(name).to_pylist()):
            if value is None or (least is not None and value < least):
                raise file.locate([Fault(row, name, words)])[0]
    if not table.num_rows:
        raise TraceError(f"{source.name}: expected at least one row, got none", path=source.name)
    return table


def _step(row: dict[str, Any]) -> Step:
    return Step(row["step_time"], row["sync_time"])


def _between(low: Step, high: Step, part: float) -> Step:
    return Step(
        low.step_s + part * (high.step_s - low.step_s),
        low.sync_s + part * (high.sync_s - low.sync_s),
    )
