"""What the tests of several folders ask for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from onnxroof import cli

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process: (exit code, standard output, standard error)."""

    def ran(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["onnxroof", *arguments])
        with pytest.raises(SystemExit) as done:
            cli.main()
        printed = capsys.readouterr()
        return int(done.value.code or 0), printed.out, printed.err

    return ran
