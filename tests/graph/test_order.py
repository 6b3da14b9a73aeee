from __future__ import annotations

import random
import time

import pytest

from onnxroof.errors import InvalidGraphError
from onnxroof.graph.order import in_order
from onnxroof.graph.types import Graph, Node


def node(op_type: str, inputs: str, outputs: str, **more: object) -> Node:
    """A node by space-separated names; "-" is an absent one."""

    def names(text: str) -> tuple[str, ...]:
        return tuple("" if name == "-" else name for name in text.split())

    return Node(op_type, "", op_type, 21, names(inputs), names(outputs), **more)  # type: ignore[arg-type]


def types(nodes: list[Node] | tuple[Node, ...]) -> str:
    return "".join(item.op_type for item in nodes)


def test_a_valid_order_is_kept() -> None:
    nodes = [node("A", "x", "a"), node("B", "x", "b"), node("C", "b a", "c")]
    ordered, captures, was_sorted = in_order(nodes, {"x"}, ("c",))
    assert (types(list(ordered)), captures, was_sorted) == ("ABC", (), True)


def test_a_late_node_moves_and_the_others_keep_their_order() -> None:
    # B needs D: of all nodes that are ready, the earliest in the file goes first
    nodes = [node("A", "x", "a"), node("B", "d", "b"), node("C", "x", "c"), node("D", "x", "d")]
    ordered, _, was_sorted = in_order(nodes, {"x"}, ("a", "b", "c"))
    assert (types(list(ordered)), was_sorted) == ("ACDB", False)


def test_a_reversed_chain_is_turned_round() -> None:
    nodes = [node("C", "b", "c"), node("B", "a", "b"), node("A", "x", "a")]
    assert types(list(in_order(nodes, {"x"}, ("c",))[0])) == "ABC"


def test_absent_names_connect_nothing() -> None:
    nodes = [node("A", "x -", "- a"), node("B", "- a", "b -")]
    ordered, captures, was_sorted = in_order(nodes, {"x"}, ("b",))
    assert (types(list(ordered)), captures, was_sorted) == ("AB", (), True)


def test_names_from_outside_are_captures_in_order_of_use() -> None:
    nodes = [node("A", "q x", "a"), node("B", "a p q", "b")]
    _, captures, was_sorted = in_order(nodes, {"x"}, ("b", "r"))
    assert (captures, was_sorted) == (("q", "p", "r"), True)


def test_what_a_body_captures_its_node_reads() -> None:
    body = Graph("body", (), (), ("late",), {}, {}, ("late",))
    nodes = [node("L", "x", "y", subgraphs=(("body", body),)), node("A", "x", "late")]
    ordered, captures, _ = in_order(nodes, {"x"}, ("y",))
    assert (types(list(ordered)), captures) == ("AL", ())


@pytest.mark.parametrize(
    "nodes",
    [
        [node("A", "a", "a")],
        [node("A", "b x", "a"), node("B", "a", "b")],
        [node("C", "x", "c"), node("A", "b x", "a"), node("B", "a", "b"), node("D", "a", "d")],
    ],
)
def test_a_cycle_is_an_error_that_names_a_node(nodes: list[Node]) -> None:
    with pytest.raises(InvalidGraphError, match=r"node '[ABD]'.*cycle"):
        in_order(nodes, {"x"}, ("a",))


def test_a_second_maker_is_an_error() -> None:
    with pytest.raises(InvalidGraphError, match=r"'B' \(B\): makes tensor 'a' a second time"):
        in_order([node("A", "x", "a"), node("B", "x", "a")], {"x"}, ("a",))
    with pytest.raises(InvalidGraphError, match="makes tensor 'x'"):
        in_order([node("A", "x", "x")], {"x"}, ("x",))
    with pytest.raises(InvalidGraphError, match="makes tensor 'a'"):
        in_order([node("A", "x", "a a")], {"x"}, ("a",))


def test_a_shuffled_graph_comes_out_valid_whatever_the_shuffle() -> None:
    nodes = [node(f"N{i}", f"t{i // 2} t{i // 3}", f"t{i + 1}") for i in range(200)]
    for seed in range(5):
        shuffled = nodes[:]
        random.Random(seed).shuffle(shuffled)
        made = {"t0"}
        for item in in_order(shuffled, {"t0"}, ("t200",))[0]:
            assert made.issuperset(item.inputs)
            made.update(item.outputs)


def test_a_long_reversed_chain_costs_no_recursion_and_little_time() -> None:
    nodes = [node("N", f"t{i}", f"t{i + 1}") for i in range(20_000)]
    start = time.monotonic()
    ordered, _, was_sorted = in_order(nodes[::-1], {"t0"}, ("t20000",))
    assert (list(ordered), was_sorted) == (nodes, False)
    assert time.monotonic() - start < 5
