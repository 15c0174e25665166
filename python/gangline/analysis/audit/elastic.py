"""Computes how many GPUs elastic jobs may hold, and how fast they can run on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.cluster.elastic import ElasticClass, ElasticJobs

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

__all__ = ["bound", "fastest", "sizes"]

_ROUNDING = 1e-8  # as in the engine, an excess below this does not add a pass or a sample


def sizes(gang: Ints, elastic: ElasticJobs | None) -> tuple[Ints, Ints]:
    """Return the minimum and maximum number of GPUs of each job."""
    if elastic is None:
        return gang, gang
    least = np.asarray([each.min_gpus for each in elastic.classes])[elastic.kind]
    most = np.asarray([each.max_gpus for each in elastic.classes])[elastic.kind]
    return np.where(elastic.rows, least, gang), np.where(elastic.rows, most, gang)


def fastest(elastic: ElasticJobs, most_gpus: int) -> Floats:
    """For each job, return the iterations per second of its fastest gang on GPUs of speed 1."""
    best = np.zeros(len(elastic.classes))
    for kind, each in enumerate(elastic.classes):
        gpus = np.arange(each.min_gpus, min(each.max_gpus, most_gpus) + 1)
        unknown = np.full(len(gpus), np.nan)
        both = [bound(each, gpus, np.full(len(gpus), apart), unknown) for apart in (False, True)]
        best[kind] = np.max(both, initial=0.0)
    return np.asarray(best[elastic.kind])


def bound(each: ElasticClass, gpus: Ints, apart: Bools, samples: Floats) -> Floats:
    """Return an upper bound on the iterations per second at speed 1, for any number of passes.

    Parameters
    ----------
    each : ElasticClass
        The jobs.
    gpus : int array
        GPUs of each stretch.
    apart : bool array
        Whether the GPUs are on several servers.
    samples : float array
        Number of samples per GPU and pass; if it is NaN, all possible numbers are tried. The number
        that yields the trace's total batch is always tried, too.
    """
    shape = np.stack([gpus, apart, np.nan_to_num(samples)], axis=1)
    known, inverse = np.unique(shape, axis=0, return_inverse=True)
    best = np.zeros(len(known))
    for at, (count, is_apart, given) in enumerate(known.tolist()):
        some = np.asarray([given, _samples(each, count)])
        if given < 1.0:
            some = np.arange(each.min_pass_batch, each.max_pass_batch + 1, dtype=np.float64)
            some = np.append(some, _samples(each, count))
        best[at] = _rates(each, count, is_apart > 0.0, some).max()
    return np.asarray(best[inverse.reshape(-1)])


def _samples(each: ElasticClass, gpus: float) -> float:
    """Return the samples per GPU and pass that yield the trace's total batch."""
    share = each.gpus * each.batch_size / gpus
    passes = max(np.ceil(share / each.max_pass_batch - _ROUNDING), 1.0)
    if gpus <= 1.0 and share > each.init_batch:
        passes = max(passes, 2.0)
    return float(np.ceil(share / passes - _ROUNDING))


def _rates(each: ElasticClass, gpus: float, is_apart: bool, samples: Floats) -> Floats:
    """Return the highest rate for each number of samples per GPU and pass.

    Let p be the time of a pass, q the time of a pass that ends with the exchange of gradients, and
    u the batch of one pass on all GPUs, relative to the initial batch. With A passes, a step takes
    q + (A - 1) p seconds. It makes as much progress as g = (var + sqr) / (var / S + sqr) steps with
    the initial batch, where S = A u. The quotient of g and the time of a step is largest at
    A = sqrt(var (q - p) / (sqr u p)), and decreases on both sides of this A.
    """
    a_c, b_c, a_n, b_n, a_r, b_r, gamma = each.fit
    more = max(gpus - 2.0, 0.0)
    exchange = 0.0 if gpus <= 1.0 else a_n + b_n * more if is_apart else a_r + b_r * more
    one_pass = a_c + b_c * samples
    step = (one_pass**gamma + exchange**gamma) ** (1.0 / gamma)
    unit = gpus * samples / each.init_batch
    best = np.zeros(len(samples))
    # at a batch size between two listed ones, the noise scale lies between theirs
    pairs = [pair for row in each.phases for pair in zip(row[1::2], row[2::2], strict=True)]
    for sqr, var in pairs:
        if var == 0.0 or sqr == 0.0:
            # without variance, more passes gain nothing; without a gradient, each pass gains the
            # same
            gain = unit / one_pass if var > 0.0 else np.zeros(len(samples))
            best = np.maximum(best, np.maximum(gain, (unit if var > 0.0 else 1.0) / step))
            continue
        passes = np.maximum(
            np.sqrt(var * np.maximum(step - one_pass, 0.0) / (sqr * unit * one_pass)), 1.0
        )
        gain = (var + sqr) / (var / (passes * unit) + sqr)
        best = np.maximum(best, gain / (step + (passes - 1.0) * one_pass))
    return best
