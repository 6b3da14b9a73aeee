"""Paths that are no ordinary files: refused without waiting and without filling memory."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from onnxroof.api import analyze
from onnxroof.budgets.read import read_budgets
from onnxroof.errors import ModelUnreadableError, UsageError
from onnxroof.lint.baseline import read_baseline
from onnxroof.plugins import read_operators

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import IO

posix_only = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes and devices of POSIX")


@posix_only
def test_a_pipe_that_nobody_writes_to_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "model.onnx"
    os.mkfifo(pipe)
    with pytest.raises(ModelUnreadableError, match="not a regular file"):
        analyze(pipe)


@posix_only
def test_a_device_is_no_model() -> None:
    with pytest.raises(ModelUnreadableError, match="not a regular file"):
        analyze("/dev/zero")


def test_gigabytes_of_nothing_are_refused_at_the_first_byte(tmp_path: Path) -> None:
    hole = tmp_path / "model.onnx"
    with hole.open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(ModelUnreadableError, match="zeros at byte 0"):
        analyze(hole)


@posix_only
@pytest.mark.parametrize("read", [read_budgets, read_operators, read_baseline])
def test_a_device_that_never_ends_is_read_to_the_limit_only(read: Callable[[str], object]) -> None:
    with pytest.raises(UsageError):
        read("/dev/zero")


def run(
    *arguments: str, stdout: int | IO[bytes] | None = subprocess.PIPE
) -> subprocess.CompletedProcess[bytes]:
    """The command line in a process of its own."""
    command = [sys.executable, "-m", "onnxroof", *arguments]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, check=False)


def test_a_path_with_control_characters_does_not_reach_the_terminal_as_such() -> None:
    ended = run("report", "no\x1b[31m\r.onnx")
    assert ended.returncode == 3
    assert b"\x1b" not in ended.stderr
    assert b"\\x1b[31m\\r.onnx" in ended.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a full device")  # noqa: PTH110
def test_a_full_disk_behind_standard_output_is_an_error_in_one_line() -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        ended = run("hw", "list", stdout=full)
    assert ended.returncode == 2
    assert ended.stderr.decode() == (
        "onnxroof: cannot write standard output: No space left on device\n"
    )


@posix_only
def test_a_closed_standard_output_is_no_error() -> None:
    command = f"exec {shlex.quote(sys.executable)} -m onnxroof hw list >&-"
    ended = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
