"""Defines what a plan varies: the number of servers of one GPU type, or the load."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.cluster.checks import SERVERS_MAX
from gangline.cluster.resize import divide, resized, type_of
from gangline.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangline.cluster.description import Cluster, ServerBlock
    from gangline.runs.arrival_window import Window
    from gangline.trace.jobs.table import Trace
    from gangline.trace.reference import TraceReference

__all__ = ["Load", "Servers"]

_STEP_LEAST = 1e-6  # our own choice: finer than any measurement; loads are shown with 9 digits
_LOAD_MOST = 20.0  # our own choice: arrivals in a twentieth of the time are nearly a batch


class Servers:
    """A size is a number of servers of one GPU type; more servers should meet more targets.

    Parameters
    ----------
    cluster : Cluster
        The cluster. The blocks of this GPU type grow and shrink together, one server at a time, so
        that each size contains all servers of the smaller sizes.
    gpu : str, optional
        GPU type; optional if the cluster has only one.
    jobs : Trace
        The jobs of the plan. They limit the sizes: by default, the largest size is the one at which
        every job could have its own servers, or the current size if that is larger.
    most : int, optional
        The largest size to try, used instead of this limit.
    """

    name = "servers"

    def __init__(self, cluster: Cluster, gpu: str | None, jobs: Trace, most: float | None) -> None:
        types = {block.gpu for block in cluster.servers}
        self.gpu = type_of(cluster, gpu)
        self._cluster = cluster
        self._counts = [b.count if b.gpu == self.gpu else 0 for b in cluster.servers]
        self.start = sum(self._counts)
        self.low = 0 if len(types) > 1 else 1
        least = min(block.gpus for block in cluster.servers if block.gpu == self.gpu)
        own = sum(-(-gpus // least) for gpus in jobs.column("gpus").to_pylist())
        if most is not None and (most % 1 or not max(self.low, 1) <= most <= SERVERS_MAX):
            message = f"most: expected a number of servers from 1 to {SERVERS_MAX}, got {most!r}"
            raise OptionError(message, field="most", value=most)
        self.high = max(self.start, own) if most is None else int(most)
        self.start = min(self.start, self.high)
        self._price = {kind.name: kind.price_per_hour for kind in cluster.gpu_types}

    def shown(self, size: int) -> int:
        """Return the number of servers."""
        return size

    def world(self, size: int, trace: TraceReference) -> tuple[Cluster, TraceReference]:
        """Return the cluster at a size, and the unchanged trace."""
        return resized(self._cluster, self.gpu, size), trace

    def window(self, size: int, window: Window) -> Window:  # noqa: ARG002 - the same at every size
        """Return the window of arrivals to count, which is the same at every size."""
        return window

    def given(self, size: int, window: Window) -> Window:  # noqa: ARG002 - the same at every size
        """Return the `count_arrivals` option for a window, which is the same at every size."""
        return window

    def gpus(self, size: int) -> int:
        """Return the number of GPUs of the whole cluster."""
        return sum(count * block.gpus for count, block in self._blocks(size))

    def price_per_hour(self, size: int) -> float | None:
        """Return the price of the whole cluster; None if a type has no price."""
        if not all(self._price[block.gpu] for block in self._cluster.servers):
            return None
        blocks = self._blocks(size)
        return math.fsum(n * block.gpus * self._price[block.gpu] for n, block in blocks)

    def _blocks(self, size: int) -> list[tuple[int, ServerBlock]]:
        rows = zip(self._cluster.servers, self._counts, divide(self._counts, size), strict=True)
        return [(now if old else block.count, block) for block, old, now in rows]


class Load:
    """A size is minus the number of steps in a load, because a higher load is harder.

    A load is a multiple of the trace's load.

    Parameters
    ----------
    cluster : Cluster
        The cluster, which is the same at every size.
    step : float
        Step between successive loads to try; must be between 1e-6 and 1.
    most : float, optional
        The largest load; default 20.
    """

    name = "load"
    gpu = ""

    def __init__(self, cluster: Cluster, step: float, most: float | None) -> None:
        if not _STEP_LEAST <= step <= 1.0:
            message = f"step: expected a load from {_STEP_LEAST:g} to 1, got {step!r}"
            raise OptionError(message, field="step", value=step)
        largest = _LOAD_MOST if most is None else most
        if not step <= largest < math.inf:
            message = f"most: expected a load of {step:g} or more, got {most!r}"
            raise OptionError(message, field="most", value=most)
        self._cluster = cluster
        self._step = step
        self.low, self.high = -int(largest / step + 1e-9), -1
        self.start = max(self.low, -round(1.0 / step))

    def shown(self, size: int) -> float:
        """Return the load as a multiple of the trace's load."""
        return round(-size * self._step, 9)

    def world(self, size: int, trace: TraceReference) -> tuple[Cluster, TraceReference]:
        """Return the unchanged cluster, and the trace with compressed or stretched arrivals."""
        given: Mapping[str, Any] = trace.options
        rescale = given.get("rescale", 1.0) / self.shown(size)
        options = {key: value for key, value in trace.options.items() if key != "rescale"}
        if rescale != 1.0:
            options["rescale"] = rescale
        return self._cluster, msgspec.structs.replace(trace, options=options)

    def window(self, size: int, window: Window) -> Window:
        """Return the window of arrivals to count, compressed or stretched like the trace."""
        return window[0] / self.shown(size), window[1] / self.shown(size)

    def given(self, size: int, window: Window) -> Window:
        """Return the `count_arrivals` option for a window, converted to the clock of load 1."""
        begin, end = (round(second * self.shown(size), 9) for second in window)
        return begin, end

    def gpus(self, size: int) -> int:  # noqa: ARG002 - the same at every load
        """Return the number of GPUs of the cluster."""
        return self._cluster.gpus_total

    def price_per_hour(self, size: int) -> float | None:  # noqa: ARG002
        """Return None, because the load does not affect the cost of the cluster."""
        return None
