"""Chooses the default contenders, and states what each contender needs to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gangline.policies.choice import declarations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gangline.policies.choice import ChosenPolicy
    from gangline.trace.jobs.table import Trace

__all__ = ["USUAL", "Contender", "contender", "default_contenders"]

# First the schedulers that clusters run, then those that papers and sites compare them with. Each
# of them needs only data that a log export contains.
_DEFAULT = ("slurm", "kueue", "easy", "fifo", "fifo-skip", "sjf", "las", "srtf")
USUAL = "easy"  # our own choice for a log without starts, since most batch schedulers backfill
_NO_CONDITION = "no"


class Contender(NamedTuple):
    """A policy, and what it requires of a site."""

    policy: ChosenPolicy
    needs_run_times: bool
    """Whether the policy uses the durations of jobs."""
    stops_jobs: bool
    """Whether the policy may stop a running job."""

    @property
    def label(self) -> str:
        """Label of the policy."""
        return self.policy.label

    @property
    def is_plain(self) -> bool:
        """Return whether the policy neither needs durations nor stops jobs."""
        return not self.needs_run_times and not self.stops_jobs

    @property
    def quota_gpus(self) -> int | None:
        """Total number of GPUs that the quotas of `kueue` cover; None without quotas."""
        params: Mapping[str, Any] = self.policy.params
        if self.policy.policy != "kueue" or not params.get("queues"):
            return None
        groups = [*params["queues"], *(params.get("cohorts") or [])]
        flavors = [flavor for group in groups for flavor in group.get("flavors") or []]
        return sum(int(flavor.get("nominal", 0)) for flavor in flavors)

    def needs(self) -> str:
        """Return what the policy needs, in words, for a table."""
        said = ["run times"] * self.needs_run_times + ["preemption"] * self.stops_jobs
        return ", ".join(said) or "nothing"


def default_contenders(jobs: Trace, named: Iterable[str] = ()) -> list[str]:
    """Return the names of the policies that `advise` compares by default.

    Without time limits, the backfilling of `slurm` reserves nothing, and without quotas, `kueue`
    merely orders jobs by priority. Both would then seem to resemble a log that `fifo-skip`
    produced. Therefore, `slurm` is included only if jobs have time limits, and `kueue` only if
    their priorities differ. Each of them is also included if parameters are given for it.

    Parameters
    ----------
    jobs : Trace
        The log.
    named : iterable of str
        Names of the policies for which parameters are given.

    Examples
    --------
    >>> import gangline as gl
    >>> default_contenders(gl.read_trace("mini:kueue"))
    ['easy', 'fifo', 'fifo-skip', 'sjf', 'las', 'srtf']
    >>> default_contenders(gl.read_trace("mini:sacct"))[:2]
    ['slurm', 'easy']
    """
    import numpy as np

    idle = {"slurm", "kueue"}.difference(named)
    if "time_limit_s" in jobs.columns and not np.isnan(jobs.numbers("time_limit_s")).all():
        idle.discard("slurm")
    if "priority" in jobs.columns and np.ptp(np.nan_to_num(jobs.numbers("priority"))) > 0.0:
        idle.discard("kueue")
    return [name for name in _DEFAULT if name not in idle]


def contender(policy: ChosenPolicy) -> Contender:
    """Return a policy and its requirements; a Python policy is assumed to stop jobs."""
    if policy.own is not None:
        return Contender(policy, policy.reads_durations, stops_jobs=True)
    entry = declarations().get(str(policy.policy), {})
    stops_jobs = entry.get("stops", _NO_CONDITION) != _NO_CONDITION
    return Contender(
        policy,
        needs_run_times=policy.reads_durations,
        stops_jobs=stops_jobs and not _stops_no_job(policy),
    )


def _stops_no_job(policy: ChosenPolicy) -> bool:
    """Return whether a policy that can stop jobs never does so with its parameters."""
    params: Mapping[str, Any] = policy.params
    match policy.policy:
        case "slurm":
            return not any((params.get("qos_preempt") or {}).values())
        case "kueue":
            queues = params.get("queues") or []
            rules = {queue.get(rule, "Never") for queue in queues for rule in ("within", "reclaim")}
            return rules <= {"Never"}
    return False
