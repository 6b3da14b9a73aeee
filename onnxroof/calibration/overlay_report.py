"""`Overlay` → text, markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import textwrap
from typing import TYPE_CHECKING

from tabulate import tabulate

from onnxroof import __version__, units
from onnxroof.report.csv_report import safe_cell
from onnxroof.report.grid import aligned
from onnxroof.report.render import DEFAULT_WIDTH, Format
from onnxroof.units import escaped, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.calibration.overlay import Overlay, Row

SCHEMA_VERSION = 1

DEFAULT_TOP = 15
_MOST_LEFT_OVER = 8
"""Lines for what is left over on either side, in reports for people."""

_HEADERS = ("kernel", "operator", "measured", "share", "expected", "bound", "of roof", "lost")
_SOURCES = {
    "onnxruntime": "ONNX Runtime's profile", "tensorrt": "TensorRT's profile", "csv": "table",
}  # fmt: skip


def render_overlay(
    found: Overlay, format_: Format, top: int | None = None, width: int = DEFAULT_WIDTH
) -> str:
    """The overlay in a format.

    Args:
        found: The overlay.
        format_: What to write.
        top: Rows for people, 0 for all, `DEFAULT_TOP` when None; CSV and JSON have all.
        width: Columns of the terminal.
    """
    if format_ is Format.JSON:
        return json.dumps(overlay_data(found), indent=2, allow_nan=False) + "\n"
    if format_ is Format.CSV:
        return _csv(found)
    shown = found.rows[: DEFAULT_TOP if top is None else top or None]
    if format_ is Format.MARKDOWN:
        return _markdown(found, shown)
    return _text(found, shown, width)


def _title(found: Overlay) -> str:
    return f"{printable(found.model)} on {printable(found.hardware)}"


def _facts(found: Overlay) -> list[tuple[str, str]]:
    """(label, text): what was measured, what of it was matched, what was expected."""
    trace = found.trace
    source = _SOURCES[trace.format]
    runs = f", {units.plural(trace.runs, 'run')}" if trace.format != "csv" else ""
    matched = units.percent(found.matched_seconds / found.measured_seconds)
    left = found.measured_seconds - found.matched_seconds
    said = [
        ("trace", f"{source}{runs}: {units.plural(len(trace.entries), 'measured kernel')}"),
        ("measured", f"{units.duration(found.measured_seconds)} in all"),
        ("matched", f"{units.duration(found.matched_seconds)}, {matched} of it;"
         f" {units.duration(left)} belongs to no kernel of ours"),
        ("expected", f"{units.duration(found.latency_seconds)}, bound"
         f" {units.duration(found.bound_seconds)}"),
    ]  # fmt: skip
    error = found.weighted_error
    if error is not None:
        said.append(("error", f"{units.percent(error)} of the matched time, kernel by kernel"))
    return said


def _cells(found: Overlay, row: Row) -> list[str]:
    name = printable(row.name)
    if row.kernels > 1:
        name += f" +{row.kernels - 1}"
    return [
        name + (" *" if row.by_order else ""),
        units.truncate(printable(row.op_type), 28),
        units.duration(row.measured_seconds),
        units.percent(row.measured_seconds / found.measured_seconds),
        units.duration(row.expected_seconds),
        units.duration(row.bound_seconds),
        units.percent(row.share_of_roof),
        units.duration(row.lost_seconds) if row.lost_seconds >= 0 else "–",
    ]


def _remarks(found: Overlay, shown: Sequence[Row]) -> list[str]:
    remarks = [*found.trace.notes, *found.notes]
    if any(row.by_order for row in shown):
        remarks.append("* matched by operator and order, not by name")
    if any(row.kernels > 1 for row in shown):
        remarks.append("+N: the runtime ran N more of our kernels with it")
    return remarks


def _left_over(found: Overlay) -> list[tuple[str, list[str]]]:
    """(heading, lines) for what was measured without a kernel, and the reverse."""
    blocks = []
    if found.unmatched:
        seconds = sum(item.seconds for item in found.unmatched)
        lines = [
            f"{units.duration(item.seconds)}  {printable(units.shorten(item.name, 60))}"
            + (f" ({printable(item.op_type)})" if item.op_type else "")
            + f": {printable(item.reason)}"
            for item in found.unmatched[:_MOST_LEFT_OVER]
        ]
        blocks.append((
            f"measured, and no kernel of ours: {len(found.unmatched):,}, together"
            f" {units.duration(seconds)}", _capped(lines, len(found.unmatched)),
        ))  # fmt: skip
    if found.unmeasured:
        seconds = sum(item.expected_seconds for item in found.unmeasured)
        lines = [
            f"{units.duration(item.expected_seconds)}  {printable(units.shorten(item.name, 60))}"
            f" ({printable(item.op_type)})"
            for item in found.unmeasured[:_MOST_LEFT_OVER]
        ]
        blocks.append((
            f"kernels of ours without a measurement: {len(found.unmeasured):,}, expected"
            f" {units.duration(seconds)} (fused, removed or computed beforehand by the runtime)",
            _capped(lines, len(found.unmeasured)),
        ))  # fmt: skip
    return blocks


def _capped(lines: list[str], total: int) -> list[str]:
    more = total - len(lines)
    return [*lines, f"… and {more:,} more"] if more > 0 else lines


def _text(found: Overlay, shown: Sequence[Row], width: int) -> str:
    width = min(max(width, 60), 160)
    facts = _facts(found)
    margin = max(len(label) for label, _ in facts) + 2
    cells = [_cells(found, row) for row in shown]
    right = [False, False, *[True] * 6]
    room = width - sum(
        max(len(row[place]) for row in (_HEADERS, *cells)) + 2 for place in range(1, len(_HEADERS))
    )
    names = units.shorten_all([row[0] for row in cells], max(room, 24))
    table = aligned(
        [[name, *row[1:]] for name, row in zip(names, cells, strict=True)], _HEADERS, right=right
    )
    blocks = [
        f"{_title(found)} · overlay · onnxroof {__version__}",
        "\n".join(label.ljust(margin) + text for label, text in facts),
        f"{_shown_of(shown, found)}\n{table}",
    ]
    blocks += [
        "\n".join([f"{head}", *(f"  {line}" for line in ls)]) for head, ls in _left_over(found)
    ]
    remarks = [
        line
        for remark in _remarks(found, shown)
        for line in textwrap.wrap(remark, width, subsequent_indent="  ")
    ]
    blocks += ["\n".join(remarks)] if remarks else []
    return "\n\n".join(blocks) + "\n"


def _shown_of(shown: Sequence[Row], found: Overlay) -> str:
    total = units.plural(len(found.rows), "matched row")
    return total if len(shown) == len(found.rows) else f"first {len(shown)} of {total}"


def _markdown(found: Overlay, shown: Sequence[Row]) -> str:
    grid = tabulate(
        [[escaped(cell) for cell in _cells(found, row)] for row in shown], _HEADERS,
        tablefmt="pipe", disable_numparse=True,
        colalign=["left", "left", *["right"] * 6],
    )  # fmt: skip
    facts = "\n".join(f"- **{label}**: {escaped(text)}" for label, text in _facts(found))
    blocks = [f"## {escaped(_title(found))}", facts, f"### {_shown_of(shown, found)}", grid]
    for head, lines in _left_over(found):
        items = [f"- {escaped(line)}" for line in lines]
        blocks.append("\n".join([f"### {escaped(head)}", "", *items]))
    remarks = _remarks(found, shown)
    blocks += ["\n".join(f"- {escaped(remark)}" for remark in remarks)] if remarks else []
    return "\n\n".join([*blocks, f"onnxroof {__version__}"]) + "\n"


def _csv(found: Overlay) -> str:
    """All rows, then what was left over: `status` is matched, unmatched or unmeasured."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([
        "status", "name", "op_type", "measured_as", "measured_seconds", "expected_seconds",
        "bound_seconds", "share_of_roof", "lost_seconds", "matched_by", "bound",
    ])  # fmt: skip
    for row in found.rows:
        share = row.share_of_roof
        writer.writerow([
            "matched", safe_cell(row.name), safe_cell(row.op_type),
            safe_cell(" | ".join(row.measured_names)), repr(row.measured_seconds),
            repr(row.expected_seconds), repr(row.bound_seconds),
            "" if share is None else repr(share), repr(row.lost_seconds),
            "order" if row.by_order else "name", row.bound,
        ])  # fmt: skip
    for item in found.unmatched:
        name, kind = safe_cell(item.name), safe_cell(item.op_type)
        writer.writerow(["unmatched", name, kind, name, repr(item.seconds), *[""] * 6])
    for kernel in found.unmeasured:
        name, kind = safe_cell(kernel.name), safe_cell(kernel.op_type)
        seconds = repr(kernel.expected_seconds)
        writer.writerow(["unmeasured", name, kind, "", "", seconds, *[""] * 5])
    return file.getvalue()


def overlay_data(found: Overlay) -> dict[str, object]:
    """The overlay for programs: base units, the unit in every key."""
    trace = found.trace
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "onnxroof", "version": __version__},
        "model": found.model,
        "hardware": found.hardware,
        "trace": {
            "format": trace.format,
            "runs": trace.runs,
            "entries": len(trace.entries),
            "seconds": trace.seconds,
        },
        "notes": [*trace.notes, *found.notes],
        "latency_seconds": found.latency_seconds,
        "bound_seconds": found.bound_seconds,
        "matched_seconds": found.matched_seconds,
        "weighted_error": found.weighted_error,
        "rows": [
            {
                "name": row.name,
                "op_type": row.op_type,
                "measured_as": list(row.measured_names),
                "kernels": row.kernels,
                "matched_by": "order" if row.by_order else "name",
                "measured_seconds": row.measured_seconds,
                "expected_seconds": row.expected_seconds,
                "bound_seconds": row.bound_seconds,
                "bound": row.bound,
                "share_of_roof": row.share_of_roof,
                "lost_seconds": row.lost_seconds,
            }
            for row in found.rows
        ],
        "unmatched": [
            {"name": u.name, "op_type": u.op_type, "seconds": u.seconds, "reason": u.reason}
            for u in found.unmatched
        ],
        "unmeasured": [
            {"name": u.name, "op_type": u.op_type, "expected_seconds": u.expected_seconds}
            for u in found.unmeasured
        ],
    }
