"""Orders with a lower peak, and the file that has them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxroof.bindings import Bindings
from onnxroof.cost import count_costs
from onnxroof.errors import ModelUnreadableError, UsageError
from onnxroof.fusion.plan import plan_kernels
from onnxroof.graph.load import load_model
from onnxroof.memory import plan_memory
from onnxroof.memory.lifetimes import node_lifetimes
from onnxroof.memory.order import reorder
from onnxroof.memory.rewrite import reorder_model
from onnxroof.shapes import infer_shapes
from tests.fusion.plans import costed, model_cost, weighted

if TYPE_CHECKING:
    from pathlib import Path

    from onnxroof.cost import GraphCost

INTERLEAVED = (
    "g (float[1,10] x) => (float y) <float[10,1000] v, float[10,1000] w> "
    "{ a = MatMul(x, v)  b = MatMul(x, w)  c = ReduceSum(a)  d = ReduceSum(b)  y = Add(c, d) }"
)


def test_a_better_order_is_found_and_proved_best() -> None:
    found = reorder(costed(INTERLEAVED))
    # in file order x, a and b are alive together: 40 + 4000 + 4000; one branch after the other
    # x, a and c: 40 + 4000 + 4
    assert found.file_peak_bytes == 8040
    assert found.peak_bytes == 4044
    assert found.saved_bytes == 3996
    assert found.is_optimal
    assert found.order in ((0, 2, 1, 3, 4), (1, 3, 0, 2, 4))


def peak(cost: GraphCost, order: tuple[int, ...]) -> int:
    return max(node_lifetimes(cost, order).live_bytes())


def is_valid(cost: GraphCost, order: tuple[int, ...]) -> bool:
    """Whether each node runs after all it reads from."""
    place = {index: at for at, index in enumerate(order)}
    maker = {name: node.node.index for node in cost.nodes for name in node.node.outputs}
    return sorted(order) == list(range(len(cost.nodes))) and all(
        place[maker[name]] < place[node.node.index]
        for node in cost.nodes
        for name in node.node.inputs
        if name in maker
    )


@st.composite
def small_graphs(draw: st.DrawFn) -> str:
    """Six nodes, each reading one or two earlier tensors of various sizes."""
    names, body = ["x"], []
    for at in range(6):
        size = draw(st.sampled_from([1, 3, 8, 20]))
        first, second = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        body.append(f"s{at} = Add({first}_r, {second}_r)".replace("_r", ""))
        body.append(f"t{at} = Expand(s{at}, e{size})")
        names.append(f"s{at}")
    sums = ", ".join(f"t{at}" for at in range(3, 6))
    constants = ", ".join(f"int64[2] e{size} = {{{size}, 4}}" for size in (1, 3, 8, 20))
    return f"g (float[1,4] x) => (float y) <{constants}> {{ {'  '.join(body)}  y = Max({sums}) }}"


@settings(deadline=None, max_examples=30)
@given(small_graphs())
def test_no_order_of_a_small_graph_is_better(text: str) -> None:
    cost = costed(text)
    found = reorder(cost)
    assert is_valid(cost, found.order)
    assert peak(cost, found.order) == found.peak_bytes <= found.file_peak_bytes
    assert found.is_optimal
    sample = itertools.islice(valid_orders(cost), 300)
    assert all(peak(cost, order) >= found.peak_bytes for order in sample)


def test_a_set_of_nodes_may_be_reached_better_on_a_later_path() -> None:
    text = (
        "g (float[1,4] x) => (float y) <int64[2] e1 = {1, 4}, int64[2] e3 = {3, 4}, "
        "int64[2] e8 = {8, 4}, int64[2] e20 = {20, 4}> { s0 = Add(x, x)  t0 = Expand(s0, e20)  "
        "s1 = Add(x, x)  t1 = Expand(s1, e1)  s2 = Add(x, x)  t2 = Expand(s2, e20)  "
        "s3 = Add(x, x)  t3 = Expand(s3, e1)  s4 = Add(x, s0)  t4 = Expand(s4, e3)  "
        "s5 = Add(x, s1)  t5 = Expand(s5, e8)  y = Max(t3, t4, t5) }"
    )
    # rows of 16 bytes: s0 and the unused t0 of 20 rows are made while x is still needed; nothing
    # else has to be there
    assert reorder(costed(text)).peak_bytes == (1 + 1 + 20) * 16


def valid_orders(cost: GraphCost) -> itertools.chain[tuple[int, ...]]:
    maker = {name: node.node.index for node in cost.nodes for name in node.node.outputs}
    needs = [{maker[n] for n in node.node.inputs if n in maker} for node in cost.nodes]

    def extend(done: tuple[int, ...]) -> itertools.chain[tuple[int, ...]]:
        if len(done) == len(needs):
            yield done
        for index, need in enumerate(needs):
            if index not in done and need <= set(done):
                yield from extend((*done, index))

    return itertools.chain(extend(()))


@pytest.mark.parametrize("name", ["whisper_tiny_decoder", "bert_small_dynq", "gpt2_dynamic"])
def test_an_order_is_valid_and_never_worse(name: str) -> None:
    cost = model_cost(name)
    found = reorder(cost, seconds=0.05)
    assert is_valid(cost, found.order)
    assert peak(cost, found.order) == found.peak_bytes <= found.file_peak_bytes


def write(folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(weighted(INTERLEAVED), path)
    return path


def cost_of(path: Path) -> GraphCost:
    shaped, _ = infer_shapes(load_model(path).graph, Bindings.of({}))
    return count_costs(shaped)


def test_the_reordered_file_has_the_lower_peak_and_the_same_weights(tmp_path: Path) -> None:
    source, target = write(tmp_path), tmp_path / "better.onnx"
    cost = cost_of(source)
    found = reorder(cost)
    reorder_model(source, target, [cost.nodes[index].node for index in found.order])
    assert plan_memory(plan_kernels(cost_of(target))).peak_activation_bytes == 4044
    before, after = onnx.load(source), onnx.load(target)
    onnx.checker.check_model(after)
    assert after.graph.initializer == before.graph.initializer
    assert sorted(n.SerializeToString() for n in after.graph.node) == sorted(
        n.SerializeToString() for n in before.graph.node
    )
    assert source.stat().st_size == target.stat().st_size
    assert list(tmp_path.iterdir()) in ([source, target], [target, source])


def test_a_model_may_be_reordered_onto_itself(tmp_path: Path) -> None:
    source = write(tmp_path)
    cost = cost_of(source)
    reorder_model(source, source, [cost.nodes[index].node for index in reorder(cost).order])
    assert plan_memory(plan_kernels(cost_of(source))).peak_activation_bytes == 4044


def test_constants_and_bodies_stay_before_their_readers(tmp_path: Path) -> None:
    text = """g (float[4] x, bool c) => (float y) {
        k = Constant<value = float[4] {1, 2, 3, 4}>()
        a = Exp(x)
        b = Neg(x)
        z = If (c) <
            then_branch = t () => (float[4] p) { p = Add(a, k) },
            else_branch = e () => (float[4] q) { q = Identity(b) }
        >
        y = Neg(z)
    }"""
    source, target = tmp_path / "a.onnx", tmp_path / "b.onnx"
    onnx.save(weighted(text), source)
    graph = load_model(source).graph
    swapped = sorted(graph.nodes, key=lambda node: (node.op_type != "If", -node.index))
    reorder_model(source, target, swapped)
    onnx.checker.check_model(onnx.load(target))
    assert load_model(target).assumptions == load_model(source).assumptions


def test_external_data_is_not_left_behind(tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    onnx.save(
        weighted(INTERLEAVED), source, save_as_external_data=True, location="w.bin",
        size_threshold=0,
    )  # fmt: skip
    nodes = load_model(source).graph.nodes
    elsewhere = tmp_path / "other"
    elsewhere.mkdir()
    with pytest.raises(UsageError, match="next to it"):
        reorder_model(source, elsewhere / "model.onnx", nodes)
    assert not list(elsewhere.iterdir())
    reorder_model(source, tmp_path / "same.onnx", nodes)
    assert onnx.load(tmp_path / "same.onnx").graph.initializer[0].raw_data


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"\xff" * 40)
    with pytest.raises(ModelUnreadableError):
        reorder_model(bad, tmp_path / "out.onnx", ())
    with pytest.raises(ModelUnreadableError):
        reorder_model(tmp_path / "none.onnx", tmp_path / "out.onnx", ())
    assert list(tmp_path.iterdir()) == [bad]
