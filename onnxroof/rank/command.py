"""The command `rank` as a pure function: places and options in, text and exit code out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onnxroof.errors import UsageError
from onnxroof.rank.ranking import rank
from onnxroof.rank.render import render
from onnxroof.units import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.rank.ranking import RankOptions


def model_files(places: Sequence[str]) -> list[str]:
    """The ONNX files at some places: files as they are, folders with all below them.

    Raises:
        UsageError: A place does not exist, or there is no ONNX file.
    """
    found: list[str] = []
    for place in places:
        path = Path(place)
        try:
            inside = sorted(path.rglob("*.onnx")) if path.is_dir() else [path]
            exists = path.exists()
        except (OSError, ValueError):
            exists = False
        if not exists:
            raise UsageError(f"{printable(place)}: no such file or folder")
        found += [str(item) for item in inside if item.is_file()]
    if not found:
        raise UsageError(f"no .onnx file in {', '.join(map(printable, places))}")
    return found


def rank_command(places: Sequence[str], options: RankOptions) -> tuple[str, int]:
    """Rank the models at some places.

    Returns:
        The ranking, and the exit code: 0; 1 when no model could be ranked or, if strict, when
        one could not be ranked or only by a lower bound.

    Raises:
        UsageError, ProfileError: As `rank` and `model_files`.
    """
    found = rank(model_files(places), options)
    failed = [item for item in found if item.problem]
    code = int(len(failed) == len(found))
    if options.strict and (failed or any(item.is_lower_bound for item in found)):
        code = 1
    return render(found, options), code
