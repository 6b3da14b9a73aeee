"""The invariants hold for graphs nobody would write, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxroof.fusion import composite, drawing
from onnxroof.fusion.explain import explain_fusion
from onnxroof.fusion.plan import plan_for, plan_kernels
from onnxroof.fusion.runtimes import EVERYTHING, RUNTIMES
from onnxroof.memory import plan_memory
from tests.fusion.plans import costed
from tests.fusion.test_invariants import (
    assert_each_live_node_is_in_one_kernel,
    assert_kernels_run_after_what_they_read,
    assert_only_inner_tensors_are_elided,
    assert_traffic_never_grows,
    assert_work_is_kept,
)

if TYPE_CHECKING:
    from onnxroof.cost import GraphCost

HEAD = (
    "<float[4,4,1,1] w, float[4,4,3,3] u, float[4] s, float[4] b, float[4] m, float[4] v, "
    "float[4,1,1] k, float half = {0.5}, float[4] row, float[4,4] d, int64[1] zero = {0}, "
    "int64[1] two = {2}, int64[1] four = {4}, int64[1] ax = {1}, int64[4] same = {1,4,4,4}, "
    "int64[2] flat = {4,16}, float sc = {0.1}, uint8 zp = {0}, "
    "int64[8] pads = {0,0,0,0,0,0,0,0}, float one = {1}, float root = {1.41421}, "
    "float slope = {1.702}, int64[1] last = {-1}>"
)

FORMS = (
    "{o} = Relu({a})",
    "{o} = Sigmoid({a})",
    "{o} = Exp({a})",
    "{o} = Identity({a})",
    "{o} = Add({a}, {c})",
    "{o} = Mul({a}, {c})",
    "{o} = Mul({a}, {a})",
    "{o} = Add({a}, k)",
    "{o} = Mul({a}, half)",
    "{o} = Add({a}, row)",
    "{o} = Conv({a}, w)",
    "{o} = Conv<pads = [1,1,1,1]>({a}, u)",
    "{o} = BatchNormalization({a}, s, b, m, v)",
    "{o} = Transpose<perm = [0,2,3,1]>({a})",
    "{o} = Transpose<perm = [0,3,1,2]>({a})",
    "{o} = Transpose<perm = [0,1,3,2]>({a})",
    "{o} = MatMul({a}, {c})",
    "{o} = MatMul({a}, d)",
    "{o} = Softmax<axis = -1>({a})",
    "{o} = LayerNormalization({a}, row)",
    "{o}r = ReduceMean<axes = [-1]>({a})  {o} = Sub({a}, {o}r)",
    "{o}r = Reshape({a}, flat)  {o}e = Neg({o}r)  {o} = Reshape({o}e, same)",
    "{o}p = Slice({a}, zero, two, ax)  {o}q = Slice({a}, two, four, ax) "
    " {o} = Concat<axis = 1>({o}p, {o}q)",
    "{o}p = Slice({a}, zero, two, ax)  {o} = Concat<axis = 1>({o}p, {o}p)",
    "{o}g = Sigmoid({a})  {o} = Mul({a}, {o}g)",
    "{o}g = GlobalAveragePool({a})  {o}f = Conv({o}g, w)  {o}h = Sigmoid({o}f) "
    " {o} = Mul({a}, {o}h)",
    "{o}q = QuantizeLinear({a}, sc, zp)  {o} = DequantizeLinear({o}q, sc, zp)",
    "{o} = Pad({a}, pads)",
    "{o} = Dropout({a})",
    "{o}k = Mul({a}, slope)  {o}g = Sigmoid({o}k)  {o} = Mul({o}g, {a})",
    "{o}h = Div({a}, root)  {o}f = Erf({o}h)  {o}s = Add(one, {o}f)  {o}z = Mul({a}, {o}s) "
    " {o} = Mul({o}z, half)",
    "{o}h = Div({a}, root)  {o}f = Erf({o}h)  {o}s = Add(one, {o}f)  {o}z = Mul({a}, half) "
    " {o} = Mul({o}z, {o}s)",
    "{o}m = ReduceMean<axes = [-1]>({a})  {o}d = Sub({a}, {o}m)  {o}q = Mul({o}d, {o}d) "
    " {o}v = ReduceMean<axes = [-1]>({o}q)  {o}e = Add({o}v, sc)  {o}r = Sqrt({o}e) "
    " {o}n = Div({o}d, {o}r)  {o} = Mul({o}n, row)",
    "{o}s = MatMul({a}, {c})  {o}m = Mul({o}s, half)  {o}p = Softmax<axis = -1>({o}m) "
    " {o} = MatMul({o}p, {c})",
    "{o}s = MatMul({a}, {c})  {o}m = ReduceMax<axes = [-1]>({o}s)  {o}d = Sub({o}s, {o}m) "
    " {o}e = Exp({o}d)  {o}u = ReduceSum({o}e, last)  {o}p = Div({o}e, {o}u) "
    " {o} = MatMul({o}p, {c})",
)


@st.composite
def graphs(draw: st.DrawFn) -> str:
    """Up to twelve steps, each on one or two earlier tensors of 1×4×4×4, several outputs."""
    names, body = ["x"], []
    for at in range(draw(st.integers(1, 12))):
        form = draw(st.sampled_from(FORMS))
        one, two = draw(st.sampled_from(names[-4:])), draw(st.sampled_from(names))
        body.append(form.format(o=f"t{at}", a=one, c=two))
        names.append(f"t{at}")
    outputs = {names[-1], *draw(st.lists(st.sampled_from(names[1:]), max_size=2))}
    listed = ", ".join(f"float {name}" for name in sorted(outputs))
    return f"g (float[1,4,4,4] x) => ({listed}) {HEAD} {{ {'  '.join(body)} }}"


@settings(deadline=None, max_examples=120)
@given(graphs())
def test_invariants_hold_for_random_graphs(text: str) -> None:
    cost = costed(text)
    plans = [plan_kernels(cost, runtime) for runtime in RUNTIMES]
    for plan in (*plans, plan_for(cost, EVERYTHING)):
        assert_each_live_node_is_in_one_kernel(plan)
        assert_kernels_run_after_what_they_read(plan)
        assert_only_inner_tensors_are_elided(plan)
        assert_work_is_kept(plan)
        assert_traffic_never_grows(plan)
    for plan in plans:
        assert explain_fusion(plan).runtime == plan.runtime
        memory = plan_memory(plan)
        workspace = memory.fused_peak.workspace_bytes
        assert memory.fused_peak.nbytes - workspace <= memory.preallocated_bytes
        assert memory.table()
        assert memory.in_place_peak.nbytes <= memory.peak_activation_bytes
        assert memory.shared_peak.nbytes <= memory.aliased_peak.nbytes


def groups(cost: GraphCost) -> list[list[tuple[object, ...]]]:
    """Per runtime the nodes of each kernel and the rule that put them together."""
    plans = [plan_kernels(cost, runtime) for runtime in RUNTIMES]
    return [[(kernel.nodes, kernel.rule) for kernel in plan.kernels] for plan in plans]


@settings(deadline=None, max_examples=120)
@given(graphs())
def test_what_is_not_tried_would_not_have_matched(text: str) -> None:
    cost = costed(text)
    with pytest.MonkeyPatch.context() as everything:
        everything.setattr(
            composite, "possible_ends", lambda grouping, line: grouping.anchors(line.kinds)
        )
        everything.setattr(drawing, "_may_be", lambda *_: True)
        expected = groups(cost)
    assert groups(cost) == expected
