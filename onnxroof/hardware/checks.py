"""What a profile's figures must satisfy together: sources, order, plausible ridge points.

Works on the plain document, not on a validated one, so that a file with a misspelt key and an
implausible figure hears of both. Values that the form refuses are left out.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.errors import ProfileProblem
from onnxroof.hardware.messages import near_match, printable
from onnxroof.hardware.profile import is_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from onnxroof.hardware.strict_yaml import Value

    Section = Mapping[str, Value]

CAPACITY_BYTES = {
    "capacity_kb": 10**3,
    "capacity_kib": 2**10,
    "capacity_mb": 10**6,
    "capacity_mib": 2**20,
    "capacity_gb": 10**9,
    "capacity_gib": 2**30,
}
"""Bytes in the unit of each capacity key."""

RIDGE_POINT_RANGE = (0.1, 10_000.0)
"""FLOP/byte. No device lies outside; a figure that does has a wrong unit."""

LANE_RATE_RANGE = (0.1, 100.0)
"""10⁹ operations a second of one lane of a core's vector registers: clock times two for a
multiply-add times pipes. Shipped processors have 0.6 to 18; beyond, a figure has a wrong unit."""

_BITS = {
    "fp64": 64, "int64": 64, "fp32": 32, "int32": 32, "tf32": 32, "fp16": 16, "bf16": 16,
    "int16": 16, "fp8": 8, "int8": 8, "fp4": 4, "int4": 4,
}  # fmt: skip

_FIGURE_SECTIONS = (
    "matrix_engine",
    "vector_engine",
    "special_function_gops",
    "memory",
    "kernel_overhead_us",
    "denormal_penalty_ns",
    "cores",
    "vector_bits",
    "core_bandwidth_gb_per_s",
    "host_factor",
    "winograd_channels",
    "latency_constants",
    "thread_variants",
)
_ENGINES = ("matrix_engine", "vector_engine")


def cross_problems(root: Section, refused: Iterable[str] = ()) -> tuple[ProfileProblem, ...]:
    """Everything wrong with the figures as a whole.

    Args:
        root: The document's top mapping.
        refused: Dotted paths that the form refused already; nothing is said about them again.
    """
    refused = tuple(path for path in refused if path)
    figures = _Figures(
        {p: v for p, v in _numbers(root) if not any(is_prefix(bad, p) for bad in refused)}, refused
    )
    sources = section(root, "sources")
    found = (
        *_uncovered(figures, sources),
        *_source_problems(figures, sources),
        *_peak_problems(root, figures),
        *_memory_problems(root, figures),
        *_ridge_problems(root, figures),
        *_lane_problems(root, figures),
        *_thread_problems(root),
    )
    return tuple(p for p in found if not any(is_prefix(bad, p.path) for bad in refused))


@dataclass(frozen=True, slots=True)
class _Figures:
    """Every usable number of the document by its dotted path, and the paths refused already."""

    by_path: Mapping[str, float]
    refused: tuple[str, ...]

    def get(self, path: str) -> float | None:
        return self.by_path.get(path)

    def is_in_doubt(self, path: str) -> bool:
        """Whether something at, above or below a path was refused, so that nothing follows."""
        return any(is_prefix(bad, path) or is_prefix(path, bad) for bad in self.refused)


def section(mapping: Section, key: str) -> Section:
    """The mapping under a key; an empty one where there is none."""
    value = mapping.get(key)
    return value if isinstance(value, dict) else {}


def _numbers(root: Section) -> Iterator[tuple[str, float]]:
    """Every number that needs a source, with its dotted path."""
    stack = [(key, root[key]) for key in reversed(_FIGURE_SECTIONS) if key in root]
    while stack:
        path, value = stack.pop()
        if isinstance(value, dict):
            stack += [(f"{path}.{printable(k)}", v) for k, v in reversed(value.items())]
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield path, float(value)


def covers_of(sources: Section) -> Iterator[tuple[str, str]]:
    """(where it stands, the path covered) for every path that a source covers."""
    for key, source in sources.items():
        covers = source.get("covers") if isinstance(source, dict) else None
        for index, path in enumerate(covers if isinstance(covers, list) else []):
            if isinstance(path, str):
                yield f"sources.{printable(key)}.covers.{index}", path


def _uncovered(figures: _Figures, sources: Section) -> Iterator[ProfileProblem]:
    covered = [path for _, path in covers_of(sources)]
    if any(path == "sources" or path.endswith(".covers") for path in figures.refused):
        return
    for path in figures.by_path:
        if path.endswith(".instances"):
            continue
        if not any(is_prefix(cover, path) for cover in covered):
            yield ProfileProblem(path, "no source: add this path to the covers of a source")


def _source_problems(figures: _Figures, sources: Section) -> Iterator[ProfileProblem]:
    parents = {path.rsplit(".", depth)[0] for path in figures.by_path for depth in range(5)}
    for where, path in covers_of(sources):
        if path not in parents and not figures.is_in_doubt(path):
            shown = printable(path)
            yield ProfileProblem(
                where, f"no figure of this file lies at {shown}{near_match(path, sorted(parents))}"
            )
    for key, source in sources.items():
        if not isinstance(source, dict):
            continue
        where = f"sources.{printable(key)}"
        if not source.get("url") and not source.get("where"):
            yield ProfileProblem(where, "needs url or where, so that others can look it up")
        if not _is_date(source.get("read")):
            yield ProfileProblem(f"{where}.read", "there is no such day")


def _is_date(value: Value) -> bool:
    """False only for text that has the form of a date and is none."""
    try:
        return not isinstance(value, str) or bool(dt.date.fromisoformat(value))
    except ValueError:
        return False


def _scopes(root: Section) -> Iterator[tuple[str, Section]]:
    """The file's main part and each thread variant, with the prefix of their paths."""
    yield "", root
    for key, variant in section(root, "thread_variants").items():
        if isinstance(variant, dict):
            yield f"thread_variants.{printable(key)}.", variant


def _peak_problems(root: Section, figures: _Figures) -> Iterator[ProfileProblem]:
    for prefix, scope in _scopes(root):
        for engine in _ENGINES:
            where = f"{prefix}{engine}"
            if not isinstance(scope.get(engine), dict) or figures.is_in_doubt(where):
                continue
            tables = tuple(f"{where}.peak_{unit}." for unit in ("tflops", "tops"))
            if not any(path.startswith(tables) for path in figures.by_path):
                yield ProfileProblem(where, "has no peak: give peak_tflops or peak_tops")
    for path, sustained in figures.by_path.items():
        peak = path.replace(".sustained_", ".peak_")
        if ".sustained_t" not in path or figures.is_in_doubt(peak):
            continue
        vendor = figures.get(peak)
        if vendor is None:
            yield ProfileProblem(path, "a sustained figure needs a peak of the same type beside it")
        elif sustained > vendor:
            yield ProfileProblem(path, f"sustained {sustained:g} is above the peak of {vendor:g}")


def _memory_problems(root: Section, figures: _Figures) -> Iterator[ProfileProblem]:
    memory = section(root, "memory")
    nearer, nearer_bytes = "", 0.0
    for level in map(printable, memory):
        sizes = [key for key in CAPACITY_BYTES if f"memory.{level}.{key}" in figures.by_path]
        if len(sizes) > 1:
            yield ProfileProblem(f"memory.{level}", f"one capacity is enough, not {len(sizes)}")
        if sizes:
            size = figures.by_path[f"memory.{level}.{sizes[0]}"] * CAPACITY_BYTES[sizes[0]]
            if size <= nearer_bytes:
                yield ProfileProblem(
                    f"memory.{level}.{sizes[0]}",
                    f"not larger than {nearer}: list levels from the nearest to main memory",
                )
            nearer, nearer_bytes = level, size
    for prefix in (*(f"memory.{printable(level)}." for level in memory), *_variant_prefixes(root)):
        yield from _bandwidth_problems(prefix, figures, root)
    if memory:
        last = printable(list(memory)[-1])
        if f"memory.{last}.bandwidth_gb_per_s" not in figures.by_path:
            yield ProfileProblem(
                f"memory.{last}.bandwidth_gb_per_s", "required: the last level is main memory"
            )


def _variant_prefixes(root: Section) -> tuple[str, ...]:
    return tuple(prefix for prefix, _ in _scopes(root) if prefix)


def _bandwidth_problems(prefix: str, figures: _Figures, root: Section) -> Iterator[ProfileProblem]:
    path = f"{prefix}sustained_bandwidth_gb_per_s"
    sustained = figures.get(path)
    vendor = figures.get(f"{prefix}bandwidth_gb_per_s")
    if vendor is None and prefix.startswith("thread_variants."):
        vendor = _main_bandwidth(root, figures, "bandwidth_gb_per_s")
    if sustained is not None and vendor is not None and sustained > vendor:
        message = f"sustained {sustained:g} is above the vendor's {vendor:g}"
        yield ProfileProblem(path, message)


def _main_bandwidth(root: Section, figures: _Figures, key: str) -> float | None:
    memory = list(section(root, "memory"))
    return figures.get(f"memory.{printable(memory[-1])}.{key}") if memory else None


def _ridge_problems(root: Section, figures: _Figures) -> Iterator[ProfileProblem]:
    low, high = RIDGE_POINT_RANGE
    for path, peak in figures.by_path.items():
        parts = path.split(".")
        if len(parts) < 2 or not parts[-2].startswith(("peak_t", "sustained_t")):
            continue
        key = "bandwidth_gb_per_s"
        if parts[-2].startswith("sustained"):
            key = f"sustained_{key}"
        scope = ".".join(parts[:2]) + "." if parts[0] == "thread_variants" else ""
        bandwidth = figures.get(f"{scope}{key}") if scope else None
        bandwidth = bandwidth or _main_bandwidth(root, figures, key)
        if not bandwidth or bandwidth <= 0 or peak <= 0:
            continue
        ridge_point = peak * 1000 / bandwidth
        if not low <= ridge_point <= high:
            yield ProfileProblem(
                path,
                f"ridge point {ridge_point:.3g} FLOP/byte over {bandwidth:g} GB/s is implausible"
                f" (expected {low:g} to {high:g}): check the units",
            )


def _lane_problems(root: Section, figures: _Figures) -> Iterator[ProfileProblem]:
    """Peaks of a processor that its cores and the width of their registers cannot explain."""
    low, high = LANE_RATE_RANGE
    register = figures.get("vector_bits")
    if root.get("kind") != "cpu" or not register or register <= 0:
        return
    for path, peak in figures.by_path.items():
        scope, is_peak, _ = path.partition("vector_engine.peak_")
        bits = _BITS.get(path.rpartition(".")[2])
        cores = figures.get(f"{scope}cores") or _threads_of(scope)
        if not is_peak or not bits or not cores or cores <= 0:
            continue
        lanes = cores * register / bits
        if not low <= peak * 1000 / lanes <= high:
            yield ProfileProblem(
                path,
                f"{peak * 1000 / lanes:.3g} billion operations a second for each of the"
                f" {lanes:g} lanes that {cores:g} cores of {register:g} bits have is implausible"
                f" (expected {low:g} to {high:g}): check the units",
            )


def _threads_of(prefix: str) -> float | None:
    """How many threads, each on a core, the figures of a thread variant hold for."""
    count = prefix.removeprefix("thread_variants.").removesuffix(".")
    return float(count) if count.isdecimal() else None


def _thread_problems(root: Section) -> Iterator[ProfileProblem]:
    variants = section(root, "thread_variants")
    if variants and root.get("threads") is None:
        yield ProfileProblem(
            "threads", "required beside thread_variants: how many the main figures hold for"
        )
    for key, variant in variants.items():
        where = f"thread_variants.{printable(key)}"
        if key == str(root.get("threads")):
            yield ProfileProblem(where, "the main part holds the figures for this many threads")
        for name in ("matrix_engine", "special_function_gops"):
            if isinstance(variant, dict) and root.get(name) is not None and name not in variant:
                yield ProfileProblem(
                    f"{where}.{name}", "required: the main part has one, for another thread count"
                )
