"""Profiles as text and as plain data, for `onnxroof hw list`, `hw show` and `hw check`.

Pure functions: they read no files and print nothing. Data is in base units with the unit in
every key; text is for people, with control characters of files made visible.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from onnxroof.units import duration, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxroof.errors import ProfileProblem
    from onnxroof.hardware.profile import (
        Engine,
        HardwareProfile,
        MemoryLevel,
        Peak,
        PeakKind,
        Source,
    )

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_WIDTH = 96


def list_data(profiles: Sequence[HardwareProfile]) -> list[dict[str, object]]:
    """One entry per profile: what it is, and its figures in fp32 and in its fastest type."""
    return [
        {
            "name": profile.name,
            "title": profile.title,
            "kind": profile.kind,
            "threads": profile.threads,
            "runtime": profile.runtime,
            "bandwidth_bytes_per_second": profile.bandwidth_bytes_per_second(),
            "peaks": [_peak_data(profile, engine, peak) for engine, peak in _peaks(profile)],
        }
        for profile in profiles
    ]


def list_text(profiles: Sequence[HardwareProfile]) -> str:
    """A table of profiles with their peak, bandwidth and ridge point by vendor figures."""
    rows = []
    for profile in profiles:
        engine, peak = max(_peaks(profile), key=lambda found: found[1].vendor_ops_per_second)
        fp32 = profile.peak_ops_per_second("fp32", "vector").ops_per_second
        rows.append(
            [
                printable(profile.name),
                profile.kind,
                _operations("fp32", fp32),
                f"{_operations(peak.compute_type, peak.vendor_ops_per_second)} {peak.compute_type}",
                _bytes_rate(profile.bandwidth_bytes_per_second()),
                _ratio(profile.ridge_point("fp32", "vector")),
                _ratio(profile.ridge_point(peak.compute_type, engine)),
                printable(textwrap.shorten(profile.title, 48, placeholder="…")),
            ]
        )
    headers = [
        "name",
        "kind",
        "fp32",
        "fastest",
        "bandwidth",
        "ridge fp32",
        "ridge fastest",
        "device",
    ]
    return _table(rows, headers, right=(2, 3, 4, 5, 6)) + (
        "\nVendor figures; ridge points in FLOP/byte. `hw show NAME` has measured figures and"
        " sources.\n"
    )


def show_data(profile: HardwareProfile) -> dict[str, object]:
    """Everything a profile says, in base units."""
    return {
        "name": profile.name,
        "title": profile.title,
        "vendor": profile.vendor,
        "kind": profile.kind,
        "runtime": profile.runtime,
        **_figures_data(profile),
        "thread_variants": [_figures_data(variant) for variant in profile.thread_variants],
        "notes": list(profile.notes),
        "sources": [_source_data(source) for source in profile.sources],
    }


def show_text(profile: HardwareProfile) -> str:
    """Peaks, ridge points, memory, notes and sources for people."""
    default = f", {profile.threads} threads unless told otherwise" if profile.threads else ""
    parts = [
        f"{printable(profile.name)}: {printable(profile.title)}",
        f"{profile.kind} by {printable(profile.vendor)},"
        f" default runtime {printable(profile.runtime)}{default}",
        _figures_text(profile, ""),
    ]
    for variant in profile.thread_variants:
        count = variant.threads
        parts.append(f"With {count} thread{'s' if count != 1 else ''}")
        parts.append(_figures_text(variant, f"thread_variants.{count}."))
    if profile.notes:
        parts.append("Notes\n" + "\n".join(_item("-", note) for note in profile.notes))
    if profile.sources:
        cited = (_item(f"[{s.key}]", _source_text(s)) for s in profile.sources)
        parts.append("Sources\n" + "\n".join(cited))
    return "\n\n".join(parts) + "\n"


def check_data(path: str, problems: Sequence[ProfileProblem]) -> dict[str, object]:
    """The result of `hw check`."""
    return {
        "file": path,
        "valid": not problems,
        "problems": [{"path": p.path, "message": p.message} for p in problems],
    }


def check_text(path: str, problems: Sequence[ProfileProblem]) -> str:
    """One line if the file can be used, else one line per problem."""
    if not problems:
        return f"{printable(path)}: no problems\n"
    count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
    listed = "".join(f"  {printable(str(problem))}\n" for problem in problems)
    return f"{printable(path)}: {count}\n{listed}"


def _peaks(profile: HardwareProfile) -> Iterator[tuple[Engine, Peak]]:
    for name, engine in profile.engines():
        for peak in engine.peaks:
            yield name, peak


def _peak_data(profile: HardwareProfile, engine: Engine, peak: Peak) -> dict[str, object]:
    return {
        "engine": engine,
        "compute_type": peak.compute_type,
        "vendor_ops_per_second": peak.vendor_ops_per_second,
        "sustained_ops_per_second": peak.sustained_ops_per_second,
        "vendor_ridge_point_flop_per_byte": _own_ridge(profile, peak, "vendor"),
        "sustained_ridge_point_flop_per_byte": _own_ridge(profile, peak, "sustained"),
    }


def _own_ridge(profile: HardwareProfile, peak: Peak, kind: PeakKind) -> float | None:
    """Ridge point of just this figure; None unless both roofs have a figure of the kind."""
    rate = peak.vendor_ops_per_second if kind == "vendor" else peak.sustained_ops_per_second
    bandwidth = profile.main_memory.bytes_per_second(kind)
    return None if rate is None or not bandwidth else rate / bandwidth


def _figures_data(profile: HardwareProfile) -> dict[str, object]:
    return {
        "threads": profile.threads,
        "engines": {name: engine.name for name, engine in profile.engines()},
        "peaks": [_peak_data(profile, engine, peak) for engine, peak in _peaks(profile)],
        "special_function_ops_per_second": profile.special_function_ops_per_second,
        "kernel_overhead_seconds": profile.kernel_overhead_seconds,
        "denormal_penalty_seconds": profile.denormal_penalty_seconds,
        "channel_multiples": {
            name: dict(engine.channel_multiples) for name, engine in profile.engines()
        },
        "memory": [
            {
                "level": level.level,
                "capacity_bytes": level.capacity_bytes,
                "instances": level.instances,
                "vendor_bytes_per_second": level.vendor_bytes_per_second,
                "sustained_bytes_per_second": level.sustained_bytes_per_second,
            }
            for level in profile.memory
        ],
    }


def _source_data(source: Source) -> dict[str, object]:
    return {
        "key": source.key,
        "title": source.title,
        "basis": source.basis,
        "url": source.url,
        "where": source.where,
        "read": source.read,
        "covers": list(source.covers),
    }


def _figures_text(profile: HardwareProfile, prefix: str) -> str:
    peaks = [
        [
            printable(engine.name),
            peak.compute_type,
            _operations(peak.compute_type, peak.vendor_ops_per_second),
            _operations(peak.compute_type, peak.sustained_ops_per_second),
            _ratio(_own_ridge(profile, peak, "vendor")),
            _ratio(_own_ridge(profile, peak, "sustained")),
            _citations(profile, *_peak_paths(prefix, name, peak.compute_type)),
        ]
        for name, engine in profile.engines()
        for peak in engine.peaks
    ]
    columns = ["engine", "type", "peak", "sustained", "ridge point", "sustained", "sources"]
    levels = [_level_row(profile, level, prefix) for level in profile.memory]
    level_columns = ["memory", "capacity", "bandwidth", "sustained", "sources"]
    return "\n\n".join(
        (
            _table(peaks, columns, right=(2, 3, 4, 5)),
            _table(levels, level_columns, right=(1, 2, 3)),
            _rates_text(profile, prefix),
        )
    )


def _peak_paths(prefix: str, engine: Engine, compute_type: str) -> tuple[str, ...]:
    unit = "tops" if compute_type.startswith("int") else "tflops"
    table = f"{prefix}{engine}_engine"
    return tuple(f"{table}.{kind}_{unit}.{compute_type}" for kind in ("peak", "sustained"))


def _level_row(profile: HardwareProfile, level: MemoryLevel, prefix: str) -> list[str]:
    capacity = "" if level.capacity_bytes is None else _capacity(level.capacity_bytes)
    copies = f"{level.instances} × " if level.instances > 1 and capacity else ""
    paths = [f"memory.{level.level}"]
    if prefix and level is profile.main_memory:
        paths += [f"{prefix}bandwidth_gb_per_s", f"{prefix}sustained_bandwidth_gb_per_s"]
    return [
        printable(level.level),
        copies + capacity,
        _bytes_rate(level.vendor_bytes_per_second),
        _bytes_rate(level.sustained_bytes_per_second),
        _citations(profile, *paths),
    ]


def _rates_text(profile: HardwareProfile, prefix: str) -> str:
    lines = [
        f"kernel overhead {duration(profile.kernel_overhead_seconds)}"
        f" {_citations(profile, 'kernel_overhead_us', f'{prefix}kernel_overhead_us')}"
    ]
    special = profile.special_function_ops_per_second
    if special is not None:
        cited = _citations(profile, f"{prefix}special_function_gops")
        lines.append(f"special functions {_operations('', special)} {cited}")
    lines += _latency_lines(profile)
    lines.append("ridge points in FLOP/byte: peak over the bandwidth of main memory")
    return "\n".join(lines)


def _latency_lines(profile: HardwareProfile) -> list[str]:
    """What only the expected time uses, as far as the profile says."""
    core = profile.core_bandwidth_bytes_per_second
    found = [
        ("cores", f"{profile.cores} cores" if profile.cores else ""),
        ("vector_bits", f"vectors of {profile.vector_bits} bits" if profile.vector_bits else ""),
        ("core_bandwidth_gb_per_s", f"{core / 1e9:g} GB/s from one core" if core else ""),
        ("host_factor", f"host factor {profile.host_factor:g}"),
        (
            "winograd_channels",
            f"Winograd from {profile.winograd_channels} channels"
            if profile.winograd_channels > 1
            else "",
        ),
        *(
            (f"latency_constants.{key}", f"{key.replace('_', ' ')} {value:g}")
            for key, value in profile.latency_constants
        ),
    ]
    return [
        f"{text} {cited}" for key, text in found if text and (cited := _citations(profile, key))
    ]


def _citations(profile: HardwareProfile, *paths: str) -> str:
    keys = dict.fromkeys(s.key for path in paths for s in profile.sources_of(path))
    return " ".join(f"[{printable(key)}]" for key in keys)


def _source_text(source: Source) -> str:
    details = (source.where, source.url, f"read {source.read}" if source.read else None)
    return "; ".join((f"{source.title} ({source.basis})", *(d for d in details if d)))


def _item(mark: str, text: str) -> str:
    """A wrapped paragraph behind a mark; addresses are never broken."""
    return textwrap.fill(
        printable(f"{mark} {text}"),
        _WIDTH,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _table(rows: Sequence[Sequence[str]], headers: Sequence[str], right: Sequence[int]) -> str:
    from tabulate import tabulate

    alignment = ["right" if column in right else "left" for column in range(len(headers))]
    return tabulate(rows, headers, tablefmt="simple", colalign=alignment, disable_numparse=True)


def _operations(compute_type: str, ops_per_second: float | None) -> str:
    unit = "FLOP/s" if compute_type.startswith(("fp", "bf", "tf")) else "op/s"
    return _si(ops_per_second, unit)


def _bytes_rate(bytes_per_second: float | None) -> str:
    return _si(bytes_per_second, "B/s")


def _si(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    factor, prefix = next((p for p in _PREFIXES if value >= p[0]), (1.0, ""))
    return f"{value / factor:.4g} {prefix}{unit}"


def _capacity(nbytes: int) -> str:
    factor, unit = next((b for b in _BINARY if nbytes >= b[0]), (1, "B"))
    return f"{nbytes / factor:.4g} {unit}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
