from __future__ import annotations

import pytest

from onnxroof.bounded import BoundedInt
from onnxroof.graph.types import DType
from tests.builders import cost_of, costs, problem_of, shaped, shapes_of


def graph(inputs: str, body: str) -> str:
    return f"agraph ({inputs}) => (y) {{ {body} }}"


def value_of(text: str, *, opset: int = 21) -> list[object]:
    tensors, findings = shaped(text, opset=opset)
    assert not findings.problems
    value = tensors.tensors["y"].value
    assert value is not None
    return value.tolist()  # type: ignore[no-any-return]


def constant(kind: str, values: str, name: str = "a") -> str:
    return f"{name} = Constant <value = {kind} {{{values}}}> ()"


# -- shapes ----------------------------------------------------------------------------------


def test_operands_stretch_at_size_one() -> None:
    shapes = shapes_of(graph("float[2,1,4] a, float[3,1] b", "y = Add(a, b)"))
    assert shapes["y"] == (2, 3, 4)


def test_a_scalar_stretches_to_everything() -> None:
    assert shapes_of(graph("float[2,3] a, float b", "y = Mul(a, b)"))["y"] == (2, 3)


def test_sizes_that_do_not_broadcast_are_a_problem_of_the_node() -> None:
    text = problem_of(graph("float[2,3] a, float[2,4] b", "y = Add(a, b)"))
    assert "do not broadcast" in text
    assert "Add" in text


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_before_opset_7_axis_aligns_the_second_operand(op: str) -> None:
    # b [3] stands at axis 1 of [2, 3, 4, 5]; the last axis, 5, is not involved
    text = graph("float[2,3,4,5] a, float[3] b", f"y = {op} <broadcast = 1, axis = 1> (a, b)")
    assert shapes_of(text, opset=6)["y"] == (2, 3, 4, 5)
    assert cost_of(text, opset=6).flops == 2 * 3 * 4 * 5


@pytest.mark.parametrize("op", ["Equal", "Greater", "Less"])
def test_comparisons_aligned_by_axis_are_boolean(op: str) -> None:
    kind = "int32" if op == "Equal" else "float"
    text = graph(f"{kind}[2,3,4] a, {kind}[3,1] b", f"y = {op} <broadcast = 1, axis = 1> (a, b)")
    tensors = shaped(text, opset=6)[0].tensors
    assert tensors["y"].shape == (2, 3, 4)
    assert tensors["y"].dtype is DType.BOOL


def test_before_opset_7_without_axis_the_last_axes_align() -> None:
    text = graph("float[2,3,4,5] a, float[4,5] b", "y = Add <broadcast = 1> (a, b)")
    assert shapes_of(text, opset=6)["y"] == (2, 3, 4, 5)


def test_before_opset_7_only_the_second_operand_stretches() -> None:
    text = graph("float[2,3,4] a, float[2,1,1] b", "y = Sub <broadcast = 1, axis = 0> (a, b)")
    assert shapes_of(text, opset=6)["y"] == (2, 3, 4)


def test_a_legacy_axis_that_does_not_fit_is_a_problem() -> None:
    text = graph("float[2,3,4,5] a, float[4] b", "y = Add <broadcast = 1, axis = 1> (a, b)")
    assert "do not broadcast" in problem_of(text, opset=6)


def test_where_takes_its_type_from_the_values_and_stretches_all_three() -> None:
    tensors = shaped(graph("bool[3,1] c, float16[4] a, float16[2,1,1] b", "y = Where(c, a, b)"))
    assert tensors[0].tensors["y"].shape == (2, 3, 4)
    assert tensors[0].tensors["y"].dtype is DType.FLOAT16


def test_pow_keeps_the_type_of_its_base() -> None:
    tensors = shaped(graph("int32[2] a, float[2] b", "y = Pow(a, b)"))[0].tensors
    assert tensors["y"].dtype is DType.INT32


@pytest.mark.parametrize("op", ["IsNaN", "IsInf"])
def test_predicates_are_boolean(op: str) -> None:
    assert shaped(graph("float[2,3] a", f"y = {op}(a)"))[0].tensors["y"].dtype is DType.BOOL


def test_cast_names_its_type_by_code_and_in_opset_1_by_name() -> None:
    for opset, to in ((21, "10"), (1, '"FLOAT16"')):
        tensors = shaped(graph("float[2,3] a", f"y = Cast <to = {to}> (a)"), opset=opset)[0].tensors
        assert tensors["y"].dtype is DType.FLOAT16
        assert tensors["y"].shape == (2, 3)


def test_cast_to_a_type_that_does_not_exist_is_a_problem() -> None:
    assert "no element type" in problem_of(graph("float[2,3] a", "y = Cast <to = 99> (a)"))


def test_bf16_takes_half_the_bytes_of_fp32() -> None:
    cost = cost_of(graph("float[2,128] a", "y = Cast <to = 16> (a)"))
    assert cost.flops == 0
    assert (cost.input_bytes, cost.output_bytes) == (2 * 128 * 4, 2 * 128 * 2)


def test_bitcast_moves_nothing_and_keeps_the_width() -> None:
    cost = cost_of(graph("float[2,3] a", "y = BitCast <to = 6> (a)"), opset=26)
    assert cost.call.outputs[0].dtype is DType.INT32
    assert cost.traffic_bytes == 0
    assert "differ in bits" in problem_of(graph("float[2] a", "y = BitCast <to = 7> (a)"), opset=26)


def test_castlike_reads_only_the_type_of_its_second_input() -> None:
    cost = cost_of(graph("float[2,3] a, int8[1000] b", "y = CastLike(a, b)"))
    assert cost.call.outputs[0].dtype is DType.INT8
    assert cost.traffic_bytes == 2 * 3 * 4 + 2 * 3 * 1


# -- costs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "op", ["Abs", "Neg", "Floor", "Ceil", "Round", "Sign", "Reciprocal", "IsNaN"]
)
def test_plain_functions_are_one_operation_per_element(op: str) -> None:
    cost = cost_of(graph("float[3,5] a", f"y = {op}(a)"))
    assert (cost.macs, cost.flops, cost.transcendentals) == (0, 15, 0)


@pytest.mark.parametrize("op", ["Exp", "Log", "Sqrt", "Erf", "Sin", "Atanh", "Cosh"])
def test_transcendental_functions_are_one_evaluation_per_element(op: str) -> None:
    cost = cost_of(graph("float[3,5] a", f"y = {op}(a)"))
    assert (cost.flops, cost.transcendentals) == (15, 15)


def test_broadcast_operands_are_read_once_each() -> None:
    # the output has 2·3·4 = 24 elements, the operands 2·4 = 8 and 3 of them
    cost = cost_of(graph("float[2,1,4] a, float[3,1] b", "y = Add(a, b)"))
    assert cost.flops == 24
    assert (cost.input_bytes, cost.output_bytes) == ((8 + 3) * 4, 24 * 4)


def test_variadic_operators_combine_k_inputs_in_k_minus_one_operations() -> None:
    inputs = "float[2,3] a, float[3] b, float[2,1] c"
    assert cost_of(graph(inputs, "y = Sum(a, b, c)")).flops == 2 * 6
    assert cost_of(graph(inputs, "y = Max(a, b, c)")).flops == 2 * 6
    assert cost_of(graph(inputs, "y = Mean(a, b, c)")).flops == 3 * 6  # and a division
    assert cost_of(graph(inputs, "y = Sum(a)")).flops == 0


@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
def test_running_sums_save_the_first_of_each_line(op: str) -> None:
    # 2·4 = 8 lines of 3: two additions each
    body = f"{constant('int64', '1', 'i')} y = {op}(a, i)"
    assert cost_of(graph("float[2,3,4] a", body), opset=26).flops == 8 * 2


def test_an_empty_tensor_costs_nothing() -> None:
    body = f"{constant('int64', '0', 'i')} y = CumSum(a, i)"
    assert cost_of(graph("float[0,3] a", body)).flops == 0
    assert cost_of(graph("float[0,3] a", "y = Exp(a)")).flops == 0


# -- Clip ------------------------------------------------------------------------------------


def test_clip_bounds_may_be_attributes_inputs_or_left_out() -> None:
    attributes = graph("float[2,5] x", "y = Clip <min = 0.0, max = 6.0> (x)")
    maximum_only = graph("float[2,5] x", f"{constant('float', '6.0')} y = Clip(x, , a)")
    for text, opset in (
        (attributes, 6),
        (maximum_only, 13),
        (graph("float[2,5] x", "y = Clip(x)"), 13),
    ):
        cost = cost_of(text, opset=opset)
        assert cost.call.outputs[0].shape == (2, 5)
        assert cost.flops == 10


def test_clip_bounds_are_no_parameters() -> None:
    text = graph("float[2,5] x", f"{constant('float', '6.0')} y = Clip(x, , a)")
    assert all(weight.parameters == 0 for weight in costs(text, opset=13).weights)


# -- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "a", "b", "expected"),
    [
        ("Add", "7, -7", "2, 2", [9, -5]),
        ("Sub", "7, -7", "2, 2", [5, -9]),
        ("Mul", "7, -7", "2, 2", [14, -14]),
        ("Div", "7, -7", "2, 2", [3, -3]),  # toward zero, not down to −4
        ("Div", "7, -7", "-2, -2", [-3, 3]),
        ("Mod", "7, -7", "3, 3", [1, 2]),  # the sign of the divisor
        ("Max", "7, -7", "2, 2", [7, 2]),
        ("Min", "7, -7", "2, 2", [2, -7]),
        ("Sum", "7, -7", "2, 2", [9, -5]),
        ("Pow", "7, -7", "2, 2", [49, 49]),
        ("Equal", "7, 2", "2, 2", [False, True]),
        ("Less", "7, -7", "2, 2", [False, True]),
        ("GreaterOrEqual", "7, 2", "2, 2", [True, True]),
    ],
)
def test_integers_are_evaluated_as_the_standard_says(
    op: str, a: str, b: str, expected: list[object]
) -> None:
    text = f"{constant('int64[2]', a)} {constant('int64[2]', b, 'b')} y = {op}(a, b)"
    assert value_of(graph("", text)) == expected


def test_fmod_has_the_sign_of_the_dividend() -> None:
    text = (
        f"{constant('int64[2]', '7, -7')} {constant('int64', '3', 'b')} y = Mod <fmod = 1> (a, b)"
    )
    assert value_of(graph("", text)) == [1, -1]


def test_a_zero_divisor_has_no_value_and_is_no_problem() -> None:
    text = f"{constant('int64[2]', '7, -7')} {constant('int64', '0', 'b')} y = Div(a, b)"
    tensors, findings = shaped(graph("", text))
    assert tensors.tensors["y"].value is None
    assert not findings.problems


def test_cast_to_integers_drops_the_fraction_toward_zero() -> None:
    text = f"{constant('float[3]', '2.7, -2.7, 0.0')} y = Cast <to = 7> (a)"
    assert value_of(graph("", text)) == [2, -2, 0]


def test_cast_to_bool_asks_whether_it_is_not_zero() -> None:
    text = f"{constant('float[3]', '0.5, -0.0, 2.0')} y = Cast <to = 9> (a)"
    assert value_of(graph("", text)) == [True, False, True]


def test_sizes_scaled_by_a_float_come_out_as_the_runtime_computes_them() -> None:
    # ⌊10 · 0.5⌋ = 5
    text = (
        "s = Shape(x) f = Cast <to = 1> (s)"
        f" {constant('float', '0.5', 'h')} m = Mul(f, h) l = Floor(m) y = Cast <to = 7> (l)"
    )
    assert value_of(graph("float[10,4] x", text)) == [5, 2]


def test_where_picks_by_the_condition() -> None:
    text = (
        f"{constant('int64[2]', '-1, 3')} {constant('int64', '-1', 'm')}"
        f" {constant('int64[2]', '8, 9', 'd')} e = Equal(a, m) y = Where(e, d, a)"
    )
    assert value_of(graph("", text)) == [8, 3]


def test_a_running_sum_can_leave_out_its_own_element_and_run_backwards() -> None:
    base = f"{constant('int64[3]', '1, 2, 3')} {constant('int64', '0', 'i')}"
    assert value_of(graph("", f"{base} y = CumSum(a, i)")) == [1, 3, 6]
    assert value_of(graph("", f"{base} y = CumSum <exclusive = 1> (a, i)")) == [0, 1, 3]
    assert value_of(graph("", f"{base} y = CumSum <reverse = 1> (a, i)")) == [6, 5, 3]
    assert value_of(graph("", f"{base} y = CumSum <exclusive = 1, reverse = 1> (a, i)")) == [
        5,
        3,
        0,
    ]


def test_clip_values_keep_between_the_bounds_given() -> None:
    base = f"{constant('int64[3]', '1, 5, 9')} {constant('int64', '6', 'b')}"
    assert value_of(graph("", f"{base} y = Clip(a, , b)")) == [1, 5, 6]
    assert value_of(graph("", f"{base} y = Clip(a, b)")) == [6, 6, 9]


# -- bounded values --------------------------------------------------------------------------

FOUND = "n = NonZero(x) s = Shape(n)" + constant("int64", "1", "i") + " c = Gather(s, i)"
"""c: how many of the 6 elements of x [2, 3] are not zero, between 0 and 6."""


def bounds_of(body: str) -> tuple[int, int]:
    tensors, findings = shaped(graph("float[2,3] x", f"{FOUND} {body}"))
    assert not findings.problems
    value = tensors.tensors["y"].value
    assert value is not None
    item = value.ravel().tolist()[0]
    return (item.low, int(item)) if isinstance(item, BoundedInt) else (item, item)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Add(c, b)", (4, 10)),
        ("y = Sub(b, c)", (-2, 4)),
        ("y = Mul(c, b)", (0, 24)),
        ("y = Div(c, b)", (0, 1)),
        ("y = Mod(c, b)", (0, 3)),
        ("y = Min(c, b)", (0, 4)),
        ("y = Max(c, b)", (4, 6)),
        ("y = Neg(c)", (-6, 0)),
        ("d = Sub(c, b) y = Abs(d)", (0, 4)),
        ("d = Sub(c, b) y = Relu(d)", (0, 2)),
        ("y = Cast <to = 6> (c)", (0, 6)),
        ("y = Clip(c, b)", (4, 6)),
    ],
)
def test_arithmetic_on_a_bounded_size_keeps_its_bounds(
    body: str, expected: tuple[int, int]
) -> None:
    assert bounds_of(f"{constant('int64', '4', 'b')} {body}") == expected


def test_a_comparison_the_bounds_decide_has_a_value() -> None:
    assert bounds_of(f"{constant('int64', '-1', 'b')} y = Equal(c, b)") == (False, False)
    assert bounds_of(f"{constant('int64', '7', 'b')} y = Less(c, b)") == (True, True)


def test_a_comparison_the_bounds_leave_open_has_none() -> None:
    text = f"{FOUND} {constant('int64', '4', 'b')} y = Equal(c, b)"
    assert shaped(graph("float[2,3] x", text))[0].tensors["y"].value is None


@pytest.mark.parametrize("attributes", ["", "<exclusive = 1>", "<exclusive = 1, reverse = 1>"])
def test_a_running_sum_of_nothing_is_nothing(attributes: str) -> None:
    text = f"""g (int64[2] x) => (y) <int64[0] v = {{}}, int64 axis = {{0}}> {{
        w = CumSum {attributes} (v, axis)  y = Concat <axis = 0> (w, x) }}"""
    graph_, findings = shaped(text)
    assert findings.problems == ()
    assert graph_.tensors["y"].shape == (2,)  # 0 + 2
