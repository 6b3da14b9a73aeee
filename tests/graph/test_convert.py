from __future__ import annotations

import pickle

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

import onnxroof
from onnxroof.errors import InvalidGraphError, ModelUnreadableError, OnnxroofError
from onnxroof.graph.load import load_model
from onnxroof.graph.types import DType, Graph, SymbolicDim, ValueType
from onnxroof.graph.wire import Message, Source
from tests.builders import model, shapes_of

MY = {"my": 1}


def loaded(text: str, **how: object) -> Graph:
    return load_model(model(text, **how)).graph  # type: ignore[arg-type]


def value(name: str, shape: list[int | str] | None, dtype: int = 1) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


# -- dimensions ------------------------------------------------------------------------------


def test_a_named_dimension_keeps_its_name() -> None:
    graph = loaded("agraph (float[batch,3] x) => (float y) { y = Relu(x) }")
    assert graph.inputs[0].type.shape == (SymbolicDim("batch"), 3)


def test_a_negative_dimension_is_a_placeholder() -> None:
    proto = model("agraph (float[1,3] x) => (float y) { y = Relu(x) }")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    shape = load_model(proto).graph.inputs[0].type.shape
    assert shape == (SymbolicDim("?x.0", named=False), 3)


def test_a_zero_is_a_real_zero() -> None:
    # An empty batch: nothing to compute, nothing to move but the weights
    text = "agraph (float[0,3] x, float[3,4] w) => (float y) { y = MatMul(x, w) }"
    analysis = onnxroof.analyze(model(text))
    assert analysis.tensors["y"].shape == (0, 4)
    assert (analysis.totals.macs, analysis.totals.flops) == (0, 0)


def test_two_unnamed_dimensions_are_not_the_same() -> None:
    proto = model("agraph (float[1,1] x) => (float y) { y = Relu(x) }")
    for dim in proto.graph.input[0].type.tensor_type.shape.dim:
        dim.Clear()
    shape = load_model(proto).graph.inputs[0].type.shape
    assert shape is not None
    assert shape[0] != shape[1]


def test_an_input_without_a_shape_has_an_unknown_rank() -> None:
    graph = loaded("agraph (float[] x) => (float y) { y = Relu(x) }")
    assert graph.inputs[0].type.shape is None
    assert graph.inputs[0].type.dtype is DType.FLOAT


@pytest.mark.parametrize("kind", ["seq(float[2])", "optional(float[2])", "seq(seq(float[2]))"])
def test_sequences_and_optionals_keep_what_is_in_them(kind: str) -> None:
    graph = loaded(f"agraph ({kind} x) => (float y) {{ y = SequenceAt(x, x) }}")
    inner = graph.inputs[0].type
    assert inner.kind == kind.partition("(")[0].replace("seq", "sequence")
    while inner.element is not None:
        inner = inner.element
    assert (inner.dtype, inner.shape) == (DType.FLOAT, (2,))


# -- constants -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attribute", "dtype", "shape", "elements"),
    [
        ("value = float[2] {1.0, 2.0}", DType.FLOAT, (2,), [1.0, 2.0]),
        ("value = int64 {3}", DType.INT64, (), [3]),
        ("value_int = 7", DType.INT64, (), [7]),
        ("value_ints = [7, 8]", DType.INT64, (2,), [7, 8]),
        ("value_float = 0.5", DType.FLOAT, (), [0.5]),
        ("value_floats = [0.5, 1.5]", DType.FLOAT, (2,), [0.5, 1.5]),
    ],
)
def test_constant_nodes_become_constants(
    attribute: str, dtype: DType, shape: tuple[int, ...], elements: list[float]
) -> None:
    graph = loaded(f"agraph () => (float y) {{ y = Constant <{attribute}> () }}")
    constant = graph.constants["y"]
    assert not graph.nodes
    assert (constant.dtype, constant.shape) == (dtype, shape)
    assert constant.value is not None
    assert constant.value.ravel().tolist() == elements


def test_text_constants_have_a_shape_and_no_size() -> None:
    graph = loaded('agraph () => (string y) { y = Constant <value_strings = ["a", "b"]> () }')
    constant = graph.constants["y"]
    assert (constant.dtype, constant.shape, constant.stored_bytes) == (DType.STRING, (2,), None)


def test_a_constant_without_value_is_refused_by_name() -> None:
    proto = model("agraph () => (float y) { y = Constant <value_int = 1> () }")
    del proto.graph.node[0].attribute[:]
    with pytest.raises(InvalidGraphError, match=r"Constant node 'y'.*no value"):
        load_model(proto)


@pytest.mark.parametrize(
    ("dtype", "elements", "nbytes"),
    [
        (TensorProto.INT4, 5, 3),  # 5 · 4 bits = 20 bits, rounded up to 3 bytes
        (TensorProto.UINT4, 4, 2),
        (TensorProto.UINT2, 5, 2),  # 10 bits
        (TensorProto.INT2, 1, 1),
        (TensorProto.FLOAT4E2M1, 3, 2),  # 12 bits
        (TensorProto.FLOAT8E4M3FN, 3, 3),
        (TensorProto.BFLOAT16, 3, 6),
        (TensorProto.BOOL, 3, 3),
        (TensorProto.DOUBLE, 3, 24),
        (TensorProto.COMPLEX64, 3, 24),
    ],
)
def test_stored_bytes_are_packed_and_rounded_up_per_tensor(
    dtype: int, elements: int, nbytes: int
) -> None:
    proto = model("agraph (float[1] x) => (float y) { y = Relu(x) }")
    proto.graph.initializer.add(name="w", data_type=dtype, dims=[elements], raw_data=b"\0" * nbytes)
    assert load_model(proto).graph.constants["w"].stored_bytes == nbytes


@pytest.mark.parametrize(
    ("dtype", "field", "numbers"),
    [
        (TensorProto.UINT8, "int32_data", [300]),
        (TensorProto.FLOAT16, "int32_data", [70000]),
        (TensorProto.INT8, "int32_data", [-129]),
        (TensorProto.UINT64, "int64_data", [-1]),
        (TensorProto.INT64, "float_data", [float("nan")]),
        (TensorProto.INT64, "double_data", [float("inf")]),
        (TensorProto.INT64, "int64_data", [1, 2, 3]),
    ],
)
def test_numbers_that_their_type_cannot_hold_have_no_value(
    dtype: int, field: str, numbers: list[float]
) -> None:
    proto = model("agraph (float[1] x) => (float y) { y = Relu(x) }")
    tensor = proto.graph.initializer.add(name="w", data_type=dtype, dims=[1])
    getattr(tensor, field).extend(numbers)
    constant = load_model(proto).graph.constants["w"]
    assert (constant.shape, constant.value) == ((1,), None)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [(1, "f4"), (11, "f8"), (10, "f2"), (7, "i8"), (6, "i4"), (5, "i2"), (3, "i1"), (2, "u1"),
     (4, "u2"), (12, "u4"), (13, "u8"), (9, "?")],
)  # fmt: skip
@pytest.mark.parametrize("raw", [True, False])
def test_tiny_values_are_read_from_raw_and_typed_data(dtype: int, kind: str, raw: bool) -> None:
    numbers = np.array([0, 1, 1], kind)
    content = numbers.tobytes() if raw else numbers.tolist()
    tensor = helper.make_tensor("w", dtype, [3], content, raw=raw)
    proto = model("agraph (float[1] x) => (float y) { y = Relu(x) }")
    proto.graph.initializer.append(tensor)
    constant = load_model(proto).graph.constants["w"]
    assert constant.value is not None
    assert constant.value.dtype == np.dtype(kind)
    assert constant.value.tolist() == numbers.tolist()


def test_a_scalar_stays_a_scalar() -> None:
    proto = model("agraph (float[1] x) => (float y) { y = Relu(x) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(3), "w"))
    constant = load_model(proto).graph.constants["w"]
    assert constant.value is not None
    assert constant.value.shape == ()


def test_a_negative_dimension_of_a_weight_is_refused() -> None:
    proto = model("agraph (float[1] x) => (float y) { y = Relu(x) }")
    proto.graph.initializer.add(name="w", data_type=1, dims=[2, -3])
    with pytest.raises(InvalidGraphError, match=r"'w'.*negative"):
        load_model(proto)


def test_a_negative_dimension_of_a_sparse_weight_is_refused() -> None:
    proto = model("agraph (float[1] x) => (float y) { y = Relu(x) }")
    sparse = proto.graph.sparse_initializer.add(dims=[-8, 8])
    sparse.values.name, sparse.values.data_type = "w", 1
    sparse.indices.data_type = 7
    with pytest.raises(InvalidGraphError, match=r"'w'.*negative"):
        load_model(proto)


def test_an_unknown_element_type_is_refused() -> None:
    proto = model("agraph (float[1] x) => (float y) { y = Relu(x) }")
    proto.graph.initializer.add(name="w", data_type=99, dims=[2])
    with pytest.raises(InvalidGraphError, match=r"'w'.*unknown element type \(99\)"):
        load_model(proto)


def test_a_sparse_weight_has_its_dense_shape_and_its_stored_bytes() -> None:
    # 3 float values of 4 bytes and 3 int64 indices of 8: 12 + 24 = 36 bytes
    proto = model("agraph (float[2,8] x) => (float y) { y = MatMul(x, w) }")
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("w", 1, [3], [1.0, 2.0, 3.0]),
        helper.make_tensor("", 7, [3], [0, 9, 18]), [8, 8],
    )  # fmt: skip
    proto.graph.sparse_initializer.append(sparse)
    constant = load_model(proto).graph.constants["w"]
    assert (constant.shape, constant.nonzeros, constant.stored_bytes) == ((8, 8), 3, 36)


# -- names -----------------------------------------------------------------------------------


def test_a_tensor_made_twice_is_refused_with_the_second_maker() -> None:
    text = "agraph (float[2] x) => (float y) { [first] y = Relu(x) [second] y = Neg(x) }"
    with pytest.raises(InvalidGraphError, match=r"'second' \(Neg\): makes tensor 'y'"):
        loaded(text)


def test_a_node_must_not_make_an_input_or_a_weight() -> None:
    with pytest.raises(InvalidGraphError, match="makes tensor 'x'"):
        loaded("agraph (float[2] x) => (float y) { x = Relu(x) y = Relu(x) }")


@pytest.mark.parametrize("again", ["Constant <value_int = 2> ()", "Relu(x)"])
def test_a_constant_must_not_be_made_twice(again: str) -> None:
    text = f"agraph (float[2] x) => (float y) {{ y = Constant <value_int = 1> () y = {again} }}"
    with pytest.raises(InvalidGraphError, match="'y'"):
        loaded(text)


def test_two_initializers_of_one_name_are_refused() -> None:
    proto = model("agraph (float[2] x) => (float y) { y = Add(x, w) }")
    for _ in range(2):
        proto.graph.initializer.append(helper.make_tensor("w", 1, [2], [0.0, 0.0]))
    with pytest.raises(InvalidGraphError, match="'w'"):
        load_model(proto)


def test_an_undefined_tensor_is_named_with_its_reader() -> None:
    with pytest.raises(InvalidGraphError, match=r"'adder' \(Add\): needs tensor 'ghost'"):
        loaded("agraph (float[2] x) => (float y) { [adder] y = Add(x, ghost) }")


def test_an_undefined_output_is_named() -> None:
    with pytest.raises(InvalidGraphError, match="needs tensor 'ghost'"):
        loaded("agraph (float[2] x) => (float ghost) { y = Relu(x) }")


def test_an_undefined_tensor_inside_a_body_is_named() -> None:
    text = """agraph (bool c) => (float y) {
        y = If(c) <then_branch = t () => (float a) { a = Relu(ghost) },
                   else_branch = e () => (float b) { b = Relu(ghost) }> }"""
    with pytest.raises(InvalidGraphError, match="needs tensor 'ghost'"):
        loaded(text)


def test_a_domain_without_opset_import_is_named() -> None:
    proto = model("agraph (float[2] x) => (float y) { y = Relu(x) }")
    proto.graph.node[0].domain = "ai.onnx.ml"
    with pytest.raises(InvalidGraphError, match=r"'ai\.onnx\.ml' has no opset import"):
        load_model(proto)


def test_both_spellings_of_the_default_domain_are_one() -> None:
    proto = model("agraph (float[2] x) => (float y) { y = Relu(x) }")
    proto.graph.node[0].domain = "ai.onnx"
    assert load_model(proto).graph.nodes[0].domain == ""
    proto.opset_import[0].domain = "ai.onnx"
    assert load_model(proto).opsets == {"": 21}


def test_nodes_of_equal_or_no_name_stay_apart() -> None:
    proto = model("agraph (float[4,4] x) => (float y) { a = Relu(x) b = Neg(x) y = Add(a, b) }")
    labels = [node.label for node in load_model(proto).graph.nodes]
    assert labels == ["Relu#0", "Neg#1", "Add#2"]
    for node in proto.graph.node:
        node.name = "same"
    # Three elementwise operators on 16 elements each
    analysis = onnxroof.analyze(proto)
    assert [node.node.index for node in analysis.nodes] == [0, 1, 2]
    assert analysis.totals.flops == 48


def test_an_absent_optional_input_is_no_tensor() -> None:
    node = loaded('agraph (float[2] x, float m) => (float y) { y = Clip(x, "", m) }').nodes[0]
    assert node.inputs == ("x", "", "m")


# -- scopes ----------------------------------------------------------------------------------


def test_the_scope_comes_from_a_path_like_name() -> None:
    graph = loaded("agraph (float[2] x) => (float y) { y = Relu(x) }")
    node = graph.nodes[0]
    assert node.scope == ""
    proto = model("agraph (float[2] x) => (float y) { y = Relu(x) }")
    proto.graph.node[0].name = "/encoder/layer.0/Relu"
    assert load_model(proto).graph.nodes[0].scope == "encoder/layer.0"


def test_the_scope_an_exporter_recorded_goes_first() -> None:
    # The dynamo exporter lists the modules around the call and the call itself last
    proto = model("agraph (float[2] x) => (float y) { y = Relu(x) }")
    proto.graph.node[0].name = "/other/Relu"
    proto.graph.node[0].metadata_props.add(
        key="pkg.torch.onnx.name_scopes", value="['', 'encoder', 'encoder.act', 'relu']"
    )
    assert load_model(proto).graph.nodes[0].scope == "encoder/act"


# -- functions -------------------------------------------------------------------------------


def test_a_function_called_twice_is_sized_for_each_call() -> None:
    # MatMul 3·4·8 + 3·8·2 = 144; bias 24 + 6 and LeakyRelu 24 + 6; parameters 32 + 8 + 16 + 2
    proto = model(
        """agraph (float[3,4] x) => (float y) { h = my.Lin <slope = 0.2> (x, v, a)
                                               y = my.Lin <slope = 0.3> (h, w, b) }
        <domain: "my", opset_import: ["" : 17]>
        Lin <slope> (x, w, b) => (y) { m = MatMul(x, w) s = Add(m, b)
                                       y = LeakyRelu <alpha: float = @slope> (s) }""",
        opset=17, opsets=MY,
    )  # fmt: skip
    for name, dims in (("v", [4, 8]), ("a", [8]), ("w", [8, 2]), ("b", [2])):
        proto.graph.initializer.append(
            helper.make_tensor(name, 1, dims, [0.0] * int(np.prod(dims)))
        )
    analysis = onnxroof.analyze(proto)
    assert analysis.tensors["y"].shape == (3, 2)
    totals = analysis.totals
    assert (totals.macs, totals.flops, totals.parameters) == (144, 288 + 30 + 30, 58)
    slopes = [dict(n.node.attributes)["alpha"] for n in analysis.nodes if n.op_type == "LeakyRelu"]
    assert slopes == pytest.approx([0.2, 0.3])


def test_a_call_stays_visible_as_the_scope_of_its_nodes() -> None:
    proto = model(
        """agraph (float[2] x) => (float y) { y = my.F(x) }
        <domain: "my", opset_import: ["" : 21]>
        F (a) => (b) { t = Relu(a) b = Neg(t) }""",
        opsets=MY,
    )
    proto.graph.node[0].name = "/block/act"
    proto.functions[0].node[0].name = "inner/relu"
    nodes = load_model(proto).graph.nodes
    assert [node.op_type for node in nodes] == ["Relu", "Neg"]
    assert nodes[1].scope == "block/act"
    assert nodes[0].scope == "block/act/inner"
    assert len({node.label for node in nodes}) == 2


def test_every_constant_of_a_function_keeps_its_own_value() -> None:
    graph = load_model(
        model(
            """agraph (float[2,3] x) => (float y, float z) { y = my.F(x) z = my.F(y) }
            <domain: "my", opset_import: ["" : 21]>
            F (a) => (c) { s = Constant <value = int64[2] {3, 2}> ()
                           b = Reshape(a, s)
                           t = Constant <value = int64[1] {-1}> ()
                           d = Reshape(b, t)
                           u = Constant <value = int64[3] {1, 2, 3}> ()
                           c = Reshape(d, u) }""",
            opsets=MY,
        )
    ).graph
    values = [constant.value.tolist() for constant in graph.constants.values()]  # type: ignore[union-attr]
    assert values == [[3, 2], [-1], [1, 2, 3]] * 2


def test_weights_inside_a_function_called_twice_are_one() -> None:
    # One 3×3 constant: 9 parameters, 36 bytes, however often the function is called
    weight = numpy_helper.from_array(np.ones((3, 3), np.float32))
    body = [
        helper.make_node("Constant", [], ["w"], value=weight),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
    ]
    function = helper.make_function("my", "F", ["a"], ["b"], body, [helper.make_opsetid("", 21)])
    proto = model("agraph (float[2,3] x) => (float y) { t = my.F(x) y = my.F(t) }", opsets=MY)
    proto.functions.append(function)
    totals = onnxroof.analyze(proto).totals
    assert (totals.macs, totals.parameters, totals.weight_bytes) == (2 * 18, 9, 36)


def test_weights_of_a_branch_inside_a_function_called_twice_are_one() -> None:
    weight = numpy_helper.from_array(np.ones((3, 3), np.float32), "w")
    branch = helper.make_graph(
        [helper.make_node("MatMul", ["a", "w"], ["m"])], "branch", [], [value("m", None)], [weight]
    )
    body = [helper.make_node("If", ["c"], ["b"], then_branch=branch, else_branch=branch)]
    function = helper.make_function(
        "my", "F", ["a", "c"], ["b"], body, [helper.make_opsetid("", 21)]
    )
    proto = model(
        "agraph (float[2,3] x, bool c) => (float y) { t = my.F(x, c) y = my.F(t, c) }", opsets=MY
    )
    proto.functions.append(function)
    # then and else hold a copy each in the file: 2 · 9 parameters
    assert onnxroof.analyze(proto).totals.parameters == 18


def test_functions_call_functions() -> None:
    text = """agraph (float[2] x) => (float y) { y = my.Twice(x) }
        <domain: "my", opset_import: ["" : 21, "my" : 1]>
        Twice (a) => (b) { t = my.F(a) b = my.F(t) }
        <domain: "my", opset_import: ["" : 21]> F (a) => (b) { b = Relu(a) }"""
    nodes = load_model(model(text, opsets=MY)).graph.nodes
    assert [node.op_type for node in nodes] == ["Relu", "Relu"]
    assert nodes[0].outputs == nodes[1].inputs


def test_a_function_has_the_opset_it_imports() -> None:
    # Squeeze takes its axes as an attribute up to opset 12
    text = """agraph (float[1,2] x) => (float y) { y = my.F(x) }
        <domain: "my", opset_import: ["" : 11]> F (a) => (b) { b = Squeeze <axes = [0]> (a) }"""
    assert shapes_of(model(text, opset=21, opsets=MY))["y"] == (2,)


def test_a_function_that_calls_itself_is_refused() -> None:
    text = """agraph (float[2] x) => (float y) { y = my.F(x) }
        <domain: "my", opset_import: ["" : 21, "my" : 1]> F (a) => (b) { b = my.G(a) }
        <domain: "my", opset_import: ["" : 21, "my" : 1]> G (a) => (b) { b = my.F(a) }"""
    with pytest.raises(InvalidGraphError, match="does it call itself"):
        load_model(model(text, opsets=MY))


def test_a_default_holds_where_the_call_gives_no_attribute() -> None:
    text = """agraph (float[2,3,4] x) => (float y, float z)
        {{ y = my.F(x) z = my.F <to = 1> (x) }}
        <domain: "my", opset_import: ["" : 21]>
        F <to: int = {default}> (a) => (b) {{ b = Flatten <axis: int = @to> (a) }}"""
    shapes = shapes_of(model(text.format(default=2), opsets=MY))
    assert (shapes["y"], shapes["z"]) == ((6, 4), (2, 12))


def test_an_attribute_nobody_gives_is_absent() -> None:
    # Flatten without axis: the operator's own default, 1
    text = """agraph (float[2,3,4] x) => (float y) { y = my.F(x) }
        <domain: "my", opset_import: ["" : 21]>
        F <to> (a) => (b) { b = Flatten <axis: int = @to> (a) }"""
    assert shapes_of(model(text, opsets=MY))["y"] == (2, 12)


def test_an_attribute_is_handed_through_two_calls() -> None:
    text = """agraph (float[2,3,4] x) => (float y) { y = my.Outer <to = 2> (x) }
        <domain: "my", opset_import: ["" : 21, "my" : 1]>
        Outer <to> (a) => (b) { b = my.F <axis: int = @to> (a) }
        <domain: "my", opset_import: ["" : 21]>
        F <axis> (a) => (b) { b = Flatten <axis: int = @axis> (a) }"""
    assert shapes_of(model(text, opsets=MY))["y"] == (6, 4)


def test_a_constant_whose_value_is_the_caller_s_attribute() -> None:
    text = """agraph (float[2,3] x) => (float y, float z)
        { y = my.F <s = int64[1] {6}> (x) z = my.F <s = int64[2] {3, 2}> (x) }
        <domain: "my", opset_import: ["" : 21]>
        F <s> (a) => (b) { t = Constant <value: tensor = @s> () b = Reshape(a, t) }"""
    shapes = shapes_of(model(text, opsets=MY))
    assert (shapes["y"], shapes["z"]) == ((6,), (3, 2))


def test_optional_inputs_a_call_leaves_out_are_absent_inside() -> None:
    text = """agraph (float[2] x, float m) => (float y, float z)
        { y = my.F(x) z = my.F(x, "", m) }
        <domain: "my", opset_import: ["" : 21]>
        F (a, low, high) => (b) { b = Clip(a, low, high) }"""
    first, second = load_model(model(text, opsets=MY)).graph.nodes
    assert first.inputs == ("x", "", "")
    assert second.inputs == ("x", "", "m")


def test_outputs_a_call_does_not_want_are_still_made_inside() -> None:
    text = """agraph (float[2] x) => (float y) { "", y = my.F(x) }
        <domain: "my", opset_import: ["" : 21]>
        F (a) => (b, c) { b = Relu(a) c = Neg(b) }"""
    first, second = load_model(model(text, opsets=MY)).graph.nodes
    assert first.outputs == second.inputs
    assert second.outputs == ("y",)


def test_a_body_inside_a_function_captures_the_function_s_tensors() -> None:
    text = """agraph (float[2] x, bool c) => (float y) { y = my.F(x, c) }
        <domain: "my", opset_import: ["" : 21]>
        F (a, c) => (b) {
            t = Relu(a)
            b = If(c) <then_branch = g () => (float p) { p = Neg(t) },
                       else_branch = h () => (float q) { q = Identity(t) }> }"""
    assert shapes_of(model(text, opsets=MY))["y"] == (2,)


def test_overloads_of_a_function_are_told_apart() -> None:
    imports = [helper.make_opsetid("", 21)]
    functions = [
        helper.make_function("my", "F", ["a"], ["b"], [helper.make_node(op, ["a"], ["b"])], imports)
        for op in ("Relu", "Neg")
    ]
    functions[0].overload, functions[1].overload = "one", "two"
    proto = model("agraph (float[2] x) => (float y) { y = my.F(x) }", opsets=MY)
    proto.functions.extend(functions)
    proto.graph.node[0].overload = "two"
    assert [node.op_type for node in load_model(proto).graph.nodes] == ["Neg"]


def test_a_reference_the_caller_was_not_given_leaves_the_default() -> None:
    # G passes its q on as F's a; nobody gives q, so F's own 0.25 holds
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
    leaky = helper.make_node("LeakyRelu", ["i"], ["o"])
    leaky.attribute.add(name="alpha", type=AttributeProto.FLOAT, ref_attr_name="a")
    inner = helper.make_function(
        "my", "F", ["i"], ["o"], [leaky], imports,
        attribute_protos=[helper.make_attribute("a", 0.25)],
    )  # fmt: skip
    call = helper.make_node("F", ["i"], ["o"], domain="my")
    call.attribute.add(name="a", type=AttributeProto.FLOAT, ref_attr_name="q")
    outer = helper.make_function("my", "G", ["i"], ["o"], [call], imports, attributes=["q"])
    proto = model("agraph (float[2] x) => (float y) { y = my.G(x) }", opsets=MY)
    proto.functions.extend([inner, outer])
    (node,) = load_model(proto).graph.nodes
    assert node.attributes == (("alpha", 0.25),)


BRANCHES = """agraph (float[2] x, bool c) => (float y) { t = my.F(c, x)  y = my.F(c, t) }
    <domain: "my", opset_import: ["" : 21]> F (c, x) => (y) {
      y = If(c) <then_branch = g () => (float[2] p) { p = Relu(x) },
                 else_branch = h () => (float[2] q) { q = Neg(x) }> }"""


def test_bodies_that_a_call_repeats_count_as_nodes_it_expands_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # two calls, each of one If and a node and a result in both branches: 10
    monkeypatch.setattr("onnxroof.graph.convert.MOST_NODES", 10)
    assert len(load_model(model(BRANCHES, opsets=MY)).graph.nodes) == 2
    monkeypatch.setattr("onnxroof.graph.convert.MOST_NODES", 9)
    with pytest.raises(InvalidGraphError, match="expands to more than"):
        load_model(model(BRANCHES, opsets=MY))


def test_declared_types_of_a_body_are_copied_once_for_all_calls() -> None:
    first, second = load_model(model(BRANCHES, opsets=MY)).graph.nodes
    (_, body), (_, again) = first.subgraphs[0], second.subgraphs[0]
    assert body.declared._infos is again.declared._infos
    assert [name.rpartition("/")[2] for name in body.declared] == ["p"]
    assert list(body.declared) != list(again.declared)  # renamed for each call


def test_all_that_a_call_repeats_of_a_body_counts_as_what_it_expands_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # two calls, each of one If, a node, a result and a weight in both branches: 2 · (1 + 2·3)
    proto = model(BRANCHES, opsets=MY)
    for attribute in proto.functions[0].node[0].attribute:
        attribute.g.initializer.append(numpy_helper.from_array(np.zeros(2, np.float32), "w"))
    monkeypatch.setattr("onnxroof.graph.convert.MOST_NODES", 14)
    assert len(load_model(proto).graph.nodes) == 2
    monkeypatch.setattr("onnxroof.graph.convert.MOST_NODES", 13)
    with pytest.raises(InvalidGraphError, match="expands to more than"):
        load_model(proto)


def test_names_that_calls_repeat_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # A call: its function's parameter, result and opset, and a node of three inputs, a result and
    # an attribute: 3 + 5. Three calls are 24
    text = """agraph (float[2,3] x) => (float y) { a = my.F(x)  b = my.F(a)  y = my.F(b) }
        <domain: "my", opset_import: ["" : 21]> F (s) => (t) { t = Concat <axis = 0> (s, s, s) }"""
    monkeypatch.setattr("onnxroof.graph.convert.MOST_NAMES", 24)
    assert len(load_model(model(text, opsets=MY)).graph.nodes) == 3
    monkeypatch.setattr("onnxroof.graph.convert.MOST_NAMES", 23)
    with pytest.raises(InvalidGraphError, match="or 23 names"):
        load_model(model(text, opsets=MY))


def test_declared_types_of_a_body_are_found_by_the_names_of_each_call() -> None:
    proto = model(BRANCHES, opsets=MY)
    body = proto.functions[0].node[0].attribute[0].g
    body.value_info.append(helper.make_tensor_value_info("v", TensorProto.INT8, [None, 3]))
    first, second = load_model(proto).graph.nodes
    for call in (first, second):
        declared = call.subgraphs[0][1].declared
        (result,) = call.subgraphs[0][1].outputs
        prefix = result.removesuffix("/p")
        assert prefix != result
        assert set(declared) == {result, f"{prefix}/v"}
        assert len(declared) == 2
        assert declared[result] == ValueType("tensor", DType.FLOAT, (2,))
        unnamed = SymbolicDim(f"?{prefix}/v.0", named=False)  # each call's own
        assert declared[f"{prefix}/v"] == ValueType("tensor", DType.INT8, (unnamed, 3))
        assert "p" not in declared
        assert f"{prefix}/other" not in declared


def test_names_of_declared_types_are_listed_once_for_all_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # a thousand in the body of a function called twice: a record each, and not for each call
    proto = model(BRANCHES, opsets=MY)
    body = proto.functions[0].node[0].attribute[0].g
    body.value_info.extend(
        helper.make_tensor_value_info(f"v{i}", TensorProto.FLOAT, [1]) for i in range(1000)
    )
    bodies = [node.subgraphs[0][1] for node in load_model(proto).graph.nodes]
    read: list[int] = []

    def message(source: Source, begin: int, end: int) -> Message:
        read.append(begin)
        return Message(source, begin, end)

    monkeypatch.setattr("onnxroof.graph.declared.Message", message)
    for body in bodies:
        assert body.declared[body.outputs[0]].shape == (2,)
    assert 1000 < len(read) < 1050


def test_a_type_of_ten_thousand_dimensions_is_refused() -> None:
    proto = model("agraph (float[1] x) => (float y) { y = Relu(x) }")
    proto.graph.input[0].CopyFrom(value("x", [1] * 10_001))
    with pytest.raises(ModelUnreadableError, match="'x' has 10001 dimensions"):
        load_model(proto)


def test_a_function_may_replace_a_standard_operator() -> None:
    text = """agraph (float[2] x) => (float y) { y = my.Relu(x) }
        <domain: "my", opset_import: ["" : 21]> Relu (a) => (b) { t = Neg(a) b = Neg(t) }"""
    assert len(load_model(model(text, opsets=MY)).graph.nodes) == 2


@pytest.mark.parametrize("leaf", ["b = Relu(a)", "b = a"])
def test_functions_that_double_without_end_are_refused(
    leaf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxroof.graph.convert.MOST_CALLS", 1000)
    # 40 levels that call the next one twice: 2⁴⁰ calls, whether or not a node comes of them
    imports = '"" : 21, "my" : 1'
    levels = "\n".join(
        f'<domain: "my", opset_import: [{imports}]> F{i} (a) => (b) '
        f"{{ t = my.F{i + 1}(a) b = my.F{i + 1}(t) }}"
        for i in range(40)
    )
    proto = model(
        "agraph (float[2] x) => (float y) { y = my.F0(x) }\n" + levels
        + f'\n<domain: "my", opset_import: [{imports}]> F40 (a) => (b) {{ b = Relu(a) }}',
        opsets=MY,
    )  # fmt: skip
    if leaf == "b = a":
        del proto.functions[40].node[:]
        proto.functions[40].output[:] = ["a"]
    with pytest.raises(InvalidGraphError, match="expands to more than"):
        load_model(proto)


# -- bodies ----------------------------------------------------------------------------------


def nested(depth: int) -> onnx.ModelProto:
    """If in If in If …"""
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "leaf", [], [value("y", [2])]
    )
    for _ in range(depth):
        node = helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([node], "level", [], [value("y", [2])])
    graph.input.extend([value("x", [2]), value("c", [], TensorProto.BOOL)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def test_names_a_body_captures_are_known() -> None:
    graph = load_model(nested(3)).graph
    assert graph.captures == ()
    (_, body), _ = graph.nodes[0].subgraphs
    assert set(body.captures) == {"x", "c"}


def test_bodies_nested_beyond_reason_are_refused() -> None:
    # Built in memory: protobuf itself refuses to parse messages nested 100 deep
    proto = model("agraph (float[2] x) => (float y) { y = my.Foo(x) }", opsets=MY)
    graph = proto.graph
    for _ in range(300):
        node = graph.node.add(op_type="Foo", domain="my")
        graph = node.attribute.add(name="body", type=AttributeProto.GRAPH).g
    with pytest.raises(InvalidGraphError, match="nest"):
        load_model(proto)


def test_bodies_nested_through_functions_beyond_reason_are_refused() -> None:
    # 60 functions, each calling the next inside two nested branches
    def inside(node: onnx.NodeProto) -> onnx.NodeProto:
        for _ in range(10):
            branch = helper.make_graph([node], "branch", [], [value("b", None)])
            node = helper.make_node("If", ["c"], ["b"], then_branch=branch)
        return node

    imports = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
    proto = model("agraph (float[2] x, bool c) => (float y) { y = my.F0(x, c) }", opsets=MY)
    for i in range(60):
        call = helper.make_node(f"F{i + 1}", ["a", "c"], ["b"], domain="my")
        proto.functions.append(
            helper.make_function("my", f"F{i}", ["a", "c"], ["b"], [inside(call)], imports)
        )
    leaf = [helper.make_node("Relu", ["a"], ["b"])]
    proto.functions.append(helper.make_function("my", "F60", ["a", "c"], ["b"], leaf, imports))
    with pytest.raises(InvalidGraphError, match="nest"):
        load_model(proto)


def test_attributes_of_every_kind_are_read() -> None:
    node = helper.make_node("Foo", ["x"], ["y"], domain="my", i=1, f=0.5, s="text",
                            ints=[1, 2], floats=[0.5], strings=["a", "b"])  # fmt: skip
    tensors = AttributeProto(name="tensors", type=AttributeProto.TENSORS)
    tensors.tensors.add(data_type=1, dims=[2])
    node.attribute.append(tensors)
    kind = AttributeProto(name="kind", type=AttributeProto.TYPE_PROTO)
    kind.tp.CopyFrom(helper.make_tensor_type_proto(1, [2]))
    node.attribute.append(kind)
    graph = helper.make_graph([node], "g", [value("x", [2])], [value("y", [2])])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
    read = dict(
        load_model(helper.make_model(graph, opset_imports=imports)).graph.nodes[0].attributes
    )
    assert (read["i"], read["f"], read["s"]) == (1, 0.5, "text")
    assert (read["ints"], read["floats"], read["strings"]) == ((1, 2), (0.5,), ("a", "b"))
    assert isinstance(read["tensors"], tuple)
    assert hash(tuple(read.items()))


@pytest.mark.parametrize(
    ("field", "given", "read"),
    [
        ("i", 2, 2),
        ("ints", [1, 2], (1, 2)),
        ("f", 0.5, 0.5),
        ("s", b"t", "t"),
        ("floats", [1.0], (1.0,)),
    ],
)
def test_an_attribute_without_a_type_is_what_its_field_says(
    field: str, given: object, read: object
) -> None:
    proto = model("agraph (float[2] x) => (float y) { y = Relu(x) }")
    attribute = proto.graph.node[0].attribute.add(name="a")
    if isinstance(given, list):
        getattr(attribute, field).extend(given)
    else:
        setattr(attribute, field, given)
    assert load_model(proto).graph.nodes[0].attributes == (("a", read),)


def test_a_model_survives_pickling() -> None:
    graph = load_model(nested(2))
    copy = pickle.loads(pickle.dumps(graph))
    assert copy.graph.nodes[0].label == graph.graph.nodes[0].label
    assert copy.opsets == graph.opsets


def test_errors_here_are_model_errors() -> None:
    assert issubclass(InvalidGraphError, OnnxroofError)
    assert InvalidGraphError("a", "b").exit_code == 3
