"""When an operator's output is its input's bytes, so that nothing needs to be launched.

Reshape and its kin always are. Transpose is when only axes of size 1 move; Slice and Split when
the part kept lies in one piece; Cast, Expand, Pad and Dropout when they do nothing at all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onnxroof.cost import NodeCost
    from onnxroof.fusion.runtimes import Runtime
    from onnxroof.graph.types import Node
    from onnxroof.ops.call import OpCall, Shape, TensorInfo


def view_reason(node: NodeCost, tensors: Mapping[str, TensorInfo], runtime: Runtime) -> str:
    """Why the node launches nothing, or "" when it does.

    Args:
        node: The node.
        tensors: What is known of each tensor.
        runtime: Says which views it passes on.
    """
    operator = node.call.operator
    kind = node.node.kind
    if kind == "Dropout":
        idle = is_inference_dropout(node.node, tensors)
        return "does nothing: output equals input" if idle else ""
    if operator is not None and operator.view:
        return "view: the same bytes under another shape"
    check = _DOES_NOTHING.get(kind)
    if check is not None and check(node.call):
        return "does nothing: output equals input"
    if kind == "Transpose" and _keeps_order(node.call, unit=runtime.copies_unit_transposes):
        return "view: only axes of size 1 move"
    if runtime.contiguous_views and kind in _PARTS and _is_one_piece(node.call):
        return "view: a contiguous part of its input"
    return ""


def _same_type(call: OpCall) -> bool:
    """A conversion to the type there is; its shape never changes, known or not."""
    first = call.inputs[0] if call.inputs else None
    if first is None or not call.outputs or first.dtype is None or first.kind != "tensor":
        return False
    return first.dtype is call.outputs[0].dtype


def _same_type_and_shape(call: OpCall) -> bool:
    if not call.outputs or not call.inputs or call.inputs[0] is None:
        return False
    first, result = call.inputs[0], call.outputs[0]
    return (
        first.kind == "tensor"
        and first.dtype is result.dtype
        and first.shape is not None
        and first.shape == result.shape
        and first.exact
    )


def is_inference_dropout(node: Node, tensors: Mapping[str, TensorInfo]) -> bool:
    """Dropout only drops in training mode (third input from opset 12, `is_test` before 7)."""
    if sum(map(bool, node.outputs)) > 1:
        return False
    if len(node.inputs) > 2 and node.inputs[2]:
        known = tensors.get(node.inputs[2])
        mode = known.value if known is not None else None
        return mode is not None and mode.size == 1 and not bool(mode.ravel()[0])
    return True


def _is_lone(call: OpCall) -> bool:
    return len(call.given()) == 1


_DOES_NOTHING: Mapping[str, Callable[[OpCall], bool]] = {
    "Cast": _same_type,
    "CastLike": _same_type,
    "Expand": _same_type_and_shape,
    "Tile": _same_type_and_shape,
    "Pad": _same_type_and_shape,
    "Slice": _same_type_and_shape,
    "Concat": _is_lone,
    "Sum": _is_lone,
    "Max": _is_lone,
    "Min": _is_lone,
    "Mean": _is_lone,
}


def is_permutation(order: tuple[object, ...], rank: int) -> bool:
    """Whether it names each of so many axes once."""
    return len(order) == rank and set(order) == set(range(rank))


def _keeps_order(call: OpCall, *, unit: bool) -> bool:
    """Whether the axes (those longer than 1, unless `unit`) stay in order."""
    if not call.inputs or call.inputs[0] is None or call.inputs[0].shape is None:
        return False
    shape = call.inputs[0].shape
    order = call.attributes.get("perm", tuple(range(len(shape) - 1, -1, -1)))
    if not isinstance(order, tuple) or not is_permutation(order, len(shape)):
        return False
    kept = [int(axis) for axis in order if unit or shape[axis] != 1]  # type: ignore[arg-type, index]
    return kept == sorted(kept)


_PARTS = frozenset({"Slice", "Split"})

_SOMETIMES = frozenset({"Dropout", "Transpose", *_DOES_NOTHING, *_PARTS})
"""Operators that may launch nothing, besides those that are views by their definition."""


def may_be_view(node: NodeCost) -> bool:
    """Whether `view_reason` is worth asking: the operator can be a view, and the node is sound."""
    operator = node.call.operator
    possible = node.node.kind in _SOMETIMES or (operator is not None and operator.view)
    return possible and not node.call.problem


def is_part(call: OpCall) -> bool:
    """Whether the results are less than the input: two of them are not the same."""
    first = call.inputs[0] if call.inputs else None
    shape = None if first is None else first.shape
    return call.kind in _PARTS and any(info.shape != shape for info in call.outputs)


def _is_one_piece(call: OpCall) -> bool:
    """Whether each output is one contiguous run of the input's elements."""
    if not call.inputs or call.inputs[0] is None or call.inputs[0].shape is None:
        return False
    shape = call.inputs[0].shape
    if call.kind == "Slice" and not _forward_steps(call):
        return False
    return all(
        info.shape is not None and info.exact and _is_run(shape, info.shape)
        for info in call.outputs
    )


def _forward_steps(call: OpCall) -> bool:
    if not call.has(4):
        return True
    steps = call.value(4)
    return steps is not None and all(step == 1 for step in steps.ravel().tolist())


def _is_run(whole: Shape, part: Shape) -> bool:
    """A box is contiguous when every axis before the first cut one has size 1 in it."""
    cut = [axis for axis, (a, b) in enumerate(zip(whole, part, strict=True)) if a != b]
    return not cut or math.prod(part[: cut[-1]]) == 1
