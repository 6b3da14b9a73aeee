"""Strict YAML → `HardwareProfile`: finds profiles, checks them, converts to base units.

A name means a profile shipped with onnxroof; anything with a path separator or ending in .yaml
or .yml is a file of the user's own. Every problem of a file is reported at once.

Start-up matters here, since every report reads a profile. A shipped file whose checksum stands
in `checked.json` beside it passed the full check when the checksum was written
(`onnxroof.hardware.generate`), and is not checked again; any other file is.
"""

from __future__ import annotations

import json
import os
import zlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from onnxroof.errors import InvalidProfileError, ProfileProblem, UnknownProfileError
from onnxroof.hardware.checks import cross_problems
from onnxroof.hardware.convert import to_profile
from onnxroof.hardware.messages import near_match
from onnxroof.hardware.strict_yaml import MAX_BYTES, parse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from onnxroof.hardware.checks import Section
    from onnxroof.hardware.profile import HardwareProfile
    from onnxroof.hardware.strict_yaml import Document

CHECKSUM_FILE = "checked.json"
_SUFFIXES = (".yaml", ".yml")


@lru_cache(maxsize=1)
def profile_directory() -> Path:
    """The folder of the shipped profiles: in the package once installed, else beside it."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "hardware_profiles"
    return inside if inside.is_dir() else package.parent / "hardware_profiles"


def available_profiles() -> tuple[str, ...]:
    """Names of the shipped profiles, sorted."""
    return tuple(sorted(path.stem for path in profile_directory().glob("*.yaml")))


def load_profile(name_or_path: str | Path) -> HardwareProfile:
    """Read a profile.

    Args:
        name_or_path: A shipped profile's name ("v100"), or the path of a YAML file.

    Raises:
        UnknownProfileError: no shipped profile has the name.
        InvalidProfileError: the file cannot be used; holds every problem found.
    """
    if is_path(name_or_path):
        return _load(Path(name_or_path), trusted={})
    path = _shipped(str(name_or_path))
    return _load(path, trusted=_checksums(path.parent))


def _shipped(name: str) -> Path:
    """Where a shipped profile lies. Raises UnknownProfileError when there is none of the name."""
    directory = profile_directory()
    if f"{name}.yaml" not in {path.name for path in directory.iterdir()}:
        available = available_profiles()
        raise UnknownProfileError(name, _close_matches(name, available), available)
    return directory / f"{name}.yaml"


def check_profile(name_or_path: str | Path) -> tuple[ProfileProblem, ...]:
    """Everything wrong with a profile file, or a shipped one; empty when it can be used.

    Raises:
        UnknownProfileError: Neither a file nor a shipped profile has the name.
    """
    path = Path(name_or_path)
    if not is_path(name_or_path) and not path.exists():
        path = _shipped(str(name_or_path))
    try:
        data = read_bytes(path)
    except InvalidProfileError as error:
        return error.problems
    return _problems(parse(data))


def problems_in(data: bytes) -> tuple[ProfileProblem, ...]:
    """Everything wrong with the content of a profile file; empty when it can be used."""
    return _problems(parse(data))


def profile_data(name_or_path: str) -> bytes:
    """The bytes of a profile's file.

    Raises:
        UnknownProfileError: no shipped profile has the name.
        InvalidProfileError: the file cannot be used; holds every problem found.
    """
    load_profile(name_or_path)
    if is_path(name_or_path):
        return read_bytes(Path(name_or_path))
    return read_bytes(_shipped(str(name_or_path)))


def checksum(data: bytes) -> str:
    """The checksum that `checked.json` records for a shipped file."""
    return f"{zlib.crc32(data):08x}"


def is_path(name_or_path: str | Path) -> bool:
    """Whether a file of the user's own is meant, not a shipped profile's name."""
    if isinstance(name_or_path, Path):
        return True
    separators = {"/", os.sep, os.altsep or os.sep}
    has_separator = any(separator in name_or_path for separator in separators)
    return has_separator or name_or_path.lower().endswith(_SUFFIXES)


def _close_matches(name: str, available: tuple[str, ...]) -> tuple[str, ...]:
    import difflib

    close = difflib.get_close_matches(name.lower(), available, 3, 0.5)
    parts = [known for known in available if name and known in name.lower()]
    return tuple(dict.fromkeys((*close, *parts)))


def _checksums(directory: Path) -> Mapping[str, str]:
    try:
        recorded = json.loads((directory / CHECKSUM_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return recorded if isinstance(recorded, dict) else {}


def read_bytes(path: Path) -> bytes:
    """A profile file's bytes, capped. Raises InvalidProfileError when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        reason = "is a folder; give the path of a YAML file"
    except FileNotFoundError:
        reason = "no such file; give the path of a YAML file"
    except (OSError, ValueError) as error:
        reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    raise InvalidProfileError(str(path), (ProfileProblem("", reason),))


def _load(path: Path, trusted: Mapping[str, str]) -> HardwareProfile:
    data = read_bytes(path)
    is_checked = trusted.get(path.name) == checksum(data)
    return _profile(str(path), data, is_checked=is_checked)


@lru_cache(maxsize=64)
def _profile(path: str, data: bytes, *, is_checked: bool) -> HardwareProfile:
    """The profile in a file's bytes; parsed once, since a search asks for the same one often."""
    document = parse(data)
    problems = document.problems if is_checked else _problems(document)
    if problems or document.root is None:
        raise InvalidProfileError(path, problems)
    return to_profile(document.root)


def _problems(document: Document) -> tuple[ProfileProblem, ...]:
    if document.root is None:
        return document.problems
    from onnxroof.hardware.schema import schema_problems

    formal = schema_problems(document.root)
    refused = [problem.path for problem in (*document.problems, *formal)]
    joint = (*cross_problems(document.root, refused), *_runtime_problems(document.root, refused))
    return tuple(_with_line(p, document.lines) for p in (*document.problems, *formal, *joint))


def _runtime_problems(root: Section, refused: Collection[str]) -> Iterator[ProfileProblem]:
    """A default runtime that nobody knows."""
    from onnxroof.fusion.runtimes import RUNTIMES

    name = root.get("runtime")
    if not isinstance(name, str) or "runtime" in refused or is_path(name):
        return
    shipped = sorted(path.stem for path in (profile_directory() / "runtimes").glob("*.yaml"))
    known = tuple(dict.fromkeys((*shipped, *RUNTIMES)))
    if name not in known:
        message = f"no runtime has this name{near_match(name, known)}; known: {', '.join(known)}"
        yield ProfileProblem("runtime", message)


def _with_line(problem: ProfileProblem, lines: Mapping[str, int]) -> ProfileProblem:
    """The problem with the line of its key, where the key stands in the file."""
    line = lines.get(problem.path)
    if line is None or "(line" in problem.message or not problem.path:
        return problem
    return ProfileProblem(problem.path, f"{problem.message} (line {line})")
