"""Defines the worlds of a paper kit: one for each rival, as in its paper, and a common one.

The worlds of three papers are settings of `gangline.reproduce`, which says what was published and
what is our own choice. Gavel and Tiresias have no study in `gangline.reproduce`, so their worlds
are defined here. The common world comes from the suite of `gangline bench`. Each world lists
changes to its settings; only one change is made at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from gangline.errors import OptionError
from gangline.studies.bench import load_suite
from gangline.studies.bench.suite import stretch
from gangline.studies.reproduce import Contender, Setting, study

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gangline._support.builtin_values import Json
    from gangline.cluster.description import Cluster
    from gangline.trace.reference import TraceReference

__all__ = ["NAMES", "UNCHANGED", "Change", "PaperWorld", "world"]


@dataclass(frozen=True)
class Change:
    """A single changed setting of a world.

    Parameters
    ----------
    what, value : str
        The changed setting and its value, as in "restart" and "120 s".
    trace : mapping
        Parameters of the generator.
    base : str
        Name of an alternative cluster in the world, or "" for the usual one.
    scale : float
        Factor by which the number of servers of each type is multiplied.
    cluster : mapping
        Tables that replace those in the cluster file.
    options : mapping
        Run options, the same for all policies.
    params : mapping
        Parameters to set for the policies that have all of them; the other policies run unchanged.
    load : float
        The load on the common world; 0 means its usual load.

    Examples
    --------
    >>> import gangline as gl
    >>> gl.paper.world("tiresias").changes[0].label
    'load: 1'
    """

    what: str
    value: str
    trace: Mapping[str, Json] = field(default_factory=dict)
    base: str = ""
    scale: float = 1.0
    cluster: Mapping[str, Json] = field(default_factory=dict)
    options: Mapping[str, Json] = field(default_factory=dict)
    params: Mapping[str, Json] = field(default_factory=dict)
    load: float = 0.0

    @property
    def label(self) -> str:
        """The label in tables and figures."""
        return f"{self.what}: {self.value}" if self.value else self.what


UNCHANGED = Change("unchanged", "")


@dataclass(frozen=True)
class PaperWorld:
    """A world of a paper kit: a cluster, a workload and policies.

    Parameters
    ----------
    name, title : str
        Name, as in `--worlds NAME`, and a short description.
    source : str
        The source, with the parts that are our own choice.
    measure, words : str
        The headline metric: a summary key whose lower values are better, and its name in words.
    heroes : tuple of str
        The rivals whose paper defines the world; they also run with every change.
    rivals : tuple of Contender
        All policies with which the new policies are compared.
    base : str
        Name of the cluster.
    build : callable
        Function that builds a cluster from its name.
    workload : str
        Name of the generator.
    trace : mapping
        Parameters of the generator, without the seed.
    quick : mapping
        Parameters that make the workload small.
    options : mapping
        Run options.
    changes : tuple of Change
        Changes to the settings; only one is made at a time.
    is_common : bool
        Whether the suite of `gangline bench` determines the jobs' models and the load.

    Examples
    --------
    >>> import gangline as gl
    >>> place = gl.paper.world("dally")
    >>> place.heroes, place.measure
    (('dally',), 'makespan_s')
    """

    name: str
    title: str
    source: str
    measure: str
    words: str
    heroes: tuple[str, ...]
    rivals: tuple[Contender, ...]
    base: str
    build: Callable[[str], Cluster]
    workload: str
    trace: Mapping[str, Json]
    quick: Mapping[str, Json]
    options: Mapping[str, Json]
    changes: tuple[Change, ...]
    is_common: bool = False

    def cluster(self, change: Change = UNCHANGED) -> Cluster:
        """Return the cluster after the change."""
        from gangline.cluster.description import Cluster
        from gangline.studies.sweep.clusters import derived

        made = self.build(change.base or self.base)
        if change.scale != 1.0:
            made = derived({"from": made, "scale": change.scale})
        return Cluster.from_dict({**made.to_dict(), **change.cluster}) if change.cluster else made

    def changes_of(self, *, quick: bool) -> tuple[Change, ...]:
        """Return the changes; a small world omits changes to the settings that make it small."""
        fixed = set(self.quick) if quick else set()
        return tuple(one for one in self.changes if not fixed & set(one.trace))

    def origin(self, *, quick: bool) -> str:
        """Return the source, and how a small world differs from it."""
        if not quick:
            return self.source
        small = [
            f"{key} = {value} instead of {self.trace.get(key, 'the default')}"
            for key, value in self.quick.items()
        ]
        return f"{self.source}; made small here: {', '.join(small)}"

    def address(self, seed: int, change: Change = UNCHANGED, *, quick: bool = False) -> str:
        """Return the trace address for a seed."""
        given = {**self.trace, **(self.quick if quick else {}), **change.trace}
        shape = given.pop("workload", self.workload)
        words = "&".join(f"{key}={value}" for key, value in given.items())
        return f"synth:{shape}?{words}{'&' * bool(words)}seed={seed}"

    def draw(self, seed: int, change: Change = UNCHANGED, *, quick: bool = False) -> TraceReference:
        """Return the trace for a seed."""
        from gangline.trace.read import read_trace, refer

        address = self.address(seed, change, quick=quick)
        if not self.is_common:
            return refer(address)
        suite = load_suite(_SUITE)
        options: dict[str, Any] = suite.options_of_models(seed)
        gpus = next(one.reference_gpus for one in suite.clusters if one.name == self.base)
        if change.base:
            gpus = next(one.reference_gpus for one in suite.clusters if one.name == change.base)
        factor = stretch(read_trace(address, **options), gpus, change.load or _LOAD)
        return refer(address, **options, rescale=factor)


_SUITE = 1
_LOAD = 1.0


def _of_study(
    name: str,
    setting: Setting,
    *,
    measure: tuple[str, str],
    heroes: tuple[str, ...],
    rivals: tuple[str, ...],
    quick: Mapping[str, Any],
    changes: tuple[Change, ...],
) -> PaperWorld:
    """Return the world for one setting of a study."""
    paper = study(name)
    address = paper.workloads[setting.workload]
    shape, _, query = address.removeprefix("synth:").partition("?")
    pairs = dict(part.split("=", 1) for part in query.split("&"))
    pairs.pop("seed")
    return PaperWorld(
        name=name,
        title=paper.title,
        source=f"{paper.source}; setting `{setting.title}` of `gangline reproduce {name}`",
        measure=measure[0],
        words=measure[1],
        heroes=heroes,
        rivals=tuple(paper.contender(one) for one in (*heroes, *rivals)),
        base=setting.cluster,
        build=partial(_cluster_of, name, setting.network),
        workload=shape,
        trace=pairs,
        quick=quick,
        options=paper.options,
        changes=changes,
    )


def _cluster_of(name: str, network: str, cluster: str) -> Cluster:
    return study(name).cluster(cluster, network)


def _restarts(*seconds: float) -> tuple[Change, ...]:
    return tuple(
        Change("restart", f"{one:g} s", options={"restart_s": one, "first_start_s": one})
        for one in seconds
    )


def _gpus(scales: Mapping[int, float]) -> tuple[Change, ...]:
    return tuple(Change("GPUs", f"{gpus}", scale=one) for gpus, one in scales.items())


_ERRORS = tuple(
    Change("error of estimates", f"sigma {sigma:g}", params={"estimate_error": sigma})
    for sigma in (0.5, 1.0)
)
_MAKESPAN, _JCT = ("makespan_s", "makespan"), ("jct_mean_s", "mean JCT")


def _hadar() -> PaperWorld:
    return _of_study(
        "hadar",
        Setting("hadar-60", "", "static-160"),
        measure=_MAKESPAN,
        heroes=("hadar-ttd",),
        rivals=("gavel-las", "gavel-makespan", "tiresias", "yarn-cs"),
        quick={"jobs": 40},
        changes=(
            Change("jobs", "80", {"jobs": 80}),
            Change("jobs", "320", {"jobs": 320}),
            *_gpus({36: 0.6, 84: 1.4}),
            Change("gangs", "none", {"gang_shares": "1,0,0,0"}),
            Change("gangs", "60 % of jobs", {"gang_shares": "0.4,0.2,0.2,0.2"}),
            Change("rates", "smooth", base="hadar-60-smooth"),
            *_restarts(0.0, 60.0),
            *_ERRORS,
        ),
    )


def _dally() -> PaperWorld:
    return _of_study(
        "dally",
        Setting("4x4", "dally-2024", "batch"),
        measure=_MAKESPAN,
        heroes=("dally",),
        rivals=("tiresias", "tiresias-oracle", "themis", "fifo"),
        quick={"jobs": 60},
        changes=(
            Change("jobs", "250", {"jobs": 250}),
            Change("jobs", "1,000", {"jobs": 1000}),
            *_gpus({96: 0.75, 192: 1.5}),
            Change("gangs", "at most 8", {"max_gpus": 8}),
            Change("network", "hgx-h100", cluster={"network": {"preset": "hgx-h100"}}),
            Change("network", "pcie-25g", cluster={"network": {"preset": "pcie-25g"}}),
            Change("network", "ideal", cluster={"network": {"preset": "ideal"}}),
            *_restarts(0.0, 120.0),
            *_ERRORS,
        ),
    )


def _sjf_bsbf() -> PaperWorld:
    return _of_study(
        "sjf-bsbf",
        Setting("xi-1.5", "", "jobs-240"),
        measure=_JCT,
        heroes=("sjf-bsbf",),
        rivals=("sjf-ffs", "sjf", "srtf", "tiresias"),
        quick={"jobs": 120},
        changes=(
            Change("jobs", "160", {"jobs": 160}),
            Change("jobs", "320", {"jobs": 320}),
            *_gpus({48: 0.75, 96: 1.5}),
            Change("gangs", "at most 4", {"max_gpus": 4}),
            Change("slowdown by sharing", "1.25", base="xi-1.25"),
            Change("slowdown by sharing", "2", base="xi-2"),
            *_restarts(0.0, 120.0),
            *_ERRORS,
        ),
    )


_TYPES = ("V100", "P100", "K80")
_FAMILIES = {  # labels of the public generator, and the batch sizes that it draws
    "ResNet-18": (16, 32, 64, 128, 256),
    "ResNet-50": (16, 32, 64, 128),
    "Transformer": (16, 32, 64, 128, 256),
    "LM": (5, 10, 20, 40, 80),
    "Recommendation": (512, 1024, 2048, 4096, 8192),
    "CycleGAN": (),
    "A3C": (),
}
_SIZES = (1, 2, 4, 8)


def _gavel_cluster(name: str) -> Cluster:
    """Return 108 GPUs of three types, with the hadar-60 rates of each model's family."""
    from gangline.cluster.description import Cluster

    known: Any = Cluster.preset("hadar-60").to_dict()["throughput"]["rows"]
    rows: list[dict[str, Json]] = []
    for family, batches in _FAMILIES.items():
        mine = [one for one in known if one["model"].partition(" (")[0] == family]
        mine = [one for one in mine if one["gpus"] in _SIZES] or [
            {"gpu_type": kind, "gpus": gpus, "iters_per_s": float(gpus)}
            for kind in _TYPES
            for gpus in _SIZES
        ]
        labels = [f"{family} (batch size {batch})" for batch in batches] or [family]
        rows += [{**one, "model": label} for label in labels for one in mine]
    return Cluster.from_dict(
        {
            "name": name,
            "gpu_types": [{"name": kind, "memory_gb": 16} for kind in _TYPES],
            "servers": [{"count": 9, "gpu": kind, "gpus": 4, "rack": 0} for kind in _TYPES],
            "throughput": {"rows": rows, "missing": "nearest"},
        }
    )


def _gavel() -> PaperWorld:
    return PaperWorld(
        name="gavel",
        title="Gavel: shares of three GPU types by linear programs",
        source=(
            "Narayanan et al., OSDI 2020: jobs of its public generator on 36 GPUs of each of three "
            "types. The four-GPU servers, the mean gap and the rates are our own choice: each "
            "model has the measured rates of its family on hadar-60, and recommendation and A3C, "
            "which were not measured there, run equally fast on all types"
        ),
        measure=_JCT[0],
        words=_JCT[1],
        heroes=("gavel-las",),
        rivals=tuple(
            Contender(one, one)
            for one in ("gavel-las", "gavel-las-agnostic", "gavel-ftf", "gandiva", "fifo")
        ),
        base="gavel-108",
        build=_gavel_cluster,
        workload="gavel",
        trace={"jobs": 400, "lam": 600},
        quick={"jobs": 60, "lam": 60},
        options={},
        changes=(
            Change("mean gap", "400 s", {"lam": 400}),
            Change("mean gap", "900 s", {"lam": 900}),
            *_gpus({72: 2 / 3, 144: 4 / 3}),
            Change("gangs", "none", {"multi": "false"}),
            *_restarts(30.0, 120.0),
            *_ERRORS,
        ),
    )


def _tiresias_cluster(name: str) -> Cluster:
    from gangline.cluster.description import Cluster

    made = Cluster.homogeneous(servers=15, gpus=4, gpu="P100").to_dict()
    return Cluster.from_dict({**made, "name": name})


def _tiresias() -> PaperWorld:
    return PaperWorld(
        name="tiresias",
        title="Tiresias: least attained service",
        source=(
            "Gu et al., NSDI 2019: 480 jobs on 15 four-GPU servers, as in its testbed. The jobs "
            "resemble those in Microsoft's Philly trace, with Poisson arrivals. The jobs, the load "
            "and the cost of a restart are our own choices"
        ),
        measure=_JCT[0],
        words=_JCT[1],
        heroes=("tiresias",),
        rivals=tuple(
            Contender(one, one)
            for one in ("tiresias", "tiresias-gittins", "gandiva", "yarn-cs", "srtf")
        ),
        base="tiresias-testbed",
        build=_tiresias_cluster,
        workload="philly",
        trace={
            "jobs": 480,
            "max_gpus": 16,
            "max_duration_s": 86400,
            "arrivals": "poisson",
            "load": 1.5,
            "cluster_gpus": 60,
        },
        quick={"jobs": 240, "load": 4.0},
        options={"restart_s": 30.0},
        changes=(
            Change("load", "1", {"load": 1.0}),
            Change("load", "2", {"load": 2.0}),
            *_gpus({48: 0.8, 72: 1.2}),
            Change("gangs", "at most 4", {"max_gpus": 4}),
            *_restarts(0.0, 120.0),
            *_ERRORS,
        ),
    )


def _suite_cluster(name: str) -> Cluster:
    return load_suite(_SUITE).cluster(name)


def _common() -> PaperWorld:
    suite = load_suite(_SUITE)
    shapes = {one.name: one.trace.removeprefix("synth:") for one in suite.workloads}
    shape, _, query = shapes["philly"].partition("?")
    pairs = dict(part.split("=", 1) for part in query.split("&"))
    pairs.pop("seed")
    heroes = ("hadar-jct", "dally", "sjf-bsbf", "gavel-las", "tiresias")
    return PaperWorld(
        name="common",
        title="The common world: three GPU types with different rates, and sharing",
        source=(
            f"suite {_SUITE} of gangline bench (sha256 {suite.digest[:16]}...): workload philly, "
            f"cluster mixed, load {_LOAD:g}, restarts of 60 s"
        ),
        measure=_JCT[0],
        words=_JCT[1],
        heroes=heroes,
        rivals=tuple(Contender(one, one) for one in (*heroes, "srtf", "fifo")),
        base="mixed",
        build=_suite_cluster,
        workload=shape,
        trace=pairs,
        quick={"jobs": 120},
        options={"restart_s": 60.0},
        changes=(
            Change("load", "0.7", load=0.7),
            Change("load", "1.3", load=1.3),
            Change("workload", "helios", {"workload": "helios"}),
            Change("workload", "pai", {"workload": "pai"}),
            *_gpus({48: 0.75, 96: 1.5}),
            Change("GPU types", "one", base="homogeneous"),
            Change("gangs", "at most 4", {"max_gpus": 4}),
            Change("slowdown by sharing", "1.25",
                   cluster={"sharing": {"interference": "constant", "xi": 1.25}}),
            Change("failures", "every 500 h",
                   cluster={"failures": {"mtbf_hours": 500.0, "mttr_hours": 1.0}}),
            *(Change("restart", f"{one:g} s", options={"restart_s": one}) for one in (0.0, 300.0)),
            *_ERRORS,
        ),
        is_common=True,
    )  # fmt: skip


_MADE = {
    "hadar": _hadar,
    "dally": _dally,
    "sjf-bsbf": _sjf_bsbf,
    "gavel": _gavel,
    "tiresias": _tiresias,
    "common": _common,
}
NAMES = tuple(_MADE)
"""The names of the worlds, in the order of the tables."""


@cache
def world(name: str) -> PaperWorld:
    """Return a world.

    Raises
    ------
    OptionError
        If no world has this name.

    Examples
    --------
    >>> world("dally").heroes, world("dally").address(0)
    (('dally',), 'synth:dally-batch?seed=0')
    """
    from gangline._support.formatting import did_you_mean

    if name not in _MADE:
        message = f"worlds: no world `{name}`{did_you_mean(name, NAMES)}"
        raise OptionError(message, field="worlds", value=name)
    return _MADE[name]()
