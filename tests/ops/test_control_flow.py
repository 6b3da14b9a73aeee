from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxroof
from onnxroof.bounded import ends, is_exact
from onnxroof.cost import Status
from tests.builders import model

if TYPE_CHECKING:
    from onnxroof.analysis import Analysis

W = "float[8,8] w = {" + ",".join(["0.0"] * 64) + "}"
TRUE = "bool yes = {1}"


def analysis(text: str, opset: int = 21, **dims: int) -> Analysis:
    return onnxroof.analyze(model(text, opset=opset), dims=dims)


def trips(count: int) -> str:
    return f"int64 m = {{{count}}}"


# -- If --------------------------------------------------------------------------------------

BRANCHES = """
    then_branch = t () => (float a) { a = MatMul(x, w) },
    else_branch = e () => (float b) { b = Relu(x) }"""


@pytest.mark.parametrize(("condition", "macs", "flops"), [(1, 2 * 8 * 8, 2 * 128), (0, 0, 16)])
def test_a_known_condition_takes_its_branch(condition: int, macs: int, flops: int) -> None:
    # then: x[2,8] · w[8,8], 128 MACs; else: 16 elements
    result = analysis(
        f"agraph (float[2,8] x) => (float y) <bool c = {{{condition}}}, {W}>"
        f"{{ y = If(c) <{BRANCHES}> }}"
    )
    assert (result.totals.macs, result.totals.flops) == (macs, flops)
    assert is_exact(result.totals.macs)
    assert not result.totals.is_upper_bound
    assert any("the condition is known" in sentence for sentence in result.assumptions)


def test_a_condition_from_shape_arithmetic_is_known() -> None:
    # The first size of x is 2, not 3: the else branch
    result = analysis(
        f"""agraph (float[2,8] x) => (float y) <int64 zero = {{0}}, int64 three = {{3}}, {W}>
        {{ s = Shape(x) n = Gather(s, zero) c = Equal(n, three) y = If(c) <{BRANCHES}> }}"""
    )
    assert result.totals.macs == 0


def test_branches_of_one_shape_and_other_values_leave_no_value() -> None:
    # 3 or 5 elements: neither is known before the run
    result = analysis(
        """agraph (bool c) => (float[q] y) {
        n = If(c) <then_branch = t () => (int64[1] a) { a = Constant <value_ints = [3]> () },
                   else_branch = e () => (int64[1] b) { b = Constant <value_ints = [5]> () }>
        y = ConstantOfShape(n) }"""
    )
    assert result.tensors["y"].shape is None


def test_branches_with_an_exact_and_a_bounded_size_give_bounds() -> None:
    # All 5 elements, or those that are picked
    result = analysis(
        """agraph (bool c, float[5] x, bool[5] p) => (float[q] y) {
        y = If(c) <then_branch = t () => (float[n] a) { a = Identity(x) },
                   else_branch = e () => (float[m] b) { b = Compress <axis = 0> (x, p) }> }"""
    )
    assert ends(result.tensors["y"].shape[0]) == (0, 5)


def test_an_unknown_condition_gives_both_ends() -> None:
    # At most the product (128 MACs, 256 FLOPs), at least the Relu (0 MACs, 16 FLOPs)
    result = analysis(
        f"agraph (float[2,8] x, bool c) => (float y) <{W}> {{ y = If(c) <{BRANCHES}> }}"
    )
    totals = result.totals
    assert (totals.macs, totals.macs_min) == (128, 0)
    assert (totals.flops, totals.flops_min) == (256, 16)
    assert totals.is_upper_bound
    assert not totals.is_lower_bound
    assert any("at run time" in sentence for sentence in result.assumptions)
    assert result.tensors["y"].shape == (2, 8)


def test_macs_by_type_of_two_branches_are_those_of_the_larger() -> None:
    branches = """then_branch = t () => (float a) { a = MatMul(x, w) },
                  else_branch = e () => (float b) { m = MatMul(x, w) b = MatMul(m, w) }"""
    result = analysis(
        f"agraph (float[2,8] x, bool c) => (float y) <{W}> {{ y = If(c) <{branches}> }}"
    )
    assert (result.totals.macs, result.totals.macs_min) == (256, 128)
    assert result.totals.macs_by_dtype == {"fp32": 256}


def test_outputs_of_different_size_are_bounded() -> None:
    text = """agraph (float[2,8] x, bool c) => (float y) {
        y = If(c) <then_branch = t () => (float a) { a = Concat <axis = 0> (x, x) },
                   else_branch = e () => (float b) { b = Identity(x) }> }"""
    shape = analysis(text).tensors["y"].shape
    assert shape is not None
    assert (ends(shape[0]), shape[1]) == ((2, 4), 8)


def test_outputs_of_different_rank_have_no_shape_unless_the_branch_is_known() -> None:
    text = """agraph (float[1,8] x{extra}) => (float y) {const} {{
        y = If(c) <then_branch = t () => (float a) {{ a = Squeeze(x) }},
                   else_branch = e () => (float b) {{ b = Identity(x) }}> }}"""
    known = analysis(text.format(extra="", const="<bool c = {1}>"))
    assert known.tensors["y"].shape == (8,)
    unknown = analysis(text.format(extra=", bool c", const=""))
    assert unknown.tensors["y"].shape is None


def test_weights_of_both_branches_are_in_the_file() -> None:
    # An undecided If needs both: 64 + 64 parameters
    text = f"""agraph (float[2,8] x, bool c) => (float y) <{W}, {W.replace(" w ", " v ")}> {{
        y = If(c) <then_branch = t () => (float a) {{ a = MatMul(x, w) }},
                   else_branch = e () => (float b) {{ b = MatMul(x, v) }}> }}"""
    assert analysis(text).totals.parameters == 128


# -- Loop ------------------------------------------------------------------------------------

BODY = """body = b (int64 i, bool go, float[2,8] h) => (bool on, float[2,8] next, float[2,8] out)
    { on = Identity(go) next = MatMul(h, w) out = Identity(next) }"""


def test_a_loop_of_known_trips_is_its_body_times_the_trips() -> None:
    # 5 · 2·8·8 MACs; the 64 weights once; the scan output stacked
    result = analysis(
        f"agraph (float[2,8] x) => (float y, float ys) <{trips(5)}, {TRUE}, {W}>"
        f"{{ y, ys = Loop(m, yes, x) <{BODY}> }}"
    )
    totals = result.totals
    assert (totals.macs, totals.flops, totals.macs_min) == (640, 1280, 640)
    assert (totals.parameters, totals.weight_bytes) == (64, 256)
    assert totals.macs_by_dtype == {"fp32": 640}
    assert result.tensors["y"].shape == (2, 8)
    assert result.tensors["ys"].shape == (5, 2, 8)
    (body,) = result.nodes[0].bodies
    assert (body.name, body.trips, body.per_trip) == ("body", 5, False)
    assert sum(node.macs or 0 for node in body.cost.nodes) == 128


def test_trips_come_from_shape_arithmetic_too() -> None:
    result = analysis(
        f"""agraph (float[2,8] x, float[7,3] l) => (float y, float ys)
        <int64 zero = {{0}}, {TRUE}, {W}>
        {{ s = Shape(l) m = Gather(s, zero) y, ys = Loop(m, yes, x) <{BODY}> }}"""
    )
    assert result.totals.macs == 7 * 128
    assert result.tensors["ys"].shape == (7, 2, 8)


@pytest.mark.parametrize("count", [0, -3])
def test_a_loop_of_no_trips_costs_nothing_and_keeps_its_state(count: int) -> None:
    result = analysis(
        f"agraph (float[2,8] x) => (float y, float ys) <{trips(count)}, {TRUE}, {W}>"
        f"{{ y, ys = Loop(m, yes, x) <{BODY}> }}"
    )
    assert (result.totals.macs, result.totals.flops) == (0, 0)
    assert result.tensors["y"].shape == (2, 8)
    assert result.tensors["ys"].shape == (0, 2, 8)
    assert result.totals.parameters == 64


def test_a_condition_false_from_the_start_runs_nothing() -> None:
    result = analysis(
        f"agraph (float[2,8] x) => (float y, float ys) <{trips(5)}, bool no = {{0}}, {W}>"
        f"{{ y, ys = Loop(m, no, x) <{BODY}> }}"
    )
    assert result.totals.macs == 0
    assert result.tensors["ys"].shape == (0, 2, 8)


EARLY = """body = b (int64 i, bool go, float[2,8] h) => (bool on, float[2,8] next, float[2,8] out)
    { next = MatMul(h, w) out = Identity(next)
      t = ReduceSum <keepdims = 0> (next) zero = Constant <value_float = 0.0> ()
      on = Greater(t, zero) }"""


def test_a_body_that_may_stop_makes_the_count_an_upper_bound() -> None:
    # t in 1 … 10: 128·t MACs, at most 1280, at least 128; flops of the sum 15 and the comparison 1
    result = analysis(
        f"agraph (float[2,8] x) => (float y, float ys) <{trips(10)}, {TRUE}, {W}>"
        f"{{ y, ys = Loop(m, yes, x) <{EARLY}> }}"
    )
    totals = result.totals
    assert (totals.macs, totals.macs_min) == (1280, 128)
    assert (totals.flops, totals.flops_min) == (10 * 272, 272)
    assert totals.is_upper_bound
    assert totals.parameters == 64
    shape = result.tensors["ys"].shape
    assert shape is not None
    assert ends(shape[0]) == (1, 10)
    assert any("trip count is an upper bound" in sentence for sentence in result.assumptions)


def test_a_start_condition_nobody_knows_may_run_nothing() -> None:
    result = analysis(
        f"agraph (float[2,8] x, bool c) => (float y, float ys) <{trips(4)}, {W}>"
        f"{{ y, ys = Loop(m, c, x) <{BODY}> }}"
    )
    assert (result.totals.macs, result.totals.macs_min) == (4 * 128, 0)


STOPS = """body = b (int64 i, bool go, float[2,8] h) => (bool on, float[2,8] next)
    { on = Constant <value = bool {0}> () next = MatMul(h, w) }"""


@pytest.mark.parametrize("limit", [trips(6), ""])
def test_a_body_that_always_stops_runs_once(limit: str) -> None:
    name = "m" if limit else '""'
    constants = ", ".join(filter(None, (limit, TRUE, W)))
    result = analysis(
        f"agraph (float[2,8] x) => (float y) <{constants}> {{ y = Loop({name}, yes, x) <{STOPS}> }}"
    )
    assert (result.totals.macs, result.totals.macs_min) == (128, 128)
    assert not result.totals.per_trip


@pytest.mark.parametrize("limit", ["n", '""'])
def test_unknown_trips_are_counted_per_trip_and_flagged(limit: str) -> None:
    result = analysis(
        f"agraph (float[2,8] x, int64 n) => (float y, float ys) <{TRUE}, {W}>"
        f"{{ y, ys = Loop({limit}, yes, x) <{EARLY}> }}"
    )
    totals = result.totals
    assert (totals.macs, totals.per_trip) == (128, True)
    assert result.nodes[0].bodies[0].per_trip
    assert result.tensors["y"].shape == (2, 8)
    assert any("costs are those of one trip" in sentence for sentence in result.assumptions)


def test_trips_that_follow_from_data_are_bounded() -> None:
    # NonZero of 6 elements finds at most 6: at most 6 trips
    result = analysis(
        f"""agraph (float[2,8] x, float[6] d) => (float y, float ys)
        <int64 one = {{1}}, {TRUE}, {W}>
        {{ nz = NonZero(d) s = Shape(nz) m = Gather(s, one) y, ys = Loop(m, yes, x) <{BODY}> }}"""
    )
    assert (result.totals.macs, result.totals.macs_min) == (6 * 128, 0)


GROWS = """body = b (int64 i, bool go, float[n] h) => (bool on, float[k] next)
    { on = Identity(go) next = Concat <axis = 0> (h, one) }"""


def test_a_list_that_grows_is_followed_trip_by_trip() -> None:
    # 3 elements, one more each trip: 4, 5, 6, 7
    result = analysis(
        f"agraph (float[3] x) => (float y) <{trips(4)}, {TRUE}, float[1] one = {{0.0}}>"
        f"{{ y = Loop(m, yes, x) <{GROWS}> }}"
    )
    assert result.tensors["y"].shape == (7,)
    assert len(result.nodes[0].bodies) == 4


def test_a_list_that_grows_no_trip_keeps_its_size() -> None:
    result = analysis(
        f"""agraph (float[3] x) => (float y, float ys)
        <{trips(0)}, {TRUE}, float[1] one = {{0.0}}> {{
        y, ys = Loop(m, yes, x) <body = b (int64 i, bool go, float[n] h)
            => (bool on, float[k] next, float[1] out) {{
            on = Identity(go) next = Concat <axis = 0> (h, one) out = Neg(one) }}> }}"""
    )
    assert result.tensors["y"].shape == (3,)
    assert result.tensors["ys"].shape == (0, 1)
    assert result.totals.flops == 0


def test_a_list_that_grows_unknown_times_has_no_size_and_says_so() -> None:
    result = analysis(
        f"agraph (float[3] x, int64 m) => (float y) <{TRUE}, float[1] one = {{0.0}}>"
        f"{{ y = Loop(m, yes, x) <{GROWS}> }}"
    )
    assert result.tensors["y"].shape is None
    assert any("changes shape from trip to trip" in sentence for sentence in result.assumptions)


def growing(trips: str, body: str, states: str = "float[n] h", given: str = "x") -> Analysis:
    """A loop from x [3] on whose body ends in `next`, one element longer."""
    return analysis(
        f"""agraph (float[3] x, float[7] d) => (float y)
        <int64 one_ = {{1}}, {TRUE}, float[1] one = {{0.0}}> {{
        nz = NonZero(d) s = Shape(nz) found = Gather(s, one_)
        {trips}
        y = Loop(m, yes, {given}) <body = b (int64 i, bool go, {states})
            => (bool on, float[k] next) {{ on = Identity(go) {body} }}> }}"""
    )


ADDS_ONE = "r = Relu(h) next = Concat <axis = 0> (h, one)"
MANY_TRIPS = "m = Constant <value_int = 300> ()"


def test_a_list_that_grows_evenly_is_not_followed_through_many_trips() -> None:
    # 3, 4, … 302 elements through Relu: 300 · (3 + 302) / 2 = 45,750; 303 in the end
    result = growing(MANY_TRIPS, ADDS_ONE)
    assert result.tensors["y"].shape == (303,)
    assert is_exact(result.tensors["y"].shape[0])
    loop = result.nodes[-1]
    assert loop.flops == 45_750
    assert is_exact(loop.flops)
    # 3 + k and one read, 4 + k written; Relu reads and writes 3 + k: 4 bytes · Σ (14 + 4 · k)
    assert loop.traffic_bytes == 4 * (300 * 14 + 4 * 299 * 300 // 2)
    assert len(loop.bodies) == 2
    assert any("grows by 1 along axis 0" in sentence for sentence in result.assumptions)


def test_a_list_that_grows_a_bounded_number_of_times_has_a_bounded_size() -> None:
    # At most 7 trips: 3 + 4 + … + 9 = 42 FLOPs and 10 elements; none: 0 and 3
    result = growing("m = Identity(found)", ADDS_ONE)
    assert ends(result.tensors["y"].shape[0]) == (3, 10)
    assert ends(result.nodes[-1].flops) == (0, 42)


def test_at_least_one_trip_costs_at_least_the_first() -> None:
    # 1 to 8 trips: 3 + … + 10 = 52 at most, 3 at least; 4 to 11 elements
    result = growing("m = Add(found, one_)", ADDS_ONE)
    assert ends(result.tensors["y"].shape[0]) == (4, 11)
    assert ends(result.nodes[-1].flops) == (3, 52)
    # exactly one: the first trip alone
    single = growing("m = Min(found, one_)", ADDS_ONE)
    assert ends(single.nodes[-1].flops) == (0, 3)


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_list_grows_at_any_precision(precision: str) -> None:
    # It begins with two zeros whose values are known
    text = f"""agraph (float[7] d) => (float y)
        <int64 n = {{300}}, int64[1] two = {{2}}, {TRUE}, float[1] one = {{0.0}}> {{
        z = ConstantOfShape(two) y = Loop(n, yes, z) <{GROWS}> }}"""
    result = onnxroof.analyze(model(text), precision=precision)
    assert result.tensors["y"].shape == (302,)


def test_of_few_trips_each_is_counted_for_itself() -> None:
    # (3 + k)² products: 9 + 16 + … + 81 = 280, each of the 7 trips for itself
    result = growing(
        "m = Identity(found)",
        """a = Constant <value_int = 1> () u = Constant <value_ints = [1]> () t = Unsqueeze(h, u)
        p = Mul(h, t) next = Concat <axis = 0> (h, one)""",
    )
    assert ends(result.nodes[-1].flops) == (0, 280)


SQUARES = """a = Constant <value_int = 1> () u = Constant <value_ints = [1]> () t = Unsqueeze(h, u)
    p = Mul(h, t) next = Concat <axis = 0> (h, one)"""


def test_a_cost_that_grows_faster_than_the_list_is_at_most_whatever_the_trips() -> None:
    # 300 trips: 3² + 4² + … + 302² = 302 · 303 · 605 / 6 - 1 - 4 = 9,226,850
    loop = growing(MANY_TRIPS, SQUARES).nodes[-1]
    least, most = ends(loop.flops)
    assert least < 9_226_850 < most == 150 * (3**2 + 302**2)
    # What the node moves grows as fast: 3 + k read twice and (3 + k)² written, and the longer list
    moved = sum(4 * (2 * n + n**2 + n + 1 + n + 1) for n in range(3, 303))
    least, most = ends(loop.traffic_bytes)
    assert least < moved < most


def test_two_trips_are_the_first_and_the_last_whatever_the_cost() -> None:
    # 1 or 2 trips, 3² + 4² FLOPs at most and 3² at least
    loop = growing(
        "two_ = Constant <value_int = 2> () t = Add(found, one_) m = Min(t, two_)", SQUARES
    )
    assert ends(loop.nodes[-1].flops) == (9, 9 + 16)


def test_a_cost_that_rises_by_steps_is_at_most_that_of_the_last_trip_each_time() -> None:
    # Two 4-bit integers share a byte, so 3, 4, … 302 of them take 2, 2, 3, 3, … 151: above the line
    # from the first to the last in some trips. Σ ⌈n / 2⌉ written, 4 · n read, and the longer list
    result = growing(MANY_TRIPS, "c = Cast <to = 22> (h) next = Concat <axis = 0> (h, one)")
    moved = sum(4 * n + -(-n // 2) + 4 * (n + 1) + 4 * (n + 1) for n in range(3, 303))
    least, most = ends(result.nodes[-1].traffic_bytes)
    assert least < moved < most == 300 * (4 * 302 + 151 + 8 * 303)


THE_REST = """b = Constant <value_ints = [1000]> () o = Cast <to = 1> (i) all = Expand(o, b)
    n = Shape(h) left = Slice(all, n, b)"""


def test_a_cost_that_falls_while_the_list_grows_is_summed_as_well() -> None:
    # What is left of 1,000 behind the list: 997, 996, … 698 elements through Relu, then 3, 4, … 302
    loop = growing(MANY_TRIPS, f"{THE_REST} q = Relu(left) {ADDS_ONE}").nodes[-1]
    assert loop.flops == 300 * (997 + 698) // 2 + 300 * (3 + 302) // 2
    assert is_exact(loop.flops)


def test_a_cost_that_falls_faster_is_at_least_that_of_a_trip() -> None:
    # (1,000 - (3 + k))² products, 997² in the first trip and 698² in the last
    squares = "a = Constant <value_ints = [1]> () t = Unsqueeze(left, a) q = Mul(left, t)"
    loop = growing(MANY_TRIPS, f"{THE_REST} {squares} next = Concat <axis = 0> (h, one)").nodes[-1]
    work = sum(n**2 for n in range(698, 998))
    least, most = ends(loop.flops)
    assert 0 < least < work < most == 150 * (997**2 + 698**2)


def test_a_copy_in_another_type_still_grows() -> None:
    result = growing(
        MANY_TRIPS,
        """c = Identity(h) e = Cast <to = 1> (c) g = Concat <axis = 0> (one, e, one)
        next = Identity(g)""",
    )
    assert result.tensors["y"].shape == (3 + 2 * 300,)


@pytest.mark.parametrize(
    "body",
    [
        "next = Concat <axis = 0> (h, h)",  # doubles
        "q = Relu(h) next = Concat <axis = 0> (q, one)",  # is not the list itself that is kept
        "q = ReduceSum <keepdims = 1> (h) next = Concat <axis = 0> (h, q)",  # depends on the list
        "p = Constant <value_ints = [0, 1]> () next = Pad(h, p)",
    ],
)
def test_a_list_that_grows_in_another_way_has_no_size_after_many_trips(body: str) -> None:
    result = growing(MANY_TRIPS, body)
    assert result.tensors["y"].shape is None
    assert any("changes shape from trip to trip" in sentence for sentence in result.assumptions)


def test_a_state_that_follows_a_growing_list_is_not_taken_for_settled() -> None:
    # The first trip leaves q with 3 elements, as it was; the next with 4, the last of 300 with 302
    result = analysis(
        f"""agraph (float[3] x) => (float y, float k) <{trips(300)}, {TRUE},
        float[1] one = {{0.0}}> {{
        y, p = Loop(m, yes, x, x) <body = b (int64 i, bool go, float[n] h, float[l] q)
            => (bool on, float[o] next, float[r] last) {{
            on = Identity(go) last = Identity(h) {ADDS_ONE} }}> k = Relu(p) }}"""
    )
    shape = result.tensors["p"].shape
    assert shape is None or ends(shape[0])[0] <= 302 <= ends(shape[0])[1]


def test_what_a_growing_list_leaves_each_trip_cannot_be_stacked() -> None:
    # r has 3 elements in the first trip and 302 in the last
    result = analysis(
        f"""agraph (float[3] x) => (float y, float[k] ys) <{trips(300)}, {TRUE},
        float[1] one = {{0.0}}> {{ y, rs = Loop(m, yes, x) <body = b (int64 i, bool go, float[n] h)
            => (bool on, float[k] next, float[l] r) {{
            on = Identity(go) {ADDS_ONE} }}> ys = Relu(rs) }}"""
    )
    assert result.tensors["y"].shape == (303,)
    assert result.tensors["rs"].shape is None


def test_a_loop_stops_when_the_size_of_its_state_says_so() -> None:
    # 1 element, then 2, 3, 4: after the third trip there are no fewer than 4
    result = analysis(
        f"""agraph (float[1] x) => (float[q] y) <{trips(10)}, {TRUE}, float[1] one = {{0.0}},
        int64 four = {{4}}> {{ y = Loop(m, yes, x) <body = b (int64 i, bool go, float[n] h)
            => (bool on, float[k] next) {{ {ADDS_ONE} s = Size(next) on = Less(s, four) }}> }}"""
    )
    assert result.tensors["y"].shape == (4,)
    # Relu of 1, 2 and 3 elements
    assert result.totals.flops == 1 + 2 + 3


def test_of_many_trips_the_size_of_a_state_may_cut_some() -> None:
    # Too many to be followed: between one and all of them
    result = analysis(
        f"""agraph (float[1] x) => (float[q] y) <{trips(1000)}, {TRUE}, float[1] one = {{0.0}},
        int64 four = {{4}}> {{ y = Loop(m, yes, x) <body = b (int64 i, bool go, float[n] h)
            => (bool on, float[k] next) {{ {ADDS_ONE} s = Size(next) on = Less(s, four) }}> }}"""
    )
    least, most = ends(result.tensors["y"].shape[0])
    assert least <= 4 <= most
    assert ends(result.totals.flops)[0] <= 1 + 2 + 3 <= result.totals.flops
    assert result.totals.is_upper_bound


def test_a_state_that_follows_another_some_trips_later_does_not_keep_its_size() -> None:
    # h grows, p is what h was, q what p was: after 5 trips of 7 at most q has 3 + 5 - 2 elements
    result = analysis(
        f"""agraph (float[3] x, float[7] d) => (float y, float k) <int64 one_ = {{1}}, {TRUE},
        float[1] one = {{0.0}}> {{ nz = NonZero(d) s = Shape(nz) m = Gather(s, one_)
        y, p, q = Loop(m, yes, x, x, x) <body = b (int64 i, bool go, float[n] h, float[l] a,
            float[o] e) => (bool on, float[k] next, float[u] f, float[v] g) {{
            on = Identity(go) f = Identity(h) g = Identity(a) {ADDS_ONE} }}> k = Relu(q) }}"""
    )
    shape = result.tensors["q"].shape
    assert shape is None or ends(shape[0])[1] >= 3 + 5 - 2


def test_a_state_that_follows_a_shrinking_one_shrinks_later() -> None:
    # h loses what is not picked, p is what h was, q what p was
    result = analysis(
        f"""agraph (float[6] x, float[7] d) => (float[q] k) <int64 one_ = {{1}}, {TRUE}> {{
        nz = NonZero(d) s = Shape(nz) m = Gather(s, one_)
        y, p, q = Loop(m, yes, x, x, x) <body = b (int64 i, bool go, float[n] h, float[l] a,
            float[o] e) => (bool on, float[k] next, float[u] f, float[v] g) {{
            on = Identity(go) f = Identity(h) g = Identity(a) r = Relu(h)
            z = NonZero(r) next = GatherND(r, t) t = Transpose(z) }}> k = Relu(q) }}"""
    )
    assert [ends(result.tensors[name].shape[0]) for name in ("y", "p", "q")] == [(0, 6)] * 3


def test_a_state_of_a_loop_that_may_not_run_may_be_what_it_was() -> None:
    # 3 if the condition is false from the start, else 5
    result = analysis(
        f"""agraph (bool start) => (float[q] y) <{trips(4)}> {{
        z = Constant <value_ints = [3]> ()
        n = Loop(m, start, z) <body = b (int64 i, bool go, int64[1] h)
            => (bool on, int64[1] next) {{
            on = Identity(go) next = Constant <value_ints = [5]> () }}>
        y = ConstantOfShape(n) }}"""
    )
    assert result.tensors["y"].shape is None


def test_sizes_of_two_trips_are_two_sizes() -> None:
    # Two trips find as many as they find: a target made of the first does not cancel the second
    result = analysis(
        f"""agraph (float[2,4] xs) => (float[q] y) <{trips(2)}, {TRUE}, int64[1,1] p0 = {{0}},
        int64[1] at = {{1}}, int64[1] rest = {{-1}}> {{
        p, y = Loop(m, yes, p0, p0) <body = b (int64 i, bool go, int64[1,q] before, int64[w,v] old)
            => (bool on, int64[1,r] nz, int64[u,t] o) {{
            on = Identity(go) x = Gather(xs, i) nz = NonZero(x) twice = Concat <axis = 0> (nz, nz)
            s = Shape(before) n = Gather(s, at) target = Concat <axis = 0> (n, rest)
            o = Reshape(twice, target) }}> }}"""
    )
    shape = result.tensors["y"].shape
    # 4 found, then 2: 2 · 2 elements as [4, 1]; 1 found, then 2: [1, 4]
    assert shape is None or all(
        least <= size <= most
        for true in ((4, 1), (1, 4))
        for size, (least, most) in zip(true, map(ends, shape), strict=True)
    )


def test_an_if_that_the_size_decides_in_some_of_many_trips_leaves_the_cost_open() -> None:
    # In the trip in which there are 103 elements a product of 100 · 100 · 100 MACs
    result = growing(
        MANY_TRIPS,
        """s = Size(h) c = Constant <value_int = 103> () q = Equal(s, c)
        b = Constant <value_ints = [100, 100]> () o = Cast <to = 1> (i) w = Expand(o, b)
        r = If(q) <then_branch = t () => (float a) { a = MatMul(w, w) },
                   else_branch = e () => (float b) { b = Identity(w) }>
        next = Concat <axis = 0> (h, one)""",
    )
    assert (
        result.totals.per_trip
        or ends(result.totals.macs)[1] >= 100**3
        or (result.tensors["y"].shape is None)
    )


def test_scan_inputs_of_a_bounded_and_an_exact_length_have_the_exact_one() -> None:
    result = analysis(
        """agraph (float[6] x, float[4,1] d) => (float[q] y) {
        z = NonZero(x) t = Transpose(z) f = Cast <to = 1> (t)
        y = Scan <num_scan_inputs = 2, body = b (float[1] e, float[1] g) => (float[1] r) {
            r = Add(e, g) }> (f, d) }"""
    )
    assert not result.problems
    assert result.tensors["y"].shape == (4, 1)


LISTS = """agraph (float[3,2] x, int64 m) => (float y, int64 z)
    <{given} bool yes = {{1}}, int64 zero = {{0}}> {{
    e = SequenceEmpty()
    l = Loop({trips}, yes, e) <body = b (int64 i, bool go, seq(float[3,2]) h)
        => (bool on, seq(float[3,2]) next) {{ on = Identity(go) {body} }}>
    first = SequenceAt(l, zero) y = ConcatFromSequence <axis = 1> (l) z = SequenceLength(l) }}"""


def test_a_sequence_grows_with_every_trip() -> None:
    # 5 tensors of 3 × 2 side by side: 3 × 10, though each trip leaves a list of the same type
    result = analysis(
        LISTS.format(given="int64 n = {5},", trips="n", body="next = SequenceInsert(h, x)")
    )
    assert result.tensors["y"].shape == (3, 10)
    length = result.tensors["z"].value
    assert length is not None
    assert int(length) == 5


def test_the_elements_of_a_sequence_of_unknown_length_are_known() -> None:
    # Whatever the number of trips, an element has 3 × 2
    result = analysis(LISTS.format(given="", trips="m", body="next = SequenceInsert(h, x)"))
    assert result.tensors["first"].shape == (3, 2)
    assert result.tensors["l"].items is None
    assert any("changes shape from trip to trip" in sentence for sentence in result.assumptions)


def test_elements_that_differ_from_trip_to_trip_are_not_taken_for_the_first() -> None:
    # The first element has 3 × 2, the next 6 × 2, then 12 × 2, …
    body = """empty = SequenceLength(h) none = Equal(empty, zero)
        last = If(none) <then_branch = t () => (float a) { a = Identity(x) },
                         else_branch = f () => (float c) { c = SequenceAt(h, zero) }>
        twice = Concat <axis = 0> (last, last) next = SequenceInsert(h, twice, zero)"""
    result = analysis(LISTS.format(given="", trips="m", body=body))
    assert result.tensors["first"].shape is None


def test_loops_in_loops_multiply() -> None:
    # 3 outer trips of 4 inner trips of 128 MACs; one weight
    result = analysis(
        f"""agraph (float[2,8] x) => (float y) <{trips(3)}, int64 k = {{4}}, {TRUE}, {W}> {{
        y = Loop(m, yes, x) <body = outer (int64 i, bool go, float[2,8] h)
            => (bool on, float[2,8] r) {{ on = Identity(go)
               r = Loop(k, yes, h) <body = inner (int64 j, bool g, float[2,8] p)
                    => (bool o, float[2,8] q) {{ o = Identity(g) q = MatMul(p, w) }}> }}> }}"""
    )
    assert result.totals.macs == 3 * 4 * 128
    assert result.totals.parameters == 64
    assert result.totals.macs_by_dtype == {"fp32": 3 * 4 * 128}


def test_an_if_in_a_loop_captures_from_both_graphs_around() -> None:
    # 3 · 128 MACs; 3 additions of 16 elements; 16 for the Relu; p lives through the whole loop
    result = analysis(
        f"""agraph (float[2,8] x) => (float y) <{trips(3)}, {TRUE}, {W}> {{
        p = Relu(x)
        y = Loop(m, yes, x) <body = b (int64 i, bool go, float[2,8] h) => (bool on, float[2,8] next)
            {{ on = Identity(go)
               z = If(yes) <then_branch = t () => (float a) {{ a = MatMul(h, w) }},
                            else_branch = e () => (float c) {{ c = Identity(h) }}>
               next = Add(z, p) }}> }}"""
    )
    assert (result.totals.macs, result.totals.flops) == (384, 768 + 48 + 16)
    assert result.totals.parameters == 64
    live = result.memory
    # p, x (also the loop's input) and the loop's output must be held at once: 3 · 64 bytes
    assert live.peak_activation_bytes >= 3 * 64


def test_an_undecided_branch_in_a_loop_is_bounded_each_trip() -> None:
    # At most 3 · 128 MACs, at least none
    result = analysis(
        f"""agraph (float[2,8] x, bool c) => (float y) <{trips(3)}, {TRUE}, {W}> {{
        y = Loop(m, yes, x) <body = b (int64 i, bool go, float[2,8] h) => (bool on, float[2,8] next)
            {{ on = Identity(go)
               next = If(c) <then_branch = t () => (float a) {{ a = MatMul(h, w) }},
                             else_branch = e () => (float d) {{ d = Identity(h) }}> }}> }}"""
    )
    assert (result.totals.macs, result.totals.macs_min) == (3 * 128, 0)
    assert result.totals.macs_by_dtype == {"fp32": 3 * 128}


def test_an_unknown_operator_in_a_body_makes_totals_at_least() -> None:
    proto = model(
        f"""agraph (float[2,8] x) => (float y) <{trips(5)}, {TRUE}, {W}> {{
        y = Loop(m, yes, x) <body = b (int64 i, bool go, float[2,8] h) => (bool on, float[2,8] next)
            {{ on = Identity(go) t = MatMul(h, w) next = my.Foo(t) }}> }}""",
        opsets={"my": 1},
    )
    result = onnxroof.analyze(proto)
    assert result.totals.macs == 640
    assert result.totals.is_lower_bound
    assert result.nodes[0].status is Status.UNKNOWN
    assert list(result.coverage.unknown) == ["my.Foo"]


def test_a_loop_body_of_other_arity_is_a_problem_of_that_node() -> None:
    proto = model(
        f"""agraph (float[2,8] x) => (float y, float z) <{trips(5)}, {TRUE}> {{
        y = Loop(m, yes, x) <body = b (int64 i, bool go) => (bool on) {{ on = Identity(go) }}>
        z = Relu(x) }}"""
    )
    with pytest.raises(onnxroof.OnnxroofError, match="body takes 2 inputs"):
        onnxroof.analyze(proto)
    result = onnxroof.analyze(proto, keep_going=True)
    assert len(result.problems) == 1
    assert result.tensors["z"].shape == (2, 8)


@pytest.mark.parametrize("op_type", ["If", "Loop", "Scan", "SequenceMap"])
def test_a_missing_body_is_a_problem_of_that_node(op_type: str) -> None:
    proto = model(f"agraph (float[2] x) => (float y) {{ y = {op_type}(x) z = Relu(x) }}")
    result = onnxroof.analyze(proto, keep_going=True)
    assert result.tensors["z"].shape == (2,)
    assert result.nodes[0].status is Status.UNKNOWN


# -- Scan ------------------------------------------------------------------------------------

STEP = """body = b (float[4,8] h, float[4,8] x) => (float[4,8] next, float[4,3] out)
    { m = MatMul(h, w) next = Add(m, x) out = MatMul(next, v) }"""
V = "float[8,3] v = {" + ",".join(["0.0"] * 24) + "}"


def scan(shape: str, attributes: str) -> Analysis:
    return analysis(
        f"agraph (float[4,8] h, float[{shape}] xs) => (float last, float ys) <{W}, {V}>"
        f"{{ last, ys = Scan(h, xs) <num_scan_inputs = 1, {attributes} {STEP}> }}"
    )


@pytest.mark.parametrize(
    ("shape", "attributes", "stacked"),
    [
        ("6,4,8", "", (6, 4, 3)),
        ("4,6,8", "scan_input_axes = [1],", (6, 4, 3)),
        ("4,8,6", "scan_input_axes = [-1], scan_output_axes = [1],", (4, 6, 3)),
        ("6,4,8", "scan_input_directions = [1], scan_output_axes = [-1],", (4, 3, 6)),
        ("6,4,8", "scan_output_directions = [1],", (6, 4, 3)),
    ],
)
def test_scan_runs_its_body_once_per_slice(
    shape: str, attributes: str, stacked: tuple[int, ...]
) -> None:
    # 6 slices: MACs 4·8·8 + 4·8·3 each, and 32 additions
    result = scan(shape, attributes)
    assert result.tensors["last"].shape == (4, 8)
    assert result.tensors["ys"].shape == stacked
    assert result.totals.macs == 6 * (256 + 96)
    assert result.totals.flops == 6 * (2 * 352 + 32)
    assert result.totals.parameters == 64 + 24


def test_an_empty_scan_costs_nothing() -> None:
    result = scan("0,4,8", "")
    assert (result.totals.macs, result.tensors["ys"].shape) == (0, (0, 4, 3))


def test_scan_inputs_of_different_length_are_a_problem() -> None:
    proto = model(
        """agraph (float[4] h, float[6,4] a, float[5,4] b) => (float y) {
        y = Scan(h, a, b) <num_scan_inputs = 2, body = g (float[4] h, float[4] a, float[4] b)
            => (float[4] r) { t = Add(h, a) r = Add(t, b) }> }"""
    )
    with pytest.raises(onnxroof.OnnxroofError, match="differ in length"):
        onnxroof.analyze(proto)


def test_scan_of_opset_8_runs_per_batch_element_too() -> None:
    # h [2,8], xs [2,6,8] (batch 2, 6 steps of 8): 12 runs of 8·8 MACs and 8 additions
    step = """body = b (float[1,8] h, float[1,8] x) => (float[1,8] next, float[1,8] out)
        { m = MatMul(h, w) next = Add(m, x) out = Relu(next) }"""
    result = analysis(
        f"""agraph (float[2,1,8] h, float[2,6,1,8] xs) => (float last, float ys) <{W}>
        {{ last, ys = Scan("", h, xs) <num_scan_inputs = 1, {step}> }}""",
        opset=8,
    )
    assert result.tensors["last"].shape == (2, 1, 8)
    assert result.tensors["ys"].shape == (2, 6, 1, 8)
    assert result.totals.macs == 12 * 64
    assert result.totals.flops == 12 * (128 + 8 + 8)


# -- SequenceMap -----------------------------------------------------------------------------


def test_sequence_map_runs_its_body_per_element() -> None:
    # Elements of 2·8 and 3·8 values: (2 + 3)·8·8 MACs
    result = analysis(
        f"""agraph (float[2,8] a, float[3,8] b) => (seq(float) y, float first)
        <{W}, int64 i = {{1}}> {{
        s = SequenceConstruct(a, b)
        y = SequenceMap(s) <body = g (float[n,8] e) => (float[n,8] r) {{ r = MatMul(e, w) }}>
        first = SequenceAt(y, i) }}"""
    )
    assert result.totals.macs == 5 * 64
    assert result.totals.parameters == 64
    assert result.tensors["first"].shape == (3, 8)


def test_a_sequence_map_over_a_sequence_of_unknown_length_costs_one_element_and_says_so() -> None:
    # [2,8] · [8,8] = 128 MACs for each of nobody knows how many
    result = analysis(
        f"""agraph (seq(float[2,8]) s) => (float y) <{W}> {{
        r = SequenceMap(s) <body = g (float[2,8] e) => (float[2,8] r) {{ r = MatMul(e, w) }}>
        y = ConcatFromSequence <axis = 0> (r) }}"""
    )
    assert result.totals.macs == 128
    assert result.totals.per_trip
    assert not result.problems
    assert result.tensors["r"].element.shape == (2, 8)
    assert any("length of the sequence is not known" in line for line in result.assumptions)


def test_a_mapped_sequence_knows_what_its_elements_have_in_common() -> None:
    # Pieces of 4 and 2 rows; which of them the data pick nobody knows
    result = analysis(
        """agraph (float[6,8] x, int64 i) => (float y) <int64[2] parts = {4, 2}> {
        s = SplitToSequence <axis = 0> (x, parts)
        r = SequenceMap(s) <body = g (float[n,8] e) => (float[n,8] r) { r = Relu(e) }>
        y = SequenceAt(r, i) }"""
    )
    assert ends(result.tensors["y"].shape[0]) == (2, 4)


# -- where weights live ----------------------------------------------------------------------


def test_weights_inside_a_body_count_once() -> None:
    weight = numpy_helper.from_array(np.zeros((8, 8), np.float32), "w")
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("MatMul", ["h", "w"], ["r"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("h", TensorProto.FLOAT, [2, 8]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("r", TensorProto.FLOAT, [2, 8]),
        ],
        [weight],
    )
    proto = model(
        "agraph (float[2,8] x) => (float[2,8] y) <int64 m = {9}, bool yes = {1}> { y = Relu(x) }"
    )
    proto.graph.node[0].CopyFrom(onnx.helper.make_node("Loop", ["m", "yes", "x"], ["y"], body=body))
    totals = onnxroof.analyze(proto).totals
    assert (totals.macs, totals.parameters, totals.weight_bytes) == (9 * 128, 64, 256)
