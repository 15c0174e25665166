"""An explanation in sentences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gangline._formatting import duration, listed, plural
from gangline._safe import safe
from gangline.explain.stretches import NOT_ASKED, ROUND

if TYPE_CHECKING:
    from gangline.explain.facts import Facts, Passing, RunPart, WaitPart
    from gangline.explain.stretches import Stretch

__all__ = ["BAR", "events", "headline", "losses", "passing", "reasons", "text", "timeline"]

BAR = 64
"""Characters of the timeline."""
_SHOWN = 3  # names, or reasons of one kind
_EVENTS = 14
_SOME = 0.1  # of a character of the timeline

_SEVERAL = {
    "behind": "{count} other jobs in turn came first and had no place, such as {others}; {policy} "
    "starts no job before the one that comes first",
    "outranked": "jobs that {policy} ranks before it held the GPUs, such as {others}",
    "reserved": "it would have held GPUs that are reserved for other jobs from a certain time on, "
    "such as {others}",
    "turn": "it took turns on its GPUs with {others}",
    "promised": "it came first and had no place; GPUs were reserved for it",
    "delayed": "enough GPUs were free, but not close enough to each other; it was to wait for a "
    "placement on {tier} until its delay was over, at {ends}",
    "leased": "the GPUs were leased to other jobs",
    "outbid": "when its turn came it was worth less than the price of its GPUs, and jobs behind it "
    "took them, such as {others}",
    "search": "{policy} searched for the best allocation of all jobs and gave the GPUs to others, "
    "such as {others}",
    "copies": "copies of other jobs held every server that it can use, such as {others}",
    "next decision": "{policy} starts jobs only at certain times, here at {ends}",
    NOT_ASKED: "the policy had not been asked: it decides {when}",
}
_ALONE = (
    "price",
    "delayed",
    "turn",
    "no partner",
    "leased",
    "outranked",
    "outbid",
    "not looked at",
    "search",
    "copies",
    "next decision",
    "own words",
    ROUND,
)  # free GPUs add nothing


def text(said: Facts) -> str:
    """Return the whole explanation as lines."""
    lines = [headline(said)]
    if said.note:
        lines += ["", f"The policy's own reasons are not known: {said.note}."]
    if said.waits:
        lines += ["", f"Why it waited for {duration(said.wait_s)}:"]
        lines += [f"  {duration(length_s)}: {words}" for length_s, words in reasons(said)]
        lines += passing(said)
        lines += [f"  What {said.policy} does: {said.rule}."] if said.rule else []
    if said.runs or said.waits:
        bar, life = timeline(said), duration(_end(said) - said.arrival_s)
        both = ", + both" if "+" in bar else ""
        lines += ["", f"Its life, {life} (. waiting, # with GPUs{both}):", f"  {bar}"]
        lines += [f"  {line}" for line in events(said)]
    lost = losses(said)
    return "\n".join(map(safe, [*lines, *(["", lost] if lost else [])]))


def headline(said: Facts) -> str:
    """Return what became of the job."""
    job = f"Job {said.job_id} asked for {plural(said.gpus, 'GPU')}"
    if said.gpus_min < said.gpus:
        job += f" ({said.gpus_min} {'is' if said.gpus_min == 1 else 'are'} enough)"
    if said.status == "dropped":
        return f"{job} and was left out of the run: it can never run on this cluster."
    start = f"{job} at {said.arrival_s:,.0f} s"
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
        return f"{job}. It was to arrive at {said.arrival_s:,.0f} s, after the end of the run."
    start = f"{start} and was not done when the run ended. Under {said.policy} it"
    if not said.runs:
        return f"{start} had waited for {waited} and had got no GPUs."
    if not said.waits:
        return f"{start} had started at once and held GPUs for {ran}."
    return f"{start} had waited for {waited} and held GPUs for {ran}."


def reasons(said: Facts) -> list[tuple[float, str]]:
    """Return why it waited, each reason with how long; the longest first, all sum to the wait."""
    groups: dict[tuple[str, str], list[Stretch]] = {}
    for wait in said.waits:
        for one in wait.stretches:
            groups.setdefault(_group(one), []).append(one)
    found = [
        (
            math.fsum(one.length_s for one in stretches),
            _reason(said, *key, stretches) + _down(stretches),
        )
        for key, stretches in groups.items()
    ]
    return sorted(found, key=lambda entry: -entry[0])


def _down(stretches: list[Stretch]) -> str:
    short = [one for one in stretches if one.state == "too few"]
    least, most = (f((one.down for one in short), default=0) for f in (min, max))
    if most == 0:
        return ""
    return f"; {'up to ' if least < most else ''}{plural(most, 'GPU')} that it can use " + (
        "was on a server that was down" if most == 1 else "were on servers that were down"
    )


def _group(one: Stretch) -> tuple[str, str]:
    """Return the cause, and what makes reasons with it different sentences."""
    cause, said = one.cause or "", one.said
    if cause in ("", "no place", "quota"):
        return cause, one.state  # what was free is the reason
    if said is not None and cause == "search":
        return cause, "to others" if said.job_id else ""
    return cause, "" if said is None else said.words or ""


def _reason(said: Facts, cause: str, state: str, stretches: list[Stretch]) -> str:
    keys = {one.said.key for one in stretches if one.said is not None}
    first = stretches[0].said
    free = _free(said, state, stretches)
    if cause in ("", "no place"):
        return free + _rule(said, cause, state)
    if cause == "quota" and first is not None:
        held = sorted({one.said.gpus or 0 for one in stretches if one.said is not None})
        span = f"{held[0]}" if len(held) == 1 else f"{held[0]} to {held[-1]}"
        return (
            f"it came first in its queue, which held {span} GPUs, and queues that hold less of "
            f"their share go first; {free}{_rule(said, 'no place', state)}"
        )
    if cause == "own words" and first is not None:
        words = (first.words or "").replace("{job}", _largest(stretches))
        return words.replace("{until}", _ends(said, stretches))
    if len(keys) > 1 and cause in _SEVERAL:
        names = {one.said.job_id for one in stretches if one.said is not None}
        return _SEVERAL[cause].format(
            count=len(names),
            policy=said.policy,
            others=_largest(stretches),
            tier=_tier(None if first is None else first.tier),
            when=_when(said),
            ends=_ends(said, stretches),
        ) + _meanwhile(said, cause, stretches)
    worth = _worth(stretches) if cause == "price" else ""
    return _single(said, stretches[0], cause) + worth + _meanwhile(said, cause, stretches)


def _worth(stretches: list[Stretch]) -> str:
    every = [one.said.percent for one in stretches if one.said is not None]
    known = [percent for percent in every if percent is not None]
    return f": its utility was {_span(min(known), max(known))} % of it" if known else ""


def _single(said: Facts, stretch: Stretch, cause: str) -> str:
    reason = stretch.said
    assert reason is not None, "a cause was said"
    other = _job(reason.job_id, reason.gpus)
    until = "the end of the run"
    if math.isfinite(reason.until_s):
        until = _clock(said, reason.until_s)
    return {
        "behind": f"{other} came first and had no place; {said.policy} starts no job before the "
        "one that comes first",
        "outranked": f"jobs that {said.policy} ranks before it held the GPUs, such as {other}",
        "reserved": f"it would have held GPUs that are reserved for {other} from {until} on",
        "promised": "it came first and had no place; "
        + (
            f"GPUs were reserved for it from {until} on"
            if math.isfinite(reason.until_s)
            else "there would never be enough for it"
        ),
        "turn": f"it took turns on its GPUs with {other}, which ran",
        "delayed": f"enough GPUs were free, but not close enough to each other; until {until} it "
        f"was to wait for a placement on {_tier(reason.tier)}",
        "leased": f"the GPUs were leased to other jobs until {until}",
        "price": "enough GPUs were free, but it was not worth their price",
        "outbid": "when its turn came it was worth less than the price of its GPUs, and "
        f"{other}, behind it, took some of them",
        "not looked at": f"{said.policy} did not look at it: too many jobs before it were worth "
        "less than the price of their GPUs",
        "search": f"{said.policy} searched for the best allocation of all jobs and "
        + (
            f"gave the GPUs to others, such as {other}"
            if reason.job_id
            else "left enough GPUs free: it found no better one that includes this job"
        ),
        "copies": "copies of other jobs held every server that it can use, such as "
        f"{other} with {reason.copies} {'copy' if reason.copies == 1 else 'copies'}",
        "next decision": f"{said.policy} starts jobs only at certain times, here not before "
        f"{until}",
        "no share": "the allocation gave it no time on any GPU type",
        "no partner": "there was room beside running jobs, but the policy's rule lets it share "
        "GPUs with none of them",
        ROUND: f"enough GPUs had come free, and {said.policy} gives them out {_when(said)}",
        NOT_ASKED: f"the policy had not been asked: it decides {_when(said)}",
    }[cause]


def _meanwhile(said: Facts, cause: str, stretches: list[Stretch]) -> str:
    if cause in _ALONE:
        return ""
    least, most = min(one.least for one in stretches), max(one.most for one in stretches)
    together = math.fsum(one.length_s for one in stretches if one.state == "together")
    words = f" (meanwhile {_span(least, most)} of the GPUs it can use {_were(least, most)} free"
    if most == 0:
        words = " (meanwhile none of the GPUs it can use was free"
    if together > 0.0 and most >= said.gpus_min:
        words += f", for {duration(together)} enough of them together"
    return words + ")"


def _free(said: Facts, state: str, stretches: list[Stretch]) -> str:
    least, most = min(one.least for one in stretches), max(one.most for one in stretches)
    together = max(one.together for one in stretches)
    if state == "too few":
        free = f"{_span(least, most)} of the GPUs it can use {_were(least, most)} free"
        words = f"{free}; it needs {said.gpus_min}"
        if most == 0:
            words = "none of the GPUs it can use was free"
        return f"{words}, and there was no room beside running jobs" if said.is_shared else words
    if state == "apart":
        return (
            f"{_span(least, most)} GPUs were free, but on too many servers: at most {together} on "
            f"as few as can hold {said.gpus_min}"
        )
    return f"{_span(least, most)} GPUs were free, {together} of them on as few servers as can be"


def _rule(said: Facts, cause: str, state: str) -> str:
    if state == "too few":
        return ""
    rule = f"the placement rule `{said.placement}`" if said.placement else "its placement rule"
    if cause == "no place" and said.policy == "hadare":
        return ", on servers where it is slower than `min_share` of its fastest"
    if cause == "no place":
        return f", and {rule} accepted none of them"
    return ", and the policy left them" if state == "together" else ""


def _when(said: Facts) -> str:
    if math.isfinite(said.round_s):
        return f"at round boundaries, every {duration(said.round_s)}"
    return "at other instants"


def _tier(tier: str | None) -> str:
    return "one server" if tier == "server" else "servers of one rack"


def _job(name: str | None, gpus: int | None) -> str:
    return f"job {name} ({plural(gpus or 0, 'GPU')})"


def _largest(stretches: list[Stretch]) -> str:
    """Return the jobs named longest, with their gangs."""
    length: dict[tuple[str, int], float] = {}
    for one in stretches:
        if one.said is not None and one.said.job_id is not None:
            key = one.said.job_id, one.said.gpus or 0
            length[key] = length.get(key, 0.0) + one.length_s
    most = sorted(length.items(), key=lambda entry: -entry[1])[:_SHOWN]
    return listed([f"{_job(*key)}" for key, _ in most]) if most else "other jobs"


def _ends(said: Facts, stretches: list[Stretch]) -> str:
    """Return the instants that were named, the first few of them."""
    every = sorted({one.said.until_s for one in stretches if one.said is not None})
    if not every or not math.isfinite(every[-1]):
        return "no time"
    first = [_clock(said, until_s) for until_s in every[:_SHOWN]]
    return listed([*first, "later"] if len(every) > _SHOWN else first)


def _span(least: int, most: int) -> str:
    return f"{least}" if least == most else f"{least} to {most}"


def _were(least: int, most: int) -> str:
    return "was" if least == most == 1 else "were"


def _clock(said: Facts, time_s: float) -> str:
    return f"+{duration(time_s - said.arrival_s)}"


def passing(said: Facts) -> list[str]:
    """Return which other jobs held GPUs, and which that arrived later got some meanwhile."""
    longest = max(said.waits, key=lambda wait: wait.end_s - wait.start_s)
    held = f"  {plural(longest.holders, 'job') if longest.holders else 'No job'} held GPUs"
    if longest.later_holders:
        held += f", {longest.later_holders:,} of which had arrived later,"
    when = "its longest wait" if len(said.waits) > 1 else "its wait"
    lines = [f"{held} when {when} began at {_clock(said, longest.start_s)}."]
    every = [one for wait in said.waits for one in wait.passed_by]
    if not every:
        return [*lines, "  No job that arrived later got GPUs meanwhile."]
    jobs = {one.job_id for one in every}
    outranking = [one for one in every if one.outranks]
    lines.append(f"  {plural(len(jobs), 'job')} that arrived later got GPUs meanwhile.")
    if not outranking:
        lines[-1] = lines[-1][:-1] + "; without them, too, too few would have been free for it."
        return lines
    count, of = len({one.time_s for one in outranking}), {one.job_id for one in outranking}
    where = "at one instant" if count == 1 else f"at {count:,} instants"
    lines.append(
        f"  Without jobs that arrived later, enough GPUs would have been free for it {where}: when "
        f"{_names(outranking)} got {'its' if len(of) == 1 else 'theirs'}."
    )
    return lines


def _names(every: list[Passing]) -> str:
    of: dict[str, Passing] = {}
    for one in every:
        of.setdefault(one.job_id, one)
    first = [_job(one.job_id, one.gpus) for one in list(of.values())[:_SHOWN]]
    more = len(of) - len(first)
    return listed([*first, f"{more:,} more"]) if more else listed(first)


def timeline(said: Facts) -> str:
    """Return a bar of the job's life: `#` with GPUs, `.` without, `+` where both took turns."""
    spans = [(run.start_s, run.end_s) for run in said.runs]
    begin = said.arrival_s
    step = (_end(said) - begin) / BAR
    if step <= 0.0:
        return "#" * BAR
    bar = []
    for at in range(BAR):
        low, high = begin + at * step, begin + (at + 1) * step
        held = math.fsum(max(0.0, min(high, b) - max(low, a)) for a, b in spans) / step
        edges = sum(low < edge < high for span in spans for edge in span)
        is_both = edges > 1 and _SOME < held < 1.0 - _SOME
        bar.append("+" if is_both else ".#"[held >= 0.5])
    return "".join(bar)


def _end(said: Facts) -> float:
    ends = [wait.end_s for wait in said.waits] + [run.end_s for run in said.runs]
    return max(ends)


def events(said: Facts) -> list[str]:
    """Return what happened, in order; the middle of a long life is left out."""
    lines = [(run.start_s, 1, _ran(said, run)) for run in said.runs]
    lines += [(wait.start_s, 0, _waited(said, wait)) for wait in said.waits]
    every = [line for _, _, line in sorted(lines)]
    if len(every) <= _EVENTS:
        return every
    half = _EVENTS // 2
    left = len(every) - 2 * half
    return [*every[:half], f"... {left:,} more times with and without GPUs ...", *every[-half:]]


def _waited(said: Facts, wait: WaitPart) -> str:
    return f"{_clock(said, wait.start_s)}: waited for {duration(wait.end_s - wait.start_s)}"


def _ran(said: Facts, run: RunPart) -> str:
    where = f"server {run.servers[0]}" if len(run.servers) == 1 else _many(run.servers)
    words = f"{_clock(said, run.start_s)}: ran for {duration(run.end_s - run.start_s)} on "
    if run.copies > 1:
        words = words.removesuffix("on ") + f"as {run.copies} copies on "
    words += f"{plural(run.gpus, 'GPU')} of {where}"
    if run.co_runners:
        words += f", shared with {_some([f'job {name}' for name in run.co_runners])}"
    takers = [_job(name, gpus) for name, gpus in run.taken_by.items()]
    some = "its" if sum(run.taken_by.values()) >= run.gpus else "some of its"
    taken = (
        f"; {some} GPUs went to {_some(takers)}" if takers else "; its GPUs stayed free at first"
    )
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
    """Return what it lost while it held GPUs."""
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
