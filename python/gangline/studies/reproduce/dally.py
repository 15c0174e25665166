"""Defines Dally's evaluation (arXiv 2401.16492): delay scheduling on servers in racks.

The paper specifies servers with 8 GPUs in racks, a hierarchical network, a batch of 500 jobs,
Poisson arrivals with three mean gaps, a mix of 411 gangs over one to two weeks, and six models. The
numbers of racks and servers, the seeds and the restart overhead are our own choice.
"""

from __future__ import annotations

import re

from gangline.cluster.description import Cluster
from gangline.errors import ClusterError
from gangline.studies.reproduce.study import Choice, Claim, Contender, Study

__all__ = ["STUDY"]

_GPUS = 8  # GPUs per server
_SIZE = re.compile(r"([1-9]\d{0,3})x([1-9]\d{0,3})")
_PRESETS = ("dally-2024", "dally-2024-small")


def _cluster(size: str, network: str) -> Cluster:
    """Return a cluster such as `4x4` (racks x servers per rack), or the preset that equals it."""
    match = _SIZE.fullmatch(size)
    if match is None:
        message = f"--clusters: expected RACKSxSERVERS such as 4x4, got {size!r}"
        raise ClusterError(message, key="clusters", value=size)
    racks, servers = (int(part) for part in match.groups())
    data = Cluster.preset(_PRESETS[0]).to_dict()
    (block,) = data["servers"]
    block |= {"count": racks * servers, "gpus": _GPUS, "rack": f"fill:{servers}"}
    data |= {"network": {"preset": network}, "name": f"{size}-{network}"}
    for name in _PRESETS:
        known = Cluster.preset(name)
        if known.to_dict() == {**data, "name": name}:
            return known
    return Cluster.from_dict(data)


_REMARKS = (
    'The published numbers are "up to" values from simulation alone, and so are ours.',
    (
        "Our implementation of Dally follows its public simulator, because we could not obtain the "
        "paper's algorithms; our workloads match its job counts but do not use its files. The "
        "paper does not publish the lease (1 h) and the tuner's window (24 leases), which limit "
        "how long a job waits for a good placement."
    ),
    (
        "Like the public simulator, tiresias decides from the model's name whether to keep a gang "
        "together. On a latency-bound network, its list of names is wrong: VGG and AlexNet "
        "hardly suffer, but ResNet18 and BERT do. tiresias-oracle, the fair rival, uses the "
        "network model instead."
    ),
    (
        "On dally-2024, a gang of MobileNetV3 keeps 0.5 % of its speed across racks, so one badly "
        "placed job can determine the makespan."
    ),
)

STUDY = Study(
    name="dally",
    title="Dally: delay scheduling by network tier",
    source="arXiv 2401.16492, abstract",
    hero="dally",
    contenders=(
        Contender("fifo", "fifo"),
        Contender("las", "las"),
        Contender("tiresias", "tiresias"),
        Contender("tiresias-oracle", "tiresias", {"skew": "oracle"}),
        Contender("themis", "themis"),
        # our own choice: turns of one minute assume that a switch costs nearly nothing
        Contender("gandiva", "gandiva", {"switch_s": 1.0}),
        Contender("dally", "dally"),
        Contender("dally-manual", "dally-manual"),
        Contender("dally-no-wait", "dally-no-wait"),
        Contender("dally-fully-consolidated", "dally-fully-consolidated"),
    ),
    claims=(
        Claim("makespan_s", "makespan", 0.69),
        Claim("jct_mean_s", "average JCT", 0.83),
        Claim("comm_mean_s", "communication time", 0.98),
    ),
    rivals=("tiresias", "themis", "gandiva"),
    fair="tiresias-oracle",
    ablation="dally-no-wait",
    home="dally-2024",
    networks=("dally-2024", "hgx-h100", "pcie-25g", "ideal"),
    workloads={
        "batch": "synth:dally-batch?seed={seed}",
        "poisson-1872": "synth:dally-poisson?mean_gap_s=1872&seed={seed}",
        "poisson-4354": "synth:dally-poisson?mean_gap_s=4354&seed={seed}",
        "poisson-11526": "synth:dally-poisson?mean_gap_s=11526&seed={seed}",
        "week": "synth:dally-week?seed={seed}",
    },
    cluster=_cluster,
    quick=Choice(
        clusters=("4x4",),
        networks=("dally-2024", "hgx-h100"),
        workloads=("batch", "poisson-4354", "week"),
        seeds=(0,),
    ),
    full=Choice(
        clusters=("4x4", "8x8"),
        networks=("dally-2024", "hgx-h100", "pcie-25g", "ideal"),
        workloads=("batch", "poisson-1872", "poisson-4354", "poisson-11526", "week"),
        seeds=(0, 1, 2),
    ),
    options={"restart_s": 30.0},
    variants=("dally-manual", "dally-no-wait", "dally-fully-consolidated"),
    remarks=_REMARKS,
)
