"""The memory part of the JSON report; see `onnxroof.document`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.bounded import upper
from onnxroof.memory import check_budgets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnxroof.analysis import Analysis
    from onnxroof.memory import ArenaPlan, KVCache, LiveTensor
    from onnxroof.memory.order import NodeOrder
    from onnxroof.memory.records import Step

    Document = dict[str, object]


def memory_document(analysis: Analysis, order: NodeOrder | None = None) -> Document:
    """Everything known of a model's memory; with a better order where one was searched for."""
    plan = analysis.memory
    document: Document = {
        "peak_activation_bytes": upper(plan.peak_activation_bytes),
        "peak_node": _step(plan.peak_node),
        "peak_tensors": _tensors(plan.peak_tensors),
        "live_bytes": [upper(nbytes) for nbytes in plan.live_bytes],
        "weight_bytes": plan.weight_bytes,
        "tensors_of_unknown_size": list(plan.unknown),
        "is_lower_bound": plan.is_lower_bound,
        "is_upper_bound": plan.is_upper_bound,
        "table": [
            {
                "key": row.key,
                "title": row.title,
                "bytes": upper(row.nbytes),
                "rule": row.rule,
                "node": row.where or None,
            }
            for row in plan.table()
        ],
        "fused": {
            "peak_bytes": plan.fused_peak.nbytes,
            "peak_kernel": _step(plan.fused_peak.step),
            "peak_tensors": _tensors(plan.fused_peak_tensors),
            "workspace_bytes": plan.fused_peak.workspace_bytes,
            "live_bytes": list(plan.fused_live_bytes),
        },
        "arena": _arena(plan.arena),
        "kv_cache": None if plan.kv_cache is None else _cache(plan.kv_cache),
        "budgets": [
            budget
            for device in range(len(analysis.rooflines))
            for budget in _budgets(analysis, device)
        ],
    }
    if order is not None:
        document["order"] = _order(analysis, order)
    return document


def _step(step: Step | None) -> Document | None:
    return None if step is None else {"index": step.index, "name": step.label}


def _tensors(tensors: Iterable[LiveTensor]) -> list[Document]:
    return [{"name": tensor.name, "bytes": upper(tensor.nbytes)} for tensor in tensors]


def _arena(arena: ArenaPlan) -> Document:
    return {
        "bytes": arena.nbytes,
        "lower_bound_bytes": arena.lower_bound_bytes,
        "gap": arena.gap,
        "alignment_bytes": arena.alignment_bytes,
        "packer": arena.packer,
        "tried": [{"packer": packer, "bytes": nbytes} for packer, nbytes in arena.sizes_by_packer],
        "placements": [
            {
                "name": placed.name,
                "offset_bytes": placed.offset_bytes,
                "bytes": placed.nbytes,
                "first_step": placed.first_step,
                "last_step": placed.last_step,
            }
            for placed in arena.placements
        ],
    }


def _cache(cache: KVCache) -> Document:
    return {
        "bytes_per_token": cache.bytes_per_token,
        "total_bytes": cache.total_bytes,
        "layers": [{"layer": name, "bytes_per_token": nbytes} for name, nbytes in cache.layers],
        "tensors": [
            {
                "past": tensor.past,
                "present": tensor.present,
                "bytes_per_token": tensor.bytes_per_token,
                "bytes": tensor.present_bytes,
                "tokens": tensor.tokens,
            }
            for tensor in cache.tensors
        ],
    }


def _budgets(analysis: Analysis, device: int) -> list[Document]:
    """One entry a memory level of known capacity of a device, main memory first."""
    hardware = analysis.rooflines[device].hardware
    return [
        {
            "hardware": hardware.name,
            "level": budget.level,
            "capacity_bytes": budget.capacity_bytes,
            "needed_bytes": budget.needed_bytes,
            "of": budget.of,
            "fits": budget.fits,
            "excess_bytes": budget.excess_bytes,
            "cut": budget.cut or None,
        }
        for budget in check_budgets(analysis.memory_on(device), reversed(hardware.memory))
    ]


def _order(analysis: Analysis, order: NodeOrder) -> Document:
    return {
        "file_peak_bytes": order.file_peak_bytes,
        "peak_bytes": order.peak_bytes,
        "saved_bytes": order.saved_bytes,
        "is_optimal": order.is_optimal,
        "method": order.method,
        "nodes": [{"index": index, "name": analysis.nodes[index].name} for index in order.order],
    }
