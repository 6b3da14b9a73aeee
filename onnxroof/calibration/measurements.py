"""The table of `hw fit`: models that somebody measured on their device, and at what sizes."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnxroof.errors import MeasurementError, OnnxroofError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onnxroof.graph.types import Model

MAX_BYTES = 16 * 2**20
MAX_ROWS = 10_000
_KNOWN = ("path", "milliseconds", "batch", "threads")


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement.

    Attributes:
        path: The model's file.
        seconds: Time of one run.
        batch: Size of the leading dimension of the first input; None as the model has it.
        threads: Threads it ran on; None for the profile's default.
        dims: Sizes of other free dimensions.
        line: Line of the table, for messages.
    """

    path: str
    seconds: float
    batch: int | None
    threads: int | None
    dims: Mapping[str, int]
    line: int


def read_measurements(path: str) -> tuple[Measured, ...]:
    """Read a table with the columns path, milliseconds, and as needed batch, threads and others.

    Any other column is a free dimension of that name; an empty cell says nothing. Paths are
    relative to the table's folder, or else to the working directory.

    Raises:
        MeasurementError: The table cannot be read; names the line.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MeasurementError(path, f"cannot be read: {reason}") from None
    if len(data) > MAX_BYTES:
        raise MeasurementError(path, f"larger than {MAX_BYTES >> 20} MiB: no table of measurements")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MeasurementError(path, f"not UTF-8 text (byte {error.start})") from None
    found = tuple(_rows(text, path))
    if not found:
        raise MeasurementError(path, "the table holds no measurement")
    return found


def _rows(text: str, path: str) -> Iterator[Measured]:
    reader = csv.reader(text.splitlines(), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        _check_header(header, path)
        for line, row in enumerate(reader, start=2):
            if line > MAX_ROWS:
                raise MeasurementError(path, f"more than {MAX_ROWS:,} lines")
            if any(cell.strip() for cell in row):
                yield _row(header, row, line, path)
    except csv.Error as error:
        raise MeasurementError(path, f"not a table of comma-separated values: {error}") from None


def _check_header(header: Sequence[str], path: str) -> None:
    missing = [name for name in _KNOWN[:2] if name not in header]
    if missing:
        raise MeasurementError(
            path, f"no column {' and no column '.join(missing)}: a first line such as"
            " path,milliseconds,batch,threads is meant"
        )  # fmt: skip
    if "" in header or len(set(header)) < len(header):
        raise MeasurementError(path, "every column needs a name of its own in the first line")


def _row(header: Sequence[str], row: Sequence[str], line: int, path: str) -> Measured:
    if len(row) != len(header):
        raise MeasurementError(path, f"line {line}: {len(row)} cells under {len(header)} headings")
    cells = {name: cell.strip() for name, cell in zip(header, row, strict=True)}
    if not cells["path"]:
        raise MeasurementError(path, f"line {line}: the path of a model is missing")
    sizes = {
        name: _whole(cell, name, line, path)
        for name, cell in cells.items()
        if name not in _KNOWN[:2] and cell
    }
    batch, threads = sizes.pop("batch", None), sizes.pop("threads", None)
    seconds = _milliseconds(cells["milliseconds"], line, path) * 1e-3
    return Measured(_model_path(cells["path"], path), seconds, batch, threads, sizes, line)


def _model_path(text: str, table: str) -> str:
    beside = Path(table).parent / text
    return str(beside if beside.exists() else Path(text))


def _milliseconds(text: str, line: int, path: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise MeasurementError(path, f"line {line}: milliseconds must be more than 0, not"
                               f" {quoted(text)}")  # fmt: skip
    return value


def _whole(text: str, name: str, line: int, path: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or not int(text):
        raise MeasurementError(
            path, f"line {line}: {quoted(name)} must be a whole number from 1, not {quoted(text)}"
        )
    return int(text)


def bound_dims(measured: Measured, model: Model) -> dict[str, int]:
    """Sizes by name of the dimension, the batch among them.

    Raises:
        MeasurementError: The model's batch is fixed at another size, or has no name to bind.
    """
    dims = dict(measured.dims)
    if measured.batch is None or not model.graph.inputs:
        return dims
    shape = model.graph.inputs[0].type.shape
    leading = shape[0] if shape else None
    if isinstance(leading, int):
        if leading != measured.batch:
            raise MeasurementError(
                f"line {measured.line}",
                f"{measured.path} has batch {leading}, not {measured.batch}, and cannot change it",
            )
    elif leading is not None and leading.named:
        dims[leading.name] = measured.batch
    elif measured.batch != 1:
        raise MeasurementError(
            f"line {measured.line}", f"the batch of {measured.path} has no name to bind it by"
        )
    return dims


def with_line(error: OnnxroofError, measured: Measured) -> MeasurementError:
    """The error of a model as one of the table."""
    return MeasurementError(f"line {measured.line}, {measured.path}", str(error))
