"""The graph as networkx has it, for whoever wants to walk it; the only user of networkx."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import networkx as nx

Digraph: TypeAlias = "nx.MultiDiGraph[str]"

if TYPE_CHECKING:
    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.ops.call import TensorInfo


def as_networkx(analysis: Analysis) -> Digraph:
    """The main graph: nodes with their costs, one edge for every use of a tensor.

    Nodes are keyed "node:<index>", "input:<name>" and "output:<name>", so that no two names of a
    file can meet; `kind` tells them apart. Edges carry the tensor and are keyed by it.

    Node attributes:
        kind: "node", "input" or "output".
        name, op_type, domain, scope, status: As in `NodeCost`; inputs and outputs have a name.
        macs, flops, transcendentals, parameters: Counts; None where unknown.
        weight_bytes, input_bytes, output_bytes, traffic_bytes: Bytes, before fusion.

    Edge attributes:
        tensor: Its name.
        dtype: Label of the element type, None when unknown.
        shape: Tuple of sizes, None when not even the rank is known.
        bytes: Size, None when unknown.
    """
    graph: Digraph = nx.MultiDiGraph(name=analysis.model.graph.name)
    made_by: dict[str, str] = {}
    for name in analysis.inputs:
        key = f"input:{name}"
        made_by[name] = key
        graph.add_node(key, kind="input", name=name)
    for node in analysis.nodes:
        key = f"node:{node.node.index}"
        graph.add_node(key, **_attributes(node))
        made_by.update((name, key) for name in node.node.outputs if name)
    for node in analysis.nodes:
        for name in _read_names(node):
            _connect(graph, analysis, made_by, name, f"node:{node.node.index}")
    for name in dict.fromkeys(analysis.model.graph.outputs):
        graph.add_node(f"output:{name}", kind="output", name=name)
        _connect(graph, analysis, made_by, name, f"output:{name}")
    return graph


def _read_names(node: NodeCost) -> list[str]:
    """Tensors a node reads, those its bodies capture included."""
    captured = [name for _, body in node.node.subgraphs for name in body.captures]
    return list(dict.fromkeys([*node.node.inputs, *captured]))


def _connect(
    graph: nx.MultiDiGraph[str],
    analysis: Analysis,
    made_by: dict[str, str],
    name: str,
    reader: str,
) -> None:
    """An edge from whoever makes the tensor; none for constants."""
    maker = made_by.get(name)
    if maker is not None:
        graph.add_edge(maker, reader, key=name, tensor=name, **_tensor(analysis.tensors.get(name)))


def _attributes(node: NodeCost) -> dict[str, object]:
    return {
        "kind": "node",
        "name": node.name,
        "op_type": node.op_type,
        "domain": node.domain,
        "scope": node.node.scope,
        "status": node.status.value,
        "macs": node.macs,
        "flops": node.flops,
        "transcendentals": node.transcendentals,
        "parameters": node.parameters,
        "weight_bytes": node.weight_bytes,
        "input_bytes": node.input_bytes,
        "output_bytes": node.output_bytes,
        "traffic_bytes": node.traffic_bytes,
    }


def _tensor(info: TensorInfo | None) -> dict[str, object]:
    if info is None:
        return {"dtype": None, "shape": None, "bytes": None}
    return {
        "dtype": info.dtype.label if info.dtype is not None else None,
        "shape": info.shape,
        "bytes": info.nbytes,
    }
