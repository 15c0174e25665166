"""Measures what Hadar gains by searching: exact, beam and greedy search on few jobs.

This study tests no claim from a paper; it compares the three methods with each other. All settings
are our own choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangline.cluster.description import Cluster
from gangline.errors import ClusterError
from gangline.studies.reproduce.study import Choice, Contender, Factor, Study

if TYPE_CHECKING:
    from gangline._support.builtin_values import Json

__all__ = ["STUDY"]

_SERVERS = 3  # one server of each type of hadar-60: 12 GPUs, so that even 8 jobs compete
_CLUSTER = "hadar-12"


def _cluster(name: str, network: str) -> Cluster:
    assert network == "", "this study has no network"
    if name != _CLUSTER:
        message = f"--clusters: expected {_CLUSTER}, got {name!r}"
        raise ClusterError(message, key="clusters", value=name)
    data = Cluster.preset("hadar-60").to_dict()
    servers = [{**block, "count": 1} for block in data["servers"]]
    assert len(servers) == _SERVERS
    return Cluster.from_dict({**data, "name": name, "servers": servers})


def _contender(name: str, **params: Json) -> Contender:
    # the order of hadar-paper, without backfilling; the default utility, because its sum can be
    # computed from the results
    given: dict[str, Json] = {"order": "arrival", "backfill": False, "exact_max_jobs": 64, **params}
    return Contender(name, "hadar", given)


_AGAINST = ("beam-16", "beam-4", "greedy")

STUDY = Study(
    name="hadar-search",
    title="Hadar: exact search against beam and greedy",
    source="gangline",
    hero="exact",
    contenders=(
        _contender("exact", tier="exact"),
        _contender("beam-16", tier="beam", beam_width=16),
        _contender("beam-4", tier="beam", beam_width=4),
        _contender("greedy", tier="greedy"),
        _contender("greedy-density", tier="greedy", order="density"),
    ),
    claims=(),
    factors=(
        Factor(
            "speed_mean", "mean utility", None,
            "Gain of exact search in utility (mean over jobs of time alone divided by JCT)",
            "exact", (*_AGAINST, "greedy-density"), more=True,
        ),
        Factor(
            "jct_mean_s", "mean JCT", None, "Gain of exact search in mean JCT",
            "exact", (*_AGAINST, "greedy-density"),
        ),
        Factor(
            "makespan_s", "makespan", None, "Gain of exact search in makespan",
            "exact", (*_AGAINST, "greedy-density"),
        ),
    ),
    rivals=_AGAINST,
    fair="greedy",
    ablation="",
    home="",
    networks=(),
    workloads={
        f"jobs-{jobs}": f"synth:hadar?jobs={jobs}&gang_shares=0.5,0.25,0.25,0&seed={{seed}}"
        for jobs in (4, 8, 12, 16, 20)
    },
    cluster=_cluster,
    quick=Choice(clusters=(_CLUSTER,), workloads=("jobs-8", "jobs-16"), seeds=(0, 1)),
    full=Choice(
        clusters=(_CLUSTER,),
        workloads=("jobs-4", "jobs-8", "jobs-12", "jobs-16", "jobs-20"),
        seeds=tuple(range(10)),
    ),
    options={"restart_s": 10.0, "first_start_s": 10.0},
    remarks=(
        (
            "hadar-12 has one server of each GPU type in hadar-60; gangs have 1, 2 or 4 GPUs. "
            "There is no backfilling, and jobs are considered in arrival order, as in hadar-paper; "
            "greedy-density uses the order of hadar-ttd."
        ),
        (
            "Exact search considers jobs in this order, places each one by the usual rule, and "
            "tries every combination of accepted and skipped jobs. It returns the combination with "
            "the largest sum of payoffs at this decision. This combination need not be optimal for "
            "the whole run; the ratios show the effect on the whole run."
        ),
    ),
    measures=(
        "speed_mean", "makespan_s", "jct_mean_s", "jct_p95_s", "wait_mean_s", "ftf_mean",
        "gpu_utilization",
    ),
)  # fmt: skip
