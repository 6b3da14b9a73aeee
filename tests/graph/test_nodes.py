from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, NodeProto, TensorProto, helper

from onnxroof.errors import InvalidGraphError, ModelUnreadableError, OnnxroofError
from onnxroof.graph.load import load_model
from onnxroof.graph.types import DType, Graph, Node, SymbolicDim, ValueType
from tests.graph.written import (
    IMPORTS,
    around,
    field,
    float32,
    floats,
    graph_of,
    integer,
    loaded,
    model_of,
    shuffled,
    varint,
    with_nodes,
)

if TYPE_CHECKING:
    from onnxroof.graph.types import AttributeValue, Constant

INPUT, OUTPUT, NAME, OP_TYPE, ATTRIBUTE, DOC, DOMAIN, OVERLOAD, METADATA = range(1, 10)
"""Fields of a NodeProto in onnx.proto."""

A_NAME, A_FLOAT, A_INT, A_STRING, A_TENSOR, A_GRAPH, A_FLOATS, A_INTS, A_STRINGS = range(1, 10)
A_TYPE, A_REFERENCE = 20, 21
"""Fields of an AttributeProto in onnx.proto."""

SCOPES = "pkg.torch.onnx.name_scopes"


def entry(key: str, value: str) -> bytes:
    """A StringStringEntryProto."""
    return field(METADATA, field(1, key) + field(2, value))


def one(*fields: bytes) -> Node:
    """The node of a model that has only this one, of domain "my" where it says none."""
    (node,) = loaded(with_nodes(b"".join(fields))).nodes
    return node


def facts(node: Node) -> tuple[object, ...]:
    return (
        node.name, node.domain, node.op_type, node.inputs, node.outputs, node.attributes, node.scope
    )  # fmt: skip


PADS = field(A_NAME, "pads") + b"".join(integer(A_INTS, 1) for _ in range(4)) + integer(A_TYPE, 7)
GROUP = field(A_NAME, "group") + integer(A_INT, 2) + integer(A_TYPE, 2)

CONV = [
    field(INPUT, "x"), field(OUTPUT, "y"), field(NAME, "/block/conv"), field(OP_TYPE, "Conv"),
    field(ATTRIBUTE, PADS), field(ATTRIBUTE, GROUP),
]  # fmt: skip


# -- fields in any order ---------------------------------------------------------------------


def test_a_node_is_what_its_fields_say() -> None:
    assert facts(one(*CONV)) == (
        "/block/conv", "", "Conv", ("x",), ("y",), (("pads", (1, 1, 1, 1)), ("group", 2)), "block",
    )  # fmt: skip


@pytest.mark.parametrize(
    "order",
    [
        [2, 0, 1, 3, 4, 5],  # the name first
        [4, 5, 0, 1, 2, 3],  # attributes before inputs
        [3, 0, 1, 2, 4, 5],  # the operator first
        [0, 3, 4, 1, 5, 2],  # an attribute before the outputs, one after
        [0, 1, 3, 4, 5, 2],  # the name last
        [0, 1, 2, 4, 5, 3],  # the operator last
        [1, 0, 2, 3, 4, 5],  # the outputs first
        [4, 3, 2, 1, 0, 5],
    ],
)
def test_fields_may_stand_in_any_order(order: list[int]) -> None:
    assert facts(one(*(CONV[i] for i in order))) == facts(one(*CONV))


@pytest.mark.parametrize("seed", range(10))
def test_nodes_written_in_any_order_are_what_onnx_reads(seed: int) -> None:
    rest = [
        field(DOMAIN, "my"), field(DOC, "of a node"), field(INPUT, ""), field(INPUT, "x"),
        field(OUTPUT, "z"), entry("other", "value"), entry(SCOPES, "['', 'a', 'a.b', 'relu']"),
    ]  # fmt: skip
    data = shuffled([*CONV, *rest], seed)
    proto = NodeProto.FromString(data)
    node = one(data)
    assert node.inputs == tuple(proto.input)
    assert node.outputs == tuple(proto.output)
    assert (node.name, node.op_type, node.domain) == (proto.name, proto.op_type, proto.domain)
    assert [name for name, _ in node.attributes] == [a.name for a in proto.attribute]
    assert dict(node.attributes) == {"pads": (1, 1, 1, 1), "group": 2}
    assert node.scope == "a/b"


def test_of_a_name_or_operator_written_twice_the_last_counts() -> None:
    node = one(field(NAME, "a"), field(OP_TYPE, "Relu"), *CONV, field(NAME, "b"))
    assert (node.name, node.op_type) == ("b", "Conv")
    node = one(*CONV, field(OP_TYPE, "Relu"), field(DOMAIN, "other"), field(DOMAIN, "my"))
    assert (node.op_type, node.domain) == ("Relu", "my")


def test_inputs_and_outputs_keep_their_order_and_their_gaps() -> None:
    node = one(
        field(INPUT, ""), field(OUTPUT, ""), field(INPUT, "x"), field(OUTPUT, "y"),
        field(INPUT, ""), field(OUTPUT, "z"), field(OUTPUT, ""), field(OP_TYPE, "LSTM"),
    )  # fmt: skip
    assert (node.inputs, node.outputs) == (("", "x", ""), ("", "y", "z", ""))


@pytest.mark.parametrize("fields", [[], [field(INPUT, "x")], [field(NAME, "n")]])
def test_a_node_may_lack_almost_everything(fields: list[bytes]) -> None:
    node = one(*fields)
    assert (node.op_type, node.outputs, node.attributes) == ("", ("",), ())
    assert one(*fields, field(OP_TYPE, "Relu")).op_type == "Relu"


def test_what_onnx_may_yet_add_to_a_node_is_passed_over() -> None:
    more = [field(10, "devices"), integer(11, 7), float32(12, 0.5), field(100, "x")]
    for data in ([*CONV, *more], [*more, *CONV], [*CONV[:2], *more, *CONV[2:]]):
        assert facts(one(*data)) == facts(one(*CONV))


# -- names of any length ---------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 126, 127, 128, 129, 255, 256, 300, 2040, 2048, 3000, 20000])
@pytest.mark.parametrize("letter", ["n", "é"])
@pytest.mark.parametrize("long", [OUTPUT, NAME, OP_TYPE])
def test_names_may_have_any_length(length: int, letter: str, long: int) -> None:
    # "é" is two bytes of UTF-8
    text = letter * (-(-length // len(letter.encode())))
    parts = {INPUT: "x", OUTPUT: "y", NAME: "relu", OP_TYPE: "Relu"} | {long: text}
    data = b"".join(field(number, part) for number, part in parts.items())
    proto, node = NodeProto.FromString(data), one(data)
    assert text in {node.name, node.op_type, *node.outputs}
    assert (node.name, node.op_type) == (proto.name, proto.op_type)
    assert (node.inputs, node.outputs) == (tuple(proto.input), tuple(proto.output))


@pytest.mark.parametrize("length", [127, 128, 300, 3000])
def test_tensors_are_connected_by_names_of_any_length(length: int) -> None:
    name = "t" * length
    graph = loaded(
        with_nodes(
            field(INPUT, "x") + field(OUTPUT, name) + field(OP_TYPE, "Relu"),
            field(INPUT, name) + field(OUTPUT, "y") + field(NAME, name) + field(OP_TYPE, "Neg"),
        )
    )
    assert [node.outputs for node in graph.nodes] == [(name,), ("y",)]
    assert graph.nodes[1].inputs == (name,)
    assert graph.nodes[1].name == name


@pytest.mark.parametrize("length", [127, 128, 240, 256, 300, 3000])
def test_attributes_may_have_names_and_texts_of_any_length(length: int) -> None:
    text = "t" * length
    attribute = field(A_NAME, text) + field(A_STRING, text) + integer(A_TYPE, 3)
    assert one(field(ATTRIBUTE, attribute)).attributes == ((text, text),)
    assert one(field(ATTRIBUTE, attribute), field(ATTRIBUTE, GROUP)).attributes == (
        (text, text), ("group", 2),
    )  # fmt: skip


# -- attributes in any form ------------------------------------------------------------------


def value(content: bytes, kind: int, *, kind_first: bool = False) -> AttributeValue:
    """The value of an attribute "a" given as bytes."""
    parts = [field(A_NAME, "a"), content, integer(A_TYPE, kind)]
    data = b"".join(reversed(parts) if kind_first else parts)
    ((name, read),) = one(field(OP_TYPE, "Foo"), field(ATTRIBUTE, data)).attributes
    assert name == "a"
    return read


@pytest.mark.parametrize("kind_first", [True, False])
@pytest.mark.parametrize(
    ("content", "kind", "read"),
    [
        (integer(A_INT, 5), AttributeProto.INT, 5),
        (integer(A_INT, -1), AttributeProto.INT, -1),
        (integer(A_INT, -(1 << 63)), AttributeProto.INT, -(1 << 63)),
        (integer(A_INT, (1 << 63) - 1), AttributeProto.INT, (1 << 63) - 1),
        (integer(A_INT, 5) + integer(A_INT, 6), AttributeProto.INT, 6),
        (b"", AttributeProto.INT, 0),
        (float32(A_FLOAT, 0.1), AttributeProto.FLOAT, float(np.float32(0.1))),
        (float32(A_FLOAT, 1) + float32(A_FLOAT, 2), AttributeProto.FLOAT, 2.0),
        (float32(A_FLOAT, float("-inf")), AttributeProto.FLOAT, float("-inf")),
        (b"", AttributeProto.FLOAT, 0.0),
        (field(A_STRING, "text"), AttributeProto.STRING, "text"),
        (field(A_STRING, "a") + field(A_STRING, "b"), AttributeProto.STRING, "b"),
        (b"", AttributeProto.STRING, ""),
        (integer(A_INTS, -1) + integer(A_INTS, 300), AttributeProto.INTS, (-1, 300)),
        (field(A_INTS, varint(-1) + varint(300)), AttributeProto.INTS, (-1, 300)),
        (integer(A_INTS, 1) + field(A_INTS, b"\2\3"), AttributeProto.INTS, (1, 2, 3)),
        (field(A_INTS, b"\2\3") + integer(A_INTS, 1), AttributeProto.INTS, (2, 3, 1)),
        (b"", AttributeProto.INTS, ()),
        (float32(A_FLOATS, 1) + float32(A_FLOATS, -2), AttributeProto.FLOATS, (1.0, -2.0)),
        (field(A_FLOATS, np.array([1, -2], "<f4").tobytes()), AttributeProto.FLOATS, (1.0, -2.0)),
        (b"", AttributeProto.FLOATS, ()),
        (field(A_STRINGS, "a") + field(A_STRINGS, ""), AttributeProto.STRINGS, ("a", "")),
        (b"", AttributeProto.STRINGS, ()),
        (integer(A_INT, 5) + float32(A_FLOAT, 2), AttributeProto.INT, 5),  # the type decides
    ],
)
def test_a_plain_attribute_is_what_onnx_reads(
    content: bytes, kind: int, read: AttributeValue, kind_first: bool
) -> None:
    proto = AttributeProto.FromString(content + integer(A_TYPE, kind) + field(A_NAME, "a"))
    onnx_reads = helper.get_attribute_value(proto)
    if kind == AttributeProto.STRING:
        assert onnx_reads.decode() == read
    elif kind == AttributeProto.STRINGS:
        assert tuple(text.decode() for text in onnx_reads) == read
    else:
        assert (tuple(onnx_reads) if isinstance(read, tuple) else onnx_reads) == read
    ours = value(content, kind, kind_first=kind_first)
    assert ours == read
    assert type(ours) is type(read)


@pytest.mark.parametrize("count", [60, 61, 62, 128, 1000, 5000])
@pytest.mark.parametrize("packed", [True, False])
def test_lists_may_be_longer_than_anything_that_is_shared(count: int, packed: bool) -> None:
    numbers = tuple(range(-count // 2, count // 2))
    content = (
        field(A_INTS, b"".join(map(varint, numbers)))
        if packed
        else b"".join(integer(A_INTS, number) for number in numbers)
    )
    assert value(content, AttributeProto.INTS) == numbers


@pytest.mark.parametrize(
    ("content", "read"),
    [
        (integer(A_INT, 2), 2),
        (float32(A_FLOAT, 0.5), 0.5),
        (field(A_STRING, "t"), "t"),
        (integer(A_INTS, 1) + integer(A_INTS, 2), (1, 2)),
        (field(A_INTS, b"\1\2"), (1, 2)),
        (float32(A_FLOATS, 1), (1.0,)),
        (field(A_STRINGS, "a"), ("a",)),
        (b"", ()),
    ],
)
@pytest.mark.parametrize("kind", [b"", integer(A_TYPE, 0), integer(A_TYPE, 99)])
def test_without_a_known_type_the_field_that_is_set_tells_it(
    content: bytes, read: AttributeValue, kind: bytes
) -> None:
    node = one(field(ATTRIBUTE, field(A_NAME, "a") + content + kind))
    assert node.attributes == (("a", read),)


def test_types_are_read_from_attributes() -> None:
    # TypeProto.tensor_type (1) {elem_type (1), shape (2) {dim (1) {dim_param (2)}}}
    kind = field(1, integer(1, 1) + field(2, field(1, field(2, "n"))))
    expected = ValueType("tensor", DType.FLOAT, (SymbolicDim("n"),))
    assert value(field(14, kind), AttributeProto.TYPE_PROTO) == expected
    assert value(b"", AttributeProto.TYPE_PROTO) == ValueType("opaque")
    several = field(15, kind) + field(15, b"")
    assert value(several, AttributeProto.TYPE_PROTOS) == (expected, ValueType("opaque"))


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (A_TENSOR, AttributeProto.TENSOR),
        (A_GRAPH, AttributeProto.GRAPH),
        (22, AttributeProto.SPARSE_TENSOR),
        (14, AttributeProto.TYPE_PROTO),
    ],
)
def test_a_value_that_may_stand_once_and_stands_twice_is_refused(number: int, kind: int) -> None:
    with pytest.raises(ModelUnreadableError, match="a second time"):
        value(field(number, b"") + field(number, b""), kind)


# -- nodes that say the same -----------------------------------------------------------------


def test_nodes_that_say_the_same_keep_their_own_names() -> None:
    graph = loaded(
        with_nodes(
            *(
                field(INPUT, "x")
                + field(OUTPUT, f"y{i}")
                + field(NAME, f"n{i}")
                + b"".join(CONV[3:])
                for i in range(3)
            )
        )
    )
    assert [node.name for node in graph.nodes] == ["n0", "n1", "n2"]
    assert [node.outputs for node in graph.nodes] == [("y0",), ("y1",), ("y2",)]
    assert {node.attributes for node in graph.nodes} == {(("pads", (1, 1, 1, 1)), ("group", 2))}


def test_nodes_that_say_the_same_are_told_apart_by_what_they_say_otherwise() -> None:
    def node(index: int, *rest: bytes) -> bytes:
        return b"".join([field(INPUT, "x"), field(OUTPUT, f"y{index}"), *rest])

    relu, scope = field(OP_TYPE, "Relu"), entry(SCOPES, "['', 'a', 'a.b', 'relu']")
    graph = loaded(
        with_nodes(
            node(0, relu),
            node(1, relu, scope),
            node(2, relu),
            node(3, relu, field(DOC, "other"), entry(SCOPES, "['', 'c', 'relu']")),
            node(4, field(NAME, "d/relu"), relu),
            node(5, relu, entry("key", "value")),
            node(6, relu, field(DOMAIN, "my")),
            node(7, relu, field(DOMAIN, "ai.onnx")),
            node(8, field(OP_TYPE, "Neg"), scope),
        )
    )
    assert [node.scope for node in graph.nodes] == ["", "a/b", "", "c", "d", "", "", "", "a/b"]
    assert [node.domain for node in graph.nodes] == ["", "", "", "", "", "", "my", "", ""]
    assert [node.op_type for node in graph.nodes] == ["Relu"] * 8 + ["Neg"]


def test_a_name_that_is_cut_is_refused_whatever_was_read_before() -> None:
    # after its names the first node says nothing, so that nothing is what a kind is known by;
    # nothing is left of the second one as well, whose name ends 47 bytes behind it
    says_nothing = field(INPUT, "x") + field(OUTPUT, "a") + field(DOC, "d")
    cut = field(INPUT, "a") + field(OUTPUT, "y") + bytes([NAME << 3 | 2, 50]) + b"abc"
    assert [node.op_type for node in loaded(with_nodes(says_nothing)).nodes] == [""]
    with pytest.raises(ModelUnreadableError, match="needs 47 bytes more"):
        loaded(with_nodes(says_nothing, cut))


def test_a_node_that_is_cut_takes_nothing_from_the_node_behind_it() -> None:
    # the next node's tag is that of an input, and its bytes would do for the 50 that are missing
    behind = field(INPUT, "a") + field(OUTPUT, "y") + field(OP_TYPE, "Relu") + field(DOC, "d" * 99)
    names_only = field(INPUT, "x"), field(OUTPUT, "a")
    first, second = loaded(with_nodes(b"".join(names_only), behind)).nodes
    assert (first.inputs, first.outputs, first.op_type) == (("x",), ("a",), "")
    assert (second.inputs, second.outputs, second.op_type) == (("a",), ("y",), "Relu")
    for tag in (INPUT, OUTPUT, NAME):
        cut = b"".join(names_only) + bytes([tag << 3 | 2, 50]) + b"abc"
        with pytest.raises(ModelUnreadableError, match="needs 47 bytes more"):
            loaded(with_nodes(cut, behind))


@pytest.mark.parametrize("window", [2048, 2500, 1 << 16])
def test_nodes_are_the_same_in_windows_of_any_size(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # nodes of 30 to 850 bytes; two of every ten have 3,000 and more, and are read where they lie
    monkeypatch.setattr("onnxroof.graph.nodes._WINDOW_BYTES", window)
    names = [f"{at}/{'n' * (3000 if at % 10 == 9 else 7 * at)}" for at in range(40)]
    written = [
        field(INPUT, before) + field(OUTPUT, name) + field(NAME, name) + field(OP_TYPE, "Relu")
        for before, name in zip(["x", *names], names, strict=False)
    ]
    nodes = loaded(with_nodes(*written)).nodes
    assert [(node.inputs, node.outputs, node.name) for node in nodes] == [
        ((before,), (name,), name) for before, name in zip(["x", *names], names, strict=False)
    ]


@pytest.mark.parametrize(
    "modules", [("a",), ("a", "b" * 200), ("a", "b" * 3000)], ids=["few", "many", "more"]
)
def test_a_recorded_scope_may_have_any_length(modules: tuple[str, ...]) -> None:
    written = str(["", ".".join(modules), "relu"])
    node = one(*CONV, entry("namespace", "x" * 200), entry(SCOPES, written))
    assert node.scope == "/".join(modules)


# -- Constant nodes --------------------------------------------------------------------------


def constant(name: str, **attribute: object) -> NodeProto:
    return helper.make_node("Constant", [], [name], **attribute)


EQUAL = [
    pytest.param({"value": floats("t", 3)}, id="tensor"),
    pytest.param({"value_int": 7}, id="integer"),
    pytest.param({"value_floats": [0.5, 1.5]}, id="floats"),
    pytest.param({"value": floats("t", 300)}, id="large tensor"),
]


def stored(graph: Graph) -> tuple[list[Constant], int]:
    """The constants of a graph and its bodies, and how many tensors those are."""
    found = list(graph.constants.values())
    for node in graph.nodes:
        for _, body in node.subgraphs:
            found += stored(body)[0]
    return found, len({id(constant.identity) for constant in found})


def fn(name: str, *nodes: NodeProto) -> onnx.FunctionProto:
    relu = helper.make_node("Relu", ["a"], ["b"])
    return helper.make_function("my", name, ["a"], ["b"], [*nodes, relu], IMPORTS)


def call(name: str, read: str, made: str, function: str = "F") -> NodeProto:
    return helper.make_node(function, [read], [made], domain="my", name=name)


def body_node(*nodes: NodeProto, made: str = "i") -> NodeProto:
    result = helper.make_tensor_value_info("p", TensorProto.FLOAT, None)
    relu = helper.make_node("Neg", ["a"], ["p"])
    body = helper.make_graph([*nodes, relu], "body", [], [result])
    return helper.make_node("Foo", [], [made], domain="my", body=body)


@pytest.mark.parametrize("attribute", EQUAL)
def test_equal_constant_nodes_of_a_graph_are_two_stored_tensors(
    attribute: dict[str, object],
) -> None:
    nodes = [constant("c1", **attribute), constant("c2", **attribute)]
    data = model_of(graph_of([*nodes, helper.make_node("Relu", ["x"], ["y"])]))
    found, tensors = stored(loaded(data))
    assert [item.name for item in found] == ["c1", "c2"]
    assert tensors == 2
    assert not any(item.renamed for item in found)
    assert (found[0] == found[1]) == (found[0].raw is not None)
    if found[0].payload is not None:  # large ones have places of their own
        assert found[0].payload != found[1].payload


@pytest.mark.parametrize("attribute", EQUAL)
def test_equal_constant_nodes_of_two_files_are_their_own(attribute: dict[str, object]) -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    first, second = (
        loaded(model_of(graph_of([constant(name, **attribute), relu]))).constants[name]
        for name in ("c1", "a name of another length")
    )
    assert (first.name, second.name) == ("c1", "a name of another length")
    assert first.identity is not second.identity
    assert (first == second) == (first.raw is not None)
    if first.payload is not None:  # where it lies is known for each file
        assert first.payload != second.payload


def test_external_data_of_a_constant_node_are_noted_for_every_file() -> None:
    tensor = TensorProto(name="t", data_type=TensorProto.FLOAT, dims=[300])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    nodes = [constant("c", value=tensor), helper.make_node("Relu", ["x"], ["y"])]
    files = [load_model(model_of(graph_of(nodes))).external_files for _ in range(2)]
    assert files == [("weights.bin",)] * 2


def test_a_tensor_attribute_is_read_once_for_all_nodes_that_say_the_same() -> None:
    def fill(made: str, value: float) -> NodeProto:
        tensor = helper.make_tensor("v", TensorProto.FLOAT, [1], [value])
        return helper.make_node("ConstantOfShape", ["x"], [made], value=tensor)

    nodes = [fill("a", 0.5), fill("b", 0.5), fill("y", 2.0)]
    held = [node.attributes for node in loaded(model_of(graph_of(nodes))).nodes]
    values = [attributes[0][1].value.tolist() for attributes in held]  # type: ignore[union-attr]
    assert values == [[0.5], [0.5], [2.0]]
    assert held[0] is held[1]


def test_a_body_is_each_node_s_own_though_they_say_the_same() -> None:
    nodes = [body_node(constant("a", value_int=1), made=made) for made in ("i", "j")]
    first, second = loaded(model_of(graph_of([*nodes, call("n", "x", "y", "Foo")]))).nodes[:2]
    assert first.subgraphs[0][1] is not second.subgraphs[0][1]


@pytest.mark.parametrize("attribute", EQUAL)
def test_a_constant_node_of_a_function_called_twice_is_one_stored_tensor(
    attribute: dict[str, object],
) -> None:
    calls = [call("one", "x", "h"), call("two", "h", "y")]
    data = model_of(graph_of(calls), (fn("F", constant("c", **attribute)),))
    found, tensors = stored(loaded(data))
    assert [item.name for item in found] == ["one/c", "two/c"]
    assert tensors == 1
    assert [item.renamed for item in found] == [False, True]
    assert found[0].payload == found[1].payload


@pytest.mark.parametrize("attribute", EQUAL)
def test_equal_constant_nodes_of_a_function_are_two_stored_tensors(
    attribute: dict[str, object],
) -> None:
    function = fn("F", constant("c1", **attribute), constant("c2", **attribute))
    calls = [call("one", "x", "h"), call("two", "h", "y")]
    found, tensors = stored(loaded(model_of(graph_of(calls), (function,))))
    assert [item.name for item in found] == ["one/c1", "one/c2", "two/c1", "two/c2"]
    assert tensors == 2
    assert [item.renamed for item in found] == [False, False, True, True]


@pytest.mark.parametrize("attribute", EQUAL)
def test_equal_constant_nodes_of_two_functions_and_the_graph_are_stored_tensors_each(
    attribute: dict[str, object],
) -> None:
    nodes = [
        constant("c0", **attribute), call("one", "x", "h"), call("two", "h", "i", "G"),
        call("three", "i", "y"),
    ]  # fmt: skip
    functions = (fn("F", constant("c", **attribute)), fn("G", constant("c", **attribute)))
    found, tensors = stored(loaded(model_of(graph_of(nodes), functions)))
    assert [item.name for item in found] == ["c0", "one/c", "two/c", "three/c"]
    assert tensors == 3
    assert [item.renamed for item in found] == [False, False, False, True]


@pytest.mark.parametrize("attribute", EQUAL)
def test_the_same_holds_in_a_body_inside_a_function(attribute: dict[str, object]) -> None:
    # c0 in the graph; in each call of F one in the function and two in its node's body
    body = body_node(constant("c2", **attribute), constant("c3", **attribute))
    function = fn("F", constant("c1", **attribute), body)
    nodes = [constant("c0", **attribute), call("one", "x", "h"), call("two", "h", "y")]
    found, tensors = stored(loaded(model_of(graph_of(nodes), (function,))))
    names = ["c0", "one/c1", "two/c1", "one/c2", "one/c3", "two/c2", "two/c3"]
    assert [item.name for item in found] == names
    assert tensors == 4
    assert [item.name for item in found if item.renamed] == ["two/c1", "two/c2", "two/c3"]


@pytest.mark.parametrize("attribute", EQUAL)
def test_equal_constant_nodes_of_a_graph_and_its_bodies_are_stored_tensors_each(
    attribute: dict[str, object],
) -> None:
    bodies = [
        body_node(constant("c", **attribute), constant("d", **attribute), made=made)
        for made in ("i", "y")
    ]
    nodes = [helper.make_node("Relu", ["x"], ["a"]), constant("c0", **attribute), *bodies]
    found, tensors = stored(loaded(model_of(graph_of(nodes))))
    assert [item.name for item in found] == ["c0", "c", "d", "c", "d"]
    assert tensors == 5
    assert not any(item.renamed for item in found)


def test_initializers_of_a_body_in_a_function_called_twice_are_stored_once() -> None:
    sparse = helper.make_sparse_tensor(
        floats("s", 3), helper.make_tensor("", TensorProto.INT64, [3], [0, 9, 18]), [8, 8]
    )
    body = body_node()
    body.attribute[0].g.initializer.append(floats("w", 3))
    body.attribute[0].g.sparse_initializer.append(sparse)
    calls = [call("one", "x", "h"), call("two", "h", "y")]
    found, tensors = stored(loaded(model_of(graph_of(calls), (fn("F", body),))))
    assert [item.name for item in found] == ["one/w", "one/s", "two/w", "two/s"]
    assert tensors == 2
    assert [item.renamed for item in found] == [False, False, True, True]


def test_a_constant_node_may_hold_its_value_before_its_output() -> None:
    attribute = field(A_NAME, "value_int") + integer(A_INT, 3) + integer(A_TYPE, 2)
    data = with_nodes(
        field(ATTRIBUTE, attribute) + field(OP_TYPE, "Constant") + field(OUTPUT, "c1"),
        field(OUTPUT, "c2") + field(OP_TYPE, "Constant") + field(ATTRIBUTE, attribute),
        field(INPUT, "c1") + field(INPUT, "c2") + field(OUTPUT, "y") + field(OP_TYPE, "Add"),
    )
    constants = loaded(data).constants
    assert list(constants) == ["c1", "c2"]
    assert [item.value for item in constants.values()] == [3, 3]


# -- broken nodes ----------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [CONV, [*CONV, field(DOMAIN, "my")], CONV[::-1], CONV[2:]])
def test_a_node_cut_at_any_byte_is_what_onnx_says_of_it(fields: list[bytes]) -> None:
    data = b"".join(fields)
    for length in range(len(data) + 1):
        try:
            proto = NodeProto.FromString(data[:length])
        except Exception:  # noqa: BLE001 - protobuf's own error, in whichever of its backends
            with pytest.raises(ModelUnreadableError):
                one(data[:length])
            continue
        node = one(data[:length])
        assert (node.name, node.op_type) == (proto.name, proto.op_type)
        assert node.inputs == tuple(proto.input)
        assert node.outputs == (tuple(proto.output) or ("",))
        assert [name for name, _ in node.attributes] == [a.name for a in proto.attribute]


@pytest.mark.parametrize("number", [INPUT, OUTPUT, NAME, OP_TYPE, ATTRIBUTE, DOC, DOMAIN, METADATA])
@pytest.mark.parametrize("claimed", [b"\x05", b"\xff\x01", b"\xff\xff\x01", b"\xff" * 9 + b"\x01"])
def test_a_field_must_not_reach_into_the_next_node(number: int, claimed: bytes) -> None:
    # The first node's last field claims more than the node has; the file goes on after it.
    broken = b"".join(CONV) + bytes([number << 3 | 2]) + claimed + b"abc"
    good = field(INPUT, "y") + field(OUTPUT, "z") + field(OP_TYPE, "Relu")
    for nodes in ((broken, good), (broken[-15:], good), (good, broken)):
        with pytest.raises(OnnxroofError):
            load_model(with_nodes(*nodes))
    with pytest.raises(ModelUnreadableError, match="byte"):
        load_model(with_nodes(bytes([number << 3 | 2]) + claimed + b"abc", good))


def test_a_name_that_is_not_utf8_is_shown_with_escapes_in_any_order() -> None:
    odd = field(NAME, b"gr\xf6n")
    for fields in ([*CONV[:2], odd, *CONV[3:]], [odd, *CONV[:2], *CONV[3:]]):
        model = load_model(with_nodes(b"".join(fields)))
        assert model.graph.nodes[0].name == "gr\\xf6n"
        assert model.assumptions == ("names that are not UTF-8 text are shown with escapes",)


def test_a_body_is_read_in_any_order_too() -> None:
    # GraphProto: 1 node, 2 name, 12 output, written backwards
    inner = field(INPUT, "x") + field(OUTPUT, "p") + field(OP_TYPE, "Relu")
    body = field(12, field(1, "p")) + field(2, "body") + field(1, inner)
    attribute = integer(A_TYPE, 5) + field(A_GRAPH, body) + field(A_NAME, "then_branch")
    node = one(field(ATTRIBUTE, attribute), field(OP_TYPE, "If"), field(OUTPUT, "y"))
    ((name, graph),) = node.subgraphs
    assert (name, graph.name, graph.outputs, graph.captures) == (
        "then_branch", "body", ("p",), ("x",),
    )  # fmt: skip


def test_a_reference_outside_a_function_stands_for_nothing() -> None:
    reference = field(A_NAME, "value_int") + integer(A_TYPE, 2) + field(A_REFERENCE, "given")
    with pytest.raises(InvalidGraphError, match="no value"):
        load_model(
            with_nodes(
                field(OUTPUT, "c") + field(OP_TYPE, "Constant") + field(ATTRIBUTE, reference)
            )
        )


@pytest.mark.parametrize("written", [b"", field(2, "g")])
def test_a_graph_of_nothing_is_refused(written: bytes) -> None:
    with pytest.raises(InvalidGraphError, match="empty"):
        load_model(around(written))
