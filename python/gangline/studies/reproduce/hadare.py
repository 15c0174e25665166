"""Defines HadarE's evaluation (arXiv 2503.10918): a job trains as copies on several nodes.

We could read the abstract, but not the evaluation. Nodes, jobs, seeds and overheads are our own
choice.
"""

from __future__ import annotations

from gangline.cluster.description import Cluster
from gangline.errors import ClusterError
from gangline.studies.reproduce.study import Choice, Contender, Factor, Setting, Study, Variation
from gangline.trace.synth.hadar_jobs import CLASSES

__all__ = ["STUDY"]

_LAB, _LARGE = "hadare-5", "hadar-60"


def _cluster(name: str, network: str) -> Cluster:
    assert network == "", "this paper has no network"
    if name not in (_LAB, _LARGE):
        message = f"--clusters: expected {_LAB} or {_LARGE}, got {name!r}"
        raise ClusterError(message, key="clusters", value=name)
    return Cluster.preset(name)


_REMARKS = (
    (
        "This is our interpretation of HadarE: we could read its abstract, but not its formulas or "
        "its evaluation. The nodes and the jobs are our own choice; the abstract does not name the "
        "baseline of its figures."
    ),
    (
        "The simulation adds up the rates of copies. In reality, averaging parameters slows "
        "convergence, which the simulation does not model; hadare's real makespans would be longer."
    ),
    (
        "hadare-5 has five nodes with speeds 10, 5, 2, 2 and 1, or 20 in total. Compared with the "
        "fastest node, a single job can be 20 / 10 = 2 times as fast (50 % less time); compared "
        "with a node of mean speed, 20 / 4 = 5 times as fast (80 % less). So the ratio depends on "
        "the node that the rival chooses: hadar and gavel find the fastest node, and "
        "yarn-cs-random uses any."
    ),
    (
        "With at least as many jobs as nodes, every policy keeps all nodes busy, and copies gain "
        "little. Node utilisation can rise by at most a factor of the number of nodes: 5 and 15."
    ),
    (
        "On hadar-60, a copy takes a whole four-GPU server, even if the job asks for only one GPU. "
        "This helps if there are few jobs, and is wasteful if there are many. CycleGAN was "
        "measured on only one GPU; its copies are assumed to run at four times that rate, which "
        "favours hadare."
    ),
)

STUDY = Study(
    name="hadare",
    title="HadarE: several copies of a job on different nodes",
    source="arXiv 2503.10918, abstract",
    hero="hadare",
    contenders=(
        Contender("hadare", "hadare"),
        Contender("hadare-paper", "hadare-paper"),
        Contender("hadare-nofork", "hadare-nofork"),
        Contender("hadar-ttd", "hadar-ttd"),
        Contender("hadar-jct", "hadar-jct"),
        Contender("gavel-las", "gavel-las"),
        Contender("gavel-makespan", "gavel-makespan"),
        Contender("tiresias", "tiresias"),
        Contender("yarn-cs", "yarn-cs"),
        Contender("yarn-cs-random", "yarn-cs", {"gpu_pick": "random"}),
    ),
    claims=(),
    factors=(
        Factor(
            "node_utilization", "node utilisation", 1.45,
            "Node utilisation 1.45 times that of Hadar",
            "hadare", ("hadar-ttd", "hadar-jct", "gavel-las", "hadare-nofork"),
            more=True, clusters=(_LAB,),
        ),
        Factor(
            "makespan_s", "makespan", 2.0,
            "Makespan 50 % shorter on an AWS cluster (no baseline named)",
            "hadare",
            ("hadar-ttd", "gavel-las", "gavel-makespan", "hadare-nofork", "yarn-cs-random"),
            clusters=(_LAB,), is_saving=True,
        ),
        Factor(
            "makespan_s", "makespan", 5.0,
            "Makespan 80 % shorter on a lab cluster (no baseline named)",
            "hadare",
            ("hadar-ttd", "gavel-las", "gavel-makespan", "hadare-nofork", "yarn-cs-random"),
            clusters=(_LAB,), is_saving=True,
        ),
    ),
    rivals=("hadar-ttd", "hadar-jct", "gavel-las"),
    fair="gavel-makespan",
    ablation="hadare-nofork",
    home="",
    networks=(),
    workloads={
        **{
            f"lab-{jobs}": f"synth:hadar?jobs={jobs}&gang_shares=1,0,0,0&seed={{seed}}"
            for jobs in (1, 2, 5, 10, 20)
        },
        "static-10": "synth:hadar?jobs=10&seed={seed}",
        "static-60": "synth:hadar?jobs=60&seed={seed}",
        "static-160": "synth:hadar?jobs=160&seed={seed}",
    },
    meant_for={
        **{f"lab-{jobs}": (_LAB,) for jobs in (1, 2, 5, 10, 20)},
        **{f"static-{jobs}": (_LARGE,) for jobs in (10, 60, 160)},
    },
    cluster=_cluster,
    quick=Choice(
        clusters=(_LAB, _LARGE),
        workloads=("lab-1", "lab-5", "lab-20", "static-60"),
        seeds=(0, 1),
    ),
    full=Choice(
        clusters=(_LAB, _LARGE),
        workloads=(
            "lab-1", "lab-2", "lab-5", "lab-10", "lab-20", "static-10", "static-60", "static-160",
        ),
        seeds=tuple(range(10)),
    ),
    options={"restart_s": 10.0, "first_start_s": 10.0},
    variants=("hadare-paper", "hadare-nofork"),
    remarks=_REMARKS,
    measures=(
        "makespan_s", "jct_mean_s", "jct_p95_s", "queue_mean_s", "wait_mean_s", "ftf_mean",
        "gpu_utilization", "node_utilization", "preemptions", "migrations",
    ),
    classes={one.name: one.models for one in CLASSES},
    variations=(
        *(
            Variation("round", f"{seconds} s", {"round_s": float(seconds)})
            for seconds in (90, 180, 720, 1440)
        ),
        *(
            Variation("consolidation", f"{seconds} s", {"c0_s": float(seconds)})
            for seconds in (0, 10, 30, 60)
        ),
        Variation("at most", "2 copies", {"max_copies": 2}),
        Variation("at most", "3 copies", {"max_copies": 3}),
        Variation("copies at least", "30 % of the fastest", {"min_share": 0.3}),
        Variation("with prices", "(price_pass)", {"price_pass": True}),
        *(
            Variation(
                "restart",
                f"{seconds:g} s",
                options={"restart_s": seconds, "first_start_s": seconds},
            )
            for seconds in (0.0, 30.0, 60.0)
        ),
    ),
    varied=(Setting(_LAB, "", "lab-5"),),
    elsewhere=(
        (
            "Better inference quality of the trained models",
            (
                "A simulation cannot judge this. In the repository, examples/hadare_training "
                "really trains small models: copies are more often worse than better compared with "
                "one worker, both after the same number of steps and after the same time."
            ),
        ),
    ),
)  # fmt: skip
