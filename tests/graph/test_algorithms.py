"""The graph as networkx has it."""

from __future__ import annotations

import networkx as nx

from tests.builders import model
from tests.report.models import CHAIN, UNKNOWN, analysis


def test_nodes_carry_costs_and_edges_tensors() -> None:
    graph = analysis(CHAIN).to_networkx()
    assert graph.nodes["node:0"]["macs"] == 4 * 8
    assert graph.nodes["node:0"]["name"] == "up"
    edge = graph.edges["node:0", "node:1", "a"]
    assert (edge["tensor"], edge["dtype"], edge["shape"], edge["bytes"]) == (
        "a",
        "fp32",
        (1, 8),
        32,
    )


def test_the_graph_runs_from_inputs_to_outputs() -> None:
    graph = analysis(CHAIN).to_networkx()
    path = nx.shortest_path(graph, "input:x", "output:y")
    assert path == ["input:x", "node:0", "node:1", "node:2", "output:y"]
    assert nx.is_directed_acyclic_graph(graph)
    assert sum(data.get("macs") or 0 for _, data in graph.nodes(data=True)) == 56


def test_unknown_costs_are_none() -> None:
    assert analysis(UNKNOWN).to_networkx().nodes["node:1"]["flops"] is None


def test_a_tensor_read_twice_by_one_node_is_one_edge_and_names_may_repeat() -> None:
    text = "agraph (float[4] x) => (float[4] y) { [n] a = Mul (x, x) [n] y = Add (a, x) }"
    graph = analysis(model(text)).to_networkx()
    assert sorted(graph.edges(keys=True)) == [
        ("input:x", "node:0", "x"),
        ("input:x", "node:1", "x"),
        ("node:0", "node:1", "a"),
        ("node:1", "output:y", "y"),
    ]


def test_what_a_body_captures_is_an_edge() -> None:
    text = """agraph (float[4] x, bool c) => (float[4] y) {
        a = Exp (x)
        y = If (c) <then_branch = yes () => (float[4] t) { t = Relu (a) },
                    else_branch = no () => (float[4] e) { e = Abs (x) }>
    }"""
    graph = analysis(model(text)).to_networkx()
    assert graph.has_edge("node:0", "node:1", "a")
    assert graph.has_edge("input:x", "node:1", "x")
