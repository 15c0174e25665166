"""Defines the summary of a sweep: its means as rows, as a table, and in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline._support import formatting, statistics
from gangline.errors import OptionError, PolicyError, ResultError
from gangline.studies.sweep.labels import labels
from gangline.studies.sweep.means import POLICY, SEEDS, Group, Means
from gangline.studies.sweep.plan import is_setting
from gangline.studies.sweep.show import cells, sentences, title

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from gangline._support.builtin_values import Json
    from gangline.runs.offered_load import OfferedLoad
    from gangline.runs.store import Store
    from gangline.studies.sweep.means import Line

    Row = dict[str, Any]

__all__ = ["Summary", "check_baseline", "keys_of_summary", "summarise"]


class Summary(Means):
    """The means over a sweep's seeds, grouped by keys; from `Sweep.summary`.

    Attributes
    ----------
    name : str
        Name of the sweep.
    by : list of str
        Keys of the summary.
    seed : str or None
        The key whose values are the replicates.
    averaged : list of str
        Keys that vary but are not keys of the summary; within a seed, runs that differ in them are
        averaged.
    measures : list of str
        The metrics: keys from the summaries of runs.
    baseline : str or None
        The policy with which the others are compared; None if `policy` is not a key of the summary.
    groups : list of Group
        Groups, ordered by their keys; values are ordered as in the sweep.
    """

    @property
    def rows(self) -> list[dict[str, Json]]:
        """One row per metric and group, as plain values.

        A row contains the keys; measure; mean, low and high (the 95 % interval; None with fewer
        than five seeds); seeds (the number of seeds in the mean); runs, failed and offered_load;
        baseline, difference, difference_low and difference_high; less_in and equal_in (numbers of
        seeds, out of those that both policies have).
        """
        return [_plain(self, key, line) for key in self.measures for line in self.lines(key)]

    @property
    def table(self) -> pa.Table:
        """The rows as an Arrow table."""
        import pyarrow as pa

        rows = self.rows
        return pa.table({name: [row[name] for row in rows] for name in (rows[0] if rows else ())})

    def to_dict(self) -> dict[str, Json]:
        """Return the fields as plain JSON values."""
        return {
            "name": self.name,
            "by": self.by,
            "seed": self.seed,
            "baseline": self.baseline,
            "rows": self.rows,
            "reading": self.sentences(),
        }

    def sentences(self) -> list[str]:
        """Return conclusions from the numbers, and notes that explain them."""
        return sentences(self)

    def __repr__(self) -> str:
        titles, rows = cells(self, self.measures[0])
        lines = [titles, *rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(titles))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def _repr_html_(self) -> str:
        from gangline._support.html import table

        titles, rows = cells(self, self.measures[0])
        return table(titles, rows, caption=title(self, self.measures[0]))


def summarise(
    name: str,
    table: pa.Table,
    keys: Sequence[str],
    store: Store,
    *,
    by: Iterable[str] | None,
    measures: Iterable[str] | None,
    baseline: str | None,
) -> Summary:
    """Return the summary of a sweep's table; for the parameters, see `Sweep.summary`."""
    varied = [key for key in keys if _varies(table, key)]
    chosen = keys_of_summary(keys, by, varied)
    known = _measures(table, keys, measures)
    rows = table.select([*keys, *known, "digest", "status"]).to_pylist()
    seeds = [key for key in SEEDS if key in keys and key not in chosen]
    seed = next((key for key in seeds if key in varied), next(iter(seeds), None))
    short = {key: labels(row[key] for row in rows) for key in chosen}
    order = {key: list(short[key]) for key in chosen}
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in chosen), []).append(row)
    loads = _Loads(store, [key for key in keys if key not in (POLICY, "seed")])
    groups = []
    for values in sorted(
        found, key=lambda of: [order[k].index(v) for k, v in zip(chosen, of, strict=True)]
    ):
        runs = found[values]
        mine = dict(zip(chosen, values, strict=True))
        groups.append(
            Group(
                keys=mine,
                labels={key: short[key][value] for key, value in mine.items()},
                runs=len(runs),
                failed=sum(row["status"] == "failed" for row in runs),
                seeds=len({row[seed] for row in runs}) if seed else 1,
                loads=loads.of(runs),
                values={key: statistics.by_seed(runs, key, seed) for key in known},
            )
        )
    policies = order.get(POLICY, [])
    check_baseline(baseline, policies)
    return Summary(
        name,
        groups,
        chosen,
        seed=seed,
        averaged=[key for key in varied if key not in chosen and key not in SEEDS],
        measures=known,
        baseline=baseline if baseline is not None else next(iter(policies), None),
    )


def keys_of_summary(
    keys: Sequence[str], by: Iterable[str] | None, varied: Sequence[str] = ()
) -> list[str]:
    """Return the keys of a summary; by default, the policy and the varying keys except seeds.

    Raises
    ------
    OptionError
        If the sweep lacks one of the keys, or if no key is given.
    """
    if by is None:
        first = [POLICY] if POLICY in keys else []
        return [*first, *(key for key in varied if key not in (POLICY, *SEEDS))]
    chosen = [by] if isinstance(by, str) else list(by)
    for key in chosen:
        if key not in keys:
            message = f"by: the sweep has no key `{key}`{formatting.did_you_mean(key, keys)}"
            raise OptionError(message, field="by", value=key)
        if chosen.count(key) > 1:
            raise OptionError(f"by: duplicate key `{key}`", field="by", value=key)
    if not chosen:
        raise OptionError("by: expected at least one key, got none", field="by")
    return chosen


def check_baseline(baseline: str | None, policies: Sequence[Any]) -> None:
    """Raise an error if the baseline is not among a summary's policies."""
    if baseline is not None and baseline not in policies:
        known = ", ".join(map(str, policies)) or "none, as `policy` is not in `by`"
        message = f"baseline: `{baseline}` is not among the policies: {known}"
        raise PolicyError(message, field="baseline", value=baseline)


class _Loads:
    """The offered loads of groups, computed from one spec per trace and cluster."""

    def __init__(self, store: Store, keys: Sequence[str]) -> None:
        self._store = store
        self._keys = [key for key in keys if not is_setting(key)]
        self._known: dict[tuple[Any, ...], OfferedLoad] = {}

    def of(self, runs: Sequence[Row]) -> tuple[OfferedLoad, ...]:
        found: dict[tuple[Any, ...], OfferedLoad] = {}
        for row in runs:
            world = tuple(row[key] for key in self._keys)
            if world not in self._known and row["status"] == "finished":
                load = self._store.offered_load(row["digest"])
                if load is not None:
                    self._known[world] = load
            if world in self._known:
                found[world] = self._known[world]
        return tuple(found.values())


def _varies(table: pa.Table, key: str) -> bool:
    """Return whether a key has several values; None, its value for other policies, is ignored."""
    return len(table[key].drop_null().unique()) > 1


def _measures(table: pa.Table, keys: Sequence[str], measures: Iterable[str] | None) -> list[str]:
    import pyarrow as pa

    numeric = [
        field.name
        for field in table.schema
        if field.name not in keys
        and (pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
    ]
    if not numeric:
        raise ResultError("no run of the sweep finished; its failures are in failed.json")
    if measures is None:
        return [one.key for one in formatting.MEASURES if one.key in numeric]
    chosen = [measures] if isinstance(measures, str) else list(measures)
    for key in chosen:
        if key not in numeric:
            near = formatting.did_you_mean(key, numeric)
            message = f"measures: the runs have no number `{key}`{near}"
            raise OptionError(message, field="measures", value=key)
    if not chosen:
        raise OptionError("measures: expected at least one, got none", field="measures")
    return chosen


def _plain(summary: Summary, measure: str, line: Line) -> dict[str, Any]:
    mean, apart = line.mean, line.difference
    return {
        **line.group.keys,
        "measure": measure,
        "mean": mean and mean.mean,
        "low": mean and mean.low,
        "high": mean and mean.high,
        "seeds": mean.seeds if mean else 0,
        "runs": line.group.runs,
        "failed": line.group.failed,
        "offered_load": line.group.offered_load,
        "baseline": summary.baseline,
        "difference": apart and apart.mean,
        "difference_low": apart and apart.low,
        "difference_high": apart and apart.high,
        "less_in": apart and apart.less_in,
        "equal_in": apart and apart.equal_in,
    }
