"""A dimension written as arithmetic over others follows from them."""

from __future__ import annotations

import pytest
from onnx import ModelProto, TensorProto, helper

import onnxroof
from onnxroof.errors import UnboundDimensionError
from onnxroof.formula import free_dimensions
from onnxroof.graph.load import load_model


def decoder(mask: str = "past + 1", lead: str = "batch") -> ModelProto:
    """Adds a mask over past and present positions to a cache over the past ones."""
    inputs = [
        helper.make_tensor_value_info("mask", TensorProto.FLOAT, [lead, mask]),
        helper.make_tensor_value_info("cache", TensorProto.FLOAT, ["batch", "past"]),
        helper.make_tensor_value_info("new", TensorProto.FLOAT, ["batch", 1]),
    ]
    nodes = [
        helper.make_node("Concat", ["cache", "new"], ["present"], axis=1),
        helper.make_node("Add", ["present", "mask"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_past_plus_one_follows_from_past() -> None:
    analysis = onnxroof.analyze(decoder(), dims={"past": 12})
    assert analysis.inputs["mask"].shape == (1, 13)
    assert analysis.tensors["y"].shape == (1, 13)


def test_only_the_independent_dimension_is_asked_for() -> None:
    with pytest.raises(UnboundDimensionError) as caught:
        onnxroof.analyze(decoder())
    assert "--dim past=N" in str(caught.value)
    assert "past + 1" not in str(caught.value)


def test_closed_forms_vary_independent_dimensions_only() -> None:
    assert free_dimensions(load_model(decoder())) == ("batch", "past")


def test_a_name_with_a_sign_in_it_is_a_name_when_its_parts_are_not_known() -> None:
    analysis = onnxroof.analyze(decoder(mask="mask-size"), dims={"past": 12, "mask-size": 13})
    assert analysis.tensors["y"].shape == (1, 13)


def test_a_leading_dimension_that_follows_from_another_is_not_assumed() -> None:
    analysis = onnxroof.analyze(decoder(lead="1*batch"), dims={"past": 12, "batch": 3})
    assert analysis.tensors["y"].shape == (3, 13)


def test_a_question_mark_is_no_name() -> None:
    # Some exporters write "?" for every free dimension: they are not one and the same size.
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "unnamed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["?", 3, "?", "?"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    analysis = onnxroof.analyze(model, input_shapes={"x": (2, 3, 48, 192)})
    assert analysis.tensors["y"].shape == (2, 3, 48, 192)
