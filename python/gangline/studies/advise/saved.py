"""Saves advice in a folder: the page, the numbers, and the files that its commands use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.files.json_files import write_sealed
from gangline.files.places import check_free, unsealed, whole
from gangline.studies.advise.commands import LOG, cluster_file
from gangline.studies.advise.page import write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from gangline.studies.advise.facts import Claim, Facts

__all__ = ["KIND", "NUMBERS", "PAGE", "check", "save"]

PAGE, NUMBERS, KIND = "advice.html", "advice.json", "advice"
_CLUSTER = "cluster"  # the kind of file that `gangline cluster convert` writes


def check(folder: str | PathLike[str]) -> None:
    """Raise an error before the runs start if the advice could not be saved after them.

    Raises
    ------
    FileExistsError, ResultError
        If gangline did not write an existing file with one of the names.
    """
    from gangline.analysis.report import check_target

    folder = Path(folder)
    if folder.exists():
        check_target(folder / PAGE)
        check_free(folder / NUMBERS, KIND)
        for path in sorted(folder.glob(cluster_file("*"))):
            check_free(path, _CLUSTER)


def save(
    advice: Facts,
    content: tuple[Sequence[Claim], Sequence[str]],
    numbers: dict[str, Any],
    folder: str | PathLike[str],
    command: str,
) -> Path:
    """Write all files; the page is written last."""
    from gangline.trace.write import write_trace

    folder = Path(folder)
    check(folder)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / LOG
    source = Path(advice.trace.path)
    if not (log.exists() and source.is_file() and log.samefile(source)):
        write_trace(advice.trace, log)
    for servers, lab in advice.clusters.items():
        path = folder / cluster_file(servers)
        check_free(path, _CLUSTER)
        with whole(path, _CLUSTER) as part:
            part.write_text(f"# {unsealed(_CLUSTER)}\n{lab.to_toml()}", encoding="utf-8")
    write_sealed(folder / NUMBERS, KIND, numbers)
    write(advice, content, folder / PAGE, command)
    return folder
