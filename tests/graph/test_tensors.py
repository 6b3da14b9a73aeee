from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

import onnxroof
from onnxroof.errors import InvalidGraphError, ModelUnreadableError
from onnxroof.graph.load import load_model
from onnxroof.graph.tensors import LARGEST_KEPT_BYTES
from onnxroof.graph.types import Constant, Payload
from tests.graph.written import (
    LARGE,
    SMALL,
    field,
    float32,
    float64,
    floats,
    graph_of,
    integer,
    loaded,
    model_of,
    shuffled,
    varint,
    with_tensors,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.graph.types import Graph

DIMS, TYPE, FLOATS, INT32S, INT64S, NAME, RAW, DOUBLES, UINT64S = 1, 2, 4, 5, 7, 8, 9, 10, 11
DOC, EXTERNAL, LOCATION = 12, 13, 14
"""Fields of a TensorProto in onnx.proto."""


def bytes_at(data: bytes, constant: Constant) -> bytes:
    """What lies where the constant's bytes are said to be."""
    payload = constant.payload
    assert payload is not None
    assert payload.file is None
    assert payload.length_bytes is not None
    return data[payload.offset_bytes : payload.offset_bytes + payload.length_bytes]


def encoding(constant: Constant) -> str:
    payload = constant.payload
    assert payload is not None
    return payload.encoding


def one(tensor: bytes) -> Constant:
    """The only constant of a model whose initializer is given as bytes."""
    (constant,) = loaded(with_tensors(tensor)).constants.values()
    return constant


def facts(constant: Constant) -> tuple[object, ...]:
    """What is known of a constant; its payload counted from the beginning of the file is not."""
    value = constant.value
    payload = constant.payload
    return (
        constant.name,
        constant.dtype,
        constant.shape,
        constant.stored_bytes,
        constant.raw,
        None if value is None else value.tolist(),
        payload and (payload.file, payload.length_bytes, payload.encoding),
    )


# -- what stays in the file ------------------------------------------------------------------


def test_a_large_initializer_stays_in_the_file_and_its_place_is_kept() -> None:
    data = model_of(graph_of(initializer=[floats("w", LARGE)]))
    constant = loaded(data).constants["w"]
    assert (constant.name, constant.shape, constant.stored_bytes) == ("w", (LARGE,), 4 * LARGE)
    assert (constant.raw, constant.value, constant.may_have_value) == (None, None, False)
    offset = data.index(np.arange(LARGE, dtype="<f4").tobytes())
    assert constant.payload == Payload(None, offset, 4 * LARGE, "raw")


def test_a_tensor_of_a_kilobyte_is_kept() -> None:
    count = LARGEST_KEPT_BYTES // 4
    tensors = [floats("kept", count), floats("left", count + 1)]
    constants = loaded(model_of(graph_of(initializer=tensors))).constants
    assert constants["kept"].raw == np.arange(count, dtype="<f4").tobytes()
    assert constants["kept"].payload is None
    assert constants["left"].raw is None
    assert constants["left"].payload is not None


def test_a_documentation_changes_nothing() -> None:
    tensor = floats("w", LARGE)
    plain = one(tensor.SerializeToString())
    tensor.doc_string = "a weight " * 200
    assert facts(one(tensor.SerializeToString())) == facts(plain)


def test_tensors_keep_their_own_places() -> None:
    tensors = [
        numpy_helper.from_array(np.full(LARGE + i, i, np.float32), f"w{i}") for i in range(5)
    ]
    data = model_of(graph_of(initializer=tensors))
    constants = onnxroof.analyze(data).model.graph.constants
    for i in range(5):
        assert bytes_at(data, constants[f"w{i}"]) == np.full(LARGE + i, i, "<f4").tobytes()


def my(**attributes: object) -> onnx.NodeProto:
    return helper.make_node("Foo", ["x"], ["y"], domain="my", **attributes)


def several(kind: AttributeProto.AttributeType, field_name: str, item: object) -> onnx.NodeProto:
    """A node with an attribute that is a list of two equal items."""
    node = my()
    attribute = AttributeProto(name="list", type=kind)
    getattr(attribute, field_name).extend([item, item])
    node.attribute.append(attribute)
    return node


def places() -> Iterator[tuple[str, bytes, str]]:
    """Every place of a model where a large tensor may stand, and the name it has there."""
    large = floats("w", LARGE)
    relu = helper.make_node("Relu", ["x"], ["y"])
    constant = helper.make_node("Constant", [], ["c"], value=large)
    sparse = helper.make_sparse_tensor(
        floats("s", LARGE), numpy_helper.from_array(np.arange(SMALL), "i"), [1000]
    )
    held = helper.make_node("Constant", [], ["c"], sparse_value=sparse)
    body = graph_of(initializer=[large])
    nested = graph_of([my(body=body)])
    yield "initializer", model_of(graph_of(initializer=[large])), "w"
    yield "constant", model_of(graph_of([constant, relu])), "c"
    yield "attribute", model_of(graph_of([my(value=large)])), "value"
    yield (
        "list of tensors",
        model_of(graph_of([several(AttributeProto.TENSORS, "tensors", large)])),
        "list",
    )
    yield "subgraph", model_of(graph_of([my(body=body)])), "w"
    yield "list of subgraphs", model_of(graph_of([my(bodies=[body])])), "w"
    yield "nested", model_of(graph_of([my(body=nested)])), "w"
    yield "sparse initializer", model_of(graph_of(sparse_initializer=[sparse])), "s"
    yield "sparse constant", model_of(graph_of([held, relu])), "c"
    yield "sparse attribute", model_of(graph_of([my(value=sparse)])), "value"
    yield (
        "list of sparse tensors",
        model_of(graph_of([several(AttributeProto.SPARSE_TENSORS, "sparse_tensors", sparse)])),
        "list",
    )
    imports = [helper.make_opsetid("", 21)]
    inner = helper.make_node("Relu", ["a"], ["b"])
    function = helper.make_function("my", "F", ["a"], ["b"], [constant, inner], imports)
    call = helper.make_node("F", ["x"], ["y"], domain="my", name="call")
    yield "function", model_of(graph_of([call]), (function,)), "call/c"
    refers = helper.make_node("Constant", [], ["c"])
    refers.attribute.append(
        AttributeProto(name="value", type=AttributeProto.TENSOR, ref_attr_name="w")
    )
    with_default = helper.make_function(
        "my", "F", ["a"], ["b"], [refers, inner], imports,
        attribute_protos=[helper.make_attribute("w", large)],
    )  # fmt: skip
    yield (
        "default of a function attribute",
        model_of(graph_of([call]), (with_default,)),
        "call/c",
    )
    takes = helper.make_function("my", "F", ["a"], ["b"], [refers, inner], imports, ["w"])
    gives = helper.make_node("F", ["x"], ["y"], domain="my", name="call", w=large)
    yield "attribute of a call", model_of(graph_of([gives]), (takes,)), "call/c"


def constants_of(graph: Graph) -> Iterator[Constant]:
    """All constants of a graph, its attributes and its bodies."""
    yield from graph.constants.values()
    for node in graph.nodes:
        for _, value in node.attributes:
            yield from (
                item
                for item in (value if isinstance(value, tuple) else (value,))
                if isinstance(item, Constant)
            )
        for _, body in node.subgraphs:
            yield from constants_of(body)


@pytest.mark.parametrize(
    ("data", "name"), [pytest.param(data, name, id=place) for place, data, name in places()]
)
def test_a_large_tensor_is_found_wherever_it_stands(data: bytes, name: str) -> None:
    found = list(constants_of(loaded(data)))
    assert {constant.name for constant in found} == {name}
    for constant in found:
        assert encoding(constant) == "raw"
        assert bytes_at(data, constant) == np.arange(LARGE, dtype="<f4").tobytes()
        assert constant.value is None
    assert len({id(constant.identity) for constant in found}) == len(found)
    assert len({constant.payload for constant in found}) == len(found)


def test_indices_of_a_sparse_tensor_are_counted_and_stay_in_the_file() -> None:
    # 8 float32 values are 32 bytes; 300 int64 indices are 2400.
    sparse = helper.make_sparse_tensor(
        floats("s", SMALL), numpy_helper.from_array(np.arange(LARGE), "i"), [1000]
    )
    constant = loaded(model_of(graph_of(sparse_initializer=[sparse]))).constants["s"]
    assert (constant.stored_bytes, constant.nonzeros) == (32 + 2400, SMALL)
    assert (constant.shape, constant.payload) == ((1000,), None)


@pytest.mark.parametrize(
    ("name", "dtype", "layout"),
    [
        ("float_data", TensorProto.FLOAT, "<f4"),
        ("double_data", TensorProto.DOUBLE, "<f8"),
    ],
)
def test_large_typed_data_stay_with_the_name_of_their_field(
    name: str, dtype: int, layout: str
) -> None:
    # Packed fixed-width numbers are the elements themselves, little-endian, one after the other.
    tensor = helper.make_tensor("w", dtype, [LARGE], list(range(LARGE)))
    data = with_tensors(tensor.SerializeToString())
    constant = loaded(data).constants["w"]
    assert encoding(constant) == name
    assert bytes_at(data, constant) == np.arange(LARGE, dtype=layout).tobytes()


def test_large_packed_varints_stay_too() -> None:
    # 600 numbers of two bytes each
    numbers = list(range(200, 800))
    tensor = helper.make_tensor("w", TensorProto.INT64, [600], numbers)
    data = with_tensors(tensor.SerializeToString())
    constant = loaded(data).constants["w"]
    assert (encoding(constant), len(bytes_at(data, constant))) == ("int64_data", 1200)
    read = TensorProto.FromString(field(INT64S, bytes_at(data, constant)))
    assert list(read.int64_data) == numbers


def unpacked(count: int) -> bytes:
    """A TensorProto whose floats stand one by one, as old writers do: 5 bytes each."""
    head = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[count]).SerializeToString()
    return head + b"".join(float32(FLOATS, i) for i in range(count))


def test_large_unpacked_data_stay_as_a_whole_message() -> None:
    data = with_tensors(unpacked(LARGE))
    constant = loaded(data).constants["w"]
    assert (encoding(constant), constant.value) == ("message", None)
    read = TensorProto.FromString(bytes_at(data, constant))
    assert list(read.float_data) == list(range(LARGE))


def test_small_unpacked_data_are_kept() -> None:
    constant = one(unpacked(SMALL))
    assert constant.value is not None
    assert (constant.value.tolist(), constant.payload) == (list(range(SMALL)), None)


@pytest.mark.parametrize(
    ("texts", "kept_as"),
    [([b"twenty bytes of text"] * 100, "message"), ([b"x" * 2000], "string_data")],
)
def test_large_texts_stay_too(texts: list[bytes], kept_as: str) -> None:
    tensor = helper.make_tensor("w", TensorProto.STRING, [len(texts)], texts)
    constant = one(tensor.SerializeToString())
    assert (encoding(constant), constant.stored_bytes) == (kept_as, None)


def test_small_texts_have_no_value_and_no_place() -> None:
    tensor = helper.make_tensor("w", TensorProto.STRING, [2], [b"a", b"b"])
    constant = one(tensor.SerializeToString())
    assert (constant.value, constant.payload, constant.shape) == (None, None, (2,))


# -- fields in any order and form ------------------------------------------------------------


def fields_of(tensor: TensorProto) -> list[bytes]:
    """The fields of a tensor one by one, repeated ones unpacked where they may be."""
    fields = [integer(DIMS, dim) for dim in tensor.dims]
    fields.append(integer(TYPE, tensor.data_type))
    fields.append(field(NAME, tensor.name))
    if tensor.raw_data:
        fields.append(field(RAW, tensor.raw_data))
    return fields


@pytest.mark.parametrize("count", [0, 2, LARGE])
@pytest.mark.parametrize("seed", range(5))
def test_fields_may_stand_in_any_order(count: int, seed: int) -> None:
    tensor = floats("w", count)
    expected = facts(one(tensor.SerializeToString()))
    fields = [*fields_of(tensor), field(DOC, "a weight")]
    assert facts(one(shuffled(fields, seed))) == expected


@pytest.mark.parametrize(
    "fields",
    [
        [field(NAME, "w"), integer(DIMS, 2), integer(DIMS, 3), integer(TYPE, 3)],
        [integer(TYPE, 3), field(NAME, "w"), integer(DIMS, 2), integer(DIMS, 3)],
        [field(DIMS, b"\x02\x03"), integer(TYPE, 3), field(NAME, "w")],
        [field(NAME, "w"), field(DIMS, b"\x02\x03"), integer(TYPE, 3)],
        [field(DIMS, b"\x02"), integer(DIMS, 3), integer(TYPE, 3), field(NAME, "w")],
        [integer(DIMS, 2), field(DIMS, b"\x03"), integer(TYPE, 3), field(NAME, "w")],
        [integer(DIMS, 2), integer(TYPE, 3), integer(DIMS, 3), field(NAME, "w")],
        [integer(DIMS, 2), integer(DIMS, 3), integer(TYPE, 1), integer(TYPE, 3), field(NAME, "w")],
        [integer(DIMS, 2), integer(DIMS, 3), integer(TYPE, 3), field(NAME, "v"), field(NAME, "w")],
        [integer(DIMS, 2), integer(DIMS, 3), b"\x10\x83\x00", field(NAME, "w")],  # 3 in two bytes
        [b"\x08\x82\x80\x00", integer(DIMS, 3), integer(TYPE, 3), field(NAME, "w")],  # 2 in three
    ],
)
def test_dimensions_type_and_name_are_what_onnx_reads(fields: list[bytes]) -> None:
    data = b"".join([*fields, field(RAW, b"\1\2\3\4\5\6")])
    proto = TensorProto.FromString(data)
    assert (list(proto.dims), proto.data_type, proto.name) == ([2, 3], TensorProto.INT8, "w")
    constant = one(data)
    assert constant.value is not None
    assert (
        constant.value.tolist() == numpy_helper.to_array(proto).tolist() == [[1, 2, 3], [4, 5, 6]]
    )
    assert (constant.name, constant.stored_bytes) == ("w", 6)


def test_of_a_name_written_twice_the_last_counts_even_if_it_is_empty() -> None:
    data = integer(TYPE, 3) + field(NAME, "w") + field(RAW, b"\1") + field(NAME, "")
    assert not TensorProto.FromString(data).name
    assert not one(data).name


@pytest.mark.parametrize("length", [1, 127, 128, 300, 480, 512, 600, 3000])
@pytest.mark.parametrize("data_bytes", [0, 1, 100, 480, 1000, 1200])
@pytest.mark.parametrize("last", ["name", "data"])
def test_a_name_may_have_any_length_beside_data_of_any_size(
    length: int, data_bytes: int, last: str
) -> None:
    # Quantizers write int8 zero points as int32_data, which stand before the name.
    zeros = bytes(data_bytes)
    parts = [field(INT32S, zeros)] if last == "name" else [field(RAW, zeros)]
    parts.insert(len(parts) if last == "name" else 0, field(NAME, "n" * length))
    data = integer(DIMS, data_bytes) + integer(TYPE, 3) + b"".join(parts)
    assert TensorProto.FromString(data).name == "n" * length
    model = with_tensors(data, floats("after", 1).SerializeToString())
    first, second = loaded(model).constants.values()
    assert (first.name, first.shape, second.name) == ("n" * length, (data_bytes,), "after")
    if data_bytes > LARGEST_KEPT_BYTES:
        assert bytes_at(model, first) == zeros
    else:
        assert first.value is not None
        assert first.value.tolist() == [0] * data_bytes


def test_equal_heads_do_not_share_more_than_type_and_shape() -> None:
    tensors = [floats(name, count) for name, count in (("a", 3), ("b", 3), ("c", 4))]
    first, second, third = loaded(model_of(graph_of(initializer=tensors))).constants.values()
    assert [c.name for c in (first, second, third)] == ["a", "b", "c"]
    assert first == second != third
    assert first.identity is not second.identity
    assert (first.shape, third.shape) == ((3,), (4,))


# -- values in typed fields ------------------------------------------------------------------


def typed_cases() -> Iterator[tuple[str, int, list[bytes], bytes]]:
    """(what, type, elements one by one, elements packed) of three elements each."""
    for dtype, number, write, layout in (
        (TensorProto.FLOAT, FLOATS, float32, "<f4"),
        (TensorProto.DOUBLE, DOUBLES, float64, "<f8"),
    ):
        values = [0.5, -2.0, 1e30]
        packed = np.array(values, layout).tobytes()
        yield (
            TensorProto.DataType.Name(dtype),
            dtype,
            [write(number, v) for v in values],
            field(number, packed),
        )
    for dtype, number, integers in (
        (TensorProto.INT32, INT32S, [-1, -(1 << 31), 7]),
        (TensorProto.INT16, INT32S, [-1, -(1 << 15), 7]),
        (TensorProto.INT8, INT32S, [-1, -128, 127]),
        (TensorProto.UINT16, INT32S, [65535, 0, 7]),
        (TensorProto.UINT8, INT32S, [255, 0, 7]),
        (TensorProto.BOOL, INT32S, [1, 0, 1]),
        (TensorProto.FLOAT16, INT32S, [0x3800, 0xBC00, 0x7C00]),  # 0.5, -1, infinity
        (TensorProto.INT64, INT64S, [-1, -(1 << 63), (1 << 63) - 1]),
        (TensorProto.UINT64, UINT64S, [(1 << 64) - 1, 1 << 63, 7]),
        (TensorProto.UINT32, UINT64S, [(1 << 32) - 1, 1 << 31, 7]),
    ):
        yield (
            TensorProto.DataType.Name(dtype),
            dtype,
            [integer(number, value) for value in integers],
            field(number, b"".join(map(varint, integers))),
        )


@pytest.mark.parametrize(
    ("dtype", "single", "packed"), [pytest.param(*case[1:], id=case[0]) for case in typed_cases()]
)
@pytest.mark.parametrize("form", ["packed", "unpacked", "mixed"])
@pytest.mark.parametrize("name_first", [True, False])
def test_small_typed_data_are_what_onnx_reads(
    dtype: int, single: list[bytes], packed: bytes, form: str, name_first: bool
) -> None:
    data = packed if form == "packed" else b"".join(single)
    count = 3
    if form == "mixed":
        data, count = packed + data, 6
    parts = [field(NAME, "w"), data] if name_first else [data, field(NAME, "w")]
    written = b"".join([integer(DIMS, count), integer(TYPE, dtype), *parts])
    expected = numpy_helper.to_array(TensorProto.FromString(written))
    constant = one(written)
    assert constant.value is not None
    assert constant.value.dtype == expected.dtype
    assert constant.value.tolist() == expected.tolist()
    assert constant.raw == expected.tobytes()
    assert constant.payload is None


def test_equal_bytes_of_another_type_shape_or_field_are_another_value() -> None:
    def tensor(name: str, dtype: int, dims: list[int], number: int, content: bytes) -> bytes:
        sizes = b"".join(integer(DIMS, size) for size in dims)
        return sizes + integer(TYPE, dtype) + field(NAME, name) + field(number, content)

    four = bytes(range(4))
    graph = loaded(
        with_tensors(
            tensor("a", TensorProto.INT32, [4], INT32S, four),
            tensor("b", TensorProto.UINT8, [4], INT32S, four),
            tensor("c", TensorProto.INT32, [2, 2], INT32S, four),
            tensor("d", TensorProto.INT64, [4], INT64S, four),
            tensor("e", TensorProto.INT32, [4], INT32S, four),
        )
    )
    values = [constant.value for constant in graph.constants.values()]
    assert [value.dtype.name for value in values if value is not None] == [
        "int32", "uint8", "int32", "int64", "int32",
    ]  # fmt: skip
    assert [value.tolist() for value in values if value is not None] == [
        [0, 1, 2, 3], [0, 1, 2, 3], [[0, 1], [2, 3]], [0, 1, 2, 3], [0, 1, 2, 3],
    ]  # fmt: skip
    assert len({constant.identity for constant in graph.constants.values()}) == 5


def test_an_int32_may_be_written_in_the_five_bytes_of_its_32_bits() -> None:
    # The specification has ten for negative numbers, and readers drop what is above 32 bits.
    five = b"\xff\xff\xff\xff\x0f"
    data = integer(DIMS, 1) + integer(TYPE, TensorProto.INT32) + field(INT32S, five)
    assert list(TensorProto.FromString(data).int32_data) == [-1]
    constant = one(data + field(NAME, "w"))
    assert constant.value is not None
    assert constant.value.tolist() == [-1]


@pytest.mark.parametrize(
    ("dims", "content"),
    [
        ([3], field(FLOATS, bytes(8))),
        ([1], field(FLOATS, bytes(8))),
        ([2], field(DOUBLES, bytes(8))),
        ([3], field(INT64S, b"\1\2")),
        ([2], b""),
        ([2], field(RAW, b"")),
        ([2], field(RAW, bytes(7))),
    ],
)
def test_data_that_do_not_fill_their_shape_have_no_value(dims: list[int], content: bytes) -> None:
    head = b"".join(integer(DIMS, dim) for dim in dims) + integer(TYPE, TensorProto.FLOAT)
    constant = one(head + content + field(NAME, "w"))
    assert (constant.value, constant.shape) == (None, tuple(dims))


@pytest.mark.parametrize("content", [b"", field(RAW, b""), field(FLOATS, b"")])
def test_an_empty_tensor_has_an_empty_value(content: bytes) -> None:
    constant = one(integer(DIMS, 0) + integer(TYPE, TensorProto.FLOAT) + content + field(NAME, "w"))
    assert constant.value is not None
    assert (constant.value.shape, constant.stored_bytes) == ((0,), 0)


def test_raw_data_go_before_typed_data() -> None:
    head = integer(DIMS, 1) + integer(TYPE, TensorProto.INT8)
    raw, typed = field(RAW, b"\5"), field(INT32S, b"\6")
    for data in (raw + typed, typed + raw):
        constant = one(head + data + field(NAME, "w"))
        assert constant.value is not None
        assert constant.value.tolist() == [5]


# -- external data ---------------------------------------------------------------------------


def entry(key: str, value: str) -> bytes:
    return field(EXTERNAL, field(1, key) + field(2, value))


HEAD = integer(DIMS, 100) + integer(DIMS, 100) + integer(TYPE, TensorProto.FLOAT)
EXTERNAL_LOCATION = integer(LOCATION, TensorProto.EXTERNAL)
ENTRIES = [entry("location", "w.bin"), entry("offset", "4096"), entry("length", "40000")]


@pytest.mark.parametrize(
    "rest",
    [
        [field(NAME, "w"), *ENTRIES, EXTERNAL_LOCATION],
        [*ENTRIES, EXTERNAL_LOCATION, field(NAME, "w")],
        [EXTERNAL_LOCATION, *ENTRIES, field(NAME, "w")],
        [ENTRIES[0], field(NAME, "w"), *ENTRIES[1:], EXTERNAL_LOCATION],
        [field(NAME, "w"), *reversed(ENTRIES), EXTERNAL_LOCATION],
        [field(NAME, "w"), *ENTRIES],  # the entries say it without the location's kind
        [field(NAME, "w"), *ENTRIES, b"\x70\x81\x00"],  # the location's kind, 1, in two bytes
        [field(NAME, "w"), b"\x70\x81\x00", *ENTRIES],
        # 8449 in two bytes, of which the second is the tag of a name and "b" says 98 bytes
        [field(NAME, "w"), *ENTRIES, b"\x70\x81\x42", field(DOC, "d" * 97)],
        [field(NAME, "w"), *ENTRIES, entry("checksum", "c" * 300), EXTERNAL_LOCATION],
        [field(NAME, "w"), entry("checksum", "c" * 3000), *ENTRIES, EXTERNAL_LOCATION],
        [field(NAME, "w"), *ENTRIES, entry("location", "../v.bin"), entry("offset", "5")],
        [field(NAME, "w"), field(RAW, bytes(9)), *ENTRIES, EXTERNAL_LOCATION],
        [field(DOC, "d" * 600), field(NAME, "w"), *ENTRIES, EXTERNAL_LOCATION],
    ],
)
@pytest.mark.parametrize("head_first", [True, False])
def test_external_data_lie_where_their_entries_say(rest: list[bytes], head_first: bool) -> None:
    data = HEAD + b"".join(rest) if head_first else b"".join(rest) + HEAD
    model = load_model(with_tensors(data))
    constant = model.graph.constants["w"]
    assert constant.payload == Payload("w.bin", 4096, 40000)
    assert (constant.shape, constant.raw, constant.value) == ((100, 100), None, None)
    assert model.external_files == ("w.bin",)


def test_small_external_data_are_not_kept_either() -> None:
    constant = one(integer(DIMS, 1) + integer(TYPE, 3) + field(NAME, "w") + ENTRIES[0])
    assert constant.payload == Payload("w.bin", 0, None)
    assert not constant.may_have_value


@pytest.mark.parametrize("length", [1, 110, 115, 116, 117, 118, 119, 127, 128, 300, 1000])
def test_a_file_s_name_may_have_any_length(length: int) -> None:
    # "location" with tag and length is 10 bytes: an entry of 127 bytes names a file of 115.
    names = ["a" * length, "a" * length, "a" * (length - 1) + "b"]
    tensors = [
        HEAD + field(NAME, f"w{i}") + entry("location", name) + entry("offset", str(i))
        for i, name in enumerate(names)
    ]
    model = load_model(with_tensors(*tensors))
    payloads = [constant.payload for constant in model.graph.constants.values()]
    assert payloads == [Payload(name, i, None) for i, name in enumerate(names)]
    assert model.external_files == (names[0], names[2])


def test_a_path_that_leaves_the_folder_is_refused_after_good_ones_too() -> None:
    good = HEAD + field(NAME, "w") + ENTRIES[0]
    for bad in ("../w.bin", "/" + "w" * 200):
        with pytest.raises(InvalidGraphError, match=r"'v'.*leaves the model's folder"):
            load_model(with_tensors(good, HEAD + field(NAME, "v") + entry("location", bad)))


def test_the_kind_of_location_alone_names_no_file() -> None:
    model = load_model(with_tensors(HEAD + field(NAME, "w") + EXTERNAL_LOCATION))
    assert (model.external_files, model.graph.constants["w"].payload) == ((), None)


# -- broken tensors --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tensor",
    [
        floats("w" * 20, 3),
        helper.make_tensor("w", TensorProto.FLOAT, [2, 1], [0.5, 1.5]),
        helper.make_tensor("w", TensorProto.INT64, [2], [-1, 5]),
        helper.make_tensor("w", TensorProto.STRING, [2], [b"ab", b"c"]),
    ],
)
def test_a_tensor_cut_at_any_byte_is_what_onnx_says_of_it(tensor: TensorProto) -> None:
    data = tensor.SerializeToString()
    for length in range(len(data) + 1):
        try:
            proto = TensorProto.FromString(data[:length])
        except Exception:  # noqa: BLE001 - protobuf's own error, in whichever of its backends
            with pytest.raises(ModelUnreadableError):
                load_model(with_tensors(data[:length]))
            continue
        if not proto.data_type:
            with pytest.raises(InvalidGraphError, match="unknown element type"):
                load_model(with_tensors(data[:length]))
            continue
        constant = one(data[:length])
        assert (constant.name, constant.shape) == (proto.name, tuple(proto.dims))


@pytest.mark.parametrize(
    "broken",
    [
        field(FLOATS, bytes(6)),  # one number and a half
        field(INT64S, b"\x80"),  # a number without an end
        field(DIMS, b"\x80"),
        b"\x42\x7fw",  # a name beyond the end
        b"\x00",
    ],
)
def test_a_broken_tensor_is_refused(broken: bytes) -> None:
    head = integer(DIMS, 1) + integer(TYPE, TensorProto.FLOAT)
    for data in (head + broken, broken + head, head + field(NAME, "w") + broken):
        with pytest.raises(ModelUnreadableError):
            load_model(with_tensors(data))


@pytest.mark.parametrize("zeros", [0, 100])
def test_it_is_said_where_in_the_file_a_broken_number_stands(zeros: int) -> None:
    tensor = integer(DIMS, 2) + integer(TYPE, TensorProto.INT64) + field(INT64S, b"\1\x80")
    data = with_tensors(field(NAME, "z" * zeros) + integer(TYPE, 1), tensor)
    end = data.index(b"\1\x80") + 2
    with pytest.raises(ModelUnreadableError, match=f"broken number at byte {end}"):
        load_model(data)
