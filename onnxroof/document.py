"""`Analysis` → the JSON report as plain dictionaries and lists; documented in docs/json.md.

The machine-readable contract: base units with the unit in every key, None where something is not
known, one fixed order. `SCHEMA_VERSION` grows when a key changes its meaning or goes away; new
keys may appear at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import __version__
from onnxroof.bounded import is_exact, lower, upper
from onnxroof.document_memory import memory_document
from onnxroof.fusion.explain import explain_fusion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.analysis import Analysis
    from onnxroof.cost import BodyCost, GraphCost, NodeCost
    from onnxroof.fusion.explain import FusionReport
    from onnxroof.fusion.plan import Kernel, KernelBody, KernelPlan
    from onnxroof.memory.order import NodeOrder
    from onnxroof.ops.call import TensorInfo

    Document = dict[str, object]

SCHEMA_VERSION = 1


def as_dict(
    analysis: Analysis, *, with_tensors: bool = False, order: NodeOrder | None = None
) -> Document:
    """Everything one run found.

    Args:
        analysis: The run.
        with_tensors: Add every tensor of the main graph with its type, shape and bytes.
        order: A node order that was searched for, to be part of the memory section.

    Returns:
        Only dict, list, str, int, float, bool and None; independent of the analysis.
    """
    document: Document = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "onnxroof", "version": __version__},
        "model": _model(analysis),
        "inputs": [_tensor(name, info) for name, info in analysis.inputs.items()],
        "outputs": [
            _tensor(name, info)
            for name in analysis.model.graph.outputs
            if (info := analysis.tensors.get(name)) is not None
        ],
        "precision": analysis.precision or None,
        "assumptions": list(analysis.assumptions),
        "coverage": _coverage(analysis),
        "unresolved": [
            {"tensor": item.tensor, "node": item.node, "reason": item.reason}
            for item in analysis.unresolved
        ],
        "problems": [
            {"node": p.node, "op_type": p.op_type, "inputs": p.inputs, "reason": p.reason}
            for p in analysis.problems
        ],
        "data_dependent_dims": list(analysis.data_dependent),
        "totals": _totals(analysis),
        "memory": memory_document(analysis, order),
        "nodes": _nodes(analysis.cost),
        "fusion": _fusion(analysis.kernels, explain_fusion(analysis.kernels)),
        "rooflines": [_roofline(analysis, device) for device in range(len(analysis.rooflines))],
    }
    if with_tensors:
        document["tensors"] = [_tensor(name, info) for name, info in analysis.tensors.items()]
    return document


def _model(analysis: Analysis) -> Document:
    model = analysis.model
    return {
        "path": model.path,
        "graph": model.graph.name,
        "producer": model.producer,
        "ir_version": model.ir_version,
        "opsets": {name or "ai.onnx": version for name, version in sorted(model.opsets.items())},
        "file_bytes": model.file_bytes,
        "external_files": list(model.external_files),
    }


def _tensor(name: str, info: TensorInfo) -> Document:
    """A tensor; `shape` is the upper end where a size is only bounded, `shape_min` the lower."""
    entry: Document = {
        "name": name,
        "kind": info.kind,
        "dtype": info.dtype.label if info.dtype is not None else None,
        "shape": None if info.shape is None else [upper(dim) for dim in info.shape],
        "bytes": _upper(info.nbytes),
    }
    if info.shape is not None and not all(map(is_exact, info.shape)):
        entry["shape_min"] = [lower(dim) for dim in info.shape]
    return entry


def _coverage(analysis: Analysis) -> Document:
    found = analysis.coverage
    return {
        "complete": found.complete,
        "nodes": found.nodes,
        "counted_nodes": found.counted,
        "free_nodes": found.free,
        "folded_nodes": found.folded,
        "unknown_nodes": sum(nodes for nodes, _ in found.unknown.values()),
        "unknown_operators": [
            {"operator": name, "nodes": nodes, "reason": reason}
            for name, (nodes, reason) in sorted(found.unknown.items())
        ],
        "nodes_by_rule_source": dict(sorted(found.by_source.items())),
    }


def _totals(analysis: Analysis) -> Document:
    sums, plan = analysis.totals, analysis.kernels
    return {
        "macs": upper(sums.macs),
        "macs_min": sums.macs_min,
        "folded_macs": upper(sums.folded_macs),
        "flops": upper(sums.flops),
        "flops_min": sums.flops_min,
        "transcendentals": upper(sums.transcendentals),
        "macs_by_dtype": {label: upper(macs) for label, macs in sums.macs_by_dtype.items()},
        "parameters": sums.parameters,
        "nonzero_parameters": sums.nonzero_parameters,
        "unused_parameters": sums.unused_parameters,
        "weight_bytes": sums.weight_bytes,
        "quantization_bytes": sums.quantization_bytes,
        "control_bytes": sums.control_bytes,
        "traffic_bytes": upper(sums.traffic_bytes),
        "fused_traffic_bytes": upper(plan.traffic_bytes),
        "fused_flops": upper(plan.flops),
        "peak_activation_bytes": upper(analysis.memory.peak_activation_bytes),
        "is_lower_bound": sums.is_lower_bound,
        "is_upper_bound": sums.is_upper_bound,
        "is_per_trip": sums.per_trip,
    }


def _nodes(cost: GraphCost) -> list[Document]:
    return [_node(node) for node in cost.nodes]


def _node(node: NodeCost) -> Document:
    entry: Document = {
        "index": node.node.index,
        "name": node.name,
        "op_type": node.op_type,
        "domain": node.domain or "ai.onnx",
        "scope": node.node.scope,
        "inputs": list(node.node.inputs),
        "outputs": list(node.node.outputs),
        "status": node.status.value,
        "compute_dtype": node.compute_dtype.label if node.compute_dtype is not None else None,
        **_counts(node),
        "parameters": node.parameters,
        "weight_bytes": node.weight_bytes,
        "input_bytes": _upper(node.input_bytes),
        "weight_read_bytes": _upper(node.weight_read_bytes),
        "output_bytes": _upper(node.output_bytes),
        "note": node.note,
    }
    if node.bodies:
        entry["bodies"] = [_body(body) for body in node.bodies]
    return entry


def _body(body: BodyCost) -> Document:
    return {
        "name": body.name,
        "trips": upper(body.trips),
        "is_alternative": body.alternative,
        "is_per_trip": body.per_trip,
        "nodes": _nodes(body.cost),
    }


def _counts(of: NodeCost | Kernel) -> Document:
    """Work; with its lower end where it is only bounded."""
    counts: Document = {
        "macs": _upper(of.macs),
        "flops": _upper(of.flops),
        "transcendentals": _upper(of.transcendentals),
    }
    if of.flops is not None and not is_exact(of.flops):
        counts["flops_min"] = lower(of.flops)
    if of.macs is not None and not is_exact(of.macs):
        counts["macs_min"] = lower(of.macs)
    return counts


def _fusion(plan: KernelPlan, report: FusionReport) -> Document:
    return {
        "runtime": plan.runtime,
        "kernels": [_kernel(kernel) for kernel in plan.kernels],
        "hits": [
            {
                "kernel": hit.kernel,
                "rule": hit.rule,
                "reason": hit.why,
                "saved_bytes": _upper(hit.saved_bytes),
            }
            for hit in report.hits
        ],
        "removed": [
            {"node": r.index, "name": r.name, "op_type": r.op_type, "reason": r.reason}
            for r in plan.removed
        ],
        "misses": [
            {"nodes": list(m.nodes), "name": m.name, "rule": m.rule, "reason": m.reason}
            for m in report.misses
        ],
        "bodies": [_fused_body(*body) for body in zip(_bodies(plan), report.bodies, strict=True)],
    }


def _bodies(plan: KernelPlan) -> list[tuple[int, KernelBody]]:
    return [(kernel.index, body) for kernel in plan.kernels for body in kernel.bodies]


def _fused_body(run: tuple[int, KernelBody], report: tuple[str, FusionReport]) -> Document:
    """What a body of control flow launches in one trip."""
    kernel, body = run
    return {"kernel": kernel, "name": body.name, **_fusion(body.plan, report[1])}


def _kernel(kernel: Kernel) -> Document:
    return {
        "index": kernel.index,
        "name": kernel.name,
        "op_type": kernel.op_type,
        "rule": kernel.rule,
        "nodes": list(kernel.nodes),
        "anchor": kernel.anchor,
        "compute_dtype": kernel.compute_dtype.label if kernel.compute_dtype is not None else None,
        **_counts(kernel),
        "input_bytes": _upper(kernel.input_bytes),
        "weight_bytes": _upper(kernel.weight_bytes),
        "output_bytes": _upper(kernel.output_bytes),
        "traffic_bytes": _upper(kernel.traffic_bytes),
        "elided_tensors": list(kernel.elided),
        "note": kernel.note,
    }


def _roofline(analysis: Analysis, device: int) -> Document:
    result = analysis.rooflines[device]
    profile, plan = result.hardware, result.plan
    return {
        "hardware": {
            "name": profile.name,
            "title": profile.title,
            "kind": profile.kind,
            "threads": profile.threads,
            "bandwidth_bytes_per_second": profile.bandwidth_bytes_per_second(result.peak_kind),
            "kernel_overhead_seconds": profile.kernel_overhead_seconds,
            "sources": [
                {"key": s.key, "title": s.title, "basis": s.basis, "url": s.url}
                for s in profile.sources
            ],
        },
        "peak_kind": result.peak_kind,
        "runtime": result.runtime,
        "fusion": plan.runtime,
        "fused_flops": upper(plan.flops),
        "fused_traffic_bytes": upper(plan.traffic_bytes),
        "arithmetic_intensity_flop_per_byte": plan.arithmetic_intensity,
        "fused_peak_bytes": analysis.memory_on(device).fused_peak.nbytes,
        "latency_seconds": result.latency_seconds,
        "bound_seconds": result.bound_seconds,
        "is_lower_bound_of_plan": result.is_lower_bound_of_plan,
        "is_at_upper_bounds": result.at_upper_bounds,
        "time_share_by_bound": {bound.value: share for bound, share in result.time_shares.items()},
        "achieved_flops_per_second": result.flops_per_second,
        "share_of_peak": result.share_of_peak,
        "main_compute_type": result.main_type,
        "peak_compute_type": result.peak_type,
        "ridge_points_flop_per_byte": _sorted_floats(result.ridge_points),
        "assumptions": list(result.assumptions),
        "kernels": [
            {
                "kernel": time.kernel,
                "name": kernel.name,
                "op_type": kernel.op_type,
                "anchor": kernel.anchor,
                "seconds": time.seconds,
                "compute_seconds": time.compute_seconds,
                "memory_seconds": time.memory_seconds,
                "overhead_seconds": time.overhead_seconds,
                "bound": time.bound.value,
                "arithmetic_intensity_flop_per_byte": time.arithmetic_intensity,
                "attainable_flops_per_second": time.attainable_ops_per_second,
            }
            for kernel, time in zip(plan.kernels, result.kernels, strict=True)
        ],
        "expected": [
            {
                "kernel": index,
                "seconds": time.seconds,
                "compute_seconds": time.compute_seconds,
                "memory_seconds": time.memory_seconds,
                "overhead_seconds": time.overhead_seconds,
                "host_seconds": time.host_seconds,
                "bound": time.bound.value,
                "algorithm": time.algorithm,
            }
            for index, time in enumerate(result.expected)
        ],
    }


def _sorted_floats(values: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(values.items()))


def _upper(value: int | None) -> int | None:
    """A plain integer: the upper end where only bounds are known."""
    return None if value is None else upper(value)
