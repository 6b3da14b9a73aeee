"""`Bench` → a hardware profile as YAML, its measurements as sources, and a table for people."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from onnxroof import __version__, units
from onnxroof.calibration.yaml_text import checked_profile
from onnxroof.latency.constants import CPU

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping

    from onnxroof.calibration.bench import Bench, Level
    from onnxroof.calibration.sampling import Measurement

    Section = dict[str, object]

_BLAS_REACHES = 0.9
"""Share of the peak that good matrix libraries reach at most: the peak is taken to be no lower
than the fastest product over this share."""

_MEMORY_REACHES = 0.8
"""Share of the memory's rated bandwidth that programs reach; STREAM gets 70 to 90 %."""

_SCALE_TRAFFIC = 1.5
"""Bytes that scaling an array moves over those STREAM counts: the target is read before it is
written."""

_LEAST_LOSS, _USUAL_LOSS, _MOST_LOSS = 0.001, 0.05, 0.2
"""Loss by sharing one product over all threads: OpenBLAS, two cores of a Zen 4, loses 2 to 5 %."""

_DIGITS = 4
_MOST_TEXT = 1900
_TYPE_SCALE = {"fp32": 1.0, "fp64": 0.5}


def profile_name(path: str) -> str:
    """A profile's name from the name of its file."""
    stem = re.split(r"[/\\]", path)[-1].rpartition(".")[0] or path
    name = re.sub(r"[^a-z0-9._-]+", "-", stem.lower()).strip("-._")
    return name[:64] or "this-machine"


def profile_text(found: Bench, name: str, numpy_says: str, day: dt.date) -> str:
    """The profile.

    Args:
        found: The measurements.
        name: What it is called.
        numpy_says: Versions of numpy and its BLAS library.
        day: When it was measured.

    Raises:
        InvalidProfileError: The figures contradict each other so that no profile can hold them.
    """
    root = _root(found, name, numpy_says, day)
    return checked_profile(root, name, f"onnxroof {__version__}, `onnxroof hw bench`, on {day}")


def _root(found: Bench, name: str, numpy_says: str, day: dt.date) -> Section:
    host = found.host
    most = found.threads
    root: Section = {
        "schema_version": 1,
        "name": name,
        "title": f"{host.processor}, {units.plural(host.cores, 'core')}, as measured on {day}",
        "vendor": host.vendor,
        "kind": "cpu",
        "runtime": "onnxruntime",
        "threads": most,
        "cores": most,
        "vector_bits": host.vector_bits,
        "core_bandwidth_gb_per_s": _giga(found.runs[1]["scale"].rate_per_second),
        "vector_engine": _engine(found, most),
        "kernel_overhead_us": _rounded(found.launch_seconds() * 1e6),
        "latency_constants": _constants(found),
        "memory": {level.name: _level(found, level) for level in found.levels},
    }
    variants = {str(count): _variant(found, count) for count in found.runs if count != most}
    if variants:
        root["thread_variants"] = variants
    root["notes"] = _notes(found)
    root["sources"] = _sources(found, numpy_says, day, bool(variants))
    return root


def _constants(found: Bench) -> Section:
    """Constants of the latency model that follow from how the sustained figures were measured.

    They were measured with products, of which a large one therefore reaches all; convolutions stand
    to products as on processors of other profiles. Threads were measured together, so that what
    they take from each other is in the figures already, and sharing costs only what a library loses
    when its threads share one product.
    """
    scale = 1 / CPU.product_share
    constants: Section = {
        "product_share": 1.0,
        "convolution_share": _rounded(CPU.convolution_share * scale),
        "winograd_share": _rounded(CPU.winograd_share * scale),
    }
    if found.threads > 1:
        constants["parallel_loss"] = _rounded(_loss_by_sharing(found) / (found.threads - 1))
    return constants


def _loss_by_sharing(found: Bench) -> float:
    """Time of a product that all threads share over that of products of their own, less one.

    By the best runs of both. More than a library loses is other programs' doing: then the usual.
    """
    run = found.runs[found.threads]
    loss = run["fp32"].best_per_second / run["product"].best_per_second - 1
    return max(loss, _LEAST_LOSS) if loss <= _MOST_LOSS else _USUAL_LOSS


def _engine(found: Bench, threads: int) -> Section:
    run = found.runs[threads]
    return {
        "name": f"vector units as {found.host.vector_bits}-bit instructions use them",
        "peak_tflops": {
            kind: _rounded(_core_peak(found, kind) * threads / 1e12, up=True)
            for kind in _TYPE_SCALE
        },
        "sustained_tflops": {
            kind: _rounded(run[kind].rate_per_second / 1e12) for kind in _TYPE_SCALE
        },
    }


def _core_peak(found: Bench, kind: str) -> float:
    """FLOP/s of a core: by clock and units, and no lower than what products showed."""
    shown = max(run[kind].best_per_second / threads for threads, run in found.runs.items())
    host = found.host
    rated = (host.clock_hertz or 0.0) * (host.flops_per_cycle or 0) * _TYPE_SCALE[kind]
    return max(rated, shown / _BLAS_REACHES)


def _level(found: Bench, level: Level) -> Section:
    sustained = _giga(level.found.rate_per_second)
    if level.cache is not None:
        size: Section = {"capacity_kib": level.cache.nbytes / 1024}
        if level.cache.instances > 1:
            size["instances"] = level.cache.instances
        return {**size, "sustained_bandwidth_gb_per_s": sustained}
    memory = found.host.memory_bytes
    return {
        **({} if memory is None else {"capacity_gib": _rounded(memory / 2**30)}),
        "bandwidth_gb_per_s": _giga(_far_peak(found), up=True),
        "sustained_bandwidth_gb_per_s": sustained,
    }


def _far_peak(found: Bench) -> float:
    """Bytes/s that main memory moves at most: the fastest of all runs, over what programs reach."""
    fastest = max(
        max(
            run["scale"].best_per_second * _SCALE_TRAFFIC,
            run["copy"].best_per_second,
            run["read"].best_per_second,
        )
        for run in found.runs.values()
    )
    return fastest / _MEMORY_REACHES


def _variant(found: Bench, threads: int) -> Section:
    return {
        "cores": threads,
        "vector_engine": _engine(found, threads),
        "sustained_bandwidth_gb_per_s": _giga(found.runs[threads]["scale"].rate_per_second),
    }


def _notes(found: Bench) -> list[str]:
    notes = [
        "fp16 is left out: numpy computes it in software, which says nothing about the hardware."
        " int8 is left out: numpy multiplies integer matrices without a BLAS library. Add"
        " peak_tflops and peak_tops from the data sheet where you need them.",
        "Peaks are upper estimates, so that the roofline bound is one. Sustained figures are"
        " medians, and what expected times rest on.",
    ]
    joined = found.fork_join_seconds()
    if joined is not None:
        notes.append(
            f"A small product shared by {found.threads} threads takes {units.duration(joined)} more"
            " than its share of the time on one: forking and joining. A large one reaches"
            f" {_said(found.runs[found.threads]['product'], 'FLOP/s')}."
        )
    notes += [f"Mind {said}." for said in found.warnings()]
    return [note[:_MOST_TEXT] for note in notes]


# -- sources ---------------------------------------------------------------------------------


def _sources(found: Bench, numpy_says: str, day: dt.date, has_variants: bool) -> Section:
    title = "Micro-benchmark of this machine, onnxroof hw bench"
    host = found.host
    variables = ", ".join(f"{name}={value}" for name, value in host.environment.items())
    blas = [f"{numpy_says}; environment: {variables or 'no variable that chooses kernels'}"]
    stream: list[str] = []
    variants: list[str] = []
    for threads, run in found.runs.items():
        figures = [f"{kind} products {_said(run[kind], 'FLOP/s')}" for kind in _TYPE_SCALE]
        memory = f"main memory scaled {_said(run['scale'], 'B/s')}"
        (blas if threads == found.threads else variants).extend(
            f"{threads} threads: {figure}" for figure in figures
        )
        (stream if threads == found.threads else variants).append(f"{threads} threads: {memory}")
    stream += [
        f"{level.name}: {_said(level.found, 'B/s')} in {units.binary_size(level.working_set)}"
        for level in found.levels
        if level.cache is not None
    ]
    variant_paths = [f"thread_variants.{count}" for count in found.runs if count != found.threads]
    sources: Section = {
        "products": _source(title, "measurement", blas, ["vector_engine.sustained_tflops"], day),
        "bandwidth": _source(
            title, "measurement", stream,
            [f"memory.{level.name}.sustained_bandwidth_gb_per_s" for level in found.levels], day,
        ),
        "single-core": _source(
            title, "measurement",
            [f"one thread, main memory scaled {_said(found.runs[1]['scale'], 'B/s')}; a call that"
             f" computes one element {_said(found.runs[1]['call'], 'calls/s')}"],
            ["core_bandwidth_gb_per_s", "kernel_overhead_us"], day,
        ),
        "peaks": _source(
            "Upper estimates from the measurement", "derived", _peak_arithmetic(found),
            ["vector_engine.peak_tflops", "memory.dram.bandwidth_gb_per_s"], day,
        ),
        "latency-model": _source(
            "Constants that follow from how the sustained figures were measured", "derived",
            ["sustained figures are those of large products, so a product reaches all of it;"
             " convolutions stand to products as on processors of other profiles; loss by sharing"
             " from one product on all threads of the library against one a thread"],
            ["latency_constants"], day,
        ),
        "system": _source(
            "What the operating system says about the machine", "datasheet",
            [f"{host.processor}: {host.cores} cores, {host.logical} hardware threads, caches,"
             " memory and instruction sets as listed by the system"],
            ["cores", "vector_bits", *_capacities(found)], day,
        ),
    }  # fmt: skip
    if has_variants:
        sources["thread-counts"] = _source(title, "measurement", variants, variant_paths, day)
    return sources


def _capacities(found: Bench) -> list[str]:
    caches = [f"memory.{level.name}.capacity_kib" for level in found.levels if level.cache]
    return caches + ([] if found.host.memory_bytes is None else ["memory.dram.capacity_gib"])


def _source(
    title: str, basis: str, where: Iterable[str], covers: list[str], day: dt.date
) -> Section:
    text = "; ".join(where)
    text = "".join(char if char.isprintable() else " " for char in text)[:_MOST_TEXT]
    return {"title": title, "basis": basis, "where": text, "read": str(day), "covers": covers}


def _peak_arithmetic(found: Bench) -> list[str]:
    host = found.host
    shown = max(run["fp32"].best_per_second / count for count, run in found.runs.items())
    lines = [
        f"fastest fp32 product {units.rate(shown, 'FLOP/s')} a core over {_BLAS_REACHES:g}, the"
        " share of the peak that matrix libraries reach at most"
    ]
    if host.clock_hertz and host.flops_per_cycle:
        lines.append(
            f"no lower than {host.clock_hertz / 1e9:.3g} GHz, the highest clock the system names,"
            f" times {host.flops_per_cycle} FLOP a cycle, the most that its instruction set allows"
        )
    lines.append(
        "memory: the fastest run of scaling (whose target is read first: times"
        f" {_SCALE_TRAFFIC:g}), copying and reading, over {_MEMORY_REACHES:g}, the share of the"
        " rated bandwidth that programs reach; fp64 likewise, by half the lanes"
    )
    return lines


def _said(found: Measurement, unit: str) -> str:
    left_out = f", {found.disturbed} disturbed ones left out" if found.disturbed else ""
    return (
        f"{units.rate(found.rate_per_second, unit)} (median of {found.samples} runs{left_out},"
        f" quartiles {found.spread:.1%} apart, best {units.rate(found.best_per_second, unit)})"
    )


def _giga(value: float, *, up: bool = False) -> float:
    return _rounded(value / 1e9, up=up)


def _rounded(value: float, *, up: bool = False) -> float:
    """A few significant digits; upper estimates never end below what they cover."""
    rounded = float(f"{value:.{_DIGITS - 1}e}")
    return float(f"{value * 1.001:.{_DIGITS - 1}e}") if up and rounded < value else rounded


# -- for people ------------------------------------------------------------------------------


def bench_text(found: Bench) -> str:
    """What was measured, as a table."""
    host = found.host
    lines = [
        f"{units.printable(host.processor)}: {units.plural(host.cores, 'core')},"
        f" {host.vector_bits}-bit vectors",
        "",
        f"{'threads':>8}  {'fp32':>14}  {'fp64':>14}  {'main memory':>14}",
    ]
    for threads, run in found.runs.items():
        cells = [
            units.rate(run["fp32"].rate_per_second, "FLOP/s"),
            units.rate(run["fp64"].rate_per_second, "FLOP/s"),
            units.rate(run["scale"].rate_per_second, "B/s"),
        ]
        lines.append(f"{threads:>8}  " + "  ".join(f"{cell:>14}" for cell in cells))
    lines += ["", *_curve_lines(found), ""]
    lines.append(f"smallest call: {units.duration(found.launch_seconds())}")
    joined = found.fork_join_seconds()
    if joined is not None:
        lines.append(f"fork and join of {found.threads} threads: {units.duration(joined)}")
    lines += [f"mind: {said}" for said in found.warnings()]
    return "\n".join(lines) + "\n"


def _curve_lines(found: Bench) -> list[str]:
    curves: Mapping[int, dict[int, Measurement]] = {
        threads: dict(found.curve(threads)) for threads in dict.fromkeys((1, found.threads))
    }
    sizes = sorted({nbytes for curve in curves.values() for nbytes in curve})
    head = "".join(f"{f'{threads} threads':>14}" for threads in curves)
    lines = [f"{'working set':>12}{head}"]
    for nbytes in sizes:
        cells = [curve.get(nbytes) for curve in curves.values()]
        shown = [units.rate(cell.rate_per_second, "B/s") if cell else "" for cell in cells]
        lines.append(f"{units.binary_size(nbytes):>12}" + "".join(f"{cell:>14}" for cell in shown))
    return lines
