"""A name in the shape of an input makes that dimension free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from onnx import helper

import onnxroof
from onnxroof.budgets.read import read_budgets
from onnxroof.errors import (
    ShapeError,
    UnboundDimensionError,
    UnknownDimensionError,
    UsageError,
)
from onnxroof.formula import formulas_of
from onnxroof.options import parse_dims, parse_input_shapes
from onnxroof.sweep import sweep
from tests.builders import model

if TYPE_CHECKING:
    from pathlib import Path

FIXED = (
    "agraph (float[1,3,32,32] x, float[8,3,3,3] w) => (float y)"
    "{ y = Conv <pads = [1,1,1,1]> (x, w) }"
)
"""8·32·32 elements of 3·3·3 products: 221,184 MACs a sample, 216 a pixel."""

NAMED = "agraph (float[batch,seq] x, float[batch,seq] z) => (float y) { y = Add(x, z) }"


def test_a_fixed_model_has_the_batch_its_user_gives_it() -> None:
    opened = {"x": ("batch", 3, 32, 32)}
    analysis = onnxroof.analyze(model(FIXED), dims={"batch": 4}, input_shapes=opened)
    assert analysis.totals.macs == 4 * 221_184
    assert analysis.tensors["y"].shape == (4, 8, 32, 32)
    assert analysis.assumptions == (
        "input 'x' is batch×3×32×32 as given, where the file says 1×3×32×32",
    )


def test_it_has_formulas_in_what_was_opened() -> None:
    forms = formulas_of(model(FIXED), input_shapes={"x": ("batch", 3, "side", "side")})
    assert str(forms.forms["macs"]) == "216·batch·side²"
    analysis = onnxroof.analyze(model(FIXED), input_shapes={"x": ("batch", 3, 32, 32)})
    assert str(analysis.formula("macs")) == "221184·batch"


def test_it_can_be_swept() -> None:
    found = sweep(
        model(FIXED), ranges={"batch": (1, 2, 8)}, input_shapes={"x": ("batch", 3, 32, 32)}
    )
    assert [point.macs for point in found.points] == [221_184, 2 * 221_184, 8 * 221_184]


def test_candidates_of_a_search_have_it_too() -> None:
    cost = onnxroof.CostFunction(
        "v100", "macs", dims={"batch": 2}, input_shapes={"x": ("batch", 3, 32, 32)}
    )
    assert cost(model(FIXED).SerializeToString()) == 2 * 221_184


def test_an_opened_dimension_is_bound_like_any_other() -> None:
    opened = {"x": ("batch", 3, "side", 32)}
    with pytest.raises(UnboundDimensionError, match="--dim side=N"):
        onnxroof.analyze(model(FIXED), input_shapes=opened)
    analysis = onnxroof.analyze(model(FIXED), dims={"side": 16}, input_shapes=opened)
    assert analysis.tensors["x"].shape == (1, 3, 16, 32)
    assert any(said.startswith("batch = 1") for said in analysis.assumptions)


def test_a_number_for_a_free_dimension_of_the_file_binds_it_in_all_inputs() -> None:
    proto = model(
        "agraph (float[n,past,8] x, int64[n,m] mask, float[1,4] w) => (float y) { y = Relu(x) }"
    )
    proto.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "past + 1"
    analysis = onnxroof.analyze(
        proto, dims={"width": 5}, input_shapes={"x": ("n", 128, 8), "w": ("rows", "width")}
    )
    assert analysis.tensors["x"].shape == (1, 128, 8)
    assert analysis.tensors["mask"].shape == (1, 129)
    assert analysis.tensors["w"].shape == (1, 5)
    with pytest.raises(UsageError, match="'past' is bound to 7 and to 128"):
        onnxroof.analyze(proto, dims={"past": 7}, input_shapes={"x": ("n", 128, 8)})


def test_what_is_free_already_keeps_the_name_it_has() -> None:
    says = "dimension 0 of input 'x' is free already, as 'batch': use that name, not 'rows'"
    with pytest.raises(UsageError, match=says):
        onnxroof.analyze(model(NAMED), input_shapes={"x": ("rows", "seq")})
    analysis = onnxroof.analyze(model(NAMED), dims={"seq": 3}, input_shapes={"x": ("batch", "seq")})
    assert analysis.tensors["z"].shape == (1, 3)


def test_a_free_dimension_of_the_file_is_bound_once() -> None:
    shapes = {"x": ("batch", 128), "z": ("batch", 64)}
    with pytest.raises(UsageError, match="'seq' is given as 128 and as 64"):
        onnxroof.analyze(model(NAMED), input_shapes=shapes)


def test_an_unnamed_dimension_gets_a_name() -> None:
    proto = model(NAMED)
    for item in proto.graph.input:
        item.type.tensor_type.shape.dim[1].dim_value = -1
    analysis = onnxroof.analyze(
        proto, dims={"seq": 4}, input_shapes={"x": ("batch", "seq"), "z": ("batch", "seq")}
    )
    assert analysis.tensors["y"].shape == (1, 4)


@pytest.mark.parametrize("shape", [(4, 3, 8, 8), ("n", 3, 8, 8)])
def test_of_another_size_the_types_the_file_declares_hold_no_longer(
    shape: tuple[int | str, ...],
) -> None:
    # u is declared 1×16 behind an operator nobody knows: of a batch of 1, not of 4
    proto = model("agraph (float[1,3,8,8] x) => (y) { u = my.Foo(x) y = Relu(u) }")
    proto.graph.value_info.append(helper.make_tensor_value_info("u", 1, [1, 16]))
    proto.opset_import.append(helper.make_opsetid("my", 1))
    dims = {"n": 4} if "n" in shape else None
    analysis = onnxroof.analyze(proto, dims=dims, input_shapes={"x": shape})
    assert analysis.tensors["y"].shape is None
    assert analysis.nodes[1].flops is None
    assert onnxroof.analyze(proto).nodes[1].flops == 16
    assert onnxroof.analyze(proto, input_shapes={"x": (1, 3, 8, 8)}).nodes[1].flops == 16


def test_a_shape_may_come_from_anything_that_lists_it() -> None:
    for shape in (["batch", 3, 32, 32], iter(("batch", 3, 32, 32))):
        analysis = onnxroof.analyze(
            model(FIXED),
            dims={"batch": 2},
            input_shapes={"x": shape},  # type: ignore[dict-item]
        )
        assert analysis.totals.macs == 2 * 221_184


def test_shapes_with_and_without_names_stand_side_by_side() -> None:
    text = "agraph (float[1,8] x, float[1,4] z) => (float y) { y = Concat <axis = 1> (x, z) }"
    analysis = onnxroof.analyze(
        model(text), dims={"width": 6}, input_shapes={"x": (1, "width"), "z": (1, 9)}
    )
    assert analysis.tensors["y"].shape == (1, 6 + 9)


@pytest.mark.parametrize(
    ("shapes", "error", "says"),
    [
        ({"xx": ("n", 3, 32, 32)}, UnknownDimensionError, "did you mean 'x'"),
        (
            {"x": ("n", 3)},
            ShapeError,
            r"has 4 dimensions \(1×3×32×32\), 2 were bound \(n×3\)",
        ),
        ({"x": ("8", 3, 32, 32)}, UsageError, "where it is left open"),
        ({"x": (" ", 3, 32, 32)}, UsageError, "where it is left open"),
        ({"x": ("-1", 3, 32, 32)}, UsageError, "where it is left open"),
        ({"x": ("a-b", 3, 32, 32)}, UsageError, "where it is left open"),
        ({"x": ("n", -3, 32, 32)}, UsageError, "whole number from 0"),
        ({"x": ("n", 2.5, 32, 32)}, UsageError, "whole number from 0"),
        ({"x": "n,3,32,32"}, UsageError, "whole number from 0"),
        ([("x", ("n", 3))], UsageError, "a mapping by name is meant"),
        ({1: ("n", 3, 32, 32)}, UsageError, "a mapping by name is meant"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(
    shapes: object, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        onnxroof.analyze(model(FIXED), input_shapes=shapes)  # type: ignore[arg-type]


def test_the_error_of_a_fixed_model_holds_the_option_that_helps() -> None:
    with pytest.raises(UnknownDimensionError) as caught:
        onnxroof.analyze(model(FIXED), dims={"batch": 8})
    said = str(caught.value)
    assert said.endswith("(its sizes are fixed; --input x=batch,3,32,32 opens one)")
    pasted = said.partition("--input ")[2].partition(" ")[0]
    analysis = onnxroof.analyze(
        model(FIXED), dims=parse_dims(["batch=8"]), input_shapes=parse_input_shapes([pasted])
    )
    assert analysis.totals.macs == 8 * 221_184
    with pytest.raises(UnknownDimensionError, match="--input x=batch,3,32,32 opens one"):
        formulas_of(model(FIXED), dims={"batch": 8})


@pytest.mark.parametrize("name", ["max", "my-batch", "n + 1"])
def test_what_the_error_says_can_be_pasted_whatever_the_name(name: str) -> None:
    with pytest.raises(UnknownDimensionError) as caught:
        onnxroof.analyze(model("agraph (float[7] x) => (y) { y = Relu(x) }"), dims={name: 8})
    pasted = str(caught.value).partition("--input ")[2].partition(" ")[0]
    lead = name if name.isidentifier() else "batch"
    assert parse_input_shapes([pasted]) == {"x": (lead,)}


def test_an_input_that_is_no_tensor_has_no_shape_to_open() -> None:
    proto = model("agraph (seq(float[2,3]) s) => (y) { y = SequenceLength(s) }")
    with pytest.raises(ShapeError, match="is of type sequence and has no shape"):
        onnxroof.analyze(proto, input_shapes={"s": ("n", 3)})


def test_names_of_a_file_are_quoted_in_the_option_that_binds_them() -> None:
    proto = model(NAMED)
    for item in proto.graph.input:
        item.type.tensor_type.shape.dim[1].dim_param = "a\nb"
    with pytest.raises(UnboundDimensionError) as caught:
        onnxroof.analyze(proto)
    assert "\n" not in str(caught.value)
    assert r"--dim 'a\nb=N'" in str(caught.value)


def test_a_formula_needs_shapes_of_the_right_rank() -> None:
    with pytest.raises(ShapeError, match="has 4 dimensions"):
        formulas_of(model(FIXED), input_shapes={"x": (1, 3)})


def test_a_file_of_budgets_may_open_a_dimension(tmp_path: Path) -> None:
    path = tmp_path / "budgets.yaml"
    path.write_text(
        "schema_version: 1\n"
        "budgets: [{max_macs: 1M, dims: {batch: 4}, inputs: {x: [batch, 3, 32, 32]}}]\n"
    )
    (budget,) = read_budgets(str(path))
    assert (budget.dims, budget.input_shapes) == ({"batch": 4}, {"x": ("batch", 3, 32, 32)})
