"""One model on several devices: which is fastest, why, and where the time goes on each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from onnxroof import __version__, units
from onnxroof.bounded import upper
from onnxroof.compare.render import LONGEST_NAME, Section, model_name
from onnxroof.metrics import kernel_seconds
from onnxroof.units import printable, shorten_all

if TYPE_CHECKING:
    from onnxroof.analysis import Analysis
    from onnxroof.roofline import RooflineResult


def sections(analysis: Analysis, top: int) -> list[Section]:
    """A table of the devices, fastest first, and the kernels that take most time on any."""
    return [_devices(analysis), _kernels(analysis, top)]


def _devices(analysis: Analysis) -> Section:
    ranked = sorted(analysis.rooflines, key=lambda result: result.latency_seconds)
    fastest = ranked[0].latency_seconds
    rows = [_row(result, fastest) for result in ranked]
    headers = ("device", "latency", "against the fastest", "mostly bound by", "share of peak")
    return Section("Devices", headers, rows, (1, 2, 4), _fusions(analysis))


def _fusions(analysis: Analysis) -> str:
    if len(analysis.plans) == 1:
        return f"Kernels as {analysis.kernels.runtime} fuses them, on every device."
    first = printable(analysis.rooflines[0].hardware.name)
    return (
        "Every device runs the kernels of its own runtime; below, their times stand at the"
        f" kernels of {first}."
    )


def _row(result: RooflineResult, fastest: float) -> tuple[str, ...]:
    bound = max(result.time_shares, key=lambda key: result.time_shares[key])
    share = units.percent(result.time_shares[bound])
    against = result.latency_seconds / fastest if fastest else 1.0
    return (
        printable(result.hardware.name),
        units.bounded(
            units.duration(result.latency_seconds), at_least=result.is_lower_bound_of_plan
        ),
        f"{units.significant(against)} ×",
        f"{bound.value} ({share})",
        units.percent(result.share_of_peak),
    )


def _kernels(analysis: Analysis, top: int) -> Section:
    results = analysis.rooflines
    kernels = analysis.kernels.kernels
    times = [kernel_seconds(analysis, device) for device in range(len(results))]
    wholes = [sum(seconds) or 1.0 for seconds in times]

    def share(at: int, device: int) -> float:
        return times[device][at] / wholes[device]

    def largest_share(at: int) -> float:
        return max(share(at, device) for device in range(len(results)))

    ranked = sorted(range(len(kernels)), key=largest_share, reverse=True)
    shown = ranked[:top] if top else ranked
    names = shorten_all([printable(kernels[at].name) for at in shown], LONGEST_NAME)
    rows = [
        (
            name, printable(kernels[at].op_type),
            *[
                f"{units.duration(times[device][at])} ({units.percent(share(at, device))})"
                for device in range(len(results))
            ],
        )
        for at, name in zip(shown, names, strict=True)
    ]  # fmt: skip
    headers = ("kernel", "operators", *[printable(result.hardware.name) for result in results])
    right = tuple(range(2, len(headers)))
    title = "Kernels by their largest share on any device"
    return Section(title, headers, rows, right, names=0, spare=(1,))


def headline(analysis: Analysis) -> str:
    """The fastest device in one line."""
    best = min(analysis.rooflines, key=lambda result: result.latency_seconds)
    return (
        f"{model_name(analysis)}: fastest on {printable(best.hardware.name)}, "
        f"{units.duration(best.latency_seconds)}"
    )


def as_json(analysis: Analysis) -> str:
    """The same for programs."""
    document = {
        "schema_version": 1,
        "tool": {"name": "onnxroof", "version": __version__},
        "model": analysis.model.path,
        "runtime": analysis.kernels.runtime,
        "devices": [
            {
                "hardware": result.hardware.name,
                "fusion": result.plan.runtime,
                "kernels": len(result.plan.kernels),
                "traffic_bytes": upper(result.plan.traffic_bytes),
                "latency_seconds": result.latency_seconds,
                "time_shares": {b.value: share for b, share in result.time_shares.items()},
                "share_of_peak": result.share_of_peak,
            }
            for result in analysis.rooflines
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
