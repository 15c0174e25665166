"""Defines the evaluation of SJF-BSBF (arXiv 2407.13088): GPU sharing instead of preemption.

We could read the abstract, but not the evaluation or its tables of slowdowns and iteration times.
The cluster is the one that the paper simulates. Jobs, loads and seeds are our own choice.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gangline.cluster.description import Cluster
from gangline.errors import ClusterError
from gangline.studies.reproduce.study import (
    Choice,
    Claim,
    Contender,
    Factor,
    Setting,
    Study,
    Variation,
)

if TYPE_CHECKING:
    from gangline._support.builtin_values import Json
    from gangline.cluster.schema import ClusterDict

__all__ = ["STAND_INS", "STUDY"]

_SERVERS, _GPUS = 16, 4
_FACTORS = (1.0, 1.25, 1.5, 1.75, 2.0)
_HOME = "xi-1.5"
# For each application of the workload, its counterpart in Gavel's public pair table: the most
# similar kind of network, with a medium one of the measured batch sizes.
STAND_INS = {
    "cifar10": "ResNet-18 (batch size 128)",
    "imagenet": "ResNet-50 (batch size 64)",
    "ncf": "Recommendation (batch size 2048)",
    "bert": "Transformer (batch size 64)",
    "deepspeech2": "LM (batch size 20)",
    "yolov3": "CycleGAN",
}
_MEASURED_TYPE = "v100"
# For each GPU type, the number of servers, and two medians over the models of the same table on one
# GPU: the speed relative to V100, and the slowdown factor of a pair.
_MIXED = {"V100": (10, 1.0, 1.47), "P100": (3, 0.81, 1.70), "K80": (3, 0.25, 1.87)}


def _cluster(name: str, network: str) -> Cluster:
    """Return 16 four-GPU servers: `xi-1.5` has one slowdown factor, and a file has one per pair.

    `mixed` has three GPU types; `apart-1.5` has 8 eight-GPU servers, and slows multi-server gangs.
    """
    assert network == "", "this paper has no network"
    data = Cluster.homogeneous(servers=_SERVERS, gpus=_GPUS).to_dict()
    if name == "mixed":
        return Cluster.from_dict({**data, "name": name, **_mixed()})
    if name.endswith((".json", ".json.gz")):
        sharing = _measured(Path(name))
    else:
        sharing = {"xi": _factor(name)}
        if name.startswith("apart-"):
            data = Cluster.homogeneous(servers=_SERVERS // 2, gpus=2 * _GPUS).to_dict()
            data["iter_time"] = _fits(data)
    return Cluster.from_dict({**data, "name": Path(name).name, "sharing": sharing})


def _mixed() -> dict[str, object]:
    """Return three GPU types; rates are medians over single-GPU models in Gavel's table."""
    rows = [
        {"model": one, "co_model": other, "gpu_type": kind, "xi": xi}
        for kind, (_, _, xi) in _MIXED.items()
        for one in STAND_INS
        for other in STAND_INS
    ]
    return {
        "gpu_types": [
            {"name": kind, "memory_gb": 16, "speed": speed}
            for kind, (_, speed, _) in _MIXED.items()
        ],
        "servers": [
            {"count": count, "gpu": kind, "gpus": _GPUS} for kind, (count, _, _) in _MIXED.items()
        ],
        "sharing": {"interference": "table", "rows": rows},
    }


def _fits(data: ClusterDict) -> list[dict[str, Json]]:
    """Return the iteration times of the six applications, fitted to Pollux's measurements."""
    elastic = Cluster.from_dict({**data, "elastic": {"preset": "pollux-fits"}}).elastic
    assert elastic is not None, "the caller checked it"
    keys = ("a_c", "b_c", "a_n", "b_n", "a_r", "b_r", "gamma")
    return [
        {"model": model, "kind": "pollux"} | {key: getattr(fit, key) for key in keys}
        for model, fit in elastic.models.items()
        if model in STAND_INS
    ]


def _factor(name: str) -> float:
    kind, _, number = name.partition("-")
    try:
        xi = float(number) if kind in ("xi", "apart") else 0.0
    except ValueError:
        xi = 0.0
    if not 1.0 <= xi <= 100.0:
        message = (
            "--clusters: expected xi-NUMBER such as xi-1.5 (16 four-GPU servers with this "
            "slowdown factor, 1 to 100), apart-NUMBER (the same, but multi-server gangs are "
            "slower), mixed (three GPU types) or one of Gavel's pair tables (a .json file), got "
            f"{name!r}"
        )
        raise ClusterError(message, key="clusters", value=name)
    return xi


def _measured(file: Path) -> dict[str, object]:
    """Return the six applications' slowdowns on V100, taken from comparable models."""
    from gangline.cluster.tables import interference_of, read_throughput

    try:
        table = interference_of(read_throughput(file, format="gavel"))
    except OSError as error:
        message = f"--clusters: {file} cannot be read: {error.strerror or error}"
        raise ClusterError(message, key="clusters", value=str(file)) from None
    found = {
        (row["model"], row["co_model"]): row["xi"] or 0.0
        for row in table.to_pylist()
        if row["gpu_type"] == _MEASURED_TYPE and row["gpus"] == 1
    }
    rows = []
    for one, mine in STAND_INS.items():
        for other, theirs in STAND_INS.items():
            if (mine, theirs) not in found:
                message = (
                    f"--clusters: {file} has no pair of {mine} and {theirs} on {_MEASURED_TYPE}"
                )
                raise ClusterError(message, key="clusters", value=str(file))
            rows.append({"model": one, "co_model": other, "xi": found[mine, theirs]})
    return {"interference": "gavel", "rows": rows}


_REMARKS = (
    (
        "This is our interpretation of SJF-BSBF: we could read its abstract, but not its "
        "evaluation or its tables of slowdowns and iteration times. The cluster of 16 four-GPU "
        "servers is the paper's; the jobs imitate a public workload with six applications. Read "
        "ratios, not hours."
    ),
    (
        "xi-1.5 means that every job takes 1.5 times as long with a co-runner. Below 1.5, sharing "
        "always pays for two jobs with the same xi, so sjf-bsbf differs from sjf-ffs only in its "
        "choice of partners. From 1.5 on, sjf-bsbf refuses to share with a running job that ends "
        "soon."
    ),
    (
        "sjf and srtf know how long jobs run, as sjf-ffs and sjf-bsbf do; tiresias does not. Much "
        "of the saving compared with tiresias is due to this knowledge. The comparison with sjf, "
        "which also has it, shows the gain from sharing; the comparison with srtf shows whether "
        "sharing beats preemption."
    ),
    (
        "In this study, a preemption costs 30 s, and so does a first start. Rivals that do not "
        "share GPUs do not depend on xi, so their rows are the same for all xi."
    ),
    (
        "In this study, the applications have no memory sizes, so a new job always fits at its "
        "full batch, and sub-batches are not used."
    ),
    (
        "Among the changes at the end, three are options of sjf-bsbf that the paper does not have: "
        "partner time shared, GPU types compared, and distance compared. mixed has three GPU types "
        "with median rates from public measurements. apart-1.25 has 8 eight-GPU servers, and slows "
        "multi-server gangs down as measured."
    ),
    (
        "pollux differs from the other rivals, because its jobs are elastic. It gives each job the "
        "number of GPUs and the batch size with which the job progresses fastest; it knows the "
        "models, which were fitted to public measurements. All other policies use the gang size "
        "and the batch size from the trace. So pollux saves time by changing jobs, not by ordering "
        "them better. Under pollux, a multi-server gang is slowed down as measured; under the "
        "others, it is not slowed down at all. pollux never shares GPUs, so its rows are the same "
        "for all xi."
    ),
)

_SWEEP = (_HOME, "xi-1.25")
_FITTING = {"on_infeasible": "drop"}  # a gang has one GPU type; some gangs need more than 40 GPUs
_PREEMPTIVE = ("tiresias", "srtf")

STUDY = Study(
    name="sjf-bsbf",
    title="SJF-BSBF: sharing GPUs instead of preemption",
    source="arXiv 2407.13088, abstract",
    hero="sjf-bsbf",
    contenders=(
        Contender("fifo", "fifo"),
        Contender("sjf", "sjf"),
        Contender("srtf", "srtf"),
        Contender("tiresias", "tiresias"),
        Contender("sjf-ffs", "sjf-ffs"),
        Contender("sjf-bsbf", "sjf-bsbf"),
        Contender("pollux", "pollux", cluster={"elastic": {"preset": "pollux-fits"}}),
    ),
    claims=(Claim("jct_mean_s", "mean JCT", 0.17),),
    factors=(
        Factor(
            "jct_mean_s", "mean JCT", 1.0 / 0.73,
            "Mean JCT 27 to 33 % below preemptive schedulers: at least 27 %",
            "sjf-bsbf", _PREEMPTIVE, is_saving=True,
        ),
        Factor(
            "jct_mean_s", "mean JCT", 1.0 / 0.67,
            "Mean JCT 27 to 33 % below preemptive schedulers: the upper end",
            "sjf-bsbf", _PREEMPTIVE, is_saving=True,
        ),
        Factor(
            "jct_mean_s", "mean JCT", None,
            "Mean JCT against policies without preemption",
            "sjf-bsbf", ("sjf-ffs", "sjf", "fifo"),
        ),
        Factor(
            "jct_mean_s", "mean JCT", None,
            "Mean JCT against elastic jobs, which change their GPUs and batches",
            "sjf-bsbf", ("pollux",),
        ),
        Factor(
            "queue_mean_s", "time to the first start", None,
            "Time to the first start",
            "sjf-bsbf", (*_PREEMPTIVE, "sjf-ffs", "sjf"),
        ),
        Factor(
            "makespan_s", "makespan", None,
            "Makespan",
            "sjf-bsbf", (*_PREEMPTIVE, "sjf-ffs", "sjf"),
        ),
    ),
    rivals=("sjf-ffs",),
    fair="sjf-ffs",
    ablation="sjf",
    home="",
    networks=(),
    workloads={
        f"jobs-{jobs}": f"synth:bsbf?jobs={jobs}&seed={{seed}}"
        for jobs in (80, 160, 240, 320, 480)
    },
    meant_for={f"jobs-{jobs}": _SWEEP for jobs in (80, 160, 320)},
    cluster=_cluster,
    quick=Choice(
        clusters=("xi-1.25", _HOME, "xi-2"),
        workloads=("jobs-240", "jobs-480"),
        seeds=(0, 1, 2),
    ),
    full=Choice(
        clusters=tuple(f"xi-{xi:g}" for xi in _FACTORS),
        workloads=("jobs-80", "jobs-160", "jobs-240", "jobs-320", "jobs-480"),
        seeds=tuple(range(10)),
    ),
    options={"restart_s": 30.0, "first_start_s": 30.0},
    remarks=_REMARKS,
    measures=(
        "jct_mean_s", "jct_p95_s", "queue_mean_s", "wait_mean_s", "makespan_s",
        "gpu_utilization", "useful_utilization", "preemptions",
    ),
    classes={
        "small": ("ncf", "cifar10"),
        "large": ("deepspeech2", "bert", "yolov3", "imagenet"),
    },
    variations=(
        Variation("gather", "on one server", {"gather": "server_first"}),
        Variation("partner time", "current", {"partner_time": "current"}),
        Variation("partner time", "shared (beyond the paper)", {"partner_time": "shared"}),
        Variation("three GPU types", "", options=_FITTING, cluster="mixed"),
        Variation(
            "three GPU types,", "compared", {"compare_types": True}, _FITTING, cluster="mixed"
        ),
        Variation("xi 1.25, distance costs", "", cluster="apart-1.25"),
        Variation(
            "xi 1.25, distance costs,", "compared", {"compare_spread": True}, cluster="apart-1.25"
        ),
        *(
            Variation("estimates off by", f"sigma {sigma:g}", {"estimate_error": sigma})
            for sigma in (0.5, 1.0)
        ),
        *(
            Variation(
                "restart",
                f"{seconds:g} s",
                options={"restart_s": seconds, "first_start_s": seconds},
            )
            for seconds in (0.0, 60.0, 120.0)
        ),
        *(Variation("load", f"{jobs / 160:g}", workload=f"jobs-{jobs}") for jobs in (80, 160, 480)),
    ),
    varied=(Setting(_HOME, "", "jobs-240"),),
)  # fmt: skip
