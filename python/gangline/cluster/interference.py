"""Builds the table of slowdown factors for a trace on a cluster, before the run starts.

Jobs that the source cannot distinguish form one class. Classes differ in the model label, and in
the batch size or gang size if the source has rows for specific values of these. The core then finds
the factor of a pair with a single array index.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from gangline.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from gangline.cluster.rates import JobKeys
    from gangline.cluster.schema import InterferenceRow, Sharing

    Floats = npt.NDArray[np.float64]
    Codes = npt.NDArray[np.int64]

__all__ = ["Pairs", "resolve"]

_VALUES_MAX = 2**27  # One GiB of factors; our own choice.
_ABSENT_MAX = 21  # an error names the first 20 and says whether there are more
_OTHER = 0  # a batch or gang size for which the source has no row
_NEVER = math.inf  # marks two jobs that may not share, until the table is complete
_BY_ROWS = ("table", "gavel")


class Pairs(msgspec.Struct, frozen=True, kw_only=True):
    """Slowdown factors between classes of jobs.

    Attributes
    ----------
    of_job : uint32 array, shape (jobs,)
        Class of each job; None if all jobs belong to one class.
    xi : float64 array, shape (types, classes, classes)
        Factor >= 1 by which a co-runner slows down a job. The second axis is the class of the job,
        and the third is the class of the co-runner. NaN means that the two must not share a GPU.
    classes : list of (label, batch size, gang size)
        The values that define each class. None means any value, or any value that the source does
        not list.
    clamped : int
        Number of values below 1 in the source; these are measurement noise and count as 1.
    absent : list of (label, label)
        The first pairs that could share a GPU but lack a factor that `missing = "error"` requires.
    """

    of_job: npt.NDArray[np.uint32] | None
    xi: Floats
    classes: list[tuple[str | None, int | None, int | None]]
    clamped: int = 0
    absent: list[tuple[str, str]] = []

    def digest(self) -> str:
        """Return the SHA-256 of the classes and their factors."""
        found = hashlib.sha256(msgspec.json.encode(self.classes))
        found.update(np.ascontiguousarray(self.xi, dtype="<f8").tobytes())
        return found.hexdigest()


def resolve(
    sharing: Sharing | None,
    types: Sequence[str],
    jobs: JobKeys,
    allowed: npt.NDArray[np.uint64] | None = None,
) -> Pairs | None:
    """Return the slowdown factors of all pairs of classes of jobs on all GPU types.

    Parameters
    ----------
    sharing : Sharing
        A checked table.
    types : sequence of str
        GPU types of the cluster.
    jobs : JobKeys
        Model label, batch size and gang size of each job.
    allowed : uint64 array, shape (jobs,)
        Bit t means that the job may use type t; None means that every job may use all types.

    Returns
    -------
    Pairs
        The table of factors; None if the cluster has no source of slowdown factors.

    Raises
    ------
    ClusterError
        If the table would not fit in memory.
    """
    if sharing is None or (sharing.interference == "constant" and sharing.xi is None):
        return None
    if sharing.interference == "constant":
        xi = np.full((len(types), 1, 1), sharing.xi)
        return Pairs(of_job=None, xi=xi, classes=[(None, None, None)])
    return _Resolver(sharing, types, jobs, allowed).pairs()


class _Entries(NamedTuple):
    """The entries for one gang size and GPU type (None = any): rows, columns and values."""

    one: list[tuple[int, int]]  # label and batch size of the model that is slowed down
    other: list[tuple[int, int]]
    xi: list[float]


class _Source:
    """The values of a `[sharing]` table, by label; NaN and values <= 0 count as absent."""

    def __init__(self, sharing: Sharing) -> None:
        self.square: Floats | None = None  # factors by label, for all gang sizes and types
        self.groups: dict[tuple[int | None, str | None, bool], _Entries] = {}
        self.gangs: set[int] = set()
        self.batches: set[int] = set()
        if sharing.interference == "matrix":
            self.labels = list(sharing.models or ())
            self.square = np.asarray(sharing.matrix, dtype=np.float64)
        elif sharing.interference == "analytic":
            self.labels = list(sharing.util or ())
            util = np.asarray([(sharing.util or {})[label] for label in self.labels])
            self.square = np.maximum(1.0, util[:, None] + util[None, :]) * (1.0 + sharing.kappa)
        else:
            rows = sharing.rows or ()
            names = [name for row in rows for name in (row.model, row.co_model)]
            self.labels = list(dict.fromkeys(names))
            self._take(rows)

    def _take(self, rows: Sequence[InterferenceRow]) -> None:
        index = {label: i for i, label in enumerate(self.labels)}
        for row in rows:
            has_batch = row.batch_size is not None
            group = self.groups.setdefault(
                (row.gpus, row.gpu_type, has_batch), _Entries([], [], [])
            )
            group.one.append((index[row.model], row.batch_size or 0))
            group.other.append((index[row.co_model], row.co_batch_size or 0))
            group.xi.append(row.xi if row.xi > 0.0 else 0.0)
            if row.gpus is not None:
                self.gangs.add(row.gpus)
            if row.batch_size is not None and row.co_batch_size is not None:
                self.batches |= {row.batch_size, row.co_batch_size}

    @property
    def clamped(self) -> int:
        """The number of values between 0 and 1."""
        values = [xi for group in self.groups.values() for xi in group.xi]
        given = np.asarray(values) if self.square is None else self.square
        return int(((given > 0.0) & (given < 1.0)).sum())


class _Resolver:
    """Finds the classes of a trace's jobs, and computes the table of their factors."""

    def __init__(
        self,
        sharing: Sharing,
        types: Sequence[str],
        jobs: JobKeys,
        allowed: npt.NDArray[np.uint64] | None,
    ) -> None:
        self.sharing, self.types, self.jobs = sharing, types, jobs
        self.source = _Source(sharing)
        by_gang = sharing.interference in _BY_ROWS and (
            bool(self.source.gangs) or sharing.gang_fallback == "infeasible"
        )
        known = {label: i for i, label in enumerate(self.source.labels)}
        codes = np.asarray([known.get(label, -1) for label in jobs.labels] + [-1], dtype=np.int64)
        # the last index means no label
        self.code = np.minimum(jobs.model.astype(np.int64), len(jobs.labels))
        gangs = {1, *self.source.gangs} if by_gang else set()
        key = np.zeros(len(jobs.model), dtype=[("label", "i8"), ("batch", "i8"), ("gang", "i8")])
        key["label"] = codes[self.code]
        key["batch"] = _or_other(jobs.batch_size, self.source.batches)
        key["gang"] = _or_other(jobs.gpus, gangs)
        distinct, inverse = np.unique(key, return_inverse=True)
        self.label, self.batch = distinct["label"], distinct["batch"]
        self.gang = distinct["gang"]
        self.of_job = inverse.astype(np.uint32)
        values = len(types) * len(distinct) ** 2
        if values > _VALUES_MAX:
            message = (
                f"sharing: {len(distinct)} classes of jobs on {len(types)} GPU types make {values} "
                f"pairs; expected at most {_VALUES_MAX}: leave out rows of models, batch sizes or "
                "gang sizes"
            )
            raise ClusterError(message, key="sharing", value=values)
        every = np.uint64((1 << len(types)) - 1)
        mask = np.full(len(key), every) if allowed is None else allowed
        # whether a job may use a type, shape (types, jobs)
        self.on_type = (mask >> np.arange(len(types), dtype=np.uint64)[:, None]) & np.uint64(1) > 0

    def pairs(self) -> Pairs:
        """Return the slowdown factors for all GPU types."""
        xi = np.stack([self._on(t) for t in range(len(self.types))])
        absent: list[tuple[str, str]] = []
        if self.sharing.missing == "error":
            absent = list(itertools.islice(self._absent(np.isnan(xi)), _ABSENT_MAX))
        elif self.sharing.missing == "constant":
            xi[np.isnan(xi)] = self.sharing.xi
        never = ~np.isfinite(xi)
        xi[never | never.transpose(0, 2, 1)] = np.nan
        labels = [*self.source.labels, None]
        classes = zip(self.label.tolist(), self.batch.tolist(), self.gang.tolist(), strict=True)
        return Pairs(
            of_job=self.of_job,
            xi=xi,
            classes=[(labels[i], batch or None, gang or None) for i, batch, gang in classes],
            clamped=self.source.clamped,
            absent=absent,
        )

    def _on(self, t: int) -> Floats:
        """Return the factors on one GPU type: NaN if absent, infinity if two jobs may not share."""
        if self.source.square is not None:
            with_none = np.pad(self.source.square, (0, 1), constant_values=np.nan)
            found = with_none[np.ix_(self.label, self.label)]
            return np.where(found > 0.0, np.maximum(1.0, found), np.nan)
        xi = np.full((len(self.label), len(self.label)), np.nan)
        for gang in np.unique(self.gang).tolist():
            rows = np.flatnonzero(self.gang == gang)
            xi[rows] = self._of_gang(gang, rows, self.types[t])
        return xi

    def _of_gang(self, gang: int, rows: Codes, gpu_type: str) -> Floats:
        """Return the factors by which each class slows down the classes of one gang size.

        The first matching entry wins.
        """
        single = self.sharing.gang_fallback == "single"
        is_gavel = self.sharing.interference == "gavel"
        xi = np.full((len(rows), len(self.label)), np.nan)
        decided = np.zeros(xi.shape, dtype=np.bool_)
        for step in (gang, None, 1) if single and gang != 1 else (gang, None):
            entry = np.full(xi.shape, np.nan)
            for kind in (gpu_type, None):
                for has_batch in (True, False):
                    group = self.source.groups.get((step, kind, has_batch))
                    if group is not None:
                        fits = self._entries(group, rows, has_batch=has_batch)
                        entry = np.where(np.isnan(entry), fits, entry)
            new = ~decided & ~np.isnan(entry)
            if is_gavel and step != 1:
                new &= entry > 0.0  # not measured, so the next group of entries is tried
            decided |= new
            otherwise = _NEVER if is_gavel else np.nan
            xi[new] = np.where(entry > 0.0, np.maximum(1.0, entry), otherwise)[new]
        if not single and gang != 1:  # here, `_OTHER` never stands for 1 GPU
            xi[~decided] = _NEVER
        return xi

    def _entries(self, group: _Entries, rows: Codes, *, has_batch: bool) -> Floats:
        """Return a group's factors between the classes in `rows` and all classes; NaN = absent."""
        batch = self.batch if has_batch else np.zeros_like(self.batch)
        kinds = dict.fromkeys(zip(self.label.tolist(), batch.tolist(), strict=True))
        index = {kind: i for i, kind in enumerate(kinds)}
        of_class = np.asarray(
            [index[kind] for kind in zip(self.label.tolist(), batch.tolist(), strict=True)]
        )
        dense = np.full((len(index), len(index)), np.nan)
        for one, other, xi in zip(*group, strict=True):
            if one in index and other in index:
                dense[index[one], index[other]] = xi
        found: Floats = dense[np.ix_(of_class[rows], of_class)]
        return found

    def _absent(self, unknown: npt.NDArray[np.bool_]) -> Iterator[tuple[str, str]]:
        """Return the pairs of labels without a factor on a GPU type that their jobs could share."""
        classes = len(self.label)
        counts = np.stack([np.bincount(self.of_job[on], minlength=classes) for on in self.on_type])
        meets = (counts[:, :, None] > 0) & (counts[:, None, :] > 0)
        diagonal = np.arange(classes)
        meets[:, diagonal, diagonal] = counts > 1
        _, rows, columns = np.nonzero(unknown & meets)
        if not len(rows):
            return
        names = [*self.jobs.labels, "(no model)"]
        slowed, beside = self._by_label(set(rows.tolist())), self._by_label(set(columns.tolist()))
        for one, other in itertools.product(slowed, beside):
            lacks: set[int] = set()
            knows: set[int] = set()
            for (a, mine), (b, theirs) in itertools.product(slowed[one], beside[other]):
                most = 2 if one == other and a == b else 1
                both = np.flatnonzero((mine > 0) & (theirs >= most))
                lacks.update(t for t in both.tolist() if unknown[t, a, b])
                knows.update(t for t in both.tolist() if not unknown[t, a, b])
            if lacks:
                where = f" on {', '.join(self.types[t] for t in sorted(lacks))}" if knows else ""
                yield names[one], names[other] + where

    def _by_label(self, some: set[int]) -> dict[int, list[tuple[int, Codes]]]:
        """Return each label's classes, and how many jobs of each class may use each GPU type.

        Labels that the source contains come first.
        """
        classes = len(self.label)
        kinds, of_job = np.unique(self.code * classes + self.of_job, return_inverse=True)
        counts = np.stack([np.bincount(of_job[on], minlength=len(kinds)) for on in self.on_type])
        found: dict[int, list[tuple[int, Codes]]] = {}
        is_other = self.label[kinds % classes] < 0
        for at in np.lexsort((kinds, is_other)).tolist():
            code, kind = divmod(int(kinds[at]), classes)
            if kind in some:
                found.setdefault(code, []).append((kind, counts[:, at]))
        return found


def _or_other(values: npt.NDArray[np.uint32], own: set[int]) -> Codes:
    """Replace the values for which the source has no row by `_OTHER`."""
    return np.where(np.isin(values, list(own)), values, _OTHER).astype(np.int64)
