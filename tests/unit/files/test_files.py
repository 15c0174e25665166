"""Tests writing: whole files, links, modes, several writers, and seals."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from gangline.files.places import check_place, is_sealed, unsealed, whole


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    with whole(path) as part:
        part.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    with pytest.raises(TypeError), whole(path) as part:
        part.write_bytes(b"half" + part)  # type: ignore[operator]
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with whole(path) as one, whole(path) as two:
        assert one != two
        one.write_text("one" * 10)
        two.write_text("two")
    assert path.read_text() == "one" * 10  # the last writer to finish wins
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", [".a.part", ".a.old", ".gangline-mine"])
def test_folders_that_look_like_temporary_ones_are_left_alone(name: str, tmp_path: Path) -> None:
    mine = tmp_path / name / "thesis.tex"
    mine.parent.mkdir()
    mine.write_text("mine")
    with whole(tmp_path / "a") as part:
        part.write_text("new")
    assert mine.read_text() == "mine"


def test_the_mode_of_a_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o600)
    with whole(path) as part:
        part.write_text("new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)


def test_a_loop_of_links_is_an_error_and_stays(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (loop, loop / "inside"):
        with pytest.raises(OSError, match="symbolic links") as told, whole(path) as part:
            part.write_text("new")
        assert told.value.filename == str(path)
        with pytest.raises(OSError, match="symbolic links"):
            check_place(path)
    assert os.readlink(loop) == str(loop)  # noqa: PTH115 - not followed


def test_a_link_to_a_free_name_leads_there(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "far")
    with whole(tmp_path / "link") as part:
        part.write_text("new")
    assert (tmp_path / "far").read_text() == "new"
    assert (tmp_path / "link").is_symlink()


def test_a_place_is_checked_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone" / "far")
    before = sorted(tmp_path.iterdir())
    check_place(tmp_path / "a" / "b" / "c")
    check_place(tmp_path)
    check_place(Path(os.devnull))
    for path in ("file/a", "nowhere/a", "x" * 300):
        with pytest.raises(OSError, match=r"Not a directory|too long"):
            check_place(tmp_path / path)
    with pytest.raises(OSError, match="/sys/a"):  # root may not write there either
        check_place(Path("/sys/a"))
    assert sorted(tmp_path.iterdir()) == before


def sealed(path: Path, before: bytes = b"", after: bytes = b"", copies: int = 1) -> Path:
    with whole(path, "report", copies) as part:
        part.write_bytes(before + unsealed("report").encode() + after)
    return path


@pytest.mark.parametrize(("before", "after"), [(0, 0), (0, 200_000), (200_000, 0), (9, 65_000)])
def test_a_seal_is_the_checksum_of_the_file_with_zeros_in_its_place(
    before: int, after: int, tmp_path: Path
) -> None:
    path = sealed(tmp_path / "a", b"x" * before, b"y" * after)
    data = path.read_bytes()
    zeros = b"x" * before + b"gangline report " + b"0" * 64 + b"y" * after
    digits = hashlib.sha256(zeros).hexdigest().encode()
    assert data == b"x" * before + b"gangline report " + digits + b"y" * after
    assert is_sealed(path, "report")


def test_what_is_changed_cut_or_of_another_kind_is_not_sealed(tmp_path: Path) -> None:
    path = sealed(tmp_path / "a", b"some text ", b" and more")
    data = path.read_bytes()
    assert not is_sealed(path, "comparison")
    for other in (data[:-1], data + b" ", data.replace(b"text", b"Text"), b"", data[:40]):
        path.write_bytes(other)
        assert not is_sealed(path, "report")
    for text in ("", "gangline", "gangline report ", unsealed("report"), "gangline report abc"):
        path.write_text(text)
        assert not is_sealed(path, "report")


def test_data_that_holds_the_text_of_a_seal_is_not_changed(tmp_path: Path) -> None:
    evil = unsealed("report").encode()
    path = sealed(tmp_path / "a", evil + b" said a job ")
    assert path.read_bytes() == evil + b" said a job " + evil
    assert not is_sealed(path, "report")
    path = sealed(tmp_path / "b", evil + b" twice by its writer ", copies=2)
    assert is_sealed(path, "report")


def test_many_writers_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a"

    def write(text: str) -> None:
        for _ in range(50):
            with whole(path) as part:
                part.write_text(text * 10_000)

    threads = [threading.Thread(target=write, args=(text,)) for text in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = path.read_text()
    assert (len(found), len(set(found))) == (10_000, 1)
    assert list(tmp_path.iterdir()) == [path]
