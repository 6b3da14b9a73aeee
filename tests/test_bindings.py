from __future__ import annotations

import pytest

import onnxroof
from onnxroof.bounded import ends, is_exact
from onnxroof.errors import (
    ShapeError,
    UnboundDimensionError,
    UnknownDimensionError,
    UsageError,
)
from tests.builders import model

TWO = "agraph (float[batch,seq,8] x, float[batch,width] z) => (float y) { y = Relu(x) }"


def shape_of(text: str, name: str = "y", **how: object) -> tuple[int, ...] | None:
    return onnxroof.analyze(model(text), **how).tensors[name].shape  # type: ignore[arg-type]


# -- what is bound ---------------------------------------------------------------------------


def test_dims_bind_names_wherever_they_stand() -> None:
    analysis = onnxroof.analyze(model(TWO), dims={"batch": 2, "seq": 5, "width": 7})
    assert analysis.tensors["x"].shape == (2, 5, 8)
    assert analysis.tensors["z"].shape == (2, 7)
    assert not analysis.assumptions


def test_a_free_leading_dimension_is_one_and_said_to_be() -> None:
    analysis = onnxroof.analyze(model(TWO), dims={"seq": 5, "width": 7})
    assert analysis.tensors["x"].shape == (1, 5, 8)
    assert analysis.tensors["z"].shape == (1, 7)
    (said,) = analysis.assumptions
    assert said.startswith("batch = 1")
    assert "--dim batch=N" in said


def test_a_leading_dimension_without_a_name_is_one_and_said_to_be() -> None:
    # dim_value −1: y has 8·32·32 elements of 3·3·3 products: 221,184 MACs a sample
    proto = model(
        "agraph (float[1,3,32,32] x, float[8,3,3,3] w) => (float y)"
        "{ y = Conv <pads = [1,1,1,1]> (x, w) }"
    )
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    analysis = onnxroof.analyze(proto)
    assert analysis.totals.macs == 221_184
    (said,) = analysis.assumptions
    assert "unnamed dynamic dimension 0 of input 'x'" in said
    assert "--input x=Nx3x32x32" in said
    assert onnxroof.analyze(proto, input_shapes={"x": (4, 3, 32, 32)}).totals.macs == 4 * 221_184


def test_every_unbound_dimension_is_listed_with_the_flag_to_paste() -> None:
    with pytest.raises(UnboundDimensionError) as caught:
        onnxroof.analyze(model(TWO))
    assert [name for name, _ in caught.value.dims] == ["seq", "width"]
    assert "--dim seq=N --dim width=N" in str(caught.value)
    assert caught.value.exit_code == 4


def test_a_dimension_without_a_name_is_bound_through_its_input() -> None:
    proto = model("agraph (float[2,1,8] x) => (float y) { y = Relu(x) }")
    proto.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    with pytest.raises(UnboundDimensionError, match="--input x=2xNx8"):
        onnxroof.analyze(proto)
    shapes = {"x": (2, 3, 8)}
    assert onnxroof.analyze(proto, input_shapes=shapes).tensors["y"].shape == (2, 3, 8)


def test_an_input_shape_binds_the_names_in_it_for_all_inputs() -> None:
    analysis = onnxroof.analyze(model(TWO), dims={"width": 3}, input_shapes={"x": (4, 5, 8)})
    assert analysis.tensors["z"].shape == (4, 3)


def test_an_input_shape_may_override_fixed_sizes_and_says_so() -> None:
    # A window of 3 over 320 instead of 224: the file's own size no longer holds
    text = "agraph (float[1,3,224,224] x) => (float y) { y = GlobalAveragePool(x) }"
    analysis = onnxroof.analyze(model(text), input_shapes={"x": (1, 3, 320, 320)})
    assert analysis.tensors["x"].shape == (1, 3, 320, 320)
    (said,) = analysis.assumptions
    assert "1×3×320×320 as bound" in said
    assert "1×3×224×224" in said


def test_an_input_without_a_declared_shape_takes_the_one_bound() -> None:
    text = "agraph (float[] x) => (float[] y) { y = Relu(x) }"
    assert shape_of(text) is None
    assert shape_of(text, input_shapes={"x": (2, 3)}) == (2, 3)


def test_a_size_of_zero_is_a_size() -> None:
    text = "agraph (float[N,3] x, float[3,4] w) => (float y) { y = MatMul(x, w) }"
    analysis = onnxroof.analyze(model(text), dims={"N": 0})
    assert analysis.tensors["y"].shape == (0, 4)
    assert analysis.totals.macs == 0
    assert not analysis.assumptions


# -- what cannot be bound --------------------------------------------------------------------


def test_a_name_nobody_has_is_an_error_with_the_nearest_one() -> None:
    with pytest.raises(UnknownDimensionError, match="did you mean 'batch'") as caught:
        onnxroof.analyze(model(TWO), dims={"bacth": 2, "seq": 1, "width": 1})
    assert "seq" in str(caught.value)
    with pytest.raises(UnknownDimensionError, match="did you mean 'x'"):
        onnxroof.analyze(model(TWO), input_shapes={"xx": (1, 2, 8)})


@pytest.mark.parametrize("typed", ["seq", "sequnce"])
def test_a_misspelled_dimension_is_named_rather_than_called_missing(typed: str) -> None:
    graph = "agraph (float[batch,sequence] x) => (y) { y = Relu(x) }"
    with pytest.raises(UnknownDimensionError, match="did you mean 'sequence'"):
        onnxroof.analyze(model(graph), dims={typed: 8})


def test_a_model_without_free_dimensions_says_there_are_none() -> None:
    with pytest.raises(UnknownDimensionError, match="its sizes are fixed; --input x=N opens one"):
        shape_of("agraph (float[2] x) => (float y) { y = Relu(x) }", dims={"N": 1})


def test_of_many_free_dimensions_a_message_lists_a_dozen() -> None:
    names = [f"d{i}" for i in range(20)]
    text = f"agraph (float[{','.join(names)}] x) => (float y) {{ y = Relu(x) }}"
    sizes = dict.fromkeys([*names, "other"], 1)
    with pytest.raises(UnknownDimensionError, match=r"'d11' and 8 more\)") as caught:
        onnxroof.analyze(model(text), dims=sizes)
    assert "'d12'" not in str(caught.value)


def test_two_different_sizes_for_one_name_are_an_error() -> None:
    with pytest.raises(UsageError, match="bound to 2 and, through input 'x', to 4"):
        onnxroof.analyze(model(TWO), dims={"batch": 2, "width": 1}, input_shapes={"x": (4, 5, 8)})
    with pytest.raises(UsageError, match="bind it once"):
        onnxroof.analyze(model(TWO), input_shapes={"x": (4, 5, 8), "z": (3, 1)})


def test_a_name_twice_in_one_shape_has_one_size() -> None:
    text = "agraph (float[N,N] x) => (float y) { y = Relu(x) }"
    assert shape_of(text, dims={"N": 3}) == (3, 3)
    with pytest.raises(UsageError, match="bind it once"):
        shape_of(text, input_shapes={"x": (2, 3)})


def test_another_number_of_dimensions_is_an_error_with_both_shapes() -> None:
    with pytest.raises(ShapeError, match=r"3 dimensions \(batch×seq×8\), 2 were bound"):
        onnxroof.analyze(model(TWO), input_shapes={"x": (4, 5)})


@pytest.mark.parametrize("size", [-1, 2**62, True, 1.5, "3", None])
def test_a_size_that_cannot_be_is_an_error(size: object) -> None:
    with pytest.raises(UsageError, match="whole number"):
        onnxroof.analyze(model(TWO), dims={"batch": size})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="whole number"):
        onnxroof.analyze(model(TWO), input_shapes={"x": (size, 1, 8)})  # type: ignore[dict-item]


# -- sizes that only the run would tell ------------------------------------------------------

FOUND = """agraph (float[3,4] x) => (int64 nz, int64 t, float y) {
    nz = NonZero(x) t = Transpose(nz) y = GatherND(x, t) }"""


def test_a_data_dependent_size_has_a_name_and_a_bound() -> None:
    # NonZero of 12 elements finds K of them, 0 ≤ K ≤ 12: [2, K], [K, 2], [K]
    analysis = onnxroof.analyze(model(FOUND))
    assert analysis.data_dependent == ("nz.1",)
    shapes = [analysis.tensors[name].shape for name in ("nz", "t", "y")]
    assert [len(shape or ()) for shape in shapes] == [2, 2, 1]
    assert [ends(shape[axis]) for shape, axis in zip(shapes, (1, 0, 0), strict=True)] == [
        (0, 12)
    ] * 3  # type: ignore[index]


def test_a_data_dependent_size_can_be_bound() -> None:
    analysis = onnxroof.analyze(model(FOUND), dims={"nz.1": 5})
    assert analysis.tensors["y"].shape == (5,)
    assert is_exact(analysis.tensors["y"].shape[0])
    assert analysis.tensors["t"].shape == (5, 2)


def test_a_data_dependent_name_nobody_has_is_an_error_with_the_nearest_one() -> None:
    with pytest.raises(UnknownDimensionError, match=r"did you mean 'nz\.1'"):
        onnxroof.analyze(model(FOUND), dims={"nz.2": 5})


def test_costs_at_a_bound_are_at_most_and_at_a_binding_exact() -> None:
    # One comparison-free elementwise operation for each of the K found elements
    text = FOUND.replace("float y) {", "float r) {").replace("(x, t) }", "(x, t) r = Exp(y) }")
    bounded = onnxroof.analyze(model(text)).totals
    exact = onnxroof.analyze(model(text), dims={"nz.1": 5}).totals
    assert bounded.flops - bounded.flops_min == 12
    assert bounded.is_upper_bound
    assert not exact.is_upper_bound
    assert exact.flops == bounded.flops_min + 5
