"""Contains a GPU's measurements (rates, pairs and starts), and writes them for a cluster."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from gangline._support import toml
from gangline._support.builtin_values import Json  # noqa: TC001 - msgspec reads the annotations
from gangline.errors import ResultError
from gangline.files import listed_files
from gangline.studies.profile.trainers import Model  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gangline.cluster.description import Cluster

__all__ = ["FILES", "Pair", "Profile", "Rate", "Start", "median_interval"]

FILES = ("cluster.toml", "throughput.csv", "sharing.csv", "runtime.csv", "profile.json")
_RESAMPLES = 2_000
_LEAST = 5  # the minimum number of repeats for a meaningful interval
_COSTS = ("first_start_s", "restart_s", "stop_s", "checkpoint_s")


class Start(msgspec.Struct, frozen=True):
    """The costs of one start of a model in seconds; costs that need a checkpoint may be None.

    Attributes
    ----------
    model : str
        Label of the model.
    first_start_s : float
        Time from starting the process to the end of its first step.
    restart_s : float or None
        The same time if the process reads a checkpoint first.
    stop_s : float or None
        Time from the command to stop until the process has ended, including the time to write a
        checkpoint.
    checkpoint_s : float or None
        Time to write a checkpoint.

    Examples
    --------
    >>> Start("bert", first_start_s=9.0, restart_s=9.5, stop_s=1.2, checkpoint_s=1.0).restart_s
    9.5
    """

    model: str
    first_start_s: float
    restart_s: float | None = None
    stop_s: float | None = None
    checkpoint_s: float | None = None


class Rate(msgspec.Struct, frozen=True):
    """The speed of a model that trains alone on the GPU.

    Attributes
    ----------
    model : str
        Label of the model.
    batch : int
        Number of samples per iteration.
    passes : int
        Number of passes per iteration; more than 1 with gradient accumulation.
    per_s : list of float
        Iterations per second, one value per repeat.
    memory_bytes : int
        Maximum device memory that the process reserved; 0 if unknown.

    Examples
    --------
    >>> Rate("bert", batch=16, passes=2, per_s=[19.8, 19.9]).passes
    2
    """

    model: str
    batch: int
    passes: int
    per_s: list[float]
    memory_bytes: int = 0


class Pair(msgspec.Struct, frozen=True):
    """The speeds of two models that train on one GPU at the same time.

    Attributes
    ----------
    models : (str, str)
        Labels of the models.
    per_s : list of (float, float)
        Iterations per second of the two models, one pair per repeat; empty if the pair failed.
    failed : str
        The reason why there are no rates; empty if there are rates.

    Examples
    --------
    >>> Pair(("bert", "gpt"), [(11.2, 15.2)]).failed
    ''
    """

    models: tuple[str, str]
    per_s: list[tuple[float, float]]
    failed: str = ""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one GPU, from `gangline.profile.measure`.

    Attributes
    ----------
    facts : dict
        `gpu_type`, `gpu`, `memory_gb`, `device`, `date`, `seconds`, `repeats`, and the library
        versions.
    models : list of Model
        The models, each with its label, source and full batch size.
    starts : list of Start
        The costs of starts: one entry for each measured start of a model.
    alone : list of Rate
        One entry per model, batch and number of passes. The rates with the full batch are measured
        again after the pairs.
    pairs : list of Pair
        One entry for each pair of models, and for each model with itself.

    Examples
    --------
    >>> found = Profile(
    ...     facts={"gpu_type": "T4"},
    ...     models=[Model("a", "conv", 8)],
    ...     starts=[],
    ...     alone=[Rate("a", 8, 1, [9.0, 10.0, 11.0])],
    ...     pairs=[Pair(("a", "a"), [(4.0, 6.0)])],
    ... )
    >>> found.rate("a"), found.slowdown("a", "a")
    (10.0, 2.0)
    """

    facts: dict[str, Json]
    models: list[Model]
    starts: list[Start]
    alone: list[Rate]
    pairs: list[Pair]

    def samples(self, model: str, batch: int | None = None, passes: int = 1) -> list[float]:
        """Return the measured rates of a model alone, including those measured after the pairs.

        Parameters
        ----------
        model : str
            Label of the model.
        batch : int, optional
            Number of samples per iteration; by default, the full batch size.
        passes : int
            Number of passes per iteration.
        """
        size = self.batch(model) if batch is None else batch
        what = (model, size, passes)
        return [x for one in self.alone if (one.model, one.batch, one.passes) == what
                for x in one.per_s]  # fmt: skip

    def batch(self, model: str) -> int:
        """Return the full batch size of a model."""
        return next(one.batch for one in self.models if one.name == model)

    def rate(self, model: str, batch: int | None = None, passes: int = 1) -> float:
        """Return a model's median rate alone, in iterations per second; see `samples`."""
        return median(self.samples(model, batch, passes))

    def together(self, model: str, other: str) -> list[float]:
        """Return the measured rates of a model while it shared the GPU with another model."""
        return [
            rate
            for pair in self.pairs
            for rates in pair.per_s
            for name, co_name, rate in zip(pair.models, pair.models[::-1], rates, strict=True)
            if (name, co_name) == (model, other)
        ]

    def slowdown(self, model: str, other: str) -> float | None:
        """Return the slowdown factor that another model causes; None if it was not measured."""
        rates = self.together(model, other)
        return self.rate(model) / median(rates) if rates and median(rates) > 0.0 else None

    @property
    def drift(self) -> float:
        """The largest ratio between a model's rates alone before and after the pairs."""
        medians: dict[tuple[str, int, int], list[float]] = {}
        for one in self.alone:
            medians.setdefault((one.model, one.batch, one.passes), []).append(median(one.per_s))
        return max((max(found) / min(found) for found in medians.values()), default=1.0)

    def throughput(self) -> list[dict[str, Json]]:
        """Return rows for a `[throughput]` table; rows without a batch size apply to any size."""
        rows: list[dict[str, Json]] = []
        for model in self.models:
            batches = dict.fromkeys(
                one.batch for one in self.alone if one.model == model.name and one.passes == 1
            )
            for batch in (None, *batches):
                rate = _short(self.rate(model.name, batch))
                rows.append({"gpu_type": self._gpu_type, "model": model.name, "batch_size": batch,
                             "gpus": 1, "iters_per_s": rate})  # fmt: skip
        return rows

    def sharing(self) -> list[dict[str, Json]]:
        """Return rows for a `[sharing]` table in both directions; `xi` is None for failed pairs."""
        known = dict.fromkeys(pair for one in self.pairs for pair in (one.models, one.models[::-1]))
        return [
            {"model": model, "co_model": other, "gpu_type": self._gpu_type, "gpus": 1,
             "xi": _short(self.slowdown(model, other))}
            for model, other in known
        ]  # fmt: skip

    def runtime(self) -> list[dict[str, Json]]:
        """For each model, return the median costs of starts, stops and checkpoints in seconds."""
        rows = []
        for model in dict.fromkeys(one.model for one in self.starts):
            row: dict[str, Json] = {"model": model, "gpus": 1, "gpu_type": self._gpu_type}
            for cost in _COSTS:
                values = [getattr(one, cost) for one in self.starts if one.model == model]
                row[cost] = None if None in values else _short(median(values))
            rows.append(row)
        return rows

    def iter_time(self) -> list[dict[str, Json]]:
        """Return `[[iter_time]]` blocks with the time of a pass, fitted to the measurements.

        An iteration with s passes takes s (a_c + b_c x samples per pass) seconds. The fit minimises
        the squared relative errors over a_c >= 0 and b_c >= 0.
        """
        blocks: list[dict[str, Json]] = []
        for model in self.models:
            passes = sorted(
                {one.passes for one in self.alone
                 if (one.model, one.batch) == (model.name, model.batch)}
            )  # fmt: skip
            if len(passes) > 1:
                times = {s: 1.0 / self.rate(model.name, None, s) for s in passes}
                a_c, b_c = _line({s: (-(-model.batch // s), times[s] / s) for s in passes}.values())
                blocks.append({"model": model.name, "gpu_type": self._gpu_type,
                               "kind": "alpha_beta", "a_c": _short(a_c), "b_c": _short(b_c),
                               "a_m": 0.0, "b_m": 0.0, "bytes": 0.0, "delta": 1.0})  # fmt: skip
        return blocks

    def cluster(self) -> Cluster:
        """Return a cluster with one server, one GPU of this type, and the tables."""
        from gangline.cluster.description import Cluster

        data = self._cluster()
        if "sharing" in data:
            del data["sharing"]["table"]
            data["sharing"]["rows"] = self._pairs_known()
        data["throughput"] = {"rows": [_filled(row) for row in self.throughput()]}
        return Cluster.from_dict(data)

    def write(self, folder: str | Path) -> None:
        """Write `cluster.toml`, the tables that it refers to, `runtime.csv` and `profile.json`.

        Raises
        ------
        FileExistsError
            If one of these files exists and is not as gangline wrote it.
        """
        with listed_files.replacing(Path(folder), FILES) as part:
            (part / "cluster.toml").write_text(toml.dumps(self._cluster()), encoding="utf-8")
            _write(part / "throughput.csv", self.throughput(),
                   ("gpu_type", "model", "batch_size", "gpus", "iters_per_s"))  # fmt: skip
            _write(part / "sharing.csv", self.sharing(),
                   ("model", "co_model", "gpu_type", "gpus", "xi"))  # fmt: skip
            _write(part / "runtime.csv", self.runtime(), ("model", "gpus", "gpu_type", *_COSTS))
            text = msgspec.json.format(msgspec.json.encode(self), indent=1)
            (part / "profile.json").write_bytes(text + b"\n")

    @classmethod
    def read(cls, folder: str | Path) -> Profile:
        """Read a folder that `write` created.

        Raises
        ------
        ResultError
            If `profile.json` does not contain a profile.
        OSError
            If the file cannot be read.
        """
        path = Path(folder) / "profile.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except msgspec.DecodeError as error:
            message = f"{path}: not the measurements of gangline profile: {error}"
            raise ResultError(message, path=str(path)) from None

    @property
    def _gpu_type(self) -> str:
        return str(self.facts["gpu_type"])

    def _pairs_known(self) -> list[dict[str, Json]]:
        return [_filled(row) for row in self.sharing() if row["xi"] is not None]

    def _cluster(self) -> dict[str, Any]:
        """Return the content of `cluster.toml`, which refers to the other files."""
        gpu = {"name": self._gpu_type, "memory_gb": self.facts.get("memory_gb")}
        data: dict[str, Any] = {
            "name": "profile",
            "gpu_types": [_filled(gpu)],
            "servers": [{"count": 1, "gpu": self._gpu_type, "gpus": 1}],
            "throughput": {"table": "throughput.csv"},
        }
        if self._pairs_known():
            data["sharing"] = {"interference": "table", "table": "sharing.csv"}
            if any(one.failed for one in self.pairs):
                data["sharing"]["missing"] = "infeasible"
        if blocks := self.iter_time():
            data["iter_time"] = blocks
        return data


def median_interval(
    values: Sequence[float], below: Sequence[float] = ()
) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of a median, or of the ratio between two medians.

    Parameters
    ----------
    values : sequence of float
        Results of the repeated measurements.
    below : sequence of float, optional
        Results for the divisor, if the interval is for a ratio.

    Returns
    -------
    (low, high) or None
        The interval; None if there are fewer than five repeats. The random seed is fixed.

    Examples
    --------
    >>> median_interval([2.0] * 5), median_interval([2.0] * 5, [4.0] * 5)
    ((2.0, 2.0), (0.5, 0.5))
    >>> median_interval([1.0, 2.0]) is None
    True
    """
    import numpy as np

    if min(len(one) for one in (values, below or values)) < _LEAST:
        return None
    dice = np.random.default_rng(0)
    drawn = [
        np.median(dice.choice(np.asarray(one), (_RESAMPLES, len(one))), axis=1)
        for one in (values, below or [1.0])
    ]
    low, high = np.quantile(drawn[0] / drawn[1], [0.025, 0.975]).tolist()
    return low, high


def _line(points: Iterable[tuple[int, float]]) -> tuple[float, float]:
    """Fit y = a + b x with a, b >= 0 by least squares of relative errors."""
    import numpy as np

    x, y = np.asarray(list(points), dtype=np.float64).T
    design = np.stack([1.0 / y, x / y], axis=1)
    a, b = np.linalg.lstsq(design, np.ones(len(x)), rcond=None)[0].tolist()
    if a < 0.0 or b < 0.0:  # the best line through the origin, or the best constant
        column = design[:, 1 if a < 0.0 else 0]
        best = float(column.sum() / (column @ column))
        a, b = (0.0, best) if a < 0.0 else (best, 0.0)
    return a, b


def _short(value: float | None) -> float | None:
    """Return a measurement rounded to six significant digits."""
    return None if value is None else float(f"{value:.6g}")


def _filled(row: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in row.items() if value is not None}


def _write(path: Path, rows: Iterable[Mapping[str, Json]], columns: Sequence[str]) -> None:
    """Write a CSV file in which None is blank."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
