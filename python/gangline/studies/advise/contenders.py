"""Policies that contend by default, and what each of them has to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from gangline.policies.choice import ChosenPolicy

__all__ = ["USUAL", "Contender", "contender", "default_contenders"]

# Schedulers that clusters run, then what papers and sites compare them with. Each needs only what
# an export knows. Names that this version does not have are left out.
_DEFAULT = ("slurm", "kueue", "easy", "fifo", "fifo-skip", "sjf", "las", "srtf")
USUAL = "easy"  # ours: of a log without starts; most batch schedulers backfill
_NO_CONDITION = "no"


class Contender(NamedTuple):
    """A policy and what a site must grant it."""

    policy: ChosenPolicy
    needs_run_times: bool
    """Whether it decides by how long jobs run."""
    stops_jobs: bool
    """Whether it may stop a running job."""

    @property
    def label(self) -> str:
        """Label of the policy."""
        return self.policy.label

    @property
    def is_plain(self) -> bool:
        """Whether it neither needs run times nor stops jobs."""
        return not self.needs_run_times and not self.stops_jobs

    def needs(self) -> str:
        """Say what it needs, for a table."""
        said = ["run times"] * self.needs_run_times + ["preemption"] * self.stops_jobs
        return ", ".join(said) or "nothing"


def default_contenders() -> list[str]:
    """Return the names of the policies that contend unless others are asked for.

    Examples
    --------
    >>> "easy" in default_contenders(), "srtf" in default_contenders()
    (True, True)
    """
    from gangline.policies.registry import registry

    return [name for name in _DEFAULT if name in registry]


def contender(policy: ChosenPolicy) -> Contender:
    """Return what a policy has to know and may do; one in Python says it itself."""
    from gangline import _core

    if policy.own is not None:
        return Contender(policy, policy.own.knowledge != "online", stops_jobs=True)
    entry: dict[str, Any] = next(
        (one for one in _core.registry() if one["name"] == policy.policy), {}
    )
    return Contender(
        policy,
        needs_run_times=entry.get("durations", _NO_CONDITION) != _NO_CONDITION,
        stops_jobs=entry.get("stops", _NO_CONDITION) != _NO_CONDITION,
    )
