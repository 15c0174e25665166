"""Computes the cost of distance from its description: shapes, closed forms, layers, pairs.

It has no cache and shares only the meaning of the keys with the engine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from .world import ClusterError, Gpu, GpuType, Job, Server

GIB = 2**30
TIERS = ("server", "rack", "network")
# most and fewest GPUs on a server; most and fewest servers in a rack; racks
Shape = tuple[int, int, int, int, int]

LINKS: dict[str, dict[str, dict[str, Any]]] = {
    "dally-2024": {
        "server": {"algo": "direct", "alpha_s": 0.5e-6, "port_bw": 600 * GIB},
        "rack": {"algo": "ring", "alpha_s": 5e-6, "port_bw": 200 * GIB},
        "network": {"algo": "ring", "alpha_s": 100e-6, "port_bw": 400 * GIB},
    },
    "hgx-h100": {
        "server": {"algo": "direct", "alpha_s": 1.872e-6, "port_bw": 400 * GIB},
        "rack": {"algo": "ring", "alpha_s": 1e-6, "port_bw": 50 * GIB},
        "network": {"algo": "ring", "alpha_s": 2e-6, "port_bw": 50 * GIB},
    },
    "pcie-25g": {
        "server": {"algo": "ring", "alpha_s": 3e-6, "port_bw": 12e9},
        "rack": {"algo": "ring", "alpha_s": 15e-6, "port_bw": 3.125e9, "server_bw": 3.125e9},
        "network": {"algo": "ring", "alpha_s": 3e-5, "port_bw": 3.125e9},
    },
}
UPLINK = {"hgx-h100": (400 * GIB, 2), "pcie-25g": (3.125e9, 4)}  # per server of a rack, divisor
# the columns are C in us, V in MB, K, o, V_last in kB, and unscaled C in ms
MODELS: dict[str, tuple[float, float, int, float, float | None, float | None]] = {
    "AlexNet": (1032.341, 244, 8, 0.641, 93, 60.7),
    "MobileNetV3": (52.884, 9.9, 52, 0.901, 1.7, 9.9),
    "ResNet18": (149.479, 46.7, 21, 0.739, 37.6, 147),
    "ResNet50": (11646.646, 102, 54, 0.548, 37.6, 348),
    "VGG11": (3631.739, 531, 11, 0.668, 7, 248),
    "BERT-large": (1703.395, 562, 66, 0.693, None, None),
}


@dataclass
class Model:
    """The demand of a model."""

    compute: float
    volume: float
    buckets: int
    overlap: float = 2 / 3
    last: float | None = None
    layers: list[tuple[float, float]] = field(default_factory=list)
    skew: float | None = None

    @property
    def last_bytes(self) -> float:
        return self.volume / self.buckets if self.last is None else self.last


def built_in(label: str, compute: str) -> Model:
    """Return a built-in model."""
    scaled, volume, buckets, overlap, last, unscaled = MODELS[label]
    seconds = float(f"{scaled}e-6") if compute == "scaled" else float(f"{unscaled}e-3")
    last_bytes = None if last is None else float(f"{last}e3")
    return Model(seconds, float(f"{volume}e6"), buckets, overlap, last_bytes)


def shape_of(servers: list[Server], gpus: tuple[Gpu, ...]) -> Shape:
    """Return the shape of GPUs over servers and racks."""
    used = sorted({s for s, _ in gpus})
    counts = [sum(t == s for t, _ in gpus) for s in used]
    racks = sorted({servers[s].rack for s in used})
    widths = [sum(servers[s].rack == k for s in used) for k in racks]
    return (max(counts), min(counts), max(widths), min(widths), len(racks))


def tier_of_shape(shape: Shape) -> int:
    return 2 if shape[4] > 1 else 1 if shape[2] > 1 else 0


def canonical(n: int, tier: int, server: int, rack: int) -> Shape:
    """Return the canonical shape of a tier for the largest server and the largest rack."""
    if tier == 0:
        return (n, n, 1, 1, 1)
    if tier == 1:
        m = max(2, math.ceil(n / server))
        return (math.ceil(n / m), n // m, m, m, 1)
    r = max(2, math.ceil(n / rack))
    most: list[int] = []
    least: list[int] = []
    width: list[int] = []
    for q in {math.ceil(n / r), n // r}:
        m = max(1, math.ceil(q / server))
        most.append(math.ceil(q / m))
        least.append(q // m)
        width.append(m)
    return (max(most), min(least), max(width), min(width), r)


def steps(algo: str | list[str], n: int) -> int:
    """Return the fewest steps of the named algorithms."""
    names = [algo] if isinstance(algo, str) else list(algo)
    if "auto" in names:
        names = ["ring", "halving", "direct"]
    count = {"ring": 2 * (n - 1), "halving": 2 * math.ceil(math.log2(n)), "direct": 2}
    return min(count[name] for name in names)


def tau(link: dict[str, Any], n: int, x: float) -> float:
    """Return the time of one all-reduce in one tier; x is bytes over bandwidth."""
    if n <= 1:
        return 0.0
    alpha: float = link["alpha_s"]
    return steps(link["algo"], n) * alpha + (2 * (n - 1) / n) * x


class Network:
    """The `[network]` table of one cluster."""

    def __init__(
        self,
        options: dict[str, Any],
        throughput: list[dict[str, Any]],
        types: list[GpuType],
        servers: list[Server],
    ) -> None:
        self.o, self.rows, self.types, self.servers = options, throughput, types, servers
        tiers = {t: dict(options.get(t) or {}) for t in TIERS}
        self.kind = options.get("kind")
        if self.kind is None:
            links = options.get("preset") is not None or any(tiers.values())
            self.kind = "alphabeta" if links else "levels" if options.get("levels") else "none"
        if options.get("preset") == "ideal":
            self.kind = "none"
        self.preset = options.get("preset")
        if self.kind == "table" and options.get("on_missing", "error") not in ("error", "one"):
            self.preset = options["on_missing"]
        base = LINKS.get(self.preset or "", {})
        self.links = {t: {**base.get(t, {}), **tiers[t]} for t in TIERS}
        self.links["network"].setdefault("uplink_bw", self._uplink())
        self.models = {
            label: built_in(label, options.get("compute", "scaled"))
            for label in MODELS
            if options.get("compute", "scaled") == "scaled" or MODELS[label][5] is not None
        }
        for label, row in (options.get("models") or {}).items():
            self.models[label] = Model(
                row["compute_s"],
                row["grad_bytes"],
                row["buckets"],
                row.get("overlap", 2 / 3),
                row.get("last_bytes"),
                [tuple(pair) for pair in row.get("layers") or []],
                row.get("skew"),
            )

    def _uplink(self) -> float:
        per_server, divisor = UPLINK.get(self.preset or "", (math.inf, 1))
        racks = [s.rack for s in self.servers]
        widest = max(racks.count(k) for k in racks)
        return widest * per_server / (self.o.get("oversubscription") or divisor)

    def extent(self, t: int) -> tuple[int, int]:
        """Return the largest server and the most GPUs in one rack of a type, as described."""
        mine = [s for s in self.servers if s.type == t]
        racks = {s.rack for s in mine}
        per_rack = [sum(s.gpus for s in mine if s.rack == k) for k in racks]
        return max((s.gpus for s in mine), default=1), max(per_rack, default=1)

    def model(self, label: str | None) -> Model:
        found = self.models.get(label or "") or self.models.get(self.o.get("default_model") or "")
        if found is None:
            raise ClusterError(f"unknown model {label}", model=label)
        return found

    def bucket(self, shape: Shape, w: float) -> list[float]:
        """Return the times of one bucket of w bytes in the three tiers."""
        p_max, p_min, s_max, s_min, r = shape
        server, rack, network = (self.links[t] for t in TIERS)
        nics = rack.get("server_bw", math.inf)
        return [
            tau(server, p_max, w / server["port_bw"]),
            tau(rack, s_max, max(w / p_min / rack["port_bw"], w / nics)),
            tau(
                network,
                r,
                max(
                    w / (p_min * s_min) / network["port_bw"],
                    w / s_min / nics,
                    w / network["uplink_bw"],
                ),
            ),
        ]

    def exposed(self, shape: Shape, m: Model) -> float:
        """Return the exposed communication in seconds."""
        if self.o.get("detail") == "layers":
            return self.exposed_by_layer(shape, m)
        b = self.bucket(shape, m.volume / m.buckets)
        last = self.bucket(shape, m.last_bytes)
        if self.o.get("pipeline", True):
            total = (b[0] + b[1] + b[2]) + (m.buckets - 1) * max(b)
        else:
            total = m.buckets * (b[0] + b[1] + b[2])
        return max(last[0] + last[1] + last[2], total - m.overlap * m.compute)

    def exposed_by_layer(self, shape: Shape, m: Model) -> float:
        """Simulate every bucket as an event: ready, then through one channel of each tier."""
        layers = m.layers or [
            (m.overlap * m.compute / m.buckets, m.volume / m.buckets) for _ in range(m.buckets)
        ]
        ready, now = [], 0.0
        for seconds, _ in layers:
            now += seconds
            ready.append(now)
        times = [self.bucket(shape, size) for _, size in layers]
        newest = self.o.get("order", "lifo") == "lifo"
        coming = [(at, i) for i, at in enumerate(ready)]
        for channel in range(3):
            left: list[tuple[float, int]] = []
            waiting: list[int] = []
            clock = 0.0
            rest = list(coming)
            while rest or waiting:
                if not waiting:
                    clock = max(clock, rest[0][0])
                while rest and rest[0][0] <= clock:
                    waiting.append(rest.pop(0)[1])
                taken = waiting.pop(-1 if newest else 0)
                clock += times[taken][channel]
                left.append((clock, taken))
            coming = left
        return max(0.0, coming[-1][0] - now)

    def raw(self, label: str | None, shape: Shape) -> float:
        """Return the closed form before the clamp."""
        m = self.model(label)
        return m.compute / (m.compute + self.exposed(shape, m))

    def alphabeta(self, job: Job, t: int, shape: Shape) -> float:
        """Return the closed form, clamped to that of narrower tiers."""
        server, rack = self.extent(t)
        tier, n = tier_of_shape(shape), job.gpus
        if self.o.get("detail") == "tier":
            shape = canonical(n, tier, server, rack)
        found = self.raw(job.model, shape)
        if tier > 0 and n <= server:
            found = min(found, self.raw(job.model, canonical(n, 0, server, rack)))
        if tier > 1 and n <= rack:
            found = min(found, self.raw(job.model, canonical(n, 1, server, rack)))
        return found

    def ratio(self, label: str | None, batch: int | None, t: int, n: int) -> float | None:
        """Return spread over consolidated throughput of the nearest smaller gang in the table."""
        mine = [r for r in self.rows if r["gpu_type"] == self.types[t].name and r["gpus"] > 1]
        mine = [r for r in mine if r["model"] == label]
        own = [r for r in mine if batch is not None and r.get("batch_size") == batch]
        here = [r for r in own if r.get("placement", "server") == "server"]
        if not here:
            own = [r for r in mine if r.get("batch_size") is None]
            here = [r for r in own if r.get("placement", "server") == "server"]
        sizes = sorted(r["gpus"] for r in here if r["gpus"] <= n)
        if not sizes:
            return None

        def at(size: int) -> float | None:
            rate = {r.get("placement", "server"): r for r in own if r["gpus"] == size}
            together = rate["server"]["iters_per_s"]
            if together == 0:
                return 1.0
            apart = rate.get("spread", {"iters_per_s": 0})["iters_per_s"]
            return min(1.0, apart / together) if apart > 0 else None

        found = at(sizes[-1])
        if found is not None and self.o.get("monotone_n", False):
            found = min(x for x in map(at, sizes) if x is not None)
        return found

    def locality(self, job: Job, t: int, shape: Shape) -> float:
        """Return the locality factor of a gang."""
        tier = tier_of_shape(shape)
        if job.gpus == 1 or self.kind == "none":
            return 1.0
        if self.kind == "levels":
            rows = self.o["levels"]
            rest = rows.get("*", rows.get(self.o.get("default_model") or ""))
            row = rows.get(job.model or "", rest)
            if row is None:
                raise ClusterError(f"unknown model {job.model}", model=job.model)
            return float(row[tier])
        if self.kind == "alphabeta":
            return self.alphabeta(job, t, shape)
        ratio = self.ratio(job.model, job.batch, t, job.gpus)
        if ratio is None:
            ratio = self.ratio(self.o.get("default_model"), job.batch, t, job.gpus)
        if ratio is not None:
            extra = self.o.get("network_extra", 1.0)
            return [1.0, ratio, ratio * (1.0 if extra is None else extra)][tier]
        on_missing = self.o.get("on_missing", "error")
        if on_missing == "error":
            raise ClusterError("no pair of throughputs", model=job.model, gpus=job.gpus)
        return 1.0 if on_missing == "one" else self.alphabeta(job, t, shape)

    def at_tier(self, job: Job, t: int, tier: int) -> float:
        """Return the locality factor in a tier without a placement."""
        return self.locality(job, t, canonical(job.gpus, tier, *self.extent(t)))

    def skew(self, label: str | None) -> float | None:
        """Return the share of the largest tensor, if the table of models has it."""
        found = self.models.get(label or "") or self.models.get(self.o.get("default_model") or "")
        return None if found is None else found.skew
