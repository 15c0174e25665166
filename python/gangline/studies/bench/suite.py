"""Reads the suite of worlds; each version of it is a data file that never changes."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gangline._support import toml
from gangline._support.builtin_values import Json  # noqa: TC001 - msgspec reads annotations
from gangline.errors import OptionError, TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangline.cluster.description import Cluster
    from gangline.trace.jobs.table import Trace
    from gangline.trace.reference import TraceReference

__all__ = ["Suite", "World", "load_suite", "stretch", "suites"]

_DIGITS = 6  # our own choice: significant digits of the factor that sets the load of a trace


class World(NamedTuple):
    """A world in which every policy is run once with each seed."""

    workload: str
    cluster: str
    load: float
    restart_s: float


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A generator's `synth:` address, in which `{seed}` is replaced by the seed."""

    name: str
    trace: str


class RealTrace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A public file and its SHA-256; each seed uses a different time window of the file."""

    name: str
    file: str
    sha256: tuple[str, ...]
    starts_s: tuple[float, ...]
    jobs: int
    max_gpus: int


class BenchCluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster, and the number of reference GPUs to which it is equivalent."""

    name: str
    reference_gpus: float
    cluster: dict[str, Json]


class Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A frozen suite of worlds; `digest` identifies its content.

    Attributes
    ----------
    version : int
        Version of the suite.
    loads, restarts_s, seeds : tuple
        Loads and restart times of the worlds, and seeds of the runs.
    workloads, clusters, traces : tuple
        The components of the worlds; `traces` are real traces, which are not shipped.
    estimate_error : float
        Sigma of the log-normal error in durations, for the class `estimates`.
    baseline : str
        The baseline policy for the speedups.

    Examples
    --------
    >>> import gangline as gl
    >>> suite = gl.bench.load_suite()
    >>> suite.baseline, len(suite.seeds), len(suite.worlds(quick=True))
    ('fifo', 5, 1)
    """

    version: int
    loads: tuple[float, ...]
    restarts_s: tuple[float, ...]
    seeds: tuple[int, ...]
    estimate_error: float
    baseline: str
    rates: str
    rates_sha256: str
    models_reference: str
    quick: dict[str, list[Json]]
    workloads: tuple[Workload, ...]
    traces: tuple[RealTrace, ...]
    clusters: tuple[BenchCluster, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the suite's file, which also contains the SHA-256 of the rates."""
        return hashlib.sha256(_file(self.version).read_bytes()).hexdigest()

    def worlds(self, *, quick: bool = False) -> list[World]:
        """Return the worlds with shipped workloads; with `quick`, only a small part of them."""
        return self._worlds([one.name for one in self.workloads], quick=quick)

    def real_worlds(self, names: Iterator[str]) -> list[World]:
        """Return the worlds with real traces."""
        return self._worlds(list(names), quick=False)

    def _worlds(self, workloads: list[str], *, quick: bool) -> list[World]:
        part: dict[str, list[Any]] = self.quick if quick else {}
        return [
            World(workload, cluster, load, restart_s)
            for workload in part.get("workloads", workloads)
            for cluster in part.get("clusters", [one.name for one in self.clusters])
            for load in part.get("loads", self.loads)
            for restart_s in part.get("restarts_s", self.restarts_s)
        ]

    def cluster(self, name: str) -> Cluster:
        """Return a cluster with the suite's rates."""
        from gangline.cluster.description import Cluster

        found = self._cluster(name)
        rates = {"table": self._rates(), "missing": "nearest"}
        return Cluster.from_dict({**found.cluster, "throughput": rates})

    def find_traces(self, folder: Path) -> dict[str, Path]:
        """Return the suite's real traces in a folder, recognised by their SHA-256.

        Raises
        ------
        TraceError
            If the folder contains none of these traces.
        """
        if not folder.is_dir():
            got = "a file" if folder.exists() else "nothing with this name"
            message = f"{folder}: expected the folder of the suite's real traces, got {got}"
            raise TraceError(message, path=str(folder))
        found = {}
        for one in self.traces:
            for path in sorted(folder.rglob(f"{one.file}*")):
                if path.is_file() and _sha256(path) in one.sha256:
                    found[one.name] = path
                    break
        if not found:
            wanted = ", ".join(
                f"{one.file} (sha256 {one.sha256[0][:12]}...)" for one in self.traces
            )
            message = f"{folder}: contains none of the traces of suite {self.version}: {wanted}"
            raise TraceError(message, path=str(folder))
        return found

    def traces_at_load(
        self, workload: str, seed: int, files: dict[str, Path]
    ) -> dict[tuple[str, float], TraceReference]:
        """Return the trace for a seed, keyed by cluster name and load."""
        from gangline.trace.read import read_trace, refer

        source, options = self._source(workload, seed, files)
        jobs = read_trace(source, **options)
        found = {}
        for one in self.clusters:
            for load in self.loads:
                rescale = stretch(jobs, one.reference_gpus, load)
                found[one.name, load] = refer(source, **options, rescale=rescale)
        return found

    def options_of_models(self, seed: int) -> dict[str, Json]:
        """Return the reader options that assign models to the jobs generated with a seed."""
        return {
            "models": self._rates(),
            "models_seed": seed,
            "models_reference": self.models_reference,
        }

    def _source(
        self, workload: str, seed: int, files: dict[str, Path]
    ) -> tuple[str, dict[str, Any]]:
        options = self.options_of_models(seed)
        for one in self.workloads:
            if one.name == workload:
                return one.trace.format(seed=seed), options
        real = next(one for one in self.traces if one.name == workload)
        options["window"] = (real.starts_s[self.seeds.index(seed)], math.inf)
        options |= {"limit": real.jobs, "max_gpus": real.max_gpus}
        return str(files[workload].absolute()), options

    def _cluster(self, name: str) -> BenchCluster:
        return next(one for one in self.clusters if one.name == name)

    def _rates(self) -> str:
        path = Path(__file__).with_name(self.rates)
        if _sha256(path) != self.rates_sha256:
            message = f"{path}: is not the file of suite {self.version}; install gangline again"
            raise OptionError(message, field="suite", value=self.version)
        return str(path)


def stretch(jobs: Trace, reference_gpus: float, load: float) -> float:
    """Return the factor that stretches arrivals so that the reference GPUs get this load."""
    gpus, durations = jobs.column("gpus").to_pylist(), jobs.column("duration_s").to_pylist()
    work = math.fsum(g * d for g, d in zip(gpus, durations, strict=True))
    factor = work / (reference_gpus * load * jobs.span_s)
    return float(f"{factor:.{_DIGITS}g}")


def suites() -> list[int]:
    """Return the versions of the suite that exist.

    Examples
    --------
    >>> suites()
    [1]
    """
    names = Path(__file__).parent.glob("suite_*.toml")
    return sorted(int(path.stem.removeprefix("suite_")) for path in names)


def load_suite(version: int | None = None) -> Suite:
    """Return a suite; by default, the newest one.

    Raises
    ------
    OptionError
        If no suite has this version.

    Examples
    --------
    >>> suite = load_suite(1)
    >>> len(suite.worlds()), len(suite.worlds(quick=True)), len(suite.seeds)
    (36, 1, 5)
    """
    known = suites()
    chosen = known[-1] if version is None else version
    if chosen not in known:
        message = f"suite: expected one of {', '.join(map(str, known))}, got {version!r}"
        raise OptionError(message, field="suite", value=version)
    return msgspec.convert(toml.loads(_file(chosen).read_text("utf-8")), Suite)


def _file(version: int) -> Path:
    return Path(__file__).with_name(f"suite_{version}.toml")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
