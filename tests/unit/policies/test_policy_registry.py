from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl
from gangline import _core, policies
from gangline.errors import PolicyError
from gangline.policies.protocol import Changes, Plan, Policy, View, check_declaration
from refusals import refused

if TYPE_CHECKING:
    from snapshots import Snapshot

NAMES = list(policies.registry)
ONE_JOB = pa.table({"arrival_s": [0.0], "gpus": [1], "duration_s": [1.0]})


def test_registry_has_the_names_of_the_core_in_its_order() -> None:
    assert [entry["name"] for entry in _core.registry() if not entry["hidden"]] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_configurations_are_frozen_and_plain(name: str) -> None:
    config = policies.make(name)
    assert config.name == name
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.fit = "first"  # type: ignore[misc]
    shown = ", ".join(f"{key}={config.params()[key]}" for key in config.always_shown)
    assert config.label() == (f"{name}({shown})" if shown else name)
    assert policies.make(name, config.params()) == config


def test_tiresias_is_las_with_skew() -> None:
    assert policies.Tiresias().params() == {**policies.Las().params(), "placement": "skew"}
    assert policies.TiresiasGittins().params() == {
        **policies.Gittins().params(),
        "placement": "skew",
    }


def test_label_shows_what_was_changed() -> None:
    assert policies.make("las", {"limits": [200, 1000]}).label() == "las(limits=[200.0, 1000.0])"


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("fiffo", {}, "unknown policy `fiffo`; did you mean `fifo`?"),
    ("fofo", {}, "unknown policy `fofo`; did you mean `fifo`?"),
    ("fifo", {"fitt": "best"}, "did you mean `fit`?"),
    ("las", {"promote_knob": "two"}, "promote_knob: expected a number"),
    ("las", {"discretised": 1}, "discretised: expected true or false"),
    ("las", {"limits": 3}, "limits: expected a list of numbers"),
    ("las", {"limits": ["a"]}, "limits: expected a list of numbers"),
    ("fifo", {"fit": 3}, "fit: expected text"),
    ("yarn-cs", {"queue_shares": [0.5]}, "queue_shares: expected shares by name"),
    ("yarn-cs", {"queue_shares": {"a": True}}, "queue_shares: expected shares by name"),
    ("gavel-water-filling", {"entity_weight": [2.0]}, "entity_weight: expected weights by name"),
    ("gavel-las", {"partitions": 2.5}, "partitions: expected a whole number"),
    ("gavel-las", {"partitions": True}, "partitions: expected a whole number"),
    ("srtf", {"preempt_min_run_s": True}, "expected seconds, or a length such as 7d"),
]


@pytest.mark.parametrize(("name", "settings", "words"), BAD)
def test_mistakes_are_named(name: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(PolicyError) as caught:
        policies.make(name, settings)
    assert words in str(caught.value)


@pytest.mark.parametrize("value", [-1, "x", float("nan")])
def test_a_configuration_refuses_what_no_run_takes(value: Any) -> None:
    with refused(PolicyError, policy="srtf", field="preempt_min_run_s"):
        policies.Srtf(preempt_min_run_s=value)
    with refused(PolicyError, policy="srtf", field="fit", value="worst"):
        dataclasses.replace(policies.Srtf(), fit="worst")


@pytest.mark.parametrize("name", ["gittins", "tiresias-gittins"])
def test_too_fine_a_quantum_is_refused_in_the_name_that_was_asked_for(name: str) -> None:
    lab = gl.Cluster.preset("pollux-64")
    trace = gl.synth.philly(jobs=20, seed=1, max_gpus=16)
    with refused(PolicyError, policy=name, field="delta"):
        gl.simulate(lab, trace, policies.make(name, {"delta": 1e-6}))


PERIODS = [
    ("themis", "lease_s"),
    ("dally", "lease_s"),
    ("gandiva", "quantum_s"),
    ("gandiva", "trial_s"),
    ("gavel-las", "round_s"),
]


@pytest.mark.parametrize(("name", "field"), PERIODS)
def test_what_repeats_takes_a_step_of_the_clock_or_is_refused(name: str, field: str) -> None:
    """Two jobs of a few nanoseconds on the same GPUs both end."""
    lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    jobs = {"arrival_s": [0.0, 0.0], "gpus": [2, 2], "duration_s": [5e-9, 4e-9]}
    run = gl.simulate(lab, pa.table(jobs), name, params={field: 1e-9})
    assert run.summary["finished"] == 2
    with refused(PolicyError, field=field, value="0.0000000001"):
        gl.simulate(lab, pa.table(jobs), name, params={field: 1e-10})


SETTINGS: list[tuple[str, tuple[str, Any]]] = [
    ("a=true", ("a", True)),
    ("a=3", ("a", 3)),
    ("a=0.5", ("a", 0.5)),
    ("a=[200, 1000]", ("a", [200, 1000])),
    ("placement=yarn", ("placement", "yarn")),
    ('a="3"', ("a", "3")),
    ("a=b=c", ("a", "b=c")),
    ("a=", ("a", "")),
]


@pytest.mark.parametrize(("text", "expected"), SETTINGS)
def test_settings_are_toml_or_text(text: str, expected: tuple[str, Any]) -> None:
    assert policies.parse_setting(text) == expected


@pytest.mark.parametrize("text", ["a=[b]", "a={b=[c]}", "a= [1, 2"])
def test_a_list_without_quotes_round_its_strings_is_refused(text: str, snapshot: Snapshot) -> None:
    with refused(PolicyError, snapshot, value=text):
        policies.parse_setting(text)


@pytest.mark.parametrize("key", ["PriorityWeightAge", "default_queue_depth", "weight_agee"])
def test_options_of_slurm_itself_and_near_names_are_suggested(key: str, snapshot: Snapshot) -> None:
    with refused(PolicyError, snapshot, field=key):
        policies.make("slurm", {key: 1000})


def test_parameters_in_seconds_accept_lengths() -> None:
    params = {"max_age_s": "7d", "qos_exempt_s": {"low": "1h30min", "high": 60}}
    made = policies.make("slurm", params).params()
    assert made["max_age_s"] == 604800.0
    assert made["qos_exempt_s"] == {"low": 5400, "high": 60}
    assert policies.make("slurm", {"qos_exempt_s": {"low": 5400}}).params()["qos_exempt_s"] == {
        "low": 5400
    }


@pytest.mark.parametrize("value", ["7-0", "7 furlongs", ""])
def test_other_texts_are_no_length(value: str, snapshot: Snapshot) -> None:
    with refused(PolicyError, snapshot, field="max_age_s", value=value):
        policies.make("slurm", {"max_age_s": value})


@pytest.mark.parametrize("text", ["a", "=3", ""])
def test_settings_need_a_key_and_a_value(text: str) -> None:
    with refused(PolicyError, value=text):
        policies.parse_setting(text)


class Idle(Policy):
    def decide(self, view: View, changes: Changes) -> Plan:
        return Plan()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("wake_on", ("arival",)),
        ("wake_on", ()),
        ("round_s", 0.0),
        ("knowledge", "all"),
        ("max_share", 5),
    ],
)
def test_declarations_of_policy_objects_are_checked(field: str, value: object) -> None:
    policy = Idle()
    check_declaration(policy)
    setattr(policy, field, value)
    with pytest.raises(PolicyError) as caught:
        check_declaration(policy)
    assert caught.value.field == field


def test_plan_collects_actions() -> None:
    plan = Plan()
    plan.start(3, {1: 2}, sub_batch=8)
    plan.move(4, masks={0: 0b110})
    plan.preempt(5)
    plan.set_sub_batch(6, 4)
    plan.limit(6, 2.5)
    plan.wake_at(10.5, tag=2)
    plan.cancel(2)
    assert plan.actions == [
        ("start", 3, [(1, 2)], False, 8, None, None, 0, None),
        ("move", 4, [(0, 6)], True, None, None, None, 0, None),
        ("preempt", 5, 0),
        ("keep", 6, 4, None, None, 0, None),
        ("limit", 6, 2.5),
        ("wake_at", 10.5, 2),
        ("cancel", 2),
    ]
    with refused(PolicyError, field="gpus"):
        plan.start(1)


def outside(parameter: dict[str, Any]) -> list[Any]:
    """Return values that the declaration of a parameter forbids."""
    rule, bound = parameter["rule"], parameter["bound"]
    least = [] if bound is None else [bound - 1, float("nan")]
    of_rule: dict[str, list[Any]] = {
        "bool": [1],
        "choice": ["none of these"],
        "above": [bound or 0.0, float("nan")],
        "whole": [*least, 1.5],
        "maybe_whole": [*least, 1.5],
        "at_least": least,
        "maybe": least,
        "share": [1.0, -0.1],
        "fraction": [1.1, -0.1],
        "increasing": [[2.0, 1.0], [0.0]],
        "positives": [[0.0]],
        "shares": [{"a": 0.0}, {"a": 1.5}],
        "weights": [{"a": 0.0}],
        "named": [[1.0]],
        "names": [["a", "a"], [1.0]],
        "words": [[], ["none of these"], parameter.get("choices", [])[:1] * 2],
        "tables": [{"name": "a"}],
    }
    return of_rule.get(rule, [])


@pytest.mark.parametrize("entry", _core.registry(), ids=lambda entry: entry["name"])
def test_what_a_declaration_forbids_is_refused(entry: dict[str, Any]) -> None:
    lab, policy = gl.Cluster.homogeneous(servers=1, gpus=1), entry["name"]
    for parameter in entry["parameters"]:
        for value in outside(parameter):
            with pytest.raises(PolicyError) as caught:
                gl.simulate(lab, ONE_JOB, policy, params={parameter["name"]: value})
            found = (caught.value.policy, caught.value.field)
            assert found == (policy, parameter["name"]), (value, str(caught.value))
