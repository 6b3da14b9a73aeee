"""Profiles that runtimes write → what was measured, by name. Files are text nobody vouches for."""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from onnxroof.errors import MeasurementError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Format = Literal["onnxruntime", "tensorrt", "csv"]
    Record = Mapping[str, object]

MAX_BYTES = 256 * 2**20
MAX_ENTRIES = 1_000_000
_WARM_FROM = 3
"""With at least so many runs, the first is left out: it allocates."""

_SUFFIX = "_kernel_time"
_TIME_COLUMNS = {
    "milliseconds": 1e-3, "ms": 1e-3, "time_ms": 1e-3, "averagems": 1e-3, "medianms": 1e-3,
    "microseconds": 1e-6, "us": 1e-6, "time_us": 1e-6, "seconds": 1.0, "s": 1.0,
}  # fmt: skip
_NAME_COLUMNS = ("name", "kernel", "node", "layer")
_TYPE_COLUMNS = ("op_type", "operator", "type")


@dataclass(frozen=True, slots=True)
class Entry:
    """One measured kernel.

    Attributes:
        name: As the runtime calls it.
        seconds: Its time in one run.
        op_type: The runtime's operator; "" where it does not say.
        elements: Elements of its first output; None where it does not say.
    """

    name: str
    seconds: float
    op_type: str = ""
    elements: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """What a file says.

    Attributes:
        format: Who wrote it.
        runs: Runs it holds.
        entries: In order of execution.
        notes: What the reader did with it, in sentences.
    """

    format: Format
    runs: int
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Time of one run."""
        return sum(entry.seconds for entry in self.entries)


def read_trace(path: str) -> Trace:
    """Read ONNX Runtime's profile, TensorRT's exported profile, or a table of name and time.

    Raises:
        MeasurementError: The file cannot be read or is none of them.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MeasurementError(path, f"cannot be read: {reason}") from None
    return parse_trace(data, path)


def parse_trace(data: bytes, path: str = "the trace") -> Trace:
    """The same from the bytes of a file; `path` is for messages."""
    if len(data) > MAX_BYTES:
        raise MeasurementError(path, f"larger than {MAX_BYTES >> 20} MiB: trace fewer runs")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MeasurementError(path, f"not UTF-8 text (byte {error.start})") from None
    if not text.strip():
        raise MeasurementError(path, "the file is empty")
    trace = _from_json(text, path) if text.lstrip()[0] in "[{" else _from_csv(text, path)
    if not trace.entries:
        raise MeasurementError(path, "holds no measured kernel")
    if not trace.seconds:
        raise MeasurementError(path, "every time in it is 0")
    return trace


def _from_json(text: str, path: str) -> Trace:
    try:
        found = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise MeasurementError(path, "nested too deeply for a profile") from None
    except ValueError as error:
        raise MeasurementError(
            path, f"not valid JSON ({error}); was the profile ended before it was copied?"
        ) from None
    if isinstance(found, dict):
        found = found.get("traceEvents")
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise MeasurementError(path, "a list of events or layers is meant")
    if len(found) > MAX_ENTRIES:
        raise MeasurementError(path, f"more than {MAX_ENTRIES:,} events: trace fewer runs")
    if any("cat" in item and "ph" in item for item in found):
        return _onnxruntime(found, path)
    if any("timeMs" in item or "averageMs" in item or "medianMs" in item for item in found):
        return _tensorrt(found, path)
    raise MeasurementError(
        path, "neither a profile of ONNX Runtime (cat, ph, dur) nor of TensorRT (name, averageMs)"
    )


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number")


def _number(record: Record, key: str, path: str) -> float:
    """A time: finite and not negative."""
    value = record.get(key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < 1e15:  # type: ignore[operator]
        name = quoted(str(record.get("name", "?")))
        raise MeasurementError(path, f"{name}: {key} must be a number of at least 0")
    return float(value)  # type: ignore[arg-type]


def _text(record: Record, key: str, path: str) -> str:
    value = record.get(key, "")
    if not isinstance(value, str):
        raise MeasurementError(path, f"{key} must be text, not {quoted(str(value)[:50])}")
    return value


# -- ONNX Runtime ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Event:
    """One execution of a node, or of a device's kernel for one."""

    name: str
    op_type: str
    start_us: float
    duration_us: float
    lane: tuple[str, str]
    elements: int | None

    @property
    def end_us(self) -> float:
        return self.start_us + self.duration_us


def _onnxruntime(records: Sequence[Record], path: str) -> Trace:
    nodes, kernels, runs = [], [], 0
    for record in records:
        category = record.get("cat")
        if category == "Session" and record.get("name") == "model_run":
            runs += 1
        elif category == "Node" and _text(record, "name", path).endswith(_SUFFIX):
            nodes.append(_event(record, path))
        elif category == "Kernel":
            kernels.append(_event(record, path))
    nodes.sort(key=lambda event: (event.start_us, -event.duration_us))
    outer, nested = _without_nested(nodes)
    notes = []
    if nested:
        notes.append(f"{nested:,} executions inside control flow are part of their node's time")
    runs = runs or _usual_count(outer)
    entries = _per_run(outer, runs)
    on_device = [event for event in kernels if event.name]
    if on_device:
        entries = _with_device_times(entries, on_device, runs)
        notes.append("times are those of the device's kernels, where a node started any")
    if runs >= _WARM_FROM:
        notes.append(f"median of {runs - 1} runs, the first left out")
    elif runs > 1:
        notes.append(f"median of {runs} runs, the first among them: trace more for steady times")
    else:
        notes.append("one run, the first: trace more for steady times")
    return Trace("onnxruntime", runs, tuple(entries), tuple(notes))


def _event(record: Record, path: str) -> _Event:
    given = record.get("args")
    args: Record = given if isinstance(given, dict) else {}
    if record.get("cat") == "Kernel":
        name = _text(args, "parent_name", path)
    else:
        name = _text(record, "name", path)
    return _Event(
        name.removesuffix(_SUFFIX), _text(args, "op_name", path),
        _number(record, "ts", path), _number(record, "dur", path),
        (str(record.get("pid")), str(record.get("tid"))),
        _elements(args.get("output_type_shape")),
    )  # fmt: skip


def _elements(shapes: object) -> int | None:
    """Elements of the first output, from [{"float": [1, 64, 56, 56]}]."""
    if not isinstance(shapes, list) or not shapes or not isinstance(shapes[0], dict):
        return None
    shape = next(iter(shapes[0].values()), None)
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        return None
    return math.prod(shape[:64])


def _without_nested(events: Sequence[_Event]) -> tuple[list[_Event], int]:
    """Events that run inside no other of their thread, and how many were left out."""
    kept: list[_Event] = []
    open_until: dict[tuple[str, str], float] = {}
    for event in events:
        until = open_until.get(event.lane, -1.0)
        if event.start_us < until and event.end_us <= until:
            continue
        kept.append(event)
        open_until[event.lane] = max(event.end_us, until)
    return kept, len(events) - len(kept)


def _usual_count(events: Iterable[_Event]) -> int:
    """How often most nodes ran, where the file does not count runs."""
    counts = Counter(Counter((event.name, event.op_type) for event in events).values())
    return max(counts, key=lambda count: counts[count], default=1)


def _per_run(events: Iterable[_Event], runs: int) -> list[Entry]:
    """One entry a node: the median over the runs of its time in a run."""
    grouped: dict[tuple[str, str], list[_Event]] = {}
    for event in events:
        grouped.setdefault((event.name, event.op_type), []).append(event)
    return [
        Entry(
            name,
            _typical([event.duration_us * 1e-6 for event in found], runs),
            op_type,
            found[0].elements,
        )
        for (name, op_type), found in grouped.items()
    ]


def _typical(seconds: Sequence[float], runs: int) -> float:
    """Seconds a run: median of the runs' sums, or the mean where executions do not divide."""
    each, rest = divmod(len(seconds), runs)
    if rest or not each:
        return sum(seconds) / runs
    sums = [sum(seconds[place : place + each]) for place in range(0, len(seconds), each)]
    return statistics.median(sums[1:] if runs >= _WARM_FROM else sums)


def _with_device_times(
    entries: Sequence[Entry], kernels: Iterable[_Event], runs: int
) -> list[Entry]:
    """Host times replaced by the sum of the kernels that a node started."""
    sums: dict[str, float] = {}
    for kernel in kernels:
        sums[kernel.name] = sums.get(kernel.name, 0.0) + kernel.duration_us * 1e-6 / runs
    return [
        replace(entry, seconds=sums[entry.name]) if entry.name in sums else entry
        for entry in entries
    ]


# -- TensorRT and tables ---------------------------------------------------------------------


def _tensorrt(records: Sequence[Record], path: str) -> Trace:
    counts = [record["count"] for record in records if "count" in record and "name" not in record]
    runs = counts[0] if counts and isinstance(counts[0], int) and counts[0] > 0 else 1
    entries = []
    for record in records:
        if "name" not in record:
            continue
        key = next((k for k in ("medianMs", "averageMs", "timeMs") if k in record), "averageMs")
        seconds = _number(record, key, path) * 1e-3
        name = _text(record, "name", path)
        entries.append(Entry(name, seconds / runs if key == "timeMs" else seconds))
    return Trace("tensorrt", runs, tuple(entries))


def _from_csv(text: str, path: str) -> Trace:
    rows = _csv_rows(text, path)
    first = next(rows, [])
    columns = _columns(first)
    entries: list[Entry] = []
    if columns is None:
        if len(first) < 2 or _is_no_time(first[1]):
            raise MeasurementError(
                path, "a table of name, milliseconds is meant, with or without a line of headings"
            )
        columns = (0, 1, None, 1e-3)
        entries.append(_csv_entry(first, columns, 1, path))
    for line, row in enumerate(rows, start=2):
        if any(cell.strip() for cell in row):
            entries.append(_csv_entry(row, columns, line, path))
        if len(entries) > MAX_ENTRIES:
            raise MeasurementError(path, f"more than {MAX_ENTRIES:,} lines")
    return Trace("csv", 1, tuple(entries))


def _csv_rows(text: str, path: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(text.splitlines(), strict=True)
    except csv.Error as error:
        raise MeasurementError(path, f"not a table of comma-separated values: {error}") from None


def _columns(first: Sequence[str]) -> tuple[int, int, int | None, float] | None:
    """(name, time, operator, seconds of a unit) by the headings; None where there are none."""
    names = [cell.strip().lower() for cell in first]
    time = next((place for place, name in enumerate(names) if name in _TIME_COLUMNS), None)
    name = next((place for place, name in enumerate(names) if name in _NAME_COLUMNS), None)
    if time is None or name is None:
        return None
    kind = next((place for place, name in enumerate(names) if name in _TYPE_COLUMNS), None)
    return name, time, kind, _TIME_COLUMNS[names[time]]


def _csv_entry(
    row: Sequence[str], columns: tuple[int, int, int | None, float], line: int, path: str
) -> Entry:
    name, time, kind, unit = columns
    if len(row) <= max(name, time) or _is_no_time(row[time]):
        raise MeasurementError(path, f"line {line}: a name and a time of at least 0 are meant")
    op_type = row[kind].strip() if kind is not None and kind < len(row) else ""
    return Entry(row[name].strip(), float(row[time]) * unit, op_type)


def _is_no_time(text: str) -> bool:
    try:
        return not 0 <= float(text) < 1e15
    except ValueError:
        return True
