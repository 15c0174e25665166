"""Checks the premises of policies: facts that they rely on, and that a cluster or trace may lack.

For each policy, the registry declares the facts about a cluster and a trace on which its mechanisms
rely. This module only looks up the facts and knows no particular policy: `lacks` says what is
missing, and `require` raises an error if no run is possible.

Examples
--------
>>> import gangline as gl
>>> from gangline.policies.choice import resolve_policy
>>> jobs = gl.synth.philly(jobs=20, seed=1, max_gpus=8)
>>> for lack in lacks(gl.Cluster.preset("pollux-64"), jobs, [resolve_policy("dally")]):
...     print(lack.sentence())
no network: waiting for GPUs that are close together brings no gain under dally; give the \
cluster a [network] table with the cost of distance
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from gangline._support.formatting import listed
from gangline.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gangline.cluster.description import Cluster
    from gangline.policies.choice import ChosenPolicy
    from gangline.trace.jobs.table import Trace

__all__ = ["Lack", "lacks", "merged", "premises", "reminder", "require"]


class Lack(NamedTuple):
    """A fact that a cluster and a trace lack, and the consequence for the policies that need it."""

    fact: str
    """The name of the fact in the declarations of policies, such as `network`."""
    what: str
    """The missing fact, such as "no network"."""
    mechanism: str
    """The mechanism that brings no gain without the fact; empty if the policies cannot run."""
    policies: tuple[str, ...]
    """The labels of the policies that need the fact."""
    remedy: str

    def sentence(self) -> str:
        """Return a sentence on the missing fact, its consequence and its remedy."""
        names = listed(self.policies)
        if not self.mechanism:
            return f"{names} cannot run here: {self.what}; {self.remedy}"
        return f"{self.what}: {self.mechanism} brings no gain under {names}; {self.remedy}"


class _Fact(NamedTuple):
    lacks: Callable[[Cluster, Trace | None], str]
    """A function that describes what is missing; "" if nothing is missing, or if this depends on
    the jobs and no trace is given."""
    remedy: str
    is_of_jobs: bool = False
    """Whether jobs that violate the premise can be left out of a run."""


def lacks(
    cluster: Cluster,
    trace: Trace | None,
    policies: Iterable[ChosenPolicy],
    *,
    drops: bool = False,
) -> list[Lack]:
    """Return the policies' premises that a cluster and a trace do not meet, one per mechanism.

    Parameters
    ----------
    cluster : Cluster
        The cluster of the runs.
    trace : Trace, optional
        The jobs of the runs; without them, only the cluster is checked.
    policies : iterable of ChosenPolicy
        The policies of the runs; a policy written in Python declares no premises.
    drops : bool
        Whether the run leaves out jobs that can never run.
    """
    known: dict[str, str] = {}
    found: list[Lack] = []
    for chosen in policies:
        mine: dict[str, Lack] = {}
        for premise in premises(chosen):
            name = premise["fact"]
            if drops and _FACTS[name].is_of_jobs:
                continue
            if name not in known:
                known[name] = _FACTS[name].lacks(cluster, trace)
            if known[name]:
                mechanism = premise["mechanism"]
                mine[name] = Lack(
                    name, known[name], mechanism, (chosen.label,), _FACTS[name].remedy
                )
        fails = [lack for lack in mine.values() if not lack.mechanism]
        # if the policy cannot run, its ineffective mechanisms do not matter
        found += fails or mine.values()
    return merged(found)


def merged(given: Iterable[Lack]) -> list[Lack]:
    """Merge equal entries of several policies; keep the order of the first occurrences."""
    found: dict[Lack, dict[str, None]] = {}
    for lack in given:
        found.setdefault(lack._replace(policies=()), {}).update(dict.fromkeys(lack.policies))
    return [lack._replace(policies=tuple(names)) for lack, names in found.items()]


def require(given: Iterable[Lack]) -> None:
    """Raise one error that names all policies that cannot run.

    Raises
    ------
    PolicyError
        If at least one policy cannot run. The message names the policies, the missing facts, and
        how to add them.
    """
    fails = [lack for lack in given if not lack.mechanism]
    if not fails:
        return
    names = [name for lack in fails for name in lack.policies]
    lines = [lack.sentence() for lack in fails]
    facts = {lack.fact: None for lack in fails}
    raise PolicyError(
        ". ".join(lines), policy=names[0], field="policies", value=names, lacks=tuple(facts)
    )


def reminder(given: Sequence[Lack]) -> str:
    """Return sentences on mechanisms that have no effect; "" if there are none."""
    told = [lack.sentence() for lack in given if lack.mechanism]
    if not told:
        return ""
    each = " ".join(f"{line[0].upper()}{line[1:]}." for line in told)
    what = "that mechanism" if len(told) == 1 else "these mechanisms"
    return f"{each} Therefore, the numbers say little about {what}."


@cache
def _declared() -> dict[str, list[dict[str, Any]]]:
    from gangline import _core

    return {entry["name"]: entry["premises"] for entry in _core.registry()}


def premises(chosen: ChosenPolicy) -> list[dict[str, Any]]:
    """Return the premises of a policy with its parameters; each names a fact and a mechanism."""
    if not isinstance(chosen.policy, str):
        return []
    return [
        premise
        for premise in _declared().get(chosen.policy, [])
        if "parameter" not in premise or chosen.params.get(premise["parameter"]) == premise["value"]
    ]


def _slowdown_factors(cluster: Cluster, _: Trace | None) -> str:
    sharing = cluster.sharing
    if sharing is None or (sharing.interference == "constant" and sharing.xi is None):
        return "the slowdown factors of jobs that share a GPU are unknown"
    return ""


def _factors_by_pair(cluster: Cluster, trace: Trace | None) -> str:
    import numpy as np

    from gangline.trace.jobs.to_core import pairs_of

    if cluster.sharing is None:
        return ""
    if cluster.sharing.interference == "constant":
        return "one slowdown factor for all pairs of jobs"
    pairs = None if trace is None else pairs_of(trace, cluster)
    if pairs is None or len(np.unique(pairs.xi)) > 1:
        return ""
    return "the same slowdown factor for all pairs of these jobs"


def _network(cluster: Cluster, trace: Trace | None) -> str:
    from gangline.cluster import network
    from gangline.cluster.iteration import locality_fits
    from gangline.trace.jobs.to_core import codes, elastic_of

    core = network.to_core(cluster, [])
    if core is not None and not core.is_free():
        return ""
    if trace is None and (cluster.elastic or cluster.iter_time):
        return ""
    labels = [] if trace is None else codes(trace, "model")[1]
    if trace is not None and (locality_fits(cluster, labels) or elastic_of(trace, cluster)):
        return ""  # the step times of models contain the cost of distance
    return "no network" if core is None else "a network on which distance costs nothing"


def _rates_by_type(cluster: Cluster, trace: Trace | None) -> str:
    from gangline.trace.jobs.to_core import job_keys, rate_classes

    if len(cluster.gpu_types) == 1:
        return "one GPU type"
    if len({kind.speed for kind in cluster.gpu_types}) > 1 or trace is None:
        return ""
    classes = rate_classes(trace, cluster, job_keys(trace))
    if classes is not None and (classes.table != classes.table[:, :1]).any():
        return ""
    return "all GPU types run these jobs equally fast"


def _elastic_jobs(cluster: Cluster, trace: Trace | None) -> str:
    from gangline.trace.jobs.to_core import elastic_of

    why = [] if cluster.elastic else ["the cluster has no [elastic] table"]
    if trace is not None:
        if elastic_of(trace, cluster) is not None:
            return ""
        columns = ("model", "batch_size", "duration_s")
        absent = [name for name in columns if name not in trace.columns]
        why[:0] = [f"the trace has no {' and no '.join(absent)}"] if absent else []
        why = why or ["no job has a model of the [elastic] table, a batch size and a duration"]
    return f"no job is elastic ({'; '.join(why)})" if why else ""


def _prices(cluster: Cluster, _: Trace | None) -> str:
    absent = [kind.name for kind in cluster.gpu_types if not kind.price_per_hour]
    return f"no price for the GPU types {listed(absent)}" if absent else ""


def _deadlines(_: Cluster, trace: Trace | None) -> str:
    import numpy as np

    if trace is None:
        return ""
    has = "deadline_s" in trace.columns and np.isfinite(trace.numbers("deadline_s")).any()
    return "" if has else "no job has a deadline"


def _one_gpu_jobs(_: Cluster, trace: Trace | None) -> str:
    large = 0 if trace is None else int((trace.numbers("gpus") > 1).sum())
    if not large:
        return ""
    return f"{large:,} jobs ask for several GPUs, and it only accepts jobs with one GPU"


_FACTS = {
    "slowdown_factors": _Fact(
        _slowdown_factors,
        "add a [sharing] table to the cluster, or give one factor for all pairs: "
        '`--set sharing.xi=1.25` on the command line, `sharing={"xi": 1.25}` in Python, '
        '`set."sharing.xi" = [1.25]` in the grid of a sweep',
    ),
    "factors_by_pair": _Fact(
        _factors_by_pair,
        "a [sharing] table with a row per pair of models distinguishes them, as in the presets "
        "mixed-64 and hadar-60-pairs",
    ),
    "network": _Fact(_network, "give the cluster a [network] table with the cost of distance"),
    "rates_by_type": _Fact(
        _rates_by_type,
        "a [throughput] table, or a `speed` of each type, gives the types of a cluster their rates",
    ),
    "elastic_jobs": _Fact(
        _elastic_jobs,
        "an [elastic] table with the models of the trace, and a batch size per job, make jobs "
        "elastic, as in the preset pollux-64-elastic",
    ),
    "prices": _Fact(_prices, "set `price_per_hour` in [[gpu_types]]"),
    "deadlines": _Fact(_deadlines, "give the trace a column `deadline_s`"),
    "one_gpu_jobs": _Fact(
        _one_gpu_jobs,
        'leave them out with `--on-infeasible drop`, in Python `on_infeasible="drop"`',
        is_of_jobs=True,
    ),
}
"""The facts, keyed by their names in the registry."""
