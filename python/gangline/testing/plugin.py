"""The pytest plug-in: defines `@pytest.mark.gangline_worlds(200)` and the fixture `world`.

A marked test is run in the given number of randomly generated worlds. A failure is reported once,
for the smallest failing world. The report contains a program that creates this world, and a Gantt
chart of the simulation. Modules that are slow to import are loaded only when a marked test runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from gangline.testing.worlds import World

__all__ = ["pytest_configure", "pytest_pyfunc_call", "world"]

MARK = "gangline_worlds"
WORLDS = 100


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark `gangline_worlds`."""
    what = "run the test in `count` random worlds (fixture `world`)"
    config.addinivalue_line("markers", f"{MARK}(count={WORLDS}, seed=0, drawn=None): {what}")


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Any:
    """Return the generated world of a test with the mark `gangline_worlds`."""
    if request.node.get_closest_marker(MARK) is None:
        pytest.fail(f"the fixture `world` needs the mark: @pytest.mark.{MARK}(200)", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run a marked test in many worlds."""
    mark = pyfuncitem.get_closest_marker(MARK)
    if mark is None or "world" not in pyfuncitem.funcargs:
        return (yield)
    original = pyfuncitem.obj

    def in_worlds(**arguments: Any) -> None:
        _run(pyfuncitem, original, arguments, *mark.args, **mark.kwargs)

    pyfuncitem.obj = in_worlds
    try:
        return (yield)
    finally:
        pyfuncitem.obj = original


def _run(
    item: pytest.Function,
    test: Callable[..., object],
    arguments: dict[str, Any],
    count: int = WORLDS,
    *,
    seed: int = 0,
    drawn: Any = None,
) -> None:
    """Run a test in generated worlds; raise its error in the smallest world that fails."""
    from gangline.testing.search import smallest

    def fails(world: World) -> Exception | None:
        try:
            test(**{**arguments, "world": world})
        except Exception as error:  # noqa: BLE001 - whatever a test raises, raised again below
            return error
        return None

    found = smallest(fails, count, seed, drawn)
    if found is not None:
        made, error = found
        item.add_report_section("call", "smallest world that fails", _report(made))
        raise error


def _report(made: World) -> str:
    """Return the program that creates a world, and a chart of the last run in it."""
    from gangline.testing import picture

    lines = picture.program(made, "fifo").splitlines()[:-1]
    if made.last is None:
        return "\n".join(lines)
    return "\n".join([picture.gantt(made, made.last), "", *lines])
