"""Nothing heavy is imported before it is needed: absence is tested, since it never flakes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {
    "google.protobuf", "matplotlib", "networkx", "numpy", "onnx", "pydantic", "rich", "sympy",
    "tabulate", "yaml",
}  # fmt: skip

PROGRAM = """
import sys
{code}
print("\\nLOADED", *sorted(name for name in {heavy!r} if name in sys.modules))
"""

COMMAND = """
from onnxroof.cli import main
sys.argv = {argv!r}
try:
    main()
except SystemExit as done:
    assert not done.code, done.code
"""


def loaded_by(code: str, **environment: str) -> set[str]:
    """Heavy modules that are loaded after the code ran in a fresh interpreter."""
    program = PROGRAM.format(code=code, heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, encoding="utf-8", check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", **environment},
    )  # fmt: skip
    return set(done.stdout.rpartition("LOADED")[2].split())


def command(*arguments: str) -> str:
    return COMMAND.format(argv=["onnxroof", *arguments])


@pytest.mark.parametrize(
    "code",
    [
        "import onnxroof; onnxroof.__version__",
        command("--help"),
        command("report", "--help"),
        command("hw", "--help"),
        command("--version"),
    ],
    ids=["import", "help", "report help", "hw help", "version"],
)
def test_nothing_heavy_is_loaded_for(code: str) -> None:
    assert loaded_by(code) == set()


def test_completing_a_profile_loads_no_model_libraries() -> None:
    code = command() + "\n"
    environment = {
        "_ONNXROOF_COMPLETE": "bash_complete",
        "COMP_WORDS": "onnxroof report model.onnx --hw v",
        "COMP_CWORD": "4",
    }
    assert loaded_by(code, **environment) & {"onnx", "numpy", "networkx", "pydantic"} == set()


def test_a_report_needs_neither_onnx_nor_what_only_other_commands_need() -> None:
    model = str(ROOT / "models" / "resnet50.onnx")
    loaded = loaded_by(command("report", model, "--hw", "v100"))
    assert "tabulate" in loaded
    unwanted = {"onnx", "google.protobuf", "networkx", "pydantic", "rich", "matplotlib"}
    assert loaded & unwanted == set()
