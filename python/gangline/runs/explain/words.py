"""Expresses an explanation in sentences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gangline._support.formatting import duration, listed, plural
from gangline._support.safe import safe
from gangline.runs.explain.reasons import APART, STATES, TOGETHER, TOO_FEW
from gangline.runs.explain.rows import Rows

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.runs.explain.facts import Facts, RunPart, WaitPart
    from gangline.runs.explain.reasons import Reason
    from gangline.runs.explain.stretches import Stretch

    Records = npt.NDArray[np.void]

__all__ = ["BAR", "events", "headline", "losses", "passing", "reasons", "text", "timeline"]

BAR = 64
"""Characters of the timeline."""
_SHOWN = 3  # the maximum number of names, or of reasons of one kind
_EVENTS = 14
_MINUTE_S, _EPOCH_S = 60.0, 1e8  # Other instants are shown only in seconds; our own choice.
_SOME = 0.1  # the share of a character's time that both states need for a `+`

_TOO_FEW, _APART, _TOGETHER = map(STATES.index, (TOO_FEW, APART, TOGETHER))
_TIERS = ("one server", "servers of one rack", "servers anywhere")


def text(said: Facts) -> str:
    """Return the complete explanation, line by line."""
    lines = [headline(said)]
    if said.note:
        lines += ["", f"The reasons of the policy are not known: {said.note}."]
    if said.waits:
        lines += ["", f"Why it waited for {duration(said.wait_s)}:"]
        lines += [f"  {duration(length_s)}: {words}" for length_s, words in reasons(said)]
        lines += passing(said)
        lines += [f"  What {said.policy} does: {said.rule}."] if said.rule else []
    if said.runs or said.waits:
        bar, life = timeline(said), duration(_end(said) - said.arrival_s)
        marks = ". = waiting, # = with GPUs" + (", + = both" if "+" in bar else "")
        lines += ["", f"The life of the job, {life} ({marks}):", f"  {bar}"]
        lines += [f"  {line}" for line in events(said)]
    lost = losses(said)
    return "\n".join(map(safe, [*lines, *(["", lost] if lost else [])]))


def headline(said: Facts) -> str:
    """Return a sentence on the outcome of the job."""
    job = f"Job {said.job_id} asked for {plural(said.gpus, 'GPU')}"
    if said.gpus_min < said.gpus:
        job += f" ({said.gpus_min} {'is' if said.gpus_min == 1 else 'are'} enough)"
    if said.status == "dropped":
        why = f": it {said.never}" if said.never else ""
        return f"{job} and was left out of the run. It can never run on this cluster{why}."
    start = f"{job} at {_instant(said.arrival_s)}"
    if said.arrival_date:
        start = f"{job} on {said.arrival_date} ({said.arrival_s:.0f} s)"
    waited, ran = duration(said.wait_s), duration(said.run_s)
    if said.status == "finished":
        whole = duration(said.finish_s - said.arrival_s)
        if not said.waits:
            return f"{start}. Under {said.policy} it started at once and finished {whole} later."
        return (
            f"{start} and finished {whole} later. Under {said.policy} it waited for {waited} and "
            f"held GPUs for {ran}."
        )
    if not said.waits and not said.runs:
        return f"{job}. It was to arrive at {_instant(said.arrival_s)}, after the end of the run."
    start = f"{start} and was not finished when the run ended. Under {said.policy} it"
    if not said.runs:
        return f"{start} had waited for {waited} and had got no GPUs."
    if not said.waits:
        return f"{start} had started at once and held GPUs for {ran}."
    return f"{start} had waited for {waited} and held GPUs for {ran}."


def reasons(said: Facts) -> list[tuple[float, str]]:
    """Return the reasons for the wait, longest first; their times add up to the whole wait."""
    if not said.waits:
        return []
    every = Rows.join([wait.stretches for wait in said.waits])
    group = _groups(every.columns, list(said.reasons.values()))
    found = []
    for number in range(int(group.max()) + 1):
        same = every[np.flatnonzero(group == number)]
        length_s = math.fsum(_lengths(same.columns).tolist())
        found.append((length_s, _reason(said, same) + _down(same.columns)))
    return sorted(found, key=lambda entry: -entry[0])


def _groups(rows: Records, reasons: list[Reason]) -> npt.NDArray[np.intp]:
    """Return the index of each stretch's sentence; sentences are numbered as they appear."""
    cause = rows["cause"]
    # with too few free GPUs, these reasons say only how many were free
    plain = [one.name for one in reasons if one.otherwise == "{free}"]
    is_plain = np.isin(cause, plain) & (rows["state"] == _TOO_FEW)
    cause = np.where(is_plain, plain[:1] or [""], cause)

    def told(*places: str) -> npt.NDArray[np.bool_]:
        names = [one.name for one in reasons if all(one.names(place) for place in places)]
        return np.isin(cause, names)

    # the other facts by which the sentences of two reasons differ
    kind = np.where(told("free"), rows["state"], 0)
    kind += np.where(np.isin(cause, _named(reasons, "tier")), rows["number"], 0)
    kind += np.where(told("some"), rows["job"] >= 0, 0)
    kind = 2 * kind + np.isfinite(rows["until_s"])
    own = np.flatnonzero(np.isin(cause, _named(reasons, "words")))
    words = rows["words"][own].tolist()
    number = {one: at for at, one in enumerate(dict.fromkeys(words))}
    kind[own] += 2 * np.asarray([number[one] for one in words], np.int64)
    _, name = np.unique(cause, return_inverse=True)
    key = name * (kind.max() + 1) + kind
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[group]


def _named(reasons: list[Reason], number: str) -> list[str]:
    """Return the names of the reasons whose number has this unit."""
    return [one.name for one in reasons if one.number == number]


def _lengths(rows: Records) -> npt.NDArray[np.float64]:
    return np.asarray(rows["end_s"] - rows["start_s"])


def _down(rows: Records) -> str:
    short = rows["gpus_down_max"][rows["state"] == _TOO_FEW]
    most = int(short.max(initial=0))
    if most == 0:
        return ""
    return f"; {'up to ' if short.min() < most else ''}{plural(most, 'GPU')} that it can use " + (
        "was on a server that was down" if most == 1 else "were on servers that were down"
    )


def _reason(said: Facts, same: Rows[Stretch]) -> str:
    """Return the sentence that gives the reason for a group of stretches."""
    rows = same.columns
    reason, state = said.reasons[str(rows["cause"][0])], int(rows["state"][0])
    if reason.number == "words":
        return _own_words(said, same)
    some, more = _others(same)
    rule = f"the placement rule `{said.placement}`" if said.placement else "its placement rule"
    sentence = reason.otherwise if reason.otherwise and _lacks(reason, rows) else reason.sentence
    return sentence.format(
        policy=said.policy,
        others=listed([*some, plural(more, "more job")] if more else some),
        were="were" if len(some) > 1 else "was",
        in_turn=", one after another," if len(some) > 1 else "",
        some=listed(some),
        until=_until(said, rows),
        when=_when(said),
        at_round=" when the round began" if math.isfinite(said.round_s) else "",
        number=_number(reason, rows),
        free=_free(said, rows, state),
        left=", and the policy left them idle" if state == _TOGETHER else "",
        rule=rule,
        meanwhile=_meanwhile(rows),
    )


def _lacks(reason: Reason, rows: Records) -> bool:
    """Return whether a group of stretches lacks facts that the sentence needs."""
    first = rows[0]
    return (
        (reason.names("free") and first["state"] == _TOO_FEW)
        or (reason.names("until") and not math.isfinite(first["until_s"]))
        or (reason.names("some") and first["job"] < 0)
        or (reason.names("number") and rows["number"].max() < 0)
    )


def _number(reason: Reason, rows: Records) -> str:
    known = rows["number"][rows["number"] >= 0]
    if not len(known):
        return ""
    if reason.number == "gpus":
        return _count(known, "GPU")
    if reason.number == "jobs":
        return _count(known, "job")
    if reason.number == "tier":
        return _TIERS[known[0]]
    span = _span(known.min(), known.max())
    return f"{span} %" if reason.number == "percent" else span


def _own_words(said: Facts, same: Rows[Stretch]) -> str:
    """Return the reason of a policy in Python, with the job that it named for the longest time."""
    jobs, which = np.unique(same.columns["job"], return_inverse=True)
    longest = np.argmax(np.bincount(which, _lengths(same.columns)))
    named = same[np.flatnonzero(which == longest)]
    (job,), _ = _others(named)
    words = named[0].words or ""
    words = words.replace("{job}", job).replace("{until}", _until(said, named.columns))
    more = len(jobs) - 1
    return f"{words} (and likewise {plural(more, 'other job')}, in turn)" if more else words


def _meanwhile(rows: Records) -> str:
    words = f" (meanwhile {_of_use(rows)}"
    together_s = math.fsum(_lengths(rows[rows["state"] == _TOGETHER]).tolist())
    if together_s > 0.0:
        words += f", for {duration(together_s)} enough of them together"
    return words + ")"


def _free(said: Facts, rows: Records, state: int) -> str:
    least, most = rows["gpus_free_min"].min(), rows["gpus_free_max"].max()
    together = rows["gpus_together_max"].max()
    free = f"{_span(least, most)} {'GPU was' if least == most == 1 else 'GPUs were'} free"
    if state == _TOO_FEW:
        words = _of_use(rows) + (f"; it needs {said.gpus_min}" if most > 0 else "")
        return f"{words}, and no room to share GPUs with running jobs" if said.is_shared else words
    if said.gpus_min == 1:  # a single GPU is never spread
        return free
    where = "on the smallest number of servers that can hold " + plural(said.gpus_min, "GPU")
    if state == _APART:
        return f"{free}, but spread over too many servers: at most {together} of them {where}"
    return f"{free}, at most {together} of them {where}"


def _when(said: Facts) -> str:
    if math.isfinite(said.round_s):
        return f"at round boundaries, every {duration(said.round_s)}"
    return "only at certain times"


def _others(same: Rows[Stretch]) -> tuple[list[str], int]:
    """Return the jobs that were named the longest, their GPUs, and the number of other jobs."""
    rows = same.columns
    if rows["job"].max() < 0:
        return ["other jobs"], 0
    jobs, which = np.unique(rows["job"], return_inverse=True)
    length_s = np.bincount(which, _lengths(rows))
    longest = np.argsort(-length_s, kind="stable")[:_SHOWN].tolist()
    names = []
    for at in longest:
        mine = same[np.flatnonzero(which == at)]
        held = _count(mine.columns["gpus"], "GPU")
        if mine[0].copies is not None:
            held += f" in {_count(mine.columns['number'], 'part')}"
        names.append(f"job {mine[0].job_id} ({held})")
    return names, len(jobs) - len(names)


def _until(said: Facts, rows: Records) -> str:
    """Return the first few instants that the stretches name."""
    every = np.unique(rows["until_s"]).tolist()
    if not math.isfinite(every[-1]):
        return "the end of the run"
    first = list(dict.fromkeys(_clock(said, until_s) for until_s in every[:_SHOWN]))
    if len(every) > _SHOWN:
        first.append(f"{len(every) - _SHOWN:,} later times up to {_clock(said, every[-1])}")
    return ", then ".join(first)


def _of_use(rows: Records) -> str:
    least, most = rows["gpus_free_min"].min(), rows["gpus_free_max"].max()
    if most == 0:
        return "none of the GPUs it can use was free"
    were = "was" if least == most == 1 else "were"
    return f"{_span(least, most)} of the GPUs it can use {were} free"


def _count(values: npt.NDArray[np.int64], what: str) -> str:
    least, most = int(values.min()), int(values.max())
    return plural(most, what) if least == most else f"{least} to {most} {what}s"


def _span(least: int, most: int) -> str:
    return f"{least}" if least == most else f"{least} to {most}"


def _clock(said: Facts, time_s: float) -> str:
    return f"+{duration(time_s - said.arrival_s)}"


def _instant(time_s: float) -> str:
    """Return an instant in seconds, as in the tables, and in readable units."""
    seconds = f"{time_s:.0f} s"
    return f"{seconds} ({duration(time_s)})" if _MINUTE_S <= time_s < _EPOCH_S else seconds


def _job(name: str | None, gpus: int) -> str:
    return f"job {name} ({plural(gpus, 'GPU')})"


def passing(said: Facts) -> list[str]:
    """Return sentences on the jobs that held GPUs, and on later arrivals that got GPUs first."""
    longest = max(said.waits, key=lambda wait: wait.end_s - wait.start_s)
    when = "its longest wait" if len(said.waits) > 1 else "its wait"
    held = f"  When {when} began at {_clock(said, longest.start_s)}, "
    held += f"{plural(longest.holders, 'job') if longest.holders else 'no job'} held GPUs"
    if longest.later_holders == longest.holders > 0:
        held += f"; {'it' if longest.holders == 1 else 'all of them'} had arrived later"
    elif longest.later_holders:
        held += f"; {longest.later_holders:,} of them had arrived later"
    lines = [f"{held}."]
    every = Rows.join([wait.passed_by for wait in said.waits])
    if not every:
        return [*lines, "  No job that arrived later got GPUs during this time."]
    jobs = len(np.unique(every.columns["job"]))
    lines.append(f"  {plural(jobs, 'job')} that arrived later got GPUs during this time.")
    outranking = every[np.flatnonzero(every.columns["outranks"])]
    without = "  Without jobs that arrived later, enough GPUs would have been free for it"
    enough_s = min(
        (wait.enough_s for wait in said.waits if not math.isnan(wait.enough_s)), default=None
    )
    if not outranking and enough_s is not None:
        lines.append(f"{without} at {_clock(said, enough_s)}.")
        return lines
    if not outranking:
        them = "it" if jobs == 1 else "them"
        lines[-1] = f"{lines[-1][:-1]}; even without {them} too few GPUs would have been free."
        return lines
    count = len(np.unique(outranking.columns["time_s"]))
    first = np.sort(np.unique(outranking.columns["job"], return_index=True)[1])
    names = [_job(one.job_id, one.gpus) for one in outranking[first[:_SHOWN]]]
    if more := len(first) - len(names):
        names.append(f"{more:,} more")
    where = "at one instant" if count == 1 else f"at {count:,} instants"
    lines.append(
        f"{without} {where}: when {listed(names)} got {'its' if len(first) == 1 else 'theirs'}."
    )
    return lines


def timeline(said: Facts) -> str:
    """Return a bar that shows the job's life: `#` with GPUs, `.` without GPUs, `+` for both."""
    step = (_end(said) - said.arrival_s) / BAR
    if step <= 0.0:
        return "#" * BAR
    spans = np.asarray([(run.start_s, run.end_s) for run in said.runs]).reshape(-1, 2)
    edges = (spans.ravel() - said.arrival_s) / step
    # the time with GPUs up to each edge, and up to the beginning of each character
    so_far = np.cumsum(np.column_stack([np.zeros(len(spans)), np.diff(spans)[:, 0] / step]))
    cells = np.arange(BAR + 1)
    held = np.diff(np.interp(cells, edges, so_far)) if len(edges) else np.zeros(BAR)
    inside = np.searchsorted(edges, cells[1:]) - np.searchsorted(edges, cells[:-1], "right")
    is_both = (inside > 1) & (held > _SOME) & (held < 1.0 - _SOME)
    return "".join(np.where(is_both, "+", np.where(held >= 0.5, "#", ".")).tolist())


def _end(said: Facts) -> float:
    ends = [wait.end_s for wait in said.waits] + [run.end_s for run in said.runs]
    return max(ends)


def events(said: Facts) -> list[str]:
    """Return the events of the job in order; the middle of a long list is omitted."""
    following = [*said.runs, None][1:]
    lines = [
        (run.start_s, 1, _ran(said, run, after))
        for run, after in zip(said.runs, following, strict=True)
    ]
    lines += [(wait.start_s, 0, _waited(said, wait)) for wait in said.waits]
    every = [line for _, _, line in sorted(lines)]
    if len(every) <= _EVENTS:
        return every
    half = _EVENTS // 2
    left = len(every) - 2 * half
    return [*every[:half], f"... {left:,} more times with and without GPUs ...", *every[-half:]]


def _waited(said: Facts, wait: WaitPart) -> str:
    return f"{_clock(said, wait.start_s)}: waited for {duration(wait.end_s - wait.start_s)}"


def _ran(said: Facts, run: RunPart, after: RunPart | None) -> str:
    where = f"server {run.servers[0]}" if len(run.servers) == 1 else _many(run.servers)
    words = f"{_clock(said, run.start_s)}: ran for {duration(run.end_s - run.start_s)} on "
    if run.copies > 1:
        words = words.removesuffix("on ") + f"as {run.copies} copies on "
    words += f"{plural(run.gpus, 'GPU')} of {where}"
    if run.co_runners:
        words += f", shared with {_some([f'job {name}' for name in run.co_runners])}"
    takers = [_job(name, gpus) for name, gpus in run.taken_by.items()]
    if len(takers) == 1:  # the number in parentheses would only repeat what is said before
        takers = [f"job {name}" for name in run.taken_by]
    went = sum(run.taken_by.values())
    its = "its GPU" if run.gpus == 1 else "its GPUs"
    taken = f"; {its} stayed free at first"
    if takers:
        taken = f"; {its if went >= run.gpus else f'{went} of {its}'} went to {_some(takers)}"
    if run.end == "preempted" and after is not None and after.start_s == run.end_s:
        less = "fewer copies" if after.copies < run.copies else "other copies"
        return f"{words}, then it went on with {less}{taken if takers else ''}"
    return words + {
        "finished": ", and finished",
        "preempted": f", then it was preempted{taken}",
        "moved": f", then it was moved{taken if takers else ''}",
        "failed": ", until a server failed",
        "stopped": ", and held them when the run ended",
    }.get(run.end, "")


def _many(servers: list[int]) -> str:
    if len(servers) > _SHOWN:
        return f"{len(servers)} servers"
    return f"servers {listed([str(server) for server in servers])}"


def _some(names: list[str]) -> str:
    if len(names) <= _SHOWN:
        return listed(names)
    return f"{', '.join(names[:_SHOWN])} and {len(names) - _SHOWN:,} more"


def losses(said: Facts) -> str:
    """Return sentences on the time that the job lost while it held GPUs."""
    lost = said.lost
    parts = []
    if lost.get("overhead_s"):
        stops = int(lost["preemptions"] + lost["migrations"])
        why = f" (stopped or moved {stops:,} times)" if stops > 1 else ""
        parts.append(f"{duration(lost['overhead_s'])} to starts and restarts{why}")
    if lost.get("comm_s"):
        parts.append(f"{duration(lost['comm_s'])} to the distance between its GPUs")
    sentence = f"With GPUs it lost {listed(parts)}." if parts else ""
    if lost.get("share_s"):
        beside = f"It shared GPUs with other jobs for {duration(lost['share_s'])}."
        sentence = f"{sentence} {beside}".strip()
    return sentence
