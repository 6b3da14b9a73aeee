"""`Fit` → a profile as YAML, and what it changed in words."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

from onnxroof import __version__, units
from onnxroof.calibration.cases import adjusted
from onnxroof.calibration.fit import LARGEST
from onnxroof.calibration.yaml_text import checked_profile
from onnxroof.hardware.strict_yaml import parse
from onnxroof.units import printable

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from onnxroof.calibration.fit import Fit, FittedRow
    from onnxroof.hardware.profile import HardwareProfile
    from onnxroof.hardware.strict_yaml import Value

_SOURCE = "hw-fit"
_MOST_TEXT = 1900
_MOST_ROWS = 40


def fitted_profile(
    data: bytes, base: HardwareProfile, found: Fit, name: str, table: str, day: dt.date
) -> str:
    """The base profile with the fitted constants in it, or as it was where they do not help.

    Args:
        data: The base profile's file.
        base: The same, read.
        found: The fit.
        name: What the new profile is called.
        table: The table of measurements, for the source.
        day: Today.

    Raises:
        InvalidProfileError: The result is no valid profile.
    """
    root = copy.deepcopy(parse(data).root) or {}
    root["name"] = name
    notes = root.setdefault("notes", [])
    if isinstance(notes, list):
        notes.append(_note(base, found, table)[:_MOST_TEXT])
    if found.improves:
        _put_constants(root, base, found, table, day)
    return checked_profile(root, name, f"onnxroof {__version__}, `onnxroof hw fit`, on {day}")


def _note(base: HardwareProfile, found: Fit, table: str) -> str:
    counted = units.plural(len(found.rows), "measurement")
    errors = (
        f"error {found.base_error:.1%} with {base.name}, {found.left_out_error:.1%} for models left"
        " out of the fit"
    )
    if found.improves:
        return f"Latency constants fitted on {counted} of {_clean(table)}: {errors}."
    return (
        f"A fit on {counted} of {_clean(table)} did not help ({errors}): the figures are those of"
        f" {base.name}."
    )


def _put_constants(
    root: dict[str, Value], base: HardwareProfile, found: Fit, table: str, day: dt.date
) -> None:
    fitted = adjusted(base, found.speeds)
    before, after = dict(base.latency_constants), dict(fitted.latency_constants)
    changed = {name for name, value in after.items() if before.get(name) != value}
    covers: list[Value] = [f"latency_constants.{name}" for name in after if name in changed]
    if after:
        _insert(root, "latency_constants", {key: _rounded(value) for key, value in after.items()})
    if "host" in found.speeds:
        _insert(root, "host_factor", _rounded(fitted.host_factor))
        covers.append("host_factor")
    sources = root.setdefault("sources", {})
    if not isinstance(sources, dict):
        return
    _uncover(sources, {str(path) for path in covers}, list(before))
    speeds = ", ".join(f"{group} × {speed:.3g}" for group, speed in found.speeds.items())
    sources[_SOURCE] = {
        "title": "Fit of the latency model on models measured on this device, onnxroof hw fit",
        "basis": "measurement",
        "where": (
            f"{_clean(table)}, {units.plural(len(found.rows), 'row')}; speed over {base.name}:"
            f" {speeds}; mean absolute error {found.base_error:.1%} before,"
            f" {found.fitted_error:.1%} after, {found.left_out_error:.1%} for models left out"
        )[:_MOST_TEXT],
        "read": str(day),
        "covers": covers,
    }


def _insert(root: dict[str, Value], key: str, value: Value) -> None:
    """Set a key; a new one goes before the memory levels."""
    if key in root:
        root[key] = value
        return
    items = list(root.items())
    place = list(root).index("memory") if "memory" in root else len(items)
    root.clear()
    root.update([*items[:place], (key, value), *items[place:]])


def _uncover(sources: dict[str, Value], paths: set[str], constants: list[str]) -> None:
    """Take paths from the sources they had; drop emptied ones.

    A source that covers all constants keeps those that were not fitted.
    """
    for key, source in list(sources.items()):
        covers = source.get("covers") if isinstance(source, dict) else None
        if not isinstance(source, dict) or not isinstance(covers, list):
            continue
        kept: list[Value] = [path for path in covers if path not in paths]
        if "latency_constants" in kept:
            kept.remove("latency_constants")
            each = [f"latency_constants.{name}" for name in constants]
            kept += [path for path in each if path not in paths]
        source["covers"] = kept
        if not kept:
            del sources[key]


def _clean(text: str) -> str:
    return printable(text.replace("\\", "/").rpartition("/")[2])[:200]


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def fit_text(base: HardwareProfile, found: Fit) -> str:
    """What was fitted, how far off every model is, and whether it helps."""
    lines = [f"{'measured':>10}  {'base':>10}  {'fitted':>10}  {'left out':>10}  model"]
    worst = sorted(
        found.rows, key=lambda row: -abs(row.left_out_seconds / row.measured_seconds - 1)
    )
    lines += [_row_line(row) for row in worst[:_MOST_ROWS]]
    if len(worst) > _MOST_ROWS:
        lines.append(f"… and {len(worst) - _MOST_ROWS:,} that are nearer")
    lines += [
        "",
        f"mean absolute error: {found.base_error:.1%} with {printable(base.name)},"
        f" {found.fitted_error:.1%} fitted, {found.left_out_error:.1%} for models left out",
    ]
    if not found.improves:
        lines.append(
            "the fit does not predict models left out better than the base profile does: the base"
            " is kept"
        )
        return "\n".join(lines) + "\n"
    if found.tied:
        lines.append("too few models to tell the constants apart: all moved as one")
    lines.append("speed over the base profile: " + _speeds(found.speeds))
    limit = math.exp(LARGEST) * 0.999
    stuck = [group for group, speed in found.speeds.items() if max(speed, 1 / speed) >= limit]
    if stuck:
        lines.append(
            f"at the limit of {math.exp(LARGEST):g} times: {', '.join(stuck)}: is the base profile"
            " that of this device, and is the runtime the right one?"
        )
    return "\n".join(lines) + "\n"


def _speeds(speeds: Mapping[str, float]) -> str:
    return ", ".join(f"{group} × {speed:.3g}" for group, speed in speeds.items())


def _row_line(row: FittedRow) -> str:
    cells = (row.measured_seconds, row.base_seconds, row.fitted_seconds, row.left_out_seconds)
    shown = "  ".join(f"{units.duration(seconds):>10}" for seconds in cells)
    return f"{shown}  {units.shorten(printable(row.path), 60)}"
