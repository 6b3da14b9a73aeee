"""A checked profile document → `HardwareProfile`: the only place where units are converted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from onnxroof.hardware.checks import CAPACITY_BYTES, section
from onnxroof.hardware.profile import (
    EngineProfile,
    HardwareProfile,
    MemoryLevel,
    Peak,
    Source,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.hardware.checks import Section
    from onnxroof.hardware.profile import Basis, DeviceKind

_TERA = 10**12
_GIGA = 10**9


def to_profile(root: Section) -> HardwareProfile:
    """The profile a document describes.

    Args:
        root: Top mapping of a document without problems; with problems the result is undefined.
    """
    threads = root.get("threads")
    main = HardwareProfile(
        name=_text(root, "name"),
        title=_text(root, "title"),
        vendor=_text(root, "vendor"),
        kind=cast("DeviceKind", _text(root, "kind")),
        vector_engine=_engine(section(root, "vector_engine")),
        matrix_engine=_optional_engine(root),
        special_function_ops_per_second=_rate(root, "special_function_gops", _GIGA),
        denormal_penalty_seconds=_nanoseconds(root, "denormal_penalty_ns"),
        memory=tuple(
            _level(name, cast("Section", level)) for name, level in section(root, "memory").items()
        ),
        kernel_overhead_seconds=_seconds(root, "kernel_overhead_us") or 0.0,
        runtime=_text(root, "runtime"),
        threads=threads if isinstance(threads, int) else None,
        cores=_integer(root, "cores"),
        vector_bits=_integer(root, "vector_bits"),
        core_bandwidth_bytes_per_second=_rate(root, "core_bandwidth_gb_per_s", _GIGA),
        host_factor=_number(root, "host_factor") or 1.0,
        winograd_channels=_integer(root, "winograd_channels") or 1,
        latency_constants=tuple(_numbers(section(root, "latency_constants"))),
        notes=_texts(root, "notes"),
        sources=tuple(
            source_of(key, cast("Section", source))
            for key, source in section(root, "sources").items()
        ),
    )
    variants = (
        _variant(main, int(count), cast("Section", figures))
        for count, figures in section(root, "thread_variants").items()
    )
    return replace(main, thread_variants=tuple(variants))


def _variant(main: HardwareProfile, threads: int, figures: Section) -> HardwareProfile:
    """The main profile with the figures that hold for another number of threads."""
    far = main.main_memory
    vendor = _rate(figures, "bandwidth_gb_per_s", _GIGA)
    sustained = _rate(figures, "sustained_bandwidth_gb_per_s", _GIGA)
    memory = replace(
        far,
        vendor_bytes_per_second=vendor or far.vendor_bytes_per_second,
        sustained_bytes_per_second=sustained or far.sustained_bytes_per_second,
    )
    overhead = _seconds(figures, "kernel_overhead_us")
    return replace(
        main,
        threads=threads,
        vector_engine=_engine(section(figures, "vector_engine")),
        matrix_engine=_optional_engine(figures),
        special_function_ops_per_second=_rate(figures, "special_function_gops", _GIGA),
        memory=(*main.memory[:-1], memory),
        kernel_overhead_seconds=main.kernel_overhead_seconds if overhead is None else overhead,
        cores=_integer(figures, "cores") or (None if main.cores is None else threads),
    )


def _optional_engine(mapping: Section) -> EngineProfile | None:
    engine = section(mapping, "matrix_engine")
    return _engine(engine) if engine else None


def _engine(mapping: Section) -> EngineProfile:
    peaks: list[Peak] = []
    for unit in ("tflops", "tops"):
        sustained = section(mapping, f"sustained_{unit}")
        vendor = section(mapping, f"peak_{unit}")
        for compute_type in vendor:
            rate = _rate(vendor, compute_type, _TERA) or 0.0
            peaks.append(Peak(compute_type, rate, _rate(sustained, compute_type, _TERA)))
    return EngineProfile(_text(mapping, "name"), tuple(peaks), tuple(_multiples(mapping)))


def _multiples(mapping: Section) -> Iterator[tuple[str, int]]:
    for compute_type, channels in section(mapping, "channel_multiple").items():
        if isinstance(channels, int):
            yield compute_type, channels


def _level(name: str, mapping: Section) -> MemoryLevel:
    sizes = (
        round(size * unit)
        for key, unit in CAPACITY_BYTES.items()
        if (size := _number(mapping, key)) is not None
    )
    instances = mapping.get("instances")
    return MemoryLevel(
        level=name,
        capacity_bytes=next(sizes, None),
        instances=instances if isinstance(instances, int) else 1,
        vendor_bytes_per_second=_rate(mapping, "bandwidth_gb_per_s", _GIGA),
        sustained_bytes_per_second=_rate(mapping, "sustained_bandwidth_gb_per_s", _GIGA),
    )


def source_of(key: str, mapping: Section) -> Source:
    """A source as written under its key."""
    return Source(
        key=key,
        title=_text(mapping, "title"),
        basis=cast("Basis", _text(mapping, "basis")),
        covers=_texts(mapping, "covers"),
        url=_optional_text(mapping, "url"),
        where=_optional_text(mapping, "where"),
        read=_optional_text(mapping, "read"),
    )


def _numbers(mapping: Section) -> Iterator[tuple[str, float]]:
    for key, value in mapping.items():
        if isinstance(value, (int, float)):
            yield key, float(value)


def _integer(mapping: Section, key: str) -> int | None:
    value = mapping.get(key)
    return value if isinstance(value, int) else None


def _number(mapping: Section, key: str) -> float | None:
    value = mapping.get(key)
    return float(value) if isinstance(value, (int, float)) else None


def _rate(mapping: Section, key: str, unit: int) -> float | None:
    """A rate per second; whole where it can be, so that 4.608 · 10¹² is exact."""
    value = _number(mapping, key)
    if value is None:
        return None
    scaled = value * unit
    return float(round(scaled)) if scaled >= 1 else scaled


def _seconds(mapping: Section, key: str) -> float | None:
    """Microseconds as seconds, by way of nanoseconds so that 0.9 µs is 9e-07 s to the last bit."""
    value = _number(mapping, key)
    return None if value is None else round(value * 1000, 6) / _GIGA


def _nanoseconds(mapping: Section, key: str) -> float | None:
    value = _number(mapping, key)
    return None if value is None else value / _GIGA


def _optional_text(mapping: Section, key: str) -> str | None:
    value = mapping.get(key)
    return value if isinstance(value, str) else None


def _text(mapping: Section, key: str) -> str:
    return _optional_text(mapping, key) or ""


def _texts(mapping: Section, key: str) -> tuple[str, ...]:
    value = mapping.get(key)
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()
