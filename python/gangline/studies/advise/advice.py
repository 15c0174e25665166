"""Presents advice as a table, as sentences with commands that check them, and as a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gangline._support import formatting
from gangline._support.formatting import duration, listed, plural
from gangline.runs.offered_load import by_partition, unfinished
from gangline.studies.advise.commands import Typed
from gangline.studies.advise.facts import Claim, Facts, signed
from gangline.studies.advise.sizes import mix

if TYPE_CHECKING:
    from os import PathLike

    from gangline._support.builtin_values import Json
    from gangline._support.statistics import Estimate
    from gangline.studies.advise.contenders import Contender
    from gangline.studies.advise.options import Option

__all__ = ["Advice"]

_HARDLY = "at most a minute or 5 %"
_LONGER, _LONGER_S = 0.05, 60.0  # our own choice; the same limits apply to the waits of users


class Advice(Facts):
    """The results of `gangline.advise`: a log's jobs under other schedulers and sizes.

    The attributes are described in `Facts`.

    Examples
    --------
    >>> import gangline as gl
    >>> jobs = "synth:pai?jobs=300&seed=0&max_gpus=16&users=5&load=1&cluster_gpus=32"
    >>> found = gl.advise("8x4xV100", jobs, ["fifo", "srtf"], servers=[8])
    >>> [claim.kind for claim in found.claims()][:2]
    ['scheduler', 'plain']
    >>> found["srtf", 8].wait.mean < found["fifo", 8].wait.mean
    True
    """

    def claims(self, folder: str = "advice") -> list[Claim]:
        """Return the statements of the advice, each with the command that checks it.

        Parameters
        ----------
        folder : str
            Folder in which the advice is saved, as it appears in the commands.
        """
        typed = Typed(self, folder)
        now = typed.compare(self.servers, [self.base, self.best.policy])
        said = [Claim("scheduler", self._scheduler(), now), *self._plain(typed)]
        if self.best.users and self.best.policy != self.base:
            said.append(Claim("users", self._users(self.best), now))
        fewer, more, larger = self._fewer(), self._more(), self._larger()
        if fewer is not None:
            text, size = fewer
            said.append(Claim("fewer", text, typed.compare(size, [self.best.policy])))
        if more is not None:
            text, size = more
            said.append(Claim("more", text, typed.compare(size, [self.base])))
        for text, size in larger:
            if more is None or size != more[1]:
                said.append(Claim("larger", text, typed.compare(size, [self.base])))
        resembles = " ".join([*self.calibration.sentences(), *self._other_base()])
        said.append(Claim("calibration", resembles, typed.calibration()))
        if self.load is not None:
            alone = replace(self.load, middle=None)  # `advise` has no option for a suggested window
            load = (alone.in_words(), by_partition(self.trace), unfinished(self.trace))
            said.append(Claim("load", " ".join(filter(None, load)), typed.load()))
        said.append(Claim("needs", self._needs(), "gangline policies"))
        return [replace(one, text=formatting.shortened(one.text, self.names)) for one in said]

    def notes(self) -> list[str]:
        """Return notes on what the numbers cover and what was left out."""
        said = [formatting.shortened(line, self.names) for line in self._notes()]
        return [*formatting.meanings(self.names), *said]

    def _notes(self) -> list[str]:
        said = [self.parts.about(), *self._mixes()]
        if not self.calibration.rows:
            said.insert(0, f"Without a calibration, the others are compared with `{self.base}`.")
        stopping = [one.policy for one in self.options if one.preemptions]
        if stopping and not self.run_options.get("restart_s"):
            who = listed([f"`{name}`" for name in dict.fromkeys(stopping)])
            said.append(
                f"Preemption is free in these runs, which favours {who}: set the cost of a restart "
                "with --restart-s (restart_s)."
            )
        over = sorted({one.servers for one in self.options if one.is_over})
        if over:
            sizes = listed([str(one) for one in over])
            word = "server" if over == [1] else "servers"
            said.append(
                f"With {sizes} {word}, the jobs ask for more than the GPUs can do, so these waits "
                "depend on where the log ends."
            )
        if away := self.cluster.notes.get("servers_away", 0):
            verbs = ("was", "counts") if away == 1 else ("were", "count")
            which = f"{plural(away, 'server')} in the list {verbs[0]} not up"
            said.append(f"{which}, but {verbs[1]} as up.")
        if out := self.cluster.notes.get("servers_left_out", 0):
            verbs = ("was", "is") if out == 1 else ("were", "are")
            which = f"{plural(out, 'server')} in the list {verbs[0]} not up"
            said.append(f"{which}, and {verbs[1]} left out.")
        said += [*self._left_out(), *self._quotas()]
        said += [f"`{name}` could not be run {why}" for name, why in self.failed.items()]
        return [*said, *self.calibration.notes]

    def _left_out(self) -> list[str]:
        """Say how many jobs are too large for each size, and which policies leave out more."""
        said: list[str] = []
        sizes: dict[tuple[str, int], list[str]] = {}
        for size in self.clusters:
            lost = {one.policy: one.cannot_run for one in self.options if one.servers == size}
            few = min(lost.values())
            if few:
                where = plural(size, "server")
                said.append(f"Too large for {where}, and left out there: {plural(few, 'job')}.")
            for name, count in lost.items():
                if count > few:
                    sizes.setdefault((name, count), []).append(str(size))
        for (name, count), each in sizes.items():
            word = "server" if each == ["1"] else "servers"
            said.append(
                f"With {listed(each)} {word} `{name}` can never run {plural(count, 'job')}; they "
                "are left out, so its means there do not cover them."
            )
        return said

    def _mixes(self) -> list[str]:
        """With several GPU types, say how many servers of each type the other sizes have."""
        if len(self.cluster.gpu_types) < 2 or len(self.clusters) < 2:
            return []
        others = [mix(lab) for size, lab in self.clusters.items() if size != self.servers]
        return [f"The other sizes are {listed(others)}; --gpu varies the servers of one type."]

    def _quotas(self) -> list[str]:
        """For each policy except the base, say if its quotas are too small for the largest size."""
        most = max(one.gpus for one in self.options)
        others = [one.label for one in self.contenders if one.label != self.base]
        return [said for label in others if (said := self._quota(label, most))]

    def _quota(self, label: str, gpus: int) -> str:
        """If a policy's quotas cover fewer than `gpus` GPUs, say so; otherwise, return ""."""
        quota = self._contender(label).quota_gpus
        if quota is None or quota >= gpus:
            return ""
        return (
            f"The quotas of `{label}` cover {plural(quota, 'GPU')} at every size: with more "
            "servers, raise them too, or the additional GPUs stay idle."
        )

    def _other_base(self) -> list[str]:
        """If the base is not the nearest policy, say so, and why."""
        nearest = self.calibration.best
        if nearest is None or nearest.policy == self.base:
            return []
        said = f"The others are compared with `{self.base}`"
        labels = [one.label for one in self.contenders]
        if nearest.policy in labels:
            needs = [
                self._contender(label).needs_run_times for label in (nearest.policy, self.base)
            ]
            if needs == [True, False]:
                said += ", which does not need to know how long each job will run"
        return [f"{said}."]

    def to_dict(self) -> dict[str, Json]:
        """Return plain values, as `gangline advise --json` prints them."""
        return {
            "jobs": len(self.trace),
            "cluster": self.cluster.name,
            "servers": self.servers,
            "base": self.base,
            "best": self.best.policy,
            "load": None if self.load is None else self.load.to_dict(),
            "calibration": self.calibration.to_dict(),
            "options": [one.to_dict() for one in self.options],
            "prices": dict(self.prices),
            "parts": {"count": self.parts.count, "length_s": self.parts.length_s},
            "failed": dict(self.failed),
            "claims": [vars(one) for one in self.claims()],
            "notes": self.notes(),
        }

    def save(self, folder: str | PathLike[str], *, command: str = "") -> Path:
        """Write the page, all numbers, and the log and cluster files that the commands use.

        Parameters
        ----------
        folder : path
            The folder. Files of earlier advice in it are replaced. Any other file that has one of
            the names to be written causes an error.
        command : str
            The command as typed, shown on the page.

        Raises
        ------
        FileExistsError, ResultError
            If gangline did not write an existing file with one of the names.
        OSError
            If a file cannot be written.
        """
        from gangline.studies.advise.saved import save

        content = self.claims(Path(folder).as_posix()), self.notes()
        return save(self, content, self.to_dict(), folder, command)

    def write(
        self, path: str | PathLike[str], *, folder: str = "advice", command: str = ""
    ) -> Path:
        """Write one self-contained HTML page.

        Parameters
        ----------
        path : path
            Path of the file. An earlier page at this path is replaced; any other file causes an
            error.
        folder : str
            Folder of the saved advice, as it appears in the commands on the page.
        command : str
            Command as typed.

        Raises
        ------
        ResultError
            If the existing file is not a page that gangline wrote.
        OSError
            If the file cannot be written.
        """
        from gangline.studies.advise.page import write

        return write(self, (self.claims(folder), self.notes()), path, command)

    def __repr__(self) -> str:
        return "\n".join(claim.text for claim in self.claims())

    def _repr_html_(self) -> str:
        from gangline._support.html import prose, table

        said = "".join(f"<p>{prose(claim.text)}</p>" for claim in self.claims())
        return said + table(self.titles(), self.cells())

    def _contender(self, label: str) -> Contender:
        return next(one for one in self.contenders if one.label == label)

    def _scheduler(self) -> str:
        """Say under which scheduler jobs wait least on the current servers."""
        base, best = self.here, self.best
        there = f"With the current {mix(self.cluster)},"
        if best.policy == base.policy:
            said = (
                f"{there} no other contender gives clearly shorter waits than `{base.policy}`, "
                f"under which jobs wait {duration(base.wait.mean)} on average."
            )
            return " ".join([said, *self._never(base)])
        said = (
            f"{there} jobs wait least under `{best.policy}`: {duration(best.wait.mean)} on "
            f"average, instead of {duration(base.wait.mean)} under `{base.policy}`"
        )
        if self.covers_others(best):
            said += f".{self._differs(best)}"
        else:
            said += f" ({formatting.percent(1.0 - best.wait.mean / base.wait.mean)} less)."
        sure = _how_sure(best.difference)
        words = [said, *[sure] * bool(sure), *self._longest(best)]
        return " ".join([*words, *self._never(base), *self._never(best)])

    def _differs(self, row: Option) -> str:
        """If the means of a row and of the base cover different jobs, say so."""
        base = self.here
        if not self.covers_others(row):
            return ""
        there, here = f"under `{row.policy}`", f"under `{base.policy}`"
        if row.servers != base.servers:
            there += f" with {plural(row.servers, 'server')}"
            here += f" with {plural(base.servers, 'server')}"
        return (
            f" These means are over different jobs: {row.jobs:,} finish {there}, and {base.jobs:,} "
            f"{here}. Over the jobs that finish in both, the mean changes by "
            f"{signed(row.difference.mean)}."
        )

    def _never(self, row: Option) -> list[str]:
        """Say how many jobs can never run under a scheduler, and why."""
        if not row.reasons:
            return []
        each = [f"{why} ({count:,})" for why, count in row.reasons.items()]
        if len(each) == 1:
            each = [*row.reasons]
        subject = "it" if row.cannot_run == 1 else "each" if len(each) == 1 else "a job"
        verb = "is" if row.cannot_run == 1 else "are"
        text = (
            f"{row.cannot_run:,} of {plural(len(self.trace), 'job')} can never run under "
            f"`{row.policy}` and {verb} left out: {subject} {'; or '.join(each)}."
        )
        said = [text]
        if row.ran_in_log:
            ran = "It ran" if row.cannot_run == 1 else "They ran"
            said.append(f"{ran} in the log, so the settings or the servers differ from the log's.")
        return said

    def _longest(self, row: Option) -> list[str]:
        """If the longest waits are clearly longer than under the base, say so."""
        before, after = self.here.wait_p99_s, row.wait_p99_s
        if self.covers_others(row) or after - before <= max(_LONGER_S, _LONGER * before):
            return []
        text = (
            f"But its longest waits are longer: the 99th percentile is {duration(after)}, instead "
            f"of {duration(before)} under `{self.base}`."
        )
        return [text]

    def _plain(self, typed: Typed) -> list[Claim]:
        """Say what the best scheduler needs, and which plain scheduler is best."""
        best = self._contender(self.best.policy)
        plain = {one.label for one in self.contenders if one.is_plain}
        if best.is_plain or not plain:
            return []
        row = self.least(plain)
        asks = {
            (True, True): "needs to know how long each job will run, and stops running jobs",
            (True, False): "needs to know how long each job will run",
            (False, True): "stops running jobs",
        }[best.needs_run_times, best.stops_jobs]
        neither = {
            (True, True): "do neither",
            (True, False): "neither need this nor stop jobs",
            (False, True): "neither do this nor need run times",
        }[best.needs_run_times, best.stops_jobs]
        said = f"`{best.label}` {asks}. Of the schedulers that {neither}, "
        said += f"`{row.policy}` has the shortest mean wait, {duration(row.wait.mean)}."
        said = " ".join([said, *self._longest(row)])
        return [Claim("plain", said, typed.compare(self.servers, sorted(plain)))]

    def _users(self, row: Option) -> str:
        """Say how many users gain and lose, and which users gain and lose most."""
        gain, lose = row.gain, row.lose
        less, longer = ("waits" if len(side) == 1 else "wait" for side in (gain, lose))
        said = (
            f"Under `{row.policy}` {len(gain)} of {plural(len(row.users), self.word)} {less} "
            f"less than under `{self.base}` and {len(lose)} {longer} longer"
        )
        is_all = len(gain) + len(lose) == len(row.users)
        return said + ("." if is_all else f"; for the others the change is {_HARDLY}.")

    def _fewer(self) -> tuple[str, int] | None:
        """If the best scheduler matches the base with fewer servers, say how many it needs."""
        if self.best.policy == self.base:
            return None
        target = self.here.wait.mean
        rows = [
            one
            for one in self.options
            if one.policy == self.best.policy and one.servers < self.servers
        ]
        kept = [one for one in rows if self._keeps(one, target)]
        if not kept:
            return None
        row = min(kept, key=lambda one: one.servers)
        said = (
            f"Under `{row.policy}` {self._size(row)} would be enough: jobs wait "
            f"{duration(row.wait.mean)} on average there, and {duration(target)} under "
            f"`{self.base}` with {self.servers}."
        )
        return said + self._differs(row) + self._saved(row), row.servers

    def _more(self) -> tuple[str, int] | None:
        """Say how many servers the base needs to match the best scheduler."""
        if self.best.policy == self.base:
            return None
        target = self.best.wait.mean
        rows = [
            one for one in self.options if one.policy == self.base and one.servers > self.servers
        ]
        if not rows:
            return None
        kept = [one for one in rows if self._keeps(one, target)]
        if not kept:
            row = max(rows, key=lambda one: one.servers)
            said = (
                f"Under `{self.base}` even {self._size(row)}, the largest size compared, are not "
                f"enough to match `{self.best.policy}` on the current {self.servers}: jobs "
                f"then wait {duration(row.wait.mean)} on average."
            )
            said += self._differs(row)
            return f"{said} {self._quota(self.base, row.gpus)}".rstrip(), row.servers
        row = min(kept, key=lambda one: one.servers)
        said = (
            f"To make jobs wait no longer under `{self.base}` than under `{self.best.policy}` on "
            f"the current {plural(self.servers, 'server')}, you need {self._size(row)}, the "
            f"smallest size compared that is enough. Jobs then wait {duration(row.wait.mean)} on "
            "average."
        )
        return said + self._differs(row) + self._saved(row), row.servers

    def _larger(self) -> list[tuple[str, int]]:
        """Say how waits and costs change under the base at the next and at the largest size."""
        if not self.here.wait.mean:
            return []
        rows = [one for one in self.options if one.policy == self.base]
        rows = sorted(
            (one for one in rows if one.servers > self.servers), key=lambda one: one.servers
        )
        said = []
        for row in [*rows[:1], *rows[1:][-1:]]:
            text = f"With {self._size(row)} under `{self.base}`, jobs "
            if row.wait.mean == self.here.wait.mean:
                text += f"wait as long as with the current {self.servers}."
            else:
                text += (
                    f"wait {duration(row.wait.mean)} on average, instead of "
                    f"{duration(self.here.wait.mean)} with the current {self.servers}."
                )
            text += self._differs(row) + self._saved(row)
            if row is rows[0]:
                text = f"{text} {self._quota(self.base, row.gpus)}".rstrip()
            said.append((text, row.servers))
        return said

    def _size(self, row: Option) -> str:
        return mix(self.clusters[row.servers])

    def _keeps(self, one: Option, target: float) -> bool:
        """Return whether the mean wait is at most the target, and is comparable with it.

        It is not comparable if more jobs are left out than under the base. On a smaller cluster
        that is overloaded, it is not comparable either, because it depends on where the log ends.
        """
        is_sound = one.servers > self.servers or not one.is_over
        return one.wait.mean <= target and is_sound and one.cannot_run <= self.here.cannot_run

    def _saved(self, row: Option) -> str:
        now = self.here.cost_per_month
        if now is None or row.cost_per_month is None:
            return ""
        word = "less" if row.cost_per_month < now else "more"
        return f" That costs {abs(row.cost_per_month - now):,.0f} {word} a month."

    def _needs(self) -> str:
        """Say which schedulers need durations, and that the runs use exact durations."""
        informed = [f"`{one.label}`" for one in self.contenders if one.needs_run_times]
        if not informed:
            return "No contender needs to know how long jobs run."
        verb = "needs" if len(informed) == 1 else "need"
        return (
            f"{listed(informed)} {verb} to know how long each job will run: in these runs exactly, "
            "but on a cluster only as an estimate, so the gain may be smaller there."
        )


def _how_sure(one: Estimate) -> str:
    if one.low is None or one.high is None:
        return ""
    ends = f"{signed(one.low)} to {signed(one.high)}"
    if one.high < 0.0:
        return f"The 95 % interval of the change is {ends}."
    return f"This may be chance: the 95 % interval of the change is {ends}."
