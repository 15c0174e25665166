"""Presents the explanation of a job's waits as plain values, text and HTML."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from gangline._support.builtin_values import Json, finite
from gangline.runs.explain.facts import Facts
from gangline.runs.explain.page import html
from gangline.runs.explain.words import text

__all__ = ["Explanation"]


@dataclass(frozen=True)
class Explanation(Facts):
    """The explanation of a job's waits and losses, from `Result.explain`.

    Attributes
    ----------
    job_id : str
    policy : str
        Name of the policy.
    gpus : int
        The number of GPUs that the job asks for.
    gpus_min : int
        Minimum number of GPUs that the policy may give the job; less than `gpus` for elastic jobs.
    status : str
        "finished", "unfinished" or "dropped".
    arrival_s, finish_s : float
        `finish_s` is NaN unless the job finished.
    waits : list of WaitPart
        Intervals without GPUs, in order.
    runs : list of RunPart
        Intervals with GPUs, in order.
    lost : dict of str to float
        Values from the job's row in the jobs table, with the keys overhead_s, comm_s, share_s,
        preemptions and migrations.
    placement : str
        The placement rule; empty if the policy has no such parameter.
    rule : str
        A one-line description of the policy; empty for a policy written in Python.
    round_s : float
        Length of a round in seconds; NaN for a policy without rounds.
    is_shared : bool
        Whether jobs may share GPUs in this run.
    note : str
        Explanation of why the policy's reasons are unavailable; empty if they are available.
    never : str
        The reason why a dropped job can never run; empty if it is unknown.
    arrival_date : str
        The date of the arrival; empty if the trace has no dates.
    reasons : dict of str to Reason
        Mapping from each `cause` of an interval to its sentence, with placeholders for jobs and
        numbers.
    """

    def to_dict(self) -> dict[str, Json]:
        """Return plain values; instants are in seconds, as in the tables, or None if absent."""
        data = {**vars(self), "wait_s": self.wait_s, "run_s": self.run_s, "text": str(self)}
        del data["reasons"]
        data["runs"] = [asdict(run) for run in self.runs]
        data["waits"] = [
            {
                **wait._asdict(),
                "stretches": [one._asdict() for one in wait.stretches],
                "passed_by": [one._asdict() for one in wait.passed_by],
            }
            for wait in self.waits
        ]
        return finite(data)  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        return html(self)
