from __future__ import annotations

import pytest

from tests.builders import cost_of, problem_of, shapes_of

PREVIEW = {"ai.onnx.preview.training": 1}


def graph(inputs: str, body: str, outputs: str = "y") -> str:
    return f"agraph ({inputs}) => ({outputs}) {{ {body} }}"


@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize(("reduction", "expected"), [("none", (2, 5)), ("sum", ()), ("mean", ())])
def test_a_loss_is_a_scalar_unless_it_is_not_reduced(
    op: str, reduction: str, expected: tuple[int, ...]
) -> None:
    text = graph("float[2,3,5] x, int64[2,5] t", f'y = {op} <reduction = "{reduction}"> (x, t)')
    assert shapes_of(text)["y"] == expected


def test_labels_that_do_not_fit_the_scores_are_a_problem() -> None:
    text = graph("float[2,3,5] x, int64[2,4] t", "y = SoftmaxCrossEntropyLoss(x, t)")
    assert "do not fit" in problem_of(text)


@pytest.mark.parametrize(
    ("reduction", "weights", "flops"),
    [
        # n = 2·5 = 10 samples
        ("none", "", 10),
        ("sum", "", 10 + 9),
        ("mean", "", 10 + 10),
        ("none", ", w", 10 + 10),
        ("mean", ", w", 10 + 10 + 9 + 9 + 1),
    ],
)
def test_negative_log_likelihood_counts_samples(reduction: str, weights: str, flops: int) -> None:
    body = f'y = NegativeLogLikelihoodLoss <reduction = "{reduction}"> (x, t{weights})'
    assert cost_of(graph("float[2,3,5] x, int64[2,5] t, float[3] w", body)).flops == flops


def test_negative_log_likelihood_reads_one_element_per_label() -> None:
    body = 'y = NegativeLogLikelihoodLoss <reduction = "none"> (x, t)'
    cost = cost_of(graph("float[4,1000] x, int64[4] t", body))
    assert cost.traffic_bytes == 4 * 4 + 4 * 8 + 4 * 4


def test_cross_entropy_adds_a_log_softmax_over_the_classes() -> None:
    # 10 rows of 3 classes: 5·3 − 1 each, and 10 + 10 for the mean of the losses
    text = graph("float[2,3,5] x, int64[2,5] t", "y, p = SoftmaxCrossEntropyLoss(x, t)", "y, p")
    cost = cost_of(text)
    assert shapes_of(text)["p"] == (2, 3, 5)
    assert (cost.flops, cost.transcendentals) == (10 * 14 + 20, 10 * 4)


@pytest.mark.parametrize(
    ("op", "states", "flops", "transcendentals"),
    [
        # two weights of 6 and 4 elements, 10 in all
        ("Adagrad", 1, 9 * 10 + 3, 10),
        ("Momentum", 1, 7 * 10, 0),
        ("Adam", 2, 15 * 10 + 2 * 7, 10 + 2 * 3),
    ],
)
def test_an_optimizer_updates_all_weights_and_their_states(
    op: str, states: int, flops: int, transcendentals: int
) -> None:
    names = [f"{kind}{weight}" for kind in "xgvh"[: 2 + states] for weight in "ab"]
    shapes = {"a": "2,3", "b": "4"}
    inputs = ", ".join(f"float[{shapes[name[1]]}] {name}" for name in names)
    outputs = [f"new_{name}" for name in names if name[0] != "g"]
    mode = ' <alpha = 0.9, beta = 1.0, mode = "standard", norm_coefficient = 0.0>'
    attributes = mode if op == "Momentum" else ""
    body = (
        f"{', '.join(outputs)} = ai.onnx.preview.training.{op}{attributes}"
        f" (r, t, {', '.join(names)})"
    )
    text = graph(f"float r, int64 t, {inputs}", body, ", ".join(outputs))
    sizes = shapes_of(text, opsets=PREVIEW)
    assert all(sizes[f"new_{name}"] == sizes[name] for name in names if name[0] != "g")
    cost = cost_of(text, opsets=PREVIEW)
    assert (cost.flops, cost.transcendentals) == (flops, transcendentals)


def test_a_gradient_has_the_shape_of_what_it_is_taken_by_and_an_unknown_cost() -> None:
    body = 'y = ai.onnx.preview.training.Gradient <xs = ["x"], y = "l"> (x)'
    text = graph("float[2,3] x", body)
    assert shapes_of(text, opsets=PREVIEW)["y"] == (2, 3)
    assert cost_of(text, opsets=PREVIEW).flops is None
