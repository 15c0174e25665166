"""Tests policies in Python by name, and their parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import gangline as gl
from gangline.cli.app import main
from gangline.policies import own

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCE = '''
from dataclasses import dataclass
import gangline as gl

@dataclass
class Few(gl.Policy):
    """At most so many jobs at once."""

    most: int = 2
    slack: float = 1.0

    def decide(self, view, changes):
        plan = gl.Plan(view)
        left = self.most - len(view.running)
        for job in gl.orders.fifo(view):
            if left > 0 and plan.place(job):
                left -= 1
        return plan

class NoPolicy:
    pass
'''
CLUSTER = gl.Cluster.homogeneous(servers=2, gpus=4)
TRACE = "synth:pai?jobs=30&seed=1&max_gpus=4&load=1.5&cluster_gpus=8"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a package with two named policies, one of which cannot be imported."""
    (tmp_path / "fewpolicies.py").write_text(SOURCE)
    info = tmp_path / "fewpolicies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fewpolicies\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[gangline.policies]\nfew = fewpolicies:Few\nlost = nowhere:Lost\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    own.installed.cache_clear()
    yield tmp_path
    own.installed.cache_clear()


@pytest.mark.usefixtures("package")
def test_a_policy_of_a_package_has_a_name_everywhere() -> None:
    by_name = gl.simulate(CLUSTER, gl.read_trace(TRACE), "few", params={"most": 1})
    assert by_name.spec["policy"]["label"] == "Few(most=1)"
    for name in ("fewpolicies:Few", "fewpolicies.py:Few"):
        again = gl.simulate(CLUSTER, gl.read_trace(TRACE), name, params={"most": 1})
        assert again.log_hash == by_name.log_hash
    assert gl.simulate(CLUSTER, gl.read_trace(TRACE), "few").log_hash != by_name.log_hash
    compared = gl.compare(CLUSTER, gl.read_trace(TRACE), ["fifo", "few"])
    assert [run.spec["policy"]["label"] for run in compared.results] == ["fifo", "Few"]


@pytest.mark.usefixtures("package")
def test_the_command_line_lists_and_sets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies"]) == 0
    said = capsys.readouterr().out
    assert "few " in said
    assert "At most so many jobs at once." in said
    assert "lost: cannot be imported (No module named 'nowhere')" in " ".join(said.split())
    assert main(["policies", "few"]) == 0
    assert "most" in capsys.readouterr().out
    run = ["run", "--trace", TRACE, "--cluster", "2x4xV100", "--policy", "few"]
    assert main([*run, "--set", "most=1", "--json"]) == 0
    assert '"Few(most=1)"' in capsys.readouterr().out


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("few", {"moost": 1}, "unknown parameter `moost`; did you mean `most`?"),
        ("few", {"most": "x"}, "most = 'x': expected an integer"),
        ("few", {"slack": True}, "slack = True: expected a number"),
        ("fewpolicies:NoPolicy", {}, "expected a subclass of gangline.Policy"),
        (
            "fewpolicies:Fxw",
            {},
            "cannot be imported: fewpolicies has no `Fxw`; did you mean `Few`?",
        ),
        ("nomodule:Few", {}, "in the working folder or on PYTHONPATH"),
        ("lost", {}, "No module named 'nowhere'"),
        (
            "there/fewpolicies.py:Few",
            {},
            "work in the folder there and name the class fewpolicies:Few",
        ),
        ("feww", {}, "unknown policy `feww`; did you mean `few`?"),
    ],
)
def test_mistakes_are_named(name: str, params: dict[str, object], words: str) -> None:
    with pytest.raises(gl.PolicyError) as caught:
        gl.simulate(CLUSTER, gl.read_trace(TRACE), name, params=params)
    assert words in str(caught.value)


def test_what_a_file_lacks_is_named(package: Path) -> None:
    (package / "needy.py").write_text("import nowhere\n")
    (package / "bare.py").write_text("from gangline import Policy\nx = 1\n")
    for name, words in (
        ("needy:Few", "(No module named 'nowhere'); needy needs it"),
        ("bare:Few", "bare has no `Few`; it has no gangline.Policy subclass"),
        ("bare:x", "expected a subclass of gangline.Policy"),
        ("fewpolicies", "a policy of fewpolicies.py is named `fewpolicies:CLASS`"),
    ):
        with pytest.raises(gl.PolicyError) as caught:
            gl.simulate(CLUSTER, gl.read_trace(TRACE), name)
        assert str(caught.value).endswith(words)


@pytest.mark.usefixtures("package")
def test_a_whole_number_is_a_float_parameter() -> None:
    made = own.make_own("few", {"slack": 2})
    assert made.params() == {"most": 2, "slack": 2.0}
    assert isinstance(made.params()["slack"], float)
