"""`Sweep` → a table for the terminal, markdown, CSV or JSON."""

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
from onnxroof.units import distinct, escaped, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.sweep import DevicePoint, Knee, Sweep, SweepPoint

SCHEMA_VERSION = 1


def render_sweep(found: Sweep, format_: Format, width: int = DEFAULT_WIDTH) -> str:
    """The sweep in a format, for a terminal so many columns wide."""
    if format_ is Format.JSON:
        return json.dumps(sweep_data(found), indent=2, allow_nan=False) + "\n"
    if format_ is Format.CSV:
        return _csv(found)
    if format_ is Format.MARKDOWN:
        return _markdown(found)
    return _text(found, width)


def _text(found: Sweep, width: int) -> str:
    width = min(max(width, 60), 160)
    blocks = [f"{_title(found)} · sweep · onnxroof {__version__}", *_tables(found, width)]
    remarks = _remarks(found)
    wrapped = [line for r in remarks for line in textwrap.wrap(r, width, subsequent_indent="  ")]
    blocks += ["\n".join(wrapped)] if wrapped else []
    return "\n\n".join(blocks) + "\n"


def _tables(found: Sweep, width: int) -> Iterator[str]:
    """One table, or where it would be too wide one of counts and one a device."""
    headers, rows = _table(found)
    whole = aligned(rows, headers, right=[True] * len(headers))
    if max(map(len, whole.split("\n"))) <= width or not found.hardware:
        yield whole
        return
    sizes = len(found.ranges)
    groups = [range(sizes, sizes + 4)]
    groups += [range(start, start + 4) for start in range(sizes + 4, len(headers), 4)]
    for group in groups:
        kept = [*range(sizes), *group]
        chosen = [[row[place] for place in kept] for row in rows]
        yield aligned(chosen, [headers[place] for place in kept], right=[True] * len(kept))


def _markdown(found: Sweep) -> str:
    headers, rows = _table(found)
    grid = tabulate(
        [[escaped(cell) for cell in row] for row in rows], [escaped(h) for h in headers],
        tablefmt="pipe", disable_numparse=True, colalign=["right"] * len(headers),
    )  # fmt: skip
    remarks = _remarks(found)
    blocks = [f"## {escaped(_title(found))}", grid]
    blocks += ["\n".join(f"- {escaped(remark)}" for remark in remarks)] if remarks else []
    return "\n\n".join([*blocks, f"onnxroof {__version__}"]) + "\n"


def _title(found: Sweep) -> str:
    devices = ", ".join(printable(profile.name) for profile in found.hardware)
    return printable(found.model) + (f" on {devices}" if devices else "")


def _table(found: Sweep) -> tuple[list[str], list[list[str]]]:
    several = len(found.hardware) > 1
    headers = [*map(printable, found.ranges), "MACs", "peak memory", "traffic", "FLOP/B"]
    for profile in found.hardware:
        above = f"{printable(profile.name)}\n" if several else ""
        headers += [f"{above}{name}" for name in ("time", "bound", "samples/s", "bound by")]
    return headers, [_row(found, point) for point in found.points]


def _row(found: Sweep, point: SweepPoint) -> list[str]:
    sizes = [str(point.sizes[name]) for name in found.ranges]
    if point.problem:
        return sizes + ["–"] * (4 + 4 * len(found.hardware))
    sign = "≥ " if point.is_at_least else "≤ " if point.is_at_most else ""
    cells = [
        *sizes,
        sign + units.count(point.macs),
        sign + units.size(point.peak_memory_bytes),
        sign + units.size(point.traffic_bytes),
        units.intensity(point.arithmetic_intensity),
    ]
    for device in point.devices:
        cells += _device_cells(device)
    return cells


def _device_cells(device: DevicePoint) -> list[str]:
    sign, opposite = ("≥ ", "≤ ") if device.is_lower_bound else ("", "")
    return [
        sign + units.duration(device.latency_seconds),
        units.duration(device.bound_seconds),
        opposite + units.count(device.throughput_per_second),
        device.bound.value,
    ]


def _remarks(found: Sweep) -> list[str]:
    return [
        *_fusion_lines(found), *_bound_lines(found), *_knee_lines(found), *_problem_lines(found),
    ]  # fmt: skip


def _bound_lines(found: Sweep) -> list[str]:
    """Devices on which a time is below its bound, and why."""
    names = [
        printable(profile.name)
        for place, profile in enumerate(found.hardware)
        if any(
            point.devices[place].latency_seconds < point.devices[place].bound_seconds
            for point in found.points
            if not point.problem
        )
    ]
    if not names:
        return []
    return [
        f"times below the bound, on {', '.join(names)}: the bound is that of direct convolutions;"
        " Winograd or FFT needs fewer multiplications"
    ]


def _fusion_lines(found: Sweep) -> list[str]:
    """Whose kernels the common columns are of, where the devices' runtimes fuse differently."""
    point = next((point for point in found.points if not point.problem), None)
    fusions = [device.fusion for device in point.devices] if point is not None else []
    if len(set(fusions)) < 2:
        return []
    first = printable(found.hardware[0].name)
    return [
        f"MACs, traffic and FLOP/B are those of the kernels of {fusions[0]}, on {first}; other"
        " devices run those of their own runtimes (traffic on each: --format csv or json)"
    ]


def _knee_lines(found: Sweep) -> list[str]:
    return [_knee_line(found, knee) for knee in found.knees]


def _knee_line(found: Sweep, knee: Knee) -> str:
    name = printable(knee.dimension)
    swept = {n: size for n, size in knee.others.items() if len(found.ranges[n]) > 1}
    where = ", ".join(f"{printable(n)} {size}" for n, size in swept.items())
    device = printable(found.hardware[knee.device].name)
    place = f"knee on {device}" + (f" at {where}" if where else "")
    if knee.size is None:
        last = max(found.ranges[knee.dimension])
        return f"{place}: none up to {name} {last}, where {name} over time still grows"
    share = units.percent(knee.rate_per_second / knee.best_per_second)
    return f"{place}: {name} {knee.size}, which reaches {share} of the best {name} over time"


def _problem_lines(found: Sweep) -> list[str]:
    return [
        ", ".join(f"{printable(n)} {size}" for n, size in point.sizes.items())
        + f": {printable(point.problem)}"
        for point in found.points
        if point.problem
    ]


def _csv(found: Sweep) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    labels = distinct([profile.name for profile in found.hardware])
    fields = (
        "latency_seconds", "bound_seconds", "throughput_per_second", "bound", "traffic_bytes",
        "arithmetic_intensity_flop_per_byte",
    )  # fmt: skip
    header: list[object] = [safe_cell(name) for name in found.ranges]
    header += [
        "macs", "flops", "traffic_bytes", "arithmetic_intensity_flop_per_byte",
        "peak_memory_bytes", "exactness", "problem",
    ]  # fmt: skip
    header += [safe_cell(f"{label}_{field}") for label in labels for field in fields]
    writer.writerow(header)
    writer.writerows(_csv_row(found, point) for point in found.points)
    return file.getvalue()


def _csv_row(found: Sweep, point: SweepPoint) -> list[object]:
    sizes: list[object] = [point.sizes[name] for name in found.ranges]
    if point.problem:
        return [*sizes, *[""] * 6, safe_cell(point.problem)]
    intensity = point.arithmetic_intensity
    cells = [
        *sizes, point.macs, point.flops, point.traffic_bytes,
        "" if intensity is None else repr(intensity), point.peak_memory_bytes, _exactness(point),
        "",
    ]  # fmt: skip
    for device in point.devices:
        cells += [
            repr(device.latency_seconds), repr(device.bound_seconds),
            repr(device.throughput_per_second), device.bound.value, device.traffic_bytes,
            "" if device.arithmetic_intensity is None else repr(device.arithmetic_intensity),
        ]  # fmt: skip
    return cells


def _exactness(point: SweepPoint) -> str:
    return "at least" if point.is_at_least else "at most" if point.is_at_most else "exact"


def sweep_data(found: Sweep) -> dict[str, object]:
    """The sweep for programs: base units, the unit in every key, None for what is not known."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "onnxroof", "version": __version__},
        "model": found.model,
        "hardware": [profile.name for profile in found.hardware],
        "ranges": {name: list(sizes) for name, sizes in found.ranges.items()},
        "points": [_point_data(point) for point in found.points],
        "knees": [
            {
                "hardware": found.hardware[knee.device].name,
                "dimension": knee.dimension,
                "others": dict(knee.others),
                "size": knee.size,
                "rate_per_second": knee.rate_per_second,
                "best_rate_per_second": knee.best_per_second,
            }
            for knee in found.knees
        ],
    }


def _point_data(point: SweepPoint) -> dict[str, object]:
    if point.problem:
        return {"sizes": dict(point.sizes), "problem": point.problem}
    return {
        "sizes": dict(point.sizes),
        "problem": None,
        "macs": point.macs,
        "flops": point.flops,
        "traffic_bytes": point.traffic_bytes,
        "arithmetic_intensity_flop_per_byte": point.arithmetic_intensity,
        "peak_memory_bytes": point.peak_memory_bytes,
        "exactness": _exactness(point),
        "devices": [_device_data(device) for device in point.devices],
    }


def _device_data(device: DevicePoint) -> dict[str, object]:
    return {
        "latency_seconds": device.latency_seconds,
        "bound_seconds": device.bound_seconds,
        "throughput_per_second": device.throughput_per_second,
        "bound": device.bound.value,
        "is_lower_bound": device.is_lower_bound,
        "fusion": device.fusion,
        "traffic_bytes": device.traffic_bytes,
        "arithmetic_intensity_flop_per_byte": device.arithmetic_intensity,
    }
