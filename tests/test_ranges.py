"""Bounds of elements: exact arithmetic at the ends, and nothing ever outside of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxroof.graph.types import DType
from onnxroof.ranges import Range, combined, make, of_type, union
from onnxroof.scopes import Scope
from tests.builders import model, shaped

INFINITE = (-math.inf, math.inf)


def ends(found: Range) -> tuple[float, float]:
    return (found.low, found.high)


def range_of(text: str, opset: int = 21) -> tuple[float, float]:
    """The range of y in the text of a graph."""
    graph, findings = shaped(model(text, opset=opset))
    assert not findings.problems
    return ends(Scope(graph.graph, graph.tensors, graph.calls).range_of("y"))


# -- the arithmetic --------------------------------------------------------------------------


def test_ends_are_rounded_outward_to_numbers_of_the_type() -> None:
    # 1/3 lies between the floats 0.3333333135 and 0.3333333433 = 11184811 / 2^25
    found = make(1 / 3, 1 / 3, DType.FLOAT)
    assert ends(found) == (11184810 / 2**25, 11184811 / 2**25)
    # 1001 / 2 needs 10 bits, 2049 / 2 needs 12: of the 11 of a half, 1024 and 1025 are next to it
    assert ends(make(500.5, 500.5, DType.FLOAT16)) == (500.5, 500.5)
    assert ends(make(1024.5, 1024.5, DType.FLOAT16)) == (1024, 1025)


def test_integers_keep_the_integers_within() -> None:
    assert ends(make(0.5, 3.5, DType.INT64)) == (1, 3)


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0, 300, DType.UINT8),  # wraps
        (0, 1 << 40, DType.INT32),
        (math.nan, 1, DType.FLOAT),
        (2, 1, DType.FLOAT),
        (0, 1, None),
        (0, 1, DType.FLOAT8E4M3FN),
    ],
)
def test_what_the_type_cannot_hold_leaves_no_bound_but_the_types(
    low: float, high: float, dtype: DType | None
) -> None:
    assert ends(make(low, high, dtype)) == ends(of_type(dtype))


def test_a_half_beyond_65504_is_infinite() -> None:
    assert ends(make(0, 65504, DType.FLOAT16)) == (0, 65504)
    assert ends(make(0, 65505, DType.FLOAT16)) == (0, math.inf)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (DType.BOOL, 0, 1),
        (DType.UINT8, 0, 255),
        (DType.INT4, -8, 7),
        (DType.UINT32, 0, math.inf),
        (DType.INT64, *INFINITE),
        (DType.FLOAT, *INFINITE),
        (DType.STRING, *INFINITE),
    ],
)
def test_small_integers_are_bounded_by_their_type(dtype: DType, low: float, high: float) -> None:
    assert ends(of_type(dtype)) == (low, high)


def test_a_product_is_extreme_at_the_corners() -> None:
    # [-2, 3] · [-5, 4]: 10, -8, -15, 12
    one, other = make(-2, 3, DType.FLOAT), make(-5, 4, DType.FLOAT)
    assert ends(combined(lambda a, b: a * b, one, other)) == (-15, 12)
    assert ends(union(one, other)) == (-5, 4)


def test_nothing_times_infinity_is_not_known() -> None:
    one, other = make(0, 1, DType.FLOAT), of_type(DType.FLOAT)
    assert ends(combined(lambda a, b: a * b, one, other)) == INFINITE


# -- operators -------------------------------------------------------------------------------

CLIPPED = "float lo = {-2.0}, float hi = {3.0}"


@pytest.mark.parametrize(
    ("expression", "low", "high"),
    [
        ("y = Identity(c)", -2, 3),
        ("y = Neg(c)", -3, 2),
        ("y = Abs(c)", 0, 3),
        ("y = Relu(c)", 0, 3),
        ("y = Sign(c)", -1, 1),
        ("y = Add(c, c)", -4, 6),
        ("y = Sub(c, c)", -5, 5),  # 3 − (−2); that both are one tensor is not looked at
        ("y = Mul(c, c)", -6, 9),  # −2 · 3, 3 · 3
        ("y = Div(c, hi)", -11184811 / 2**24, 1),  # −2/3 rounded down to 24 bits
        ("y = Div(hi, c)", *INFINITE),  # the divisor may be 0
        ("y = Max(c, lo, half)", 0.5, 3),
        ("y = Min(c, half)", -2, 0.5),
        ("h = Mul(c, half) y = Ceil(h)", -1, 2),  # −1 to 1.5
        ("h = Mul(c, half) y = Floor(h)", -1, 1),
        ("h = Mul(c, half) y = Round(h)", -1, 2),
        ("h = Mul(c, half) y = Cast <to = 7> (h)", -1, 1),
        ("y = Cast <to = 9> (c)", 0, 1),
        ("y = Cast <to = 2> (c)", 0, 255),  # −2 is none of uint8
        ("y = Mod <fmod = 1> (hi, c)", *INFINITE),
        ("k = Cast <to = 7> (c) y = Add(k, k)", -4, 6),
        ("k = Cast <to = 7> (c) d = Constant <value_int = 2> () y = Div(k, d)", -1, 1),
        ("k = Cast <to = 7> (c) d = Constant <value_int = 2> () y = Mod(k, d)", 0, 1),
        ("a = Abs(c) k = Cast <to = 7> (a) d = Constant <value_int = 9> () y = Mod(k, d)", 0, 3),
        ("y = Concat <axis = 0> (c, zs)", -2, 7),
        ("y = Where(b, c, zs)", -2, 7),
        ("i = Constant <value_ints = [0, 1]> () y = Gather(c, i)", -2, 3),
        ("y = Transpose(c)", -2, 3),
        ("s = Constant <value_ints = [1, 4]> () y = Expand(c, s)", -2, 3),
        ("y = ReduceMax(c)", -2, 3),
        ("y = ReduceSum(c)", -8 - 48 / 2**24, 12 + 48 / 2**24),  # 4 · 2^-24 · 12 for rounding
        ("k = Cast <to = 7> (c) y = ReduceSum(k)", -8, 12),
        ("y = ReduceMean(c)", -2 - 12 / 2**24, 3 + 12 / 2**24),  # 4 · 2^-24 · 3
        ("a = Constant <value_int = 0> () k = Cast <to = 7> (c) y = CumSum(k, a)", -8, 12),
        ("y = ArgMax(c)", 0, 3),
        ("y = NonZero(c)", 0, 3),
        # ONNX Runtime's Sigmoid(17.89684) is 1.0000001, its Tanh(8.880209) 1.0000002
        ("y = Sigmoid(x)", 0, 1 + 2**-20),
        ("y = Tanh(x)", -1 - 2**-20, 1 + 2**-20),
        ("y = Softmax(x)", 0, 1 + 2**-20),
        ("y = Add(x, half)", *INFINITE),
        ("y = Relu(x)", 0, math.inf),
        ("y = Sqrt(c)", *INFINITE),  # of a negative number it is none, whatever that is as a size
        ("y = Greater(x, half)", 0, 1),
        ("p = Constant <value_ints = [1, 0]> () y = Pad(c, p, seven)", -2, 7),
        ("p = Constant <value_ints = [1, 0]> () y = Pad(c, p)", -2, 3),
        ("k = Constant <value_ints = [1]> () y, z = TopK(c, k)", -2, 3),
        ("k = Constant <value_ints = [1]> () z, y = TopK(c, k)", 0, 3),
        ("y = ScatterElements(c, ones, zs)", -2, 7),
        ('y = ScatterElements <reduction = "add"> (c, ones, zs)', *INFINITE),
        ("y = Trilu(m)", 0, 7),
        ("y = DequantizeLinear(u, half, z8)", -64, 63.5),  # (0 to 255 − 128) · 0.5
        ("y = MatMul(c, c)", *INFINITE),  # no rule: nothing is said
    ],
)
def test_the_range_of(expression: str, low: float, high: float) -> None:
    text = f"""agraph (float[4] x, bool[4] b, uint8[4] u) => (float y)
        <{CLIPPED}, float half = {{0.5}}, float seven = {{7.0}},
         float[4] zs = {{1.0, 7.0, 7.0, 2.0}}, int64[4] ones = {{1, 1, 1, 1}}, uint8 z8 = {{128}},
         float[2,2] m = {{7.0, 7.0, 7.0, 7.0}}>
        {{ c = Clip(x, lo, hi) {expression} }}"""
    assert range_of(text) == pytest.approx((low, high), rel=1e-12)


@pytest.mark.parametrize(
    "expression", ["y = Clip(x, zero, six)", "a = Max(x, zero) y = Min(six, a)"]
)
def test_integers_that_may_be_anything_are_bounded_by_a_clip(expression: str) -> None:
    text = f"""agraph (int64[4] x) => (int64 y) <int64 zero = {{0}}, int64 six = {{6}}>
        {{ {expression} }}"""
    assert range_of(text) == (0, 6)


def test_limits_of_a_clip_were_attributes() -> None:
    text = "agraph (float[4] x) => (float y) { y = Clip <min = -1.0, max = 6.0> (x) }"
    assert range_of(text, opset=10) == (-1, 6)


def test_one_limit_leaves_the_other_end_open() -> None:
    text = "agraph (float[4] x) => (float y) <float lo = {-2.0}> { y = Clip(x, lo) }"
    assert range_of(text) == (-2, math.inf)


def test_exp_has_room_for_the_last_bits() -> None:
    # e^-2 = 0.1353, e^3 = 20.0855, each with a millionth of room
    low, high = range_of(
        f"agraph (float[4] x) => (float y) <{CLIPPED}> {{ c = Clip(x, lo, hi) y = Exp(c) }}"
    )
    assert math.exp(-2) * (1 - 2e-6) < low < math.exp(-2)
    assert math.exp(3) < high < math.exp(3) * (1 + 2e-6)


def test_a_constant_with_a_nan_has_no_range() -> None:
    # Max(x, NaN) is whatever a runtime makes of it
    proto = model("agraph (float[2] x) => (float y) <float[2] k = {1.0, 1.0}> { y = Identity(k) }")
    proto.graph.initializer[0].CopyFrom(
        numpy_helper.from_array(np.array([1, np.nan], np.float32), "k")
    )
    graph, _ = shaped(proto)
    assert ends(Scope(graph.graph, graph.tensors, graph.calls).range_of("y")) == INFINITE


# -- whatever the graph ----------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One node of a random graph; operands count back from the newest value of their type."""

    op_type: str
    first: int
    second: int


FLOATS = {
    **dict.fromkeys(("Neg", "Abs", "Ceil", "Floor", "Round", "Relu", "Sign", "Sqrt", "Exp"), 1),
    **dict.fromkeys(("Sigmoid", "Tanh", "Softsign", "HardSigmoid", "Softmax", "Erf"), 1),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"), 1),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mod"), 2),
}
INTEGERS = {
    **dict.fromkeys(("Neg", "Abs", "Relu", "Sign", "CumSum", "ReduceSum"), 1),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Max", "Min", "Mod"), 2),
}
COLUMNS = np.array([1], np.int64)

steps = st.lists(
    st.builds(
        Step,
        st.sampled_from([*FLOATS, *(f"{name} int" for name in INTEGERS), "ToInt", "ToFloat"]),
        st.integers(0, 4),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=10,
)


def random_graph(drawn: list[Step], low: float, high: float) -> onnx.ModelProto:
    """x [2, 3], clipped, and the steps on it; every value is an output."""
    floats, integers = ["two", "clipped"], ["three"]
    nodes = [helper.make_node("Clip", ["x", "low", "high"], ["clipped"])]
    for number, step in enumerate(drawn):
        name, _, kind = step.op_type.partition(" ")
        pool = integers if kind or name == "ToFloat" else floats
        value = f"v{number}"
        operands = [pool[-1 - min(step.first, len(pool) - 1)]]
        if name in ("ToInt", "ToFloat"):
            to = TensorProto.INT64 if name == "ToInt" else TensorProto.FLOAT
            nodes.append(helper.make_node("Cast", operands, [value], to=to))
            (integers if name == "ToInt" else floats).append(value)
            continue
        if (INTEGERS if kind else FLOATS)[name] == 2:
            operands.append(pool[-1 - min(step.second, len(pool) - 1)])
        if name.startswith("Reduce") or name == "CumSum":
            operands.append("columns" if name != "CumSum" else "column")
        attributes = {"fmod": 1} if name == "Mod" and not kind else {}
        nodes.append(helper.make_node(name, operands, [value], **attributes))
        pool.append(value)
    constants = [
        numpy_helper.from_array(np.float32(low).reshape(()), "low"),
        numpy_helper.from_array(np.float32(high).reshape(()), "high"),
        numpy_helper.from_array(np.full((2, 3), 2, np.float32), "two"),
        numpy_helper.from_array(np.array([[3], [-3]], np.int64), "three"),
        numpy_helper.from_array(COLUMNS, "columns"),
        numpy_helper.from_array(COLUMNS[0], "column"),
    ]
    made = [name for node in nodes for name in node.output]
    graph = helper.make_graph(
        nodes,
        "random",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [
            helper.make_tensor_value_info(
                name, TensorProto.INT64 if name in integers else TensorProto.FLOAT, None
            )
            for name in made
        ],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@settings(deadline=None, max_examples=150)
@given(steps, st.integers(-6, 2), st.integers(0, 9), st.integers(0, 1 << 30))
@example([Step("Exp", 0, 0), Step("ToInt", 0, 0), Step("Mul int", 0, 1)], -2, 4, 1)
def test_no_element_lies_outside(drawn: list[Step], low: int, length: int, seed: int) -> None:
    proto = random_graph(drawn, low / 2, (low + length) / 2)
    graph, findings = shaped(proto)
    assert not findings.problems
    scope = Scope(graph.graph, graph.tensors, graph.calls)
    rng = np.random.default_rng(seed)
    evaluator = ReferenceEvaluator(proto)
    names = [item.name for item in proto.graph.output]
    for spread in (0.5, 3.0, 40.0):
        data = rng.normal(0, spread, (2, 3)).astype(np.float32)
        with np.errstate(all="ignore"):
            results = evaluator.run(names, {"x": data})
        for name, result in zip(names, results, strict=True):
            found = scope.range_of(name)
            elements = result[np.isfinite(result)]
            if elements.size:
                assert found.low <= elements.min(), (name, found)
                assert elements.max() <= found.high, (name, found)
