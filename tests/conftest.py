"""What all tests share: the public data, if present, and the effort of property tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import snapshots

ROOT = Path(__file__).resolve().parent.parent

HOW_HARD = {
    # the examples of each property, and whether each run draws new ones
    "brief": (20, False),  # `make test`
    "full": (50, False),  # `make check`
    "deep": (int(os.environ.get("GANGLINE_EXAMPLES", "2000")), True),
}
for name, (examples, changing) in HOW_HARD.items():
    settings.register_profile(
        name,
        derandomize=not changing,
        deadline=None,
        max_examples=examples,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "brief")
settings.load_profile(PROFILE)

# A shell that starts the tests in the background makes them and their children ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests in a real browser are a step of their own, `make browser`, which names the browser here.
collect_ignore = [] if os.environ.get("GANGLINE_CHROMIUM") else ["browser"]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Allow deep tests more time, because thousands of worlds do not mean a hang."""
    if PROFILE == "deep" and config.getoption("timeout", None) is None:
        config.option.timeout = 0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command that writes snapshots."""
    parser.addoption("--update-snapshots", action="store_true", help="write them as they are now")


@pytest.fixture
def snapshot(request: pytest.FixtureRequest) -> snapshots.Snapshot:
    """Return the function that compares a text with its snapshot; see tests/snapshots.py."""
    update = request.config.getoption("--update-snapshots")
    given = {"tmp_path": "FOLDER", "shared": "SHARED"}
    folders = {
        str(request.getfixturevalue(name)): word
        for name, word in given.items()
        if name in request.fixturenames
    }
    return snapshots.of_test(request.path, request.node.name, folders, update=update)


def find_shared() -> Path | None:
    """Return the folder of public traces and of peers' results."""
    named = os.environ.get("GANGLINE_SHARED")
    places = [Path(named)] if named else [ROOT.parent / "shared", ROOT / "shared"]
    return next((place for place in places if (place / "traces").is_dir()), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all tests of public data together when it is absent; nothing else may skip."""
    if find_shared() is not None:
        return
    reason = "public traces are absent: set GANGLINE_SHARED, or put them in shared/ or ../shared/"
    for item in items:
        if item.get_closest_marker("shared"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of public traces (`traces/`) and of peers' results (`peers/`)."""
    found = find_shared()
    assert found is not None, "tests that use this fixture carry the mark `shared`"
    return found
