"""A comparison as text, markdown (for a pull request's comment) or JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from onnxroof import __version__, units
from onnxroof.compare.comparison import Change
from onnxroof.metrics import exactness
from onnxroof.report.grid import fit, markdown_grid, text_grid
from onnxroof.report.render import DEFAULT_WIDTH
from onnxroof.units import printable, shorten_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onnxroof.analysis import Analysis
    from onnxroof.compare.comparison import Comparison, FigureChange, KernelChange
    from onnxroof.roofline import Bound

LONGEST_NAME = 60
NOTHING = "–"
NO_CHANGE = "none"


class CompareFormat(Enum):
    """What a comparison is written as."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Section:
    """A table with its heading.

    Attributes:
        right: The columns aligned to the right.
        names: The column of names, which may be shortened in a terminal; None for none.
        spare: Columns a narrow terminal can do without, the first to go first.
        note: What is said below.
    """

    title: str
    headers: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    right: tuple[int, ...]
    note: str = ""
    names: int | None = None
    spare: tuple[int, ...] = ()


def render(
    sections: Sequence[Section], headline: str, *, markdown: bool, width: int = DEFAULT_WIDTH
) -> str:
    """Tables under a headline; text for a terminal so many columns wide."""
    if markdown:
        return _markdown(sections, headline)
    lines = [headline]
    for section in sections:
        lines += ["", section.title, *_grid(section, width)]
        if section.note:
            lines.append(section.note)
    return "\n".join(lines) + "\n"


def _grid(section: Section, width: int) -> list[str]:
    if not section.rows:
        return []
    if section.names is None:
        return text_grid(section.headers, section.rows, right=section.right)
    return fit(
        section.headers, section.rows, width=width, names=section.names, spare=section.spare,
        right=section.right,
    )  # fmt: skip


def _markdown(sections: Iterable[Section], headline: str) -> str:
    from onnxroof.units import escaped

    blocks = [f"## {escaped(headline)}"]
    for section in sections:
        blocks.append(f"### {escaped(section.title)}")
        if section.rows:
            blocks.append(markdown_grid(section.headers, section.rows, right=section.right))
        if section.note:
            blocks.append(escaped(section.note))
    return "\n\n".join([*blocks, f"onnxroof {__version__}"]) + "\n"


def headline(comparison: Comparison) -> str:
    """The comparison in one line: the device where most changes."""
    before, after = model_name(comparison.before), model_name(comparison.after)
    if not comparison.latencies:
        return f"{before} → {after}"
    ranked = sorted(
        zip(comparison.latencies, comparison.after.rooflines, strict=True),
        key=lambda entry: -abs((entry[0].ratio or 1.0) - 1),
    )
    change, result = ranked[0]
    changed = relative(change)
    changed = "unchanged" if changed == NO_CHANGE else changed
    return f"{before} → {after}: latency {changed} on {printable(result.hardware.name)}"


def model_name(analysis: Analysis) -> str:
    """What people call the model."""
    return printable(analysis.model.path or analysis.model.graph.name or "model in memory")


def sections(comparison: Comparison, top: int) -> list[Section]:
    """Latencies, figures and the kernels that changed most."""
    found = [_latencies(comparison)] if comparison.latencies else []
    return [*found, _figures(comparison), _kernels(comparison, top)]


def _latencies(comparison: Comparison) -> Section:
    rows = []
    results = zip(comparison.before.rooflines, comparison.after.rooflines, strict=True)
    for change, (before, after) in zip(comparison.latencies, results, strict=True):
        bounds = [_main_bound(result.time_shares) for result in (before, after)]
        verdicts = dict.fromkeys(bounds)
        rows.append((printable(after.hardware.name), *_cells(change), " → ".join(verdicts)))
    headers = ("device", "before", "after", "change", "mostly bound by")
    return Section("Latency", headers, rows, (1, 2, 3))


def _main_bound(shares: Mapping[Bound, float]) -> str:
    bound = max(shares, key=lambda key: shares[key])
    return f"{bound.value} ({units.percent(shares[bound])})"


def _figures(comparison: Comparison) -> Section:
    several = len(comparison.after.plans) > 1
    rows = [
        (
            change.metric.title
            + (f" on {printable(', '.join(change.devices))}" if several and change.devices else ""),
            *_cells(change),
        )
        for change in comparison.figures
    ]
    headers = ("", "before", "after", "change")
    return Section("Model", headers, rows, (1, 2, 3), "\n".join(_said(comparison)))


def _said(comparison: Comparison) -> list[str]:
    """What the figures are where they are not exact, and what was assumed for either model."""
    sides = {"before": comparison.before, "after": comparison.after}
    kinds = {side: exactness(analysis) for side, analysis in sides.items()}
    said = [f"{side}: figures are {kind}" for side, kind in kinds.items() if kind != "exact"]
    common = set(comparison.before.assumptions).intersection(comparison.after.assumptions)
    said += [
        printable(f"assumed: {text}") for text in comparison.before.assumptions if text in common
    ]
    return said + [
        printable(f"assumed {side}: {text}")
        for side, analysis in sides.items()
        for text in analysis.assumptions
        if text not in common
    ]


def _cells(change: FigureChange) -> tuple[str, str, str]:
    shown = change.metric.shown
    return shown(change.before), shown(change.after), relative(change)


def relative(change: FigureChange) -> str:
    """The change as "+10.0 %", "−3.2 %", "2.00 ×" or "none"."""
    if change.before == change.after:
        return NO_CHANGE
    ratio = change.ratio
    if ratio is None:
        return units.UNKNOWN
    if ratio >= 1.995:
        return f"{units.significant(ratio)} ×"
    sign = "+" if ratio > 1 else "−"
    return f"{sign}{units.percent(abs(ratio - 1))}"


def _kernels(comparison: Comparison, top: int) -> Section:
    changed = comparison.changed
    shown = changed[:top] if top else changed
    devices = [printable(result.hardware.name) for result in comparison.after.rooflines]
    names = shorten_all([printable(kernel.name) for kernel in shown], LONGEST_NAME)
    former = shorten_all([printable(kernel.old_name) for kernel in shown], LONGEST_NAME)
    rows = [
        (kernel.change.value, name, old, printable(kernel.op_type), *_times(kernel))
        for kernel, name, old in zip(shown, names, former, strict=True)
    ]
    headers = ["", "kernel", "formerly", "operators"]
    for device in devices:
        headers += [f"{device} {what}" for what in ("before", "after", "difference")]
    if not devices:
        headers += ["FLOPs before", "after", "difference"]
    counts = dict.fromkeys(Change, 0)
    for kernel in comparison.kernels:
        counts[kernel.change] += 1
    note = ", ".join(f"{count} {change.value}" for change, count in counts.items() if count)
    several = len(comparison.after.plans) > 1
    of = (
        f"Kernels of {devices[0]}, at which the times on all devices stand"
        if several
        else "Kernels"
    )
    if len(shown) < len(changed):
        note += f"; the {len(shown)} largest changes are shown"
    if not any(former):
        headers.remove("formerly")
        rows = [(change, name, *rest) for change, name, _, *rest in rows]
    fixed = headers.index("operators") + 1
    right = tuple(range(fixed, len(headers)))
    of_devices = range(fixed, len(headers), 3)
    spare = (*range(2, fixed), *of_devices, *[at + 1 for at in of_devices])
    return Section("Kernels that changed", tuple(headers), rows, right, f"{of}: {note}.", 1, spare)


def _times(kernel: KernelChange) -> list[str]:
    devices = len(kernel.before if kernel.before is not None else kernel.after or ())
    cells: list[str] = []
    for device in range(devices):
        before = units.duration(kernel.before[device]) if kernel.before is not None else NOTHING
        after = units.duration(kernel.after[device]) if kernel.after is not None else NOTHING
        cells += [before, after, signed(kernel.difference(device))]
    if not devices:
        before_work, after_work = kernel.work
        difference = after_work - before_work
        sign = "+" if difference > 0 else "−" if difference else ""
        cells = [
            units.count(before_work),
            units.count(after_work),
            sign + units.count(abs(difference)),
        ]
    return cells


def signed(seconds: float) -> str:
    """A difference of times with its sign."""
    if not seconds:
        return "0 s"
    return ("+" if seconds > 0 else "−") + units.duration(abs(seconds))


def as_json(comparison: Comparison) -> str:
    """The comparison for programs."""
    devices = [result.hardware.name for result in comparison.after.rooflines]
    document = {
        "schema_version": 1,
        "tool": {"name": "onnxroof", "version": __version__},
        "before": comparison.before.model.path,
        "after": comparison.after.model.path,
        "hardware": devices,
        "exactness": {"before": exactness(comparison.before), "after": exactness(comparison.after)},
        "assumptions": {
            "before": list(comparison.before.assumptions),
            "after": list(comparison.after.assumptions),
        },
        "figures": [
            {
                "metric": c.metric.name,
                "hardware": list(c.devices) or None,
                "before": c.before,
                "after": c.after,
            }
            for c in comparison.figures
        ],
        "latency_seconds": [
            {"hardware": device, "before": change.before, "after": change.after}
            for device, change in zip(devices, comparison.latencies, strict=True)
        ],
        "kernels": [
            {
                "change": kernel.change.value,
                "name": kernel.name,
                "old_name": kernel.old_name or None,
                "op_type": kernel.op_type,
                "seconds_before": kernel.before,
                "seconds_after": kernel.after,
                "flops_before": kernel.work[0],
                "flops_after": kernel.work[1],
            }
            for kernel in comparison.kernels
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
