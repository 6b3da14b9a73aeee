"""Writes what is generated beside the profiles: `profile.schema.json` and `checked.json`.

Run `python -m onnxroof.hardware.generate` after changing a shipped profile or the form of
profiles. A profile with problems stops it: only checked files get a checksum.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from onnxroof.errors import InvalidProfileError
from onnxroof.hardware.read import (
    CHECKSUM_FILE,
    available_profiles,
    check_profile,
    checksum,
    profile_directory,
)
from onnxroof.hardware.schema import json_schema

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_FILE = "profile.schema.json"


def generated_files(directory: Path) -> dict[str, str]:
    """Name → text of every generated file for the profiles in a folder.

    Raises:
        InvalidProfileError: a profile there has problems.
    """
    checksums: dict[str, str] = {}
    for name in available_profiles():
        path = directory / f"{name}.yaml"
        problems = check_profile(path)
        if problems:
            raise InvalidProfileError(str(path), problems)
        checksums[path.name] = checksum(path.read_bytes())
    return {SCHEMA_FILE: json_schema(), CHECKSUM_FILE: json.dumps(checksums, indent=2) + "\n"}


def main() -> None:
    """Write the generated files into the folder of the shipped profiles."""
    directory = profile_directory()
    for name, text in generated_files(directory).items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
