"""What a runtime removes before it fuses: equal nodes, QDQ pairs, transposes that cancel, copies.

Each function takes a `LiveGraph`, removes nodes from it with their reason, and is linear. Nothing
is computed: whether two nodes are equal is decided by operator, attributes and inputs.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from onnxroof.fusion.layout import is_inference_dropout, is_part
from onnxroof.fusion.runtimes import CSE, QDQ, TRANSPOSES

if TYPE_CHECKING:
    from collections.abc import Container

    from onnxroof.cost import NodeCost
    from onnxroof.fusion.live import LiveGraph
    from onnxroof.fusion.runtimes import Runtime

STRIDED_READERS = frozenset(
    ("MatMul", "Gemm", "Concat", "Softmax", "LayerNormalization", "ReduceMean", "ReduceSum",
     "ReduceMax", "ReduceMin", "Transpose", "Slice", "Split", "Expand")
)  # fmt: skip
"""Readers, besides elementwise ones, that take any strides."""

INTEGER_OPERATORS = frozenset(
    ("Conv", "ConvTranspose", "MatMul", "Gemm", "Add", "Mul", "GlobalAveragePool", "AveragePool",
     "MaxPool", "Concat", "Resize", "Sigmoid", "LeakyRelu", "Softmax", "Relu", "Transpose",
     "Split", "ReduceMean", "Clip", "Slice", "Pad", "Gather")
)  # fmt: skip
"""Operators with kernels on quantized values."""

MOST_INSIDE = 64
"""Elementwise nodes of a region between transposes; larger ones are left alone."""

_ABSORBED = frozenset({"Relu", "Clip"})
"""Activations that the saturation of a following QuantizeLinear, or its kernel, does."""


def clean_up(graph: LiveGraph, runtime: Runtime) -> None:
    """All clean-ups the runtime has."""
    if CSE in runtime.folds:
        share_equal_nodes(graph)
    if QDQ in runtime.folds:
        find_integer_nodes(graph)
    if TRANSPOSES in runtime.folds:
        cancel_transposes(graph)
    if runtime.strided_views:
        take_strided_views(graph)
    graph.forget_dropped()


def share_equal_nodes(graph: LiveGraph) -> None:
    """Nodes with the same operator, attributes and inputs run once."""
    readers, nodes = graph.readers, graph.nodes
    for item in graph.inputs:
        if len(readers.get(item.name, ())) > 1:
            _share_readers(graph, item.name)
    for index in graph.live:
        for name in nodes[index].node.outputs:
            if len(readers.get(name, ())) > 1 and index not in graph.dropped:
                _share_readers(graph, name)


def _share_readers(graph: LiveGraph, tensor: str) -> None:
    readers, nodes = graph.readers[tensor], graph.nodes
    kinds = [_kind(nodes[index]) for index in readers]
    if len({*kinds}) == len(readers):
        return
    alike = Counter(kinds)
    first: dict[object, int] = {}
    graph.readers[tensor] = kept = []
    for index in readers:
        node = nodes[index]
        key = _identity(graph, node) if alike[_kind(node)] > 1 else None
        twin = index if key is None else first.setdefault(key, index)
        if twin == index:
            kept.append(index)
        else:
            reason = f"common subexpression: the same as {graph.nodes[twin].name}"
            graph.drop(index, reason, graph.nodes[twin].node.outputs)


def _kind(node: NodeCost) -> tuple[str, int]:
    """What equal nodes have in common, at a glance."""
    return node.node.kind, len(node.node.inputs)


def _identity(graph: LiveGraph, node: NodeCost) -> object:
    """What the node computes, or None when two equal ones may differ."""
    operator, onnx_node = node.call.operator, node.node
    if operator is None or operator.random or onnx_node.subgraphs:
        return None
    if onnx_node.kind == "Dropout" and not is_inference_dropout(onnx_node, graph.tensors):
        return None
    inputs: list[object] = [*map(graph.shown_by, onnx_node.inputs)]
    for position in node.call.constants:
        known = graph.tensors.get(onnx_node.inputs[position])
        if known is not None and known.value is not None:
            inputs[position] = known.value_key
    outputs = tuple(map(bool, onnx_node.outputs))
    shapes = tuple([None if info is None else info.shape for info in node.call.inputs])
    return (operator, onnx_node.attributes, tuple(inputs), shapes, outputs)


def find_integer_nodes(graph: LiveGraph) -> None:
    """QDQ form: an operator between DequantizeLinear and QuantizeLinear computes on integers.

    y = Q(op(DQ(a), DQ(b))) is one integer kernel with the requantization inside. Its
    DequantizeLinear nodes vanish into it when nobody else needs their floating-point results.
    """
    quantizers = graph.of_kind.get("DequantizeLinear")
    if not quantizers:
        return
    dequantized = {graph.nodes[i].node.outputs[0]: i for i in quantizers if i not in graph.dropped}
    _cancel_requantization(graph, dequantized)
    candidates = {
        i for i in graph.live if i not in graph.dropped and _is_integer(graph, i, dequantized)
    }
    blocked = True
    while blocked:
        blocked = False
        for tensor in dequantized:
            inside = [r for r in graph.readers.get(tensor, ()) if r in candidates]
            if inside and (len(inside) < len(graph.readers[tensor]) or tensor in graph.exits):
                candidates.difference_update(inside)
                blocked = True
    for tensor, index in dequantized.items():
        readers = graph.readers.get(tensor)
        if not readers and tensor not in graph.exits:
            graph.drop(index, "nobody needs its result any more", ())
        elif readers and candidates.issuperset(readers):
            node = graph.nodes[index].node
            graph.drop(index, "its readers compute on the quantized values", node.inputs[:1])
    graph.integer = candidates


def _cancel_requantization(graph: LiveGraph, dequantized: dict[str, int]) -> None:
    """A tensor quantized again exactly as it was stored stays as it is, whatever its shape."""
    for index in graph.of_kind.get("QuantizeLinear", ()):
        if index in graph.dropped:
            continue
        node = graph.nodes[index].node
        maker = dequantized.get(graph.source.get(node.inputs[0], node.inputs[0]))
        if maker is not None and _scheme(graph, maker) == _scheme(graph, index):
            stored = graph.nodes[maker].node.inputs[:1]
            are_parts = node.inputs[0] in graph.partial
            graph.drop(index, "quantizes what was stored so", stored, are_parts=are_parts)


def _scheme(graph: LiveGraph, index: int) -> tuple[object, ...]:
    """Scale, zero point and attributes of a QuantizeLinear or DequantizeLinear."""
    node = graph.nodes[index].node
    known = [(name, graph.info(name)) for name in node.inputs[1:] if name]
    return (
        node.attributes,
        *(
            info.value_key if info is not None and info.value is not None else name
            for name, info in known
        ),
    )


def _is_integer(graph: LiveGraph, index: int, dequantized: dict[str, int]) -> bool:
    node = graph.nodes[index]
    if node.kind not in INTEGER_OPERATORS:
        return False
    source = graph.source
    activations = [
        source.get(name, name)
        for name, info in zip(node.node.inputs, node.call.inputs, strict=True)
        if info is not None and not info.constant
    ]
    if not activations or any(tensor not in dequantized for tensor in activations):
        return False
    return all(_is_requantized(graph, name) for name in node.node.outputs if name)


def _is_requantized(graph: LiveGraph, tensor: str) -> bool:
    """Whether the tensor's only reader quantizes it, perhaps behind one activation."""
    reader = graph.only_reader(tensor)
    if reader >= 0 and graph.nodes[reader].kind in _ABSORBED:
        reader = graph.only_reader(graph.nodes[reader].node.outputs[0])
    return reader >= 0 and graph.nodes[reader].kind == "QuantizeLinear"


def cancel_transposes(graph: LiveGraph) -> None:
    """Transposes into and out of a region of elementwise work cancel when they are inverse.

    T⁻¹(f(T(a), T(b))) = f(a, b) for elementwise f: a region bounded by transposes of one
    permutation on the way in and its inverse on the way out needs none of them.
    """
    seen: set[int] = set()
    for index in graph.of_kind.get("Transpose", ()):
        if index in seen or index in graph.dropped:
            continue
        order = _order(graph.nodes[index])
        if order is None:
            continue
        region = _region(graph, index, order)
        if region is not None:
            around, inside = region
            seen.update(around)
            for transpose in sorted(around):
                node = graph.nodes[transpose].node
                graph.drop(transpose, "cancelled by its inverse", node.inputs[:1])
            for member in (*around, *inside):
                graph.permuted.update(graph.nodes[member].node.outputs)


def _order(node: NodeCost) -> tuple[int, ...] | None:
    """The permutation of a Transpose."""
    if node.node.kind != "Transpose":
        return None
    info = node.call.inputs[0] if node.call.inputs else None
    if info is None or info.shape is None:
        return None
    rank = len(info.shape)
    order = node.call.attributes.get("perm", tuple(range(rank - 1, -1, -1)))
    return order if isinstance(order, tuple) else None  # type: ignore[return-value]


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def _region(
    graph: LiveGraph, start: int, order: tuple[int, ...]
) -> tuple[set[int], set[int]] | None:
    """(transposes around, nodes inside) the elementwise region behind `start`; None if it leaks."""
    undo = _inverse(order)
    around: set[int] = {start}
    inside: set[int] = set()
    pending: list[int] = [start]
    unchecked: list[int] = []
    while pending or unchecked:
        if pending:
            readers = _readers_in_region(graph, pending.pop())
            if readers is None or len(inside) > MOST_INSIDE:
                return None
            for reader in readers:
                if reader in inside or reader in around:
                    continue
                if _order(graph.nodes[reader]) == undo:
                    around.add(reader)
                elif _is_blind(graph.nodes[reader], len(order)):
                    inside.add(reader)
                    pending.append(reader)
                    unchecked.append(reader)
                else:
                    return None
            continue
        makers = _region_inputs(graph, unchecked.pop(), order, inside)
        if makers is None:
            return None
        new = makers - around - inside
        around.update(new)
        pending.extend(new)
    return (around, inside) if len(around) > 1 else None


def _readers_in_region(graph: LiveGraph, index: int) -> list[int] | None:
    """Who reads the node's result; None where it is needed in the order of axes it has."""
    tensor = graph.nodes[index].node.outputs[0]
    readers = graph.readers.get(tensor)
    if not readers or tensor in graph.exits or graph.is_viewed(tensor):
        return None
    return readers


def _is_blind(node: NodeCost, rank: int) -> bool:
    """Elementwise, so that the order of its axes does not matter; constants are permuted once."""
    operator = node.call.operator
    if operator is None or not operator.pointwise or node.kind == "BatchNormalization":
        return False
    if sum(map(bool, node.node.outputs)) > 1:
        return False
    return all(
        info is None or (info.shape is not None and (info.constant or len(info.shape) == rank))
        for info in node.call.inputs
    )


def _region_inputs(
    graph: LiveGraph, reader: int, order: tuple[int, ...], inside: set[int]
) -> set[int] | None:
    """Transposes of the same order that feed the node; None if something else does."""
    found: set[int] = set()
    node = graph.nodes[reader]
    for name, info in zip(node.node.inputs, node.call.inputs, strict=True):
        if info is None or info.constant:
            continue
        if name in graph.source:
            return None
        maker = graph.producer.get(name)
        if maker is None:
            return None
        if maker in inside:
            continue
        if _order(graph.nodes[maker]) == order:
            found.add(maker)
        elif _is_blind(graph.nodes[maker], len(order)):
            inside_inputs = _region_inputs(graph, maker, order, inside | {maker})
            if inside_inputs is None:
                return None
            found |= inside_inputs
        else:
            return None
    return found


def take_strided_views(graph: LiveGraph) -> None:
    """Transpose, Slice, Split and Expand cost nothing when every reader accepts strides."""
    strided = ("Transpose", "Slice", "Split", "Expand")
    for index in sorted([i for kind in strided for i in graph.of_kind.get(kind, ())]):
        if index in graph.dropped:
            continue
        node = graph.nodes[index]
        names = [name for name in node.node.outputs if name]
        if any(name in graph.exits or graph.is_viewed(name) for name in names):
            continue
        readers = [reader for name in names for reader in graph.readers.get(name, ())]
        if all(_takes_strides(graph.nodes[reader]) for reader in readers):
            origin = node.node.inputs[0]
            reason = "strided view: its readers follow the strides"
            stand_ins = (origin,) * len(node.node.outputs)
            graph.drop(index, reason, stand_ins, are_parts=is_part(node.call))


def _takes_strides(node: NodeCost) -> bool:
    operator = node.call.operator
    return node.kind in STRIDED_READERS or (operator is not None and operator.pointwise)


def write_concats_in_place(graph: LiveGraph, grouped: Container[int]) -> None:
    """A Concat costs nothing when each part is written straight to its place by its producer.

    Runs after fusion: a Concat inside a group (a rotary embedding) is not a buffer at all.
    """
    for index in graph.of_kind.get("Concat", ()):
        if index in grouped or index in graph.dropped:
            continue
        node = graph.nodes[index]
        parts = [graph.source.get(name, name) for name in node.node.inputs]
        fits = len(set(parts)) == len(parts) and all(
            part in graph.producer and part not in graph.exits and part not in graph.parts
            for part in parts
        )
        if fits:
            graph.drop_concat(index, parts)
    graph.forget_dropped()
