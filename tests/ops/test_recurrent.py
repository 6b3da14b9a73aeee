from __future__ import annotations

import pytest

from onnxroof.graph.types import DType
from tests.builders import cost_of, problem_of, shapes_of

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def graph(inputs: str, body: str, constants: str = "") -> str:
    declared = f"<{constants}>" if constants else ""
    return f"agraph ({inputs}) => (y) {declared} {{ {body} }}"


def test_an_lstm_multiplies_in_every_step() -> None:
    text = graph(
        "float[100,1,64] x, float[1,256,64] w, float[1,256,64] r, float[1,512] b",
        "y, h, c = LSTM <hidden_size = 64> (x, w, r, b)",
    )
    found, cost = shapes_of(text), cost_of(text)
    assert (found["y"], found["h"], found["c"]) == ((100, 1, 1, 64), (1, 1, 64), (1, 1, 64))
    assert cost.macs == 100 * 4 * 64 * (64 + 64)
    # two biases a gate; five activations; C = f·C + i·c and h = o·h(C)
    assert cost.flops == 2 * cost.macs + 100 * 64 * (8 + 5 + 3 + 1)
    assert cost.transcendentals == 100 * 64 * 5


def test_weights_of_a_recurrence_are_read_once() -> None:
    text = graph(
        "float[100,1,8] x, float[1,8,8] w, float[1,8,8] r", "y = RNN <hidden_size = 8> (x, w, r)"
    )
    assert cost_of(text).input_bytes == 4 * (100 * 8 + 2 * 64)


@pytest.mark.parametrize("op_type", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("opset", [7, 14, 22])
@pytest.mark.parametrize(("direction", "directions"), [("reverse", 1), ("bidirectional", 2)])
@pytest.mark.parametrize("layout", [0, 1])
def test_directions_and_layouts_place_axes_and_multiply_work(
    op_type: str, opset: int, direction: str, directions: int, layout: int
) -> None:
    gates, (steps, batch, inputs, hidden) = GATES[op_type], (7, 2, 3, 5)
    x = f"[{batch},{steps},3]" if layout else f"[{steps},{batch},3]"
    text = graph(
        f"float{x} x, float[{directions},{gates * hidden},3] w, "
        f"float[{directions},{gates * hidden},5] r",
        f'y, h = {op_type} <hidden_size = 5, direction = "{direction}", layout = {layout}> '
        "(x, w, r)",
    )
    found = shapes_of(text, opset=opset)
    if layout:
        assert found["y"] == (batch, steps, directions, hidden)
        assert found["h"] == (batch, directions, hidden)
    else:
        assert found["y"] == (steps, directions, batch, hidden)
        assert found["h"] == (directions, batch, hidden)
    cells = directions * steps * batch
    assert cost_of(text, opset=opset).macs == cells * gates * hidden * (inputs + hidden)


@pytest.mark.parametrize("reset", [0, 1])
def test_a_gru_counts_the_same_wherever_it_resets(reset: int) -> None:
    text = graph(
        "float[3,2,4] x, float[1,15,4] w, float[1,15,5] r, float[1,30] b",
        f"y = GRU <hidden_size = 5, linear_before_reset = {reset}> (x, w, r, b)",
    )
    cost = cost_of(text)
    # per cell: two biases of three gates, three activations, reset, (1 − z)·n + z·h
    assert cost.macs == 6 * 15 * 9
    assert cost.flops == 2 * cost.macs + 6 * (30 + 15 + 5 + 20)
    assert cost.transcendentals == 6 * 15


def test_peepholes_and_skipped_inputs_and_outputs() -> None:
    text = graph(
        "float[3,2,4] x, float[1,20,4] w, float[1,20,5] r, float[1,15] p",
        '"", h, c = LSTM <hidden_size = 5> (x, w, r, "", "", "", "", p)',
    ).replace("(y)", "(h)")
    found, cost = shapes_of(text), cost_of(text)
    assert (found["h"], found["c"]) == ((1, 2, 5), (1, 2, 5))
    assert cost.macs == 3 * 2 * 4 * 5 * (4 + 5)
    # no bias; 90 peephole products and as many sums; 9 operations of gates and cell per unit
    assert cost.flops == 2 * 1080 + 180 + 6 * 5 * 9


def test_constant_lengths_leave_out_the_padding() -> None:
    text = graph(
        "float[4,2,3] x, float[1,5,3] w, float[1,5,5] r",
        'y, h = RNN <hidden_size = 5, direction = "reverse"> (x, w, r, "", l)',
        "int32[2] l = {4, 2}",
    )
    cost = cost_of(text)
    assert shapes_of(text)["y"] == (4, 1, 2, 5)
    assert cost.macs == (4 + 2) * 5 * 8
    assert "length" in cost.note


def test_lengths_of_the_run_are_charged_as_full() -> None:
    text = graph(
        "float[4,2,3] x, float[1,5,3] w, float[1,5,5] r, int32[2] l",
        'y = RNN <hidden_size = 5> (x, w, r, "", l)',
    )
    cost = cost_of(text)
    assert cost.macs == 4 * 2 * 5 * 8
    assert "full length" in cost.note


@pytest.mark.parametrize(
    ("activations", "per_unit"),
    [
        ('"Sigmoid", "Tanh", "Tanh"', 5),
        ('"HardSigmoid", "Relu", "Tanh"', 1),
        ('"sigmoid", "Affine", "softsign"', 3),
    ],
)
def test_only_exponential_activations_are_transcendental(activations: str, per_unit: int) -> None:
    text = graph(
        "float[3,2,4] x, float[1,20,4] w, float[1,20,5] r",
        f"y = LSTM <hidden_size = 5, activations = [{activations}]> (x, w, r)",
    )
    assert cost_of(text).transcendentals == 6 * 5 * per_unit


def test_each_direction_has_its_own_activations() -> None:
    text = graph(
        "float[3,2,4] x, float[2,5,4] w, float[2,5,5] r",
        'y = RNN <hidden_size = 5, direction = "bidirectional", '
        'activations = ["Relu", "Tanh"]> (x, w, r)',
    )
    assert cost_of(text).transcendentals == 6 * 5


def test_coupled_gates_subtract_instead_of_activating() -> None:
    text = "y = LSTM <hidden_size = 5{}> (x, w, r)"
    inputs = "float[3,2,4] x, float[1,20,4] w, float[1,20,5] r"
    plain = cost_of(graph(inputs, text.format("")))
    coupled = cost_of(graph(inputs, text.format(", input_forget = 1")))
    assert plain.flops == coupled.flops
    assert plain.transcendentals - coupled.transcendentals == 6 * 5


def test_weights_that_do_not_fit_are_a_problem() -> None:
    inputs = "float[3,2,4] x, float[1,20,7] w, float[1,20,5] r"
    assert "7 inputs" in problem_of(graph(inputs, "y = LSTM <hidden_size = 5> (x, w, r)"))
    inputs = "float[3,2,4] x, float[1,15,4] w, float[1,20,5] r"
    assert "W and R" in problem_of(graph(inputs, "y = LSTM <hidden_size = 5> (x, w, r)"))


def test_a_quantized_lstm_has_transposed_weights() -> None:
    text = graph(
        "float[3,2,4] x, int8[1,4,20] w, int8[1,5,20] r, float[1] a, int8[1] b, float[1] c, "
        "int8[1] d",
        "y, h, c2 = com.microsoft.DynamicQuantizeLSTM <hidden_size = 5> "
        '(x, w, r, "", "", "", "", "", a, b, c, d)',
    )
    cost = cost_of(text, opsets={"com.microsoft": 1})
    assert shapes_of(text, opsets={"com.microsoft": 1})["y"] == (3, 1, 2, 5)
    assert cost.macs == 6 * 20 * 9
    assert cost.compute_dtype is DType.INT8


def test_a_word_embedding_convolves_over_characters() -> None:
    text = graph(
        "int32[2,3,10] x, float[16,1,3,8] w, float[16] b, float[100,8] c",
        "y = com.microsoft.WordConvEmbedding(x, w, b, c)",
    )
    cost = cost_of(text, opsets={"com.microsoft": 1})
    assert shapes_of(text, opsets={"com.microsoft": 1})["y"] == (2, 3, 16)
    assert cost.macs == 6 * (10 - 3 + 1) * 16 * 3 * 8


def test_zeros_written_as_a_constant_node_are_no_parameters() -> None:
    zeros = ", ".join(["0"] * 10)
    text = graph(
        "float[4,2,3] x, float[1,5,3] w, float[1,5,5] r",
        f"h = Constant <value = float[1,2,5] {{{zeros}}}> () "
        'y = RNN <hidden_size = 5> (x, w, r, "", "", h)',
    )
    assert cost_of(text).parameters == 0


def test_a_learned_initial_state_is_a_parameter() -> None:
    text = graph(
        "float[4,2,3] x, float[1,5,3] w, float[1,5,5] r",
        'y = RNN <hidden_size = 5> (x, w, r, "", "", h)',
        "float[1,2,5] h = {" + ", ".join(["1"] * 10) + "}",
    )
    assert cost_of(text).parameters == 10
