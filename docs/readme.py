"""Write the report that README.md shows: what the command in it prints today.

python docs/readme.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
_REPORT = re.compile(r"(```console\n\$ onnxroof (.*?)\n)(.*?)(```)", re.DOTALL)


def refreshed(text: str) -> str:
    """The page with its report printed anew."""
    found = _REPORT.search(text)
    if found is None:
        raise SystemExit("README.md shows no report")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    environment.pop("COLUMNS", None)
    report = subprocess.run(
        [sys.executable, "-m", "onnxroof", *found[2].split()],
        cwd=ROOT, env=environment, check=True, capture_output=True, text=True, encoding="utf-8",
    ).stdout  # fmt: skip
    return text[: found.start(3)] + report + text[found.end(3) :]


if __name__ == "__main__":
    README.write_text(refreshed(README.read_text(encoding="utf-8")), encoding="utf-8")
