"""Models that the Pollux-style policy learns while jobs run, written from `pollux_public.md`.

A job's profile holds the sizes at which it has run. The model that the policy believes in has the
terms that fit these times, and the gradient noise that was seen last, whatever the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from .elastic import Config, Model, Noise
from .iter_time import p_norm

if TYPE_CHECKING:
    from .engine import Reference
    from .philox import Maths
    from .world import Job

LEAST = 1e-8  # of every term
GOLDEN = 0.6180339887498949
TIMES = 30  # that the search for gamma narrows


class Seen(NamedTuple):
    """Times of a step of one pass, at one size."""

    group: int  # servers: 1, or 2 for several
    k: int
    m: int
    pass_s: float
    step_s: float


class Line(NamedTuple):
    """Constant and slope."""

    a: float
    b: float


def line(rows: list[tuple[float, float, float]]) -> Line:
    """Least squares of a q + b r = v over rows of (q, r, v), both at least LEAST."""
    qq = qr = rr = qv = rv = 0.0
    for q, r, v in rows:
        qq += q * q
        qr += q * r
        rr += r * r
        qv += q * v
        rv += r * v
    det = qq * rr - qr * qr
    a = (qv * rr - rv * qr) / det
    b = (rv * qq - qv * qr) / det
    if a < LEAST:
        a, b = LEAST, (rv - LEAST * qr) / rr
    elif b < LEAST:
        a, b = (qv - LEAST * qr) / qq, LEAST
    return Line(max(a, LEAST), max(b, LEAST))


def pass_line(seen: list[Seen]) -> Line:
    """Time of a pass by its samples; half of it is constant where only one number was seen."""
    if len({one.m for one in seen}) == 1:
        total = 0.0
        for one in seen:
            total += one.pass_s
        half = total / len(seen) / 2
        return Line(half, half / seen[0].m)
    return line([(1 / one.pass_s, one.m / one.pass_s, 1.0) for one in seen])


@dataclass
class Fit:
    """The seven terms by one gamma after the other."""

    seen: list[Seen]
    maths: Maths
    compute: Line = field(init=False)

    def __post_init__(self) -> None:
        self.compute = pass_line(self.seen)

    def pass_s(self, one: Seen) -> float:
        return self.compute.a + self.compute.b * one.m

    def exchange_s(self, one: Seen, gamma: float) -> float:
        """What the step takes beyond the pass, at that overlap."""
        own, found = self.pass_s(one), 0.0
        if own < one.step_s:
            rest = 1 - self.maths.pow(own / one.step_s, gamma)
            if rest > 0:
                found = one.step_s * self.maths.pow(rest, 1 / gamma)
        return max(found, LEAST)

    def exchange(self, group: int, gamma: float) -> Line:
        """Exchange by the GPUs beyond two."""
        own = [one for one in self.seen if one.k > 1 and one.group == group]
        if not own:
            return Line(LEAST, LEAST)
        times = [self.exchange_s(one, gamma) for one in own]
        if len({one.k for one in own}) > 1:
            pairs = zip(own, times, strict=True)
            return line([(w := 1 / one.step_s, w * (one.k - 2), w * y) for one, y in pairs])
        above = below = 0.0
        for one, y in zip(own, times, strict=True):
            w = 1 / one.step_s
            above += w * w * (y - LEAST * (one.k - 2))
            below += w * w
        return Line(max(above / below, LEAST), LEAST)

    def error(self, gamma: float) -> float:
        """The objective of a gamma."""
        lines = {group: self.exchange(group, gamma) for group in (1, 2)}
        total = 0.0
        for one in self.seen:
            found = self.pass_s(one)
            if one.k > 1:
                net = lines[one.group].a + lines[one.group].b * (one.k - 2)
                found = p_norm(found, net, gamma, self.maths)
            off = self.maths.log(found / one.step_s)
            total += off * off
        apart, near = lines[2].b / lines[2].a, lines[1].b / lines[1].a
        slope, above = apart * apart + near * near, gamma - 1
        return math.sqrt(total / len(self.seen)) + 0.001 * (above * above) + 0.01 * slope

    def gamma(self) -> float:
        """The overlap of least error."""
        if all(one.k == 1 for one in self.seen):
            return 1.0
        best = min((1 + j / 4 for j in range(37)), key=self.error)
        low, high = max(1.0, best - 0.25), min(10.0, best + 0.25)
        for _ in range(TIMES):
            left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
            if self.error(left) <= self.error(right):
                high = right
            else:
                low = left
        middle = (low + high) / 2
        return middle if self.error(middle) < self.error(best) else best

    def terms(self) -> tuple[dict[str, float], float]:
        """The terms of a model and its gamma."""
        gamma = self.gamma()
        near, apart = self.exchange(1, gamma), self.exchange(2, gamma)
        if all(one.group == 1 for one in self.seen) and any(one.k > 1 for one in self.seen):
            apart = Line(max(apart.a, 1.1 * near.a), max(apart.b, 1.1 * near.b))
        names = {"c": self.compute, "n": apart, "r": near}
        found = {f"a_{key}": own.a for key, own in names.items()}
        return found | {f"b_{key}": own.b for key, own in names.items()}, gamma


@dataclass
class Profile:
    """What is known of one job."""

    seen: list[Seen] = field(default_factory=list)
    noise: tuple[float, float] = (0.0, 0.0)
    model: Model | None = None  # of what was seen; None: not worked out yet

    @property
    def gpus(self) -> int:
        return max((one.k for one in self.seen), default=0)

    def look(self, job: Job) -> None:
        """Take note of how a running job runs."""
        assert job.elastic is not None
        model, gpus = job.elastic.model, job.gpu_set
        k, group = len(gpus), min(2, len({server for server, _ in gpus}))
        config = job.only.config or job.elastic.traced(k)
        noise = model.noise_at(k * config.m * (config.a + 1), job.phase)
        if (group, k, config.m) not in [one[:3] for one in self.seen]:
            pass_s = model.fit["a_c"] + model.fit["b_c"] * config.m
            step_s = model.step_s(k, group, Config(config.m, 0))
            self.seen.append(Seen(group, k, config.m, pass_s, step_s))
            self.model = None
        elif noise == self.noise:
            return
        self.noise = noise
        self.model = None

    def believed(self, true: Model) -> Model:
        """The true model with the terms that fit and the noise seen last."""
        if self.model is None:
            fit, gamma = Fit(self.seen, true.maths).terms()
            noise = [Noise(0.0, (self.noise,))]
            self.model = replace(
                true, fit=fit, gamma=gamma, noise=noise, batches=[], known={}, smaller={}
            )
        return self.model


class Profiles:
    """Profiles of all jobs, by index."""

    def __init__(self, ref: Reference) -> None:
        self.ref = ref
        self.own: dict[int, Profile] = {}

    def look(self) -> None:
        """At the start of a decision: how the jobs with progress run."""
        for job in self.ref.running():
            if job.elastic is not None and job.only.progress_from < self.ref.now:
                self.own.setdefault(job.index, Profile()).look(job)

    def of(self, job: Job) -> Profile | None:
        return self.own.get(job.index)
