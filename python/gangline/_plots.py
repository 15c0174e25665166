"""`result.plot` and `comparison.plot`: the functions of `gangline.plot` with the runs filled in."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["ComparisonPlots", "Plots"]


class Plots:
    """Draws one result or comparison; needs the extra `plot`.

    Each method returns a matplotlib figure and raises what the function of the same name in
    `gangline.plot` raises.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> run = gl.simulate(lab, "synth:philly?jobs=20&seed=1&max_gpus=8", "srtf")
    >>> run.plot.timeline("jobs_waiting").axes[0].get_xlabel()
    'time, days'
    """

    def __init__(self, runs: object) -> None:
        self._runs = runs

    def cdf(self, column: str = "jct_s") -> Any:
        """Draw the distribution of a column of the jobs table: `gangline.plot.cdf`."""
        return _draw("cdf", self._runs, column)

    def timeline(self, column: str = "gpus_busy") -> Any:
        """Draw a column of the timeline over time: `gangline.plot.timeline`."""
        return _draw("timeline", self._runs, column)


class ComparisonPlots(Plots):
    """Draws a comparison, a line or bar per policy; needs the extra `plot`.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> table = gl.compare(lab, "synth:philly?jobs=40&seed=3&max_gpus=8", ["fifo", "srtf"])
    >>> len(table.plot.bars("jct_mean_s").axes[0].patches)
    2
    """

    def bars(self, key: str = "jct_mean_s") -> Any:
        """Draw one key of the summaries as a bar per policy: `gangline.plot.bars`."""
        return _draw("bars", self._runs, key)


def _draw(name: str, *values: object) -> Any:
    # by name: drawing stands above results, which must not import it
    return getattr(import_module("gangline.plot"), name)(*values)
