"""Reading the small files a user gives, and writing a report to one: all of it or nothing."""

from __future__ import annotations

import os
from pathlib import Path

from onnxroof.errors import UsageError


def read_small(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """The bytes of a file, but no more than one beyond `most_bytes`: a device may never end.

    Raises:
        OSError: The file cannot be read.
        ValueError: The path holds a NUL.
    """
    with Path(path).open("rb") as file:
        return file.read(most_bytes + 1)


def write_whole(path: str, text: str) -> None:
    """Write text so that the file is either the old one or the complete new one.

    The text goes to a temporary file in the same folder, which then takes the file's place. A
    device or pipe (/dev/stdout) cannot be replaced and is written directly.

    Raises:
        UsageError: The file cannot be written.
    """
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            with target.open("w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            return
        _replace(target, text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot write {path}: {reason}; give another file with -o") from error


def _replace(target: Path, text: str) -> None:
    temporary = target.with_name(f".{target.name[:100]}.{os.getpid()}.tmp")
    try:
        with temporary.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
