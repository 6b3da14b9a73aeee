"""What a report says above its table, as labelled lines for the text and markdown renderers.

Reads the finished `Analysis`; every string that came from a file is made printable here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.bounded import lower, upper
from onnxroof.errors import named
from onnxroof.units import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnxroof.analysis import Analysis
    from onnxroof.cost import Totals
    from onnxroof.fusion.plan import KernelPlan
    from onnxroof.ops.call import TensorInfo
    from onnxroof.roofline import RooflineResult

_MOST_LINES = 6
"""Lines of one kind (assumptions, unknown operators …) a report for people shows."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One total: its label, the number for people, the exact number, and a remark."""

    label: str
    value: str
    exact: str
    remark: str = ""


def title(analysis: Analysis) -> str:
    """The model: its file, or the name of its graph when it came from memory."""
    return printable(analysis.model.path or analysis.model.graph.name or "model in memory")


def header(analysis: Analysis) -> list[tuple[str, list[str]]]:
    """Model, inputs, precision, assumptions and coverage: (label, lines)."""
    lines = [
        ("model", [_model_line(analysis)]),
        ("inputs", _tensor_lines(analysis.inputs)),
        ("precision", [_precision_line(analysis)]),
        ("assumed", capped(assumptions(analysis), "assumptions")),
        ("coverage", coverage_lines(analysis)),
        ("unknown", capped(_unresolved_lines(analysis), "tensors without a shape")),
        ("problems", capped([printable(str(p)) for p in analysis.problems], "problems")),
    ]
    return [(label, texts) for label, texts in lines if texts]


def assumptions(analysis: Analysis) -> list[str]:
    """Everything assumed for the counts and, per device, for the time."""
    said = [*analysis.assumptions]
    if analysis.data_dependent:
        said.append(_data_dependent_line(analysis.data_dependent))
    if analysis.totals.per_trip:
        said.append("loops whose number of trips only a run tells are counted for one trip")
    said += [
        f"{result.hardware.name} is expected below the roofline bound: its algorithms (Winograd)"
        " multiply less than the formulas count"
        for result in analysis.rooflines
        if result.expected and result.latency_seconds < result.bound_seconds
    ]
    shown = analysis.kernels
    said += [
        f"{result.hardware.name} launches the {units.plural(len(result.plan.kernels), 'kernel')} of"
        f" {result.plan.runtime}; in a table of kernels their times stand at those of"
        f" {shown.runtime} that hold them"
        for result in analysis.rooflines
        if result.plan is not shown
    ]
    for result in analysis.rooflines:
        said.extend(result.assumptions)
    return [printable(sentence) for sentence in dict.fromkeys(said)]


def _data_dependent_line(names: Sequence[str]) -> str:
    return (
        f"sizes that only a run tells are taken at their largest: {named(names)}"
        f" (--dim {names[0]}=N sets one)"
    )


def coverage_lines(analysis: Analysis) -> list[str]:
    """How many nodes have a cost, and every operator that has none, with the reason."""
    found = analysis.coverage
    unknown = sum(nodes for nodes, _ in found.unknown.values())
    known = found.counted + found.free + found.folded
    parts = [f"{found.counted:,} counted", f"{found.free:,} without arithmetic"]
    if found.folded:
        parts.append(f"{found.folded:,} folded constants")
    if unknown:
        parts.append(f"{unknown:,} unknown")
    bodies = ", bodies included" if found.nodes != len(analysis.nodes) else ""
    lines = [f"{known:,} of {units.plural(found.nodes, 'node')} known{bodies}: {', '.join(parts)}"]
    reasons = [
        f"{printable(name)} × {nodes}: {printable(reason)}"
        for name, (nodes, reason) in sorted(found.unknown.items())
    ]
    lines += capped(reasons, "operators")
    if any(reason.startswith("no formula") for _, reason in found.unknown.values()):
        lines.append("--operators FILE gives an operator of your own a shape and a formula")
    return lines


def totals(analysis: Analysis) -> list[Figure]:
    """MACs, FLOPs, parameters, sizes and traffic."""
    sums = analysis.totals
    missing = sums.is_lower_bound
    work = f"2·MACs + {units.count(upper(sums.flops) - 2 * upper(sums.macs))} others"
    if sums.transcendentals:
        work += f" ({units.count(upper(sums.transcendentals))} transcendental)"
    once = _once(sums)
    figures = [
        _work_figure("MACs", sums.macs, sums.macs_min, missing, _macs_note(sums), once),
        _work_figure("FLOPs", sums.flops, sums.flops_min, missing, work, once),
        Figure(
            "parameters",
            units.count(sums.parameters),
            units.exact(sums.parameters),
            _parameter_remark(analysis),
        ),
        Figure(
            "weights",
            units.size(sums.weight_bytes),
            units.exact(sums.weight_bytes),
            "as stored in the file" if analysis.precision else "as stored",
        ),
        Figure(
            "model file",
            units.size(analysis.model.file_bytes),
            units.exact(analysis.model.file_bytes),
            _external_remark(analysis),
        ),
    ]
    return figures + _traffic_figures(analysis)


def verdict(analysis: Analysis) -> tuple[list[str], list[list[str]]]:
    """A table with one column a device: headers and rows."""
    results = analysis.rooflines
    expected = any(result.expected for result in results)
    once = _once(analysis.totals)
    rows = [
        ["runtime", *(printable(result.runtime or result.plan.runtime) for result in results)],
        ["latency", *(_latency(result) + once for result in results)],
        *([["roofline bound", *(_bound(result) for result in results)]] if expected else []),
        ["runs per second", *(_throughput(result) for result in results)],
    ]
    for bound in ("compute", "memory", "overhead", "unknown"):
        shares = [_bound_share(result, bound) for result in results]
        if bound != "unknown" or any(shares):
            rows.append([f"time {bound}-bound", *(units.percent(share) for share in shares)])
    rows += [
        ["achieved", *(_achieved(result) for result in results)],
        ["share of peak", *(_share_of_peak(result) for result in results)],
        ["ridge point", *(_ridge(result) for result in results)],
        ["model's intensity", *(_model_intensity(result.plan) for result in results)],
    ]
    return ["", *(printable(r.hardware.name) for r in results)], rows


def device_lines(analysis: Analysis) -> list[str]:
    """One line a device: what it is, which figures, from which sources."""
    return [_device_line(result) for result in analysis.rooflines]


def capped(lines: Sequence[str], what: str) -> list[str]:
    """At most so many lines, and how many more there are."""
    if len(lines) <= _MOST_LINES + 1:
        return list(lines)
    more = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], f"… and {more} more {what} (--format json has them all)"]


def _model_line(analysis: Analysis) -> str:
    model = analysis.model
    used = {"", *(node.domain for node in analysis.cost.shaped.graph.nodes)}
    opsets = ", ".join(
        f"{name or 'ai.onnx'} {version}"
        for name, version in sorted(model.opsets.items())
        if name in used
    )
    producer = f", made by {model.producer}" if model.producer.strip() else ""
    nodes = units.plural(len(model.graph.nodes), "node")
    return printable(f"{nodes}, opset {opsets}, IR {model.ir_version}{producer}")


def _tensor_lines(infos: Mapping[str, TensorInfo]) -> list[str]:
    return capped([f"{printable(name)} {_type(info)}" for name, info in infos.items()], "inputs")


def _type(info: TensorInfo) -> str:
    label = info.dtype.label if info.dtype is not None else units.UNKNOWN
    if info.kind != "tensor":
        return f"{info.kind} of {label}"
    return f"{label}[{printable(units.shape(info.shape))}]"


def _precision_line(analysis: Analysis) -> str:
    if analysis.precision:
        return f"as if weights and activations were stored and computed in {analysis.precision}"
    return "as stored in the file"


def _unresolved_lines(analysis: Analysis) -> list[str]:
    return [
        printable(f"shape of {item.tensor} ({item.node}): {item.reason}")
        for item in analysis.unresolved
    ]


def _work_figure(
    label: str, value: int, least: int, missing: bool, remark: str, once: str
) -> Figure:
    """A count that may be a bound: with nodes missing only its lower end holds."""
    shown = least if missing else value
    is_range = lower(value) != upper(value)
    at_most = is_range and not missing
    if at_most:
        remark = f"at least {units.count(least)}; {remark}" if remark else units.count(least)
    text = units.bounded(units.count(upper(shown)), at_least=missing, at_most=at_most)
    return Figure(label, text + once, units.exact(upper(shown)), remark)


def _macs_note(sums: Totals) -> str:
    """By type, and the part that a runtime computes only once."""
    note = _by_dtype(sums.macs_by_dtype)
    if not sums.folded_macs:
        return note
    return f"{note}; {units.count(upper(sums.folded_macs))} of constants, computed once"


def _by_dtype(by_dtype: Mapping[str, int]) -> str:
    if not by_dtype:
        return ""
    if len(by_dtype) == 1:
        return f"all {next(iter(by_dtype))}"
    ordered = sorted(by_dtype.items(), key=lambda item: -item[1])
    return ", ".join(f"{label} {units.count(macs)}" for label, macs in ordered)


def _parameter_remark(analysis: Analysis) -> str:
    sums = analysis.totals
    parts = []
    if sums.nonzero_parameters != sums.parameters:
        parts.append(f"{units.count(sums.nonzero_parameters)} stored as nonzero")
    if sums.unused_parameters:
        parts.append(f"{units.count(sums.unused_parameters)} unused ones not counted")
    if sums.quantization_bytes:
        parts.append(f"{units.size(sums.quantization_bytes)} of scales and zero points apart")
    return "; ".join(parts) or "shared ones once"


def _external_remark(analysis: Analysis) -> str:
    files = analysis.model.external_files
    if not files:
        return "weights inside" if analysis.model.path else "serialized"
    listed = printable(", ".join(files[:2])) + (" …" if len(files) > 2 else "")
    return f"weights in {units.shorten(listed, 40)}, not opened"


def _traffic_figures(analysis: Analysis) -> list[Figure]:
    before = analysis.totals
    return [
        _bytes_figure(
            "traffic, node by node", before.traffic_bytes, before.is_lower_bound,
            "every tensor once in, once out", _once(before),
        ),
        *[
            _bytes_figure(
                "traffic, fused", plan.traffic_bytes, plan.is_lower_bound,
                _rules(analysis, plan), _once(before),
            )
            for plan in analysis.plans.values()
        ],
    ]  # fmt: skip


def fusion_to_name(analysis: Analysis) -> str:
    """The fusion set of `kernels`, where devices have different ones; else ""."""
    return printable(analysis.kernels.runtime) if len(analysis.plans) > 1 else ""


def _rules(analysis: Analysis, plan: KernelPlan) -> str:
    """How many kernels by whose rules, and on which devices where these differ."""
    rules = f"{units.plural(len(plan.kernels), 'kernel')} by the rules of {printable(plan.runtime)}"
    if len(analysis.plans) == 1:
        return rules
    return f"{rules}, on {printable(', '.join(analysis.devices_of(plan.runtime)))}"


def _bytes_figure(label: str, nbytes: int, missing: bool, remark: str, once: str) -> Figure:
    shown = lower(nbytes) if missing else upper(nbytes)
    at_most = lower(nbytes) != upper(nbytes) and not missing
    text = units.bounded(units.size(shown), at_least=missing, at_most=at_most)
    return Figure(label, text + once, units.exact(shown), remark)


def _latency(result: RooflineResult) -> str:
    """What is expected of the runtime; a lower bound where no runtime was considered."""
    at_least, at_most = _latency_bounds(result)
    text = units.duration(result.latency_seconds)
    return units.bounded(text, at_least=at_least, at_most=at_most)


def _latency_bounds(result: RooflineResult) -> tuple[bool, bool]:
    """(at least, at most): something is missing, or sizes were taken at their largest."""
    is_missing = not result.expected or result.is_lower_bound_of_plan
    at_largest = result.at_upper_bounds
    return is_missing and not at_largest, at_largest and not is_missing


def _once(sums: Totals) -> str:
    """What stands behind figures of loops that run nobody knows how often."""
    return " per trip" if sums.per_trip else ""


def _bound(result: RooflineResult) -> str:
    """A lower bound by its making, unless sizes were taken at their largest."""
    text = units.duration(result.bound_seconds)
    return text if result.at_upper_bounds else units.bounded(text, at_least=True)


def _throughput(result: RooflineResult) -> str:
    """Runs of the whole model (at its batch) a second: one over the latency."""
    if not result.latency_seconds:
        return units.UNKNOWN
    per_second = 1 / result.latency_seconds
    text = units.significant(per_second) if per_second < 1000 else f"{per_second:,.0f}"
    slower, faster = _latency_bounds(result)
    return units.bounded(text, at_least=faster, at_most=slower)


def _achieved(result: RooflineResult) -> str:
    """Work over time; not known while a kernel's work or time is missing."""
    known = None if result.is_lower_bound_of_plan else result.flops_per_second
    return units.rate(known, "FLOP/s")


def _share_of_peak(result: RooflineResult) -> str:
    known = None if result.is_lower_bound_of_plan else result.share_of_peak
    return units.UNKNOWN if known is None else f"{units.percent(known)} of {result.peak_type}"


def _bound_share(result: RooflineResult, bound: str) -> float:
    return next((share for key, share in result.time_shares.items() if key.value == bound), 0.0)


def _ridge(result: RooflineResult) -> str:
    point = result.ridge_points.get(result.peak_type)
    if point is None:
        return units.UNKNOWN
    return f"{units.intensity(point)} FLOP/byte ({result.peak_type})"


def _model_intensity(plan: KernelPlan) -> str:
    if plan.is_lower_bound:
        return units.UNKNOWN
    return f"{units.intensity(plan.arithmetic_intensity)} FLOP/byte"


def _device_line(result: RooflineResult) -> str:
    profile = result.hardware
    threads = f", {profile.threads} threads" if profile.threads else ""
    sources = ", ".join(_sources_of_figures(result))
    cited = f"; sources: {sources}" if sources else ""
    return printable(f"{profile.name}: {profile.title}{threads}; {result.peak_kind} figures{cited}")


def _sources_of_figures(result: RooflineResult) -> list[str]:
    """Keys of the sources behind the peak of the main type, the bandwidth and the overhead."""
    vendor = result.peak_kind == "vendor"
    peak, bandwidth = ("peak", "") if vendor else ("sustained", "sustained_")
    paths = [
        f"{engine}_engine.{peak}_{unit}.{result.main_type}"
        for engine in ("matrix", "vector")
        for unit in ("tflops", "tops")
    ]
    paths.append(f"memory.{result.hardware.main_memory.level}.{bandwidth}bandwidth_gb_per_s")
    paths.append("kernel_overhead_us")
    return list(
        dict.fromkeys(source.key for path in paths for source in result.hardware.sources_of(path))
    )
