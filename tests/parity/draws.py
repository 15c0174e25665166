"""Draws parameters of any policy, by their kinds, for the worlds of `worlds.py`.

The registry gives the parameters with their kinds and units. Other rules are in `EXCEPTIONS`, each
with its reason.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gangline import _core

ENTRIES: dict[str, dict[str, Any]] = {entry["name"]: entry for entry in _core.registry()}
POLICIES = tuple(ENTRIES)
FAMILIES: dict[str, list[str]] = {
    family: [name for name, entry in ENTRIES.items() if entry["family"] == family]
    for family in dict.fromkeys(entry["family"] for entry in ENTRIES.values())
}


def _having(parameter: str) -> tuple[str, ...]:
    """Return the policies that users see and that have a parameter."""
    return tuple(
        name
        for name, entry in ENTRIES.items()
        if not entry["hidden"] and any(p["name"] == parameter for p in entry["parameters"])
    )


ROUNDS = _having("round_s")
PLANNING = _having("planned_rate")
PAIRING = (*_having("packed"), "gavel-gandiva")
PREEMPTIVE = tuple(
    name for name, entry in ENTRIES.items() if entry["stops"] in ("yes", "at ends of leases")
)

OVER_RESTARTS = [5.0, 7.5, 12.0, 20.0]
"""Longer than every restart and checkpoint interval of the drawn worlds."""
TIMES = [0.5, 1.0, 2.5, 3.0, 7.0, 20.0]
"""Of the order of the drawn durations, in seconds or GPU-seconds."""
NAMES = ("a", "b", "B", "default")
"""Users and virtual clusters of the drawn worlds, and the queue of jobs without one."""

DEFAULT = st.nothing()
"""Left at its default."""
EXCEPTIONS: dict[str, st.SearchStrategy[Any]] = {
    # separate tests cover the timing of the public simulator
    "compat": DEFAULT,
    # `tests/lp` covers how an LP is solved; its other parameters are drawn here
    "solver": DEFAULT,
    "time_limit_s": DEFAULT,
    "on_solver_error": DEFAULT,
    "write_failed_to": DEFAULT,
    # names GPU types of one cluster: drawn with the world
    "type_order": DEFAULT,
    # a type that some job cannot use is refused; tests of the LPs cover this parameter
    "reference_type": DEFAULT,
    "agnostic_rate": DEFAULT,
    # longer than most restarts, because shorter rounds are refused
    "round_s": st.sampled_from([2.0, 3.5, 5.0, 10.0]),
    # the delay of a rack must not exceed that of the network, so both are set or neither
    "rack_delay": st.sampled_from([0.0, 0.2, 1.0]),
    "network_delay": st.sampled_from([1.0, 1.5]),
    # a lease is longer than every restart, whatever the gang size
    "overhead_per_gpu_s": st.sampled_from([0.0, 0.125]),
    # every copy pauses for this time once in a period
    "merge_s": st.sampled_from([0.0, 0.5, 2.0]),
    # without a lead, equal jobs swap every nanosecond
    "las_quantum": st.sampled_from([0.5, 2.0, 5.0]),
    # a cycle for each period while a job waits
    "usage_period_s": st.sampled_from([5.0, 30.0]),
    # a round outlasts the consolidation of copies, except where many large models come together
    "c0_s": st.sampled_from([0.0, 0.5, 1.0, 1.5]),
    "bandwidth": st.sampled_from([1.25e9, 1e10, 1e12]),
    # an average that learns nothing is refused
    "estimator_alpha": st.sampled_from([0.1, 0.5, 1.0]),
    # fewer than there are jobs are refused
    "exact_max_jobs": DEFAULT,
    # rare, and later than the age of every job
    "horizon_s": st.sampled_from([None, None, None, 1e4]),
    # a decision of the genetic search takes a second, so separate tests cover it
    "search": DEFAULT,
    "ga_max_cells": DEFAULT,
    "ga_population": DEFAULT,
    "ga_generations": DEFAULT,
    # refused with `packed`; a test of phases sets it
    "planned_rate": DEFAULT,
    # names accounts, users in them, and GPU types: drawn in test_slurm.py
    "account_parents": DEFAULT,
    "user_shares": DEFAULT,
    "partition_types": DEFAULT,
    # (1 + surcharge) x factor <= 1, as higher prices can keep every job out of an empty cluster
    "umin_factor": st.sampled_from([0.01, 0.25, 0.5]),
    "spread_surcharge": st.sampled_from([0.0, 0.1, 1.0]),
}


def _numbers(parameter: dict[str, Any]) -> list[float]:
    """Return values of the scale of the drawn worlds, or near the default."""
    if parameter["outlasts_restarts"]:
        return OVER_RESTARTS
    if parameter["unit"].split(" ")[0] in ("s", "GPU-s"):
        return TIMES
    default = parameter["default"]
    return [default * factor for factor in (0.1, 0.5, 1.0, 2.0)] if default else [0.5, 1.0, 2.0]


def values(parameter: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return the values of a parameter that are drawn."""
    name, rule, bound = parameter["name"], parameter["rule"], parameter["bound"]
    if name in EXCEPTIONS:
        return EXCEPTIONS[name]
    if rule == "maybe_whole":
        return st.sampled_from([None, *(int(bound) + more for more in (0, 1, 2, 8))])
    if rule in ("at_least", "maybe"):
        least = [bound, bound, *(max(bound, number) for number in _numbers(parameter))]
        return st.sampled_from(least if rule == "at_least" else [None, None, *least])
    if rule == "named":
        each = values({**parameter, **parameter["each"]})
        return st.dictionaries(st.sampled_from(NAMES), each)
    by_rule: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(),
        "choice": st.sampled_from(parameter.get("choices", [None])),
        "above": st.sampled_from([(bound or 0.0) + number for number in _numbers(parameter)])
        if rule == "above"
        else DEFAULT,
        "whole": st.sampled_from([int(bound or 0) + more for more in (0, 1, 2, 3, 8)]),
        "share": st.sampled_from([0.0, 0.3, 0.8, 0.999]),
        "fraction": st.sampled_from([0.0, 0.05, 0.3, 0.7, 1.0]),
        "increasing": st.sampled_from([[3.0], [2.0, 8.0], [5.0, 20.0]]),
        "positives": st.lists(st.sampled_from(TIMES), min_size=1, max_size=5),
        "shares": st.fixed_dictionaries(dict.fromkeys(NAMES, st.sampled_from([0.125, 0.2, 0.25]))),
        "weights": st.fixed_dictionaries(dict.fromkeys(NAMES, st.sampled_from([0.5, 1.0, 3.0]))),
        "names": st.lists(st.sampled_from(NAMES), unique=True),
        "words": st.sets(st.sampled_from(parameter.get("choices", [""])), min_size=1).map(
            lambda chosen: [word for word in parameter["choices"] if word in chosen]
        ),
        "tables": DEFAULT,  # their keys depend on each other
    }
    return by_rule[rule]


@st.composite
def settings_of(draw: st.DrawFn, policy: str, types: tuple[str, ...] = ()) -> dict[str, Any]:
    """Draw parameters of a policy; `types` are the names of the cluster's GPU types, if known."""
    chosen: dict[str, Any] = {}
    parameters = {parameter["name"]: parameter for parameter in ENTRIES[policy]["parameters"]}
    for name, parameter in parameters.items():
        strategy = values(parameter)
        if not strategy.is_empty and draw(st.booleans()):
            chosen[name] = draw(strategy)
    if {"rack_delay", "network_delay"} & set(chosen):
        for name in ("rack_delay", "network_delay"):
            chosen.setdefault(name, draw(EXCEPTIONS[name]))
    if not (chosen.get("fill", True) or chosen.get("price_pass")):
        chosen.pop("fill")  # at least one pass must assign copies
    if types and "type_order" in parameters and draw(st.integers(0, 2)) == 0:
        chosen["type_order"] = ",".join(draw(st.permutations(types)))
    if chosen.get("auction") == "milp" and draw(st.integers(0, 7)):
        chosen.pop("placement", None)  # another rule is refused
    return chosen


@st.composite
def accepted_settings(draw: st.DrawFn, policy: str, world: dict[str, Any]) -> dict[str, Any]:
    """Draw parameters that this world does not refuse: queues by a label need jobs that have it."""
    chosen = draw(settings_of(policy))

    def nobody_has(label: str) -> bool:
        return not any(row.get(label) for row in world["jobs"])

    if chosen.get("queue_by", "none") != "none" and nobody_has(chosen["queue_by"]):
        del chosen["queue_by"]  # by default all jobs are in one queue
    if chosen.get("hierarchical") and nobody_has(chosen.get("entity_by", "user")):
        chosen["hierarchical"] = False
    for parameter in ENTRIES[policy]["parameters"]:
        if parameter["outlasts_restarts"] and chosen.get(parameter["name"]):
            chosen[parameter["name"]] = max(chosen[parameter["name"]], OVER_RESTARTS[0])
    if any(parameter["name"] == "bandwidth" for parameter in ENTRIES[policy]["parameters"]):
        chosen["bandwidth"] = 1e12  # a consolidation is shorter than every round
    if chosen.get("auction") == "milp":
        chosen.pop("placement", None)  # its bids are for tiers, so another rule is refused
    return chosen


@st.composite
def sharing_settings(draw: st.DrawFn, policy: str) -> dict[str, Any]:
    """Draw parameters of the policies that share without preemption."""
    values: dict[str, tuple[Any, ...]] = {
        "gather": ("cluster", "server_first"),
        "free_pick": ("best_fit", "few_residents"),
        "key": ("time", "gpu_time"),
        "retest": ("always", "on_release"),
        "block": (True,),
        "estimate_error": (0.5, 3.0),
    }
    if policy.startswith("sjf-bsbf"):
        values |= {
            "partner_time": ("current", "exclusive", "shared"),
            "sub_batches": (False, True),
            "min_sub_batch": (2, 4, 16),
            "sub_batch_rule": ("largest",),
            "restore_sub_batch": (False,),
            "max_probe": (1, 2, 3),
            "compare_types": (True,),
            "compare_spread": (True,),
        }
    names = [name for name in values if draw(st.integers(0, 2)) == 0]
    return {name: draw(st.sampled_from(values[name])) for name in names}
