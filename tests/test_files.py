"""A report file is the old one or the complete new one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from onnxroof.errors import UsageError
from onnxroof.files import write_whole

if TYPE_CHECKING:
    from pathlib import Path


def test_a_new_file_takes_the_place_of_the_old_one_and_leaves_nothing_beside(
    tmp_path: Path,
) -> None:
    target = tmp_path / "report.txt"
    write_whole(str(target), "one\n")
    target.chmod(0o640)
    write_whole(str(target), "two µ\n")
    assert target.read_text(encoding="utf-8") == "two µ\n"
    assert target.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_whole(str(link), "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_device_is_written_not_replaced() -> None:
    write_whole(os.devnull, "text")
    assert not os.path.isfile(os.devnull)  # noqa: PTH113


def test_a_failing_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report.txt"
    target.write_text("old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", refuse)
    with pytest.raises(UsageError, match="No space left on device"):
        write_whole(str(target), "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_that_does_not_exist_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot write .*: No such file or directory"):
        write_whole(str(tmp_path / "missing" / "report.txt"), "text")


def test_a_folder_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Is a directory"):
        write_whole(str(tmp_path), "text")
