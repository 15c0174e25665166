"""Defines Hadar's evaluation (arXiv 2503.10918): gangs, GPU types and servers chosen jointly.

We could read the abstracts, but not the evaluation. The cluster and the job classes follow
secondary descriptions that we could not check. Shares, loads, seeds and overheads are our own
choice.
"""

from __future__ import annotations

from gangline.cluster.description import Cluster
from gangline.errors import ClusterError
from gangline.studies.reproduce.study import Choice, Contender, Factor, Setting, Study, Variation
from gangline.trace.synth.hadar_jobs import CLASSES

__all__ = ["CLASSES_BY_NAME", "STUDY"]

_CLUSTERS = ("hadar-60", "hadar-60-smooth")
CLASSES_BY_NAME = {one.name: one.models for one in CLASSES}


def _cluster(name: str, network: str) -> Cluster:
    assert network == "", "this paper has no network"
    if name not in _CLUSTERS:
        message = f"--clusters: expected {' or '.join(_CLUSTERS)}, got {name!r}"
        raise ClusterError(message, key="clusters", value=name)
    return Cluster.preset(name)


_REMARKS = (
    (
        "This is our interpretation of Hadar: we could read its abstracts, but not its formulas or "
        "its evaluation. The 60-GPU cluster and the job classes follow secondary descriptions that "
        "we could not check; everything else is our own choice. Read ratios, not hours."
    ),
    (
        "hadar-ttd, hadar-jct and hadar-ftf are settings of one policy; hadar-paper is most likely "
        "the closest to the paper. Each claim is judged for the setting intended for it, because "
        "no single setting meets all claims."
    ),
    (
        "If many jobs wait, the order `density` starves wide gangs, because it ranks a job lower "
        "the longer it waits and the more GPUs it needs. hadar-jct-srtf is hadar-jct with the "
        "order of shortest remaining time first."
    ),
    (
        "tiresias, yarn-cs, srtf and fifo-skip ignore how fast a job is on each GPU type, and "
        "rarely move jobs, so a single XL job on K80 can determine their makespan. yarn-cs uses "
        "the type with the most free GPUs. yarn-cs-fastest and tiresias-fast use the type on which "
        "the gang is fastest, so they show how much of a ratio is due to the rival's choice of "
        "types."
    ),
    (
        "gavel-makespan is the fair rival for makespans, which it minimises; gavel-las shares the "
        "cluster by max-min fairness and does not minimise them."
    ),
    (
        "The conference version names no baseline for queueing delay or for fairness. The time to "
        "the first start flatters rivals whose jobs take turns: all their jobs start soon but wait "
        "later. The total wait includes both waits."
    ),
)

_ROUND = tuple(
    Variation("round", f"{seconds} s", {"round_s": float(seconds)})
    for seconds in (90, 180, 720, 1440)
)
_UTILITY = tuple(
    Variation("utility", name, {"utility": name})
    for name in ("effective_throughput", "normalised", "inverse_jct", "ftf", "makespan")
)
_RESTART = tuple(
    Variation("restart", f"{seconds:g} s", options={"restart_s": seconds, "first_start_s": seconds})
    for seconds in (0.0, 30.0, 60.0, 120.0)
)

STUDY = Study(
    name="hadar",
    title="Hadar: gangs over several GPU types, by prices",
    source="arXiv 2503.10918 and its conference version, abstracts",
    hero="hadar-ttd",
    contenders=(
        Contender("hadar-ttd", "hadar-ttd"),
        Contender("hadar-jct", "hadar-jct"),
        # density starves gangs if many jobs wait; this order does not
        Contender("hadar-jct-srtf", "hadar-jct", {"order": "srtf"}),
        Contender("hadar-ftf", "hadar", {"utility": "ftf"}),
        # its beam search looks at every waiting job in each round, which takes minutes for 480 jobs
        Contender("hadar-paper", "hadar-paper", only=("static-60", "static-160")),
        Contender("hadare", "hadare"),
        Contender("hadare-nofork", "hadare-nofork"),
        Contender("gavel-las", "gavel-las"),
        Contender("gavel-makespan", "gavel-makespan"),
        Contender("gavel-ftf", "gavel-ftf"),
        Contender("tiresias", "tiresias"),
        Contender("tiresias-fast", "tiresias", {"placement": "best_speed"}),
        Contender("yarn-cs", "yarn-cs"),
        Contender("yarn-cs-fastest", "yarn-cs", {"gpu_pick": "fastest"}),
        Contender("srtf", "srtf"),
        Contender("fifo-skip", "fifo-skip"),
    ),
    claims=(),
    factors=(
        Factor(
            "makespan_s", "makespan", 1.2,
            "Makespan (total time duration) 1.20 times shorter than with Gavel",
            "hadar-ttd", ("gavel-las", "gavel-makespan"),
        ),
        Factor(
            "jct_mean_s", "mean JCT", 3.0,
            "Mean JCT 3 times shorter than with YARN-CS (conference version)",
            "hadar-jct", ("yarn-cs", "yarn-cs-fastest", "tiresias-fast"),
        ),
        Factor(
            "jct_mean_s", "mean JCT", 2.5,
            "Mean JCT 2.5 times shorter than with Gavel (conference version)",
            "hadar-jct", ("gavel-las", "gavel-ftf"),
        ),
        Factor(
            "queue_mean_s", "time to the first start", 1.0 / 0.87,
            "Queueing delay 13 % lower (conference version)",
            "hadar-jct", ("gavel-las", "tiresias", "yarn-cs"), is_saving=True,
        ),
        Factor(
            "wait_mean_s", "total wait", 1.0 / 0.87,
            "The same claim, with all waiting counted",
            "hadar-jct", ("gavel-las", "tiresias", "yarn-cs"), is_saving=True,
        ),
        Factor(
            "ftf_mean", "finish-time fairness rho", 1.015,
            "Finish-time fairness 1.5 % better (conference version)",
            "hadar-jct", ("gavel-ftf", "gavel-las", "tiresias"),
        ),
    ),
    rivals=("gavel-las", "gavel-makespan", "gavel-ftf", "tiresias", "yarn-cs"),
    fair="gavel-makespan",
    ablation="",
    home="",
    networks=(),
    workloads={
        "static-60": "synth:hadar?jobs=60&seed={seed}",
        "static-160": "synth:hadar?jobs=160&seed={seed}",
        "static-480": "synth:hadar?jobs=480&seed={seed}",
        "poisson-0.7": "synth:hadar?jobs=480&arrivals=poisson&load=0.7&seed={seed}",
        "poisson-1.0": "synth:hadar?jobs=480&arrivals=poisson&load=1.0&seed={seed}",
        "poisson-1.5": "synth:hadar?jobs=480&arrivals=poisson&load=1.5&seed={seed}",
        "mixing-60": "synth:hadar?jobs=60&mixing=true&seed={seed}",
    },
    cluster=_cluster,
    quick=Choice(clusters=("hadar-60",), workloads=("static-60",), seeds=(0, 1)),
    full=Choice(
        clusters=("hadar-60",),
        workloads=(
            "static-60", "static-160", "static-480", "poisson-0.7", "poisson-1.0", "poisson-1.5",
        ),
        seeds=tuple(range(10)),
    ),
    options={"restart_s": 10.0, "first_start_s": 10.0},
    variants=("hadar-jct", "hadar-jct-srtf", "hadar-ftf", "hadar-paper"),
    remarks=_REMARKS,
    measures=(
        "makespan_s", "jct_mean_s", "jct_p50_s", "jct_p95_s", "jct_p99_s", "queue_mean_s",
        "wait_mean_s", "ftf_mean", "ftf_p99", "ftf_max", "gpu_utilization", "node_utilization",
    ),
    classes=CLASSES_BY_NAME,
    variations=(
        *_ROUND,
        *_UTILITY,
        Variation("order", "arrival", {"order": "arrival"}),
        Variation("order", "srtf", {"order": "srtf"}),
        Variation("no backfilling", "", {"backfill": False}),
        Variation("pick", "best_fit", {"pick": "best_fit"}),
        Variation("one type per gang", "", {"mix_types": False}),
        Variation("gangs of 6 to 12", "(mixing-60)", workload="mixing-60"),
        Variation("gangs of 6 to 12,", "one type each", {"mix_types": False}, workload="mixing-60"),
        *_RESTART,
        Variation("rates", "smooth", cluster="hadar-60-smooth"),
    ),
    varied=(Setting("hadar-60", "", "static-160"), Setting("hadar-60", "", "static-60")),
)  # fmt: skip
