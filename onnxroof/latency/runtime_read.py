"""Strict YAML → `RuntimeProfile`: finds runtimes, checks them, converts to base units.

A name means a runtime shipped with onnxroof or a bare fusion set; anything with a path separator
or ending in .yaml or .yml is a file of the user's own.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

from onnxroof.errors import InvalidProfileError, ProfileProblem, UsageError
from onnxroof.fusion.runtimes import RUNTIMES
from onnxroof.hardware.checks import covers_of, section
from onnxroof.hardware.convert import source_of
from onnxroof.hardware.read import checksum, is_path, profile_directory, read_bytes
from onnxroof.hardware.strict_yaml import parse
from onnxroof.latency.runtime import (
    PLAIN,
    QUEUED,
    Execution,
    HostTimes,
    RuntimeProfile,
    generic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from onnxroof.hardware.checks import Section

CHECKSUM_FILE = "checked.json"
_FLAGS = (
    "overlaps_host", "has_fft", "lowers_convolutions", "loops_over_groups", "reorders_weights",
    "reorders_activations", "copies_layouts", "times_kernels",
)  # fmt: skip


def runtime_directory() -> Path:
    """The folder of the shipped runtimes, inside that of the hardware profiles."""
    return profile_directory() / "runtimes"


def available_runtimes() -> tuple[str, ...]:
    """Names of the shipped runtimes, sorted."""
    return tuple(sorted(path.stem for path in runtime_directory().glob("*.yaml")))


def load_runtime(name_or_path: str) -> RuntimeProfile:
    """Read a runtime.

    Args:
        name_or_path: A shipped runtime ("pytorch-eager"), a fusion set ("basic"), or the path
            of a YAML file.

    Raises:
        UsageError: No runtime and no fusion set has the name.
        InvalidProfileError: The file cannot be used; holds every problem found.
    """
    if is_path(name_or_path):
        from pathlib import Path

        return _load(Path(name_or_path), trusted={})
    return _shipped(name_or_path)


@lru_cache(maxsize=64)
def _shipped(name: str) -> RuntimeProfile:
    """A runtime by name; read once, since searches ask for the same one thousands of times."""
    directory = runtime_directory()
    path = directory / f"{name}.yaml"
    if name in available_runtimes():
        return _load(path, _checksums(directory))
    if name in RUNTIMES:
        return generic(name)
    known = ", ".join(dict.fromkeys((*available_runtimes(), *RUNTIMES)))
    raise UsageError(f"runtime {name!r} is not one of {known}; or give the path of a YAML file")


def check_runtime(path: Path) -> tuple[ProfileProblem, ...]:
    """Everything wrong with a runtime file; empty when it can be used."""
    document = parse(read_bytes(path))
    return document.problems if document.root is None else _problems(document.root)


def runtime_checksums(directory: Path) -> str:
    """The text of `checked.json` for the runtimes in a folder.

    Raises:
        InvalidProfileError: A runtime there has problems.
    """
    sums: dict[str, str] = {}
    for path in sorted(directory.glob("*.yaml")):
        problems = check_runtime(path)
        if problems:
            raise InvalidProfileError(str(path), problems)
        sums[path.name] = checksum(path.read_bytes())
    return json.dumps(sums, indent=2) + "\n"


def _checksums(directory: Path) -> Mapping[str, str]:
    try:
        recorded = json.loads((directory / CHECKSUM_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return recorded if isinstance(recorded, dict) else {}


def _load(path: Path, trusted: Mapping[str, str]) -> RuntimeProfile:
    data = read_bytes(path)
    document = parse(data)
    problems = document.problems
    if document.root is not None and trusted.get(path.name) != checksum(data):
        problems = (*problems, *_problems(document.root))
    if problems or document.root is None:
        raise InvalidProfileError(str(path), problems)
    return to_runtime(document.root)


def _problems(root: Section) -> tuple[ProfileProblem, ...]:
    from onnxroof.latency.runtime_schema import runtime_problems

    found = list(runtime_problems(root))
    fusion = root.get("fusion")
    if isinstance(fusion, str) and fusion not in RUNTIMES:
        found.append(ProfileProblem("fusion", f"is not one of {', '.join(RUNTIMES)}"))
    covered = {path for _, path in covers_of(section(root, "sources"))}
    found.extend(
        ProfileProblem(part, "no source: add it to the covers of a source")
        for part in ("cpu", "accelerator")
        if part in root and part not in covered
    )
    return tuple(found)


def to_runtime(root: Section) -> RuntimeProfile:
    """The runtime a document without problems describes."""
    return RuntimeProfile(
        name=_text(root, "name"),
        title=_text(root, "title"),
        fusion=_text(root, "fusion"),
        cpu=_execution(section(root, "cpu")) or PLAIN,
        accelerator=_execution(section(root, "accelerator")) or QUEUED,
        notes=tuple(note for note in _list(root, "notes") if isinstance(note, str)),
        sources=tuple(
            source_of(key, source)
            for key, source in section(root, "sources").items()
            if isinstance(source, dict)
        ),
    )


def _execution(mapping: Section) -> Execution | None:
    if not mapping:
        return None
    host = section(mapping, "host_us")
    other, product, convolution, normalization, copy = (
        _seconds(host, name)
        for name in ("other", "product", "convolution", "normalization", "movement")
    )
    flags = {name: mapping.get(name) is True for name in _FLAGS}
    return Execution(
        HostTimes(other, product, convolution, normalization, copy),
        thread_start_seconds=_seconds(mapping, "thread_start_us"),
        winograd_tile=_integer(mapping, "winograd_tile"),
        pads_depthwise=mapping.get("pads_depthwise") is not False,
        serial_convolution_elements=_integer(mapping, "serial_convolution_elements"),
        **flags,
    )


def _seconds(mapping: Section, key: str) -> float:
    value = mapping.get(key)
    return float(value) / 1e6 if isinstance(value, int | float) else 0.0


def _integer(mapping: Section, key: str) -> int:
    value = mapping.get(key)
    return value if isinstance(value, int) else 0


def _text(mapping: Section, key: str) -> str:
    value = mapping.get(key)
    return value if isinstance(value, str) else ""


def _list(mapping: Section, key: str) -> list[object]:
    value = mapping.get(key)
    return list(value) if isinstance(value, list) else []
