from __future__ import annotations

import mmap
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxroof
from onnxroof.errors import InvalidGraphError, ModelUnreadableError, OnnxroofError
from onnxroof.graph.load import load_model
from onnxroof.graph.types import DType, SymbolicDim, ValueType
from onnxroof.graph.wire import (
    Message,
    Source,
    WireError,
    encoded,
    field_end,
    message_fields,
    signed,
    varint,
)
from tests.graph import written
from tests.graph.written import (
    around,
    field,
    field_head,
    float32,
    float64,
    floats,
    graph_of,
    integer,
    loaded,
    model_of,
    with_nodes,
)

if TYPE_CHECKING:
    from pathlib import Path

VARINT, FIXED64, BYTES, START_GROUP, END_GROUP, FIXED32 = range(6)


def message(data: bytes, errors: str = "strict") -> Message:
    return Message(Source(data, errors), 0, len(data))


# -- numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (b"\x00", 0),
        (b"\x01", 1),
        (b"\x7f", 127),
        (b"\x80\x01", 128),
        (b"\x96\x01", 150),  # the example of the specification: 0x16 + (1 << 7)
        (b"\xac\x02", 300),
        (b"\xff\x7f", (1 << 14) - 1),
        (b"\x80\x80\x01", 1 << 14),
        (b"\x80" * 9 + b"\x01", 1 << 63),
        (b"\xff" * 9 + b"\x01", (1 << 64) - 1),
        (b"\xff" * 9 + b"\x7f", (1 << 64) - 1),  # bits above the 64th are dropped
        (b"\x85\x80\x00", 5),  # longer than it needs to be
    ],
)
def test_a_number_is_seven_bits_per_byte_the_lowest_first(data: bytes, number: int) -> None:
    assert varint(b"??" + data + b"??", 2, len(data) + 4) == (number, 2 + len(data))


@pytest.mark.parametrize("number", [0, 1, -1, -2, (1 << 63) - 1, -(1 << 63)])
def test_a_negative_number_is_the_two_s_complement_of_64_bits(number: int) -> None:
    data = written.varint(number)
    assert len(data) == (10 if number < 0 else -(-max(number.bit_length(), 1) // 7))
    assert signed(varint(data, 0, len(data))[0]) == number


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 10 + b"\x01"])
def test_a_number_without_an_end_is_refused(data: bytes) -> None:
    with pytest.raises(WireError, match=f"byte {min(len(data), 10)}$"):
        varint(data, 0, len(data))


def test_a_number_ends_with_its_message_and_not_with_the_file() -> None:
    with pytest.raises(WireError):
        varint(b"\x80\x01", 0, 1)


@pytest.mark.parametrize(
    ("wire_type", "data", "content"),
    [
        (VARINT, b"\x96\x01", (0, 2)),
        (FIXED64, b"12345678", (0, 8)),
        (FIXED32, b"1234", (0, 4)),
        (BYTES, b"\x07testing", (1, 8)),
        (BYTES, b"\x00", (1, 1)),
        (BYTES, b"\x80\x01" + b"x" * 128, (2, 130)),
    ],
)
def test_a_field_ends_where_its_wire_type_says(
    wire_type: int, data: bytes, content: tuple[int, int]
) -> None:
    assert field_end(data + b"more", wire_type, 0, len(data) + 4) == content
    with pytest.raises(WireError, match="byte"):
        field_end(data + b"more", wire_type, 0, len(data) - 1)


@pytest.mark.parametrize("wire_type", [START_GROUP, END_GROUP, 6, 7])
def test_groups_and_what_does_not_exist_have_no_end(wire_type: int) -> None:
    with pytest.raises(WireError, match=f"wire type {wire_type}"):
        field_end(b"12345678", wire_type, 0, 8)


# -- fields ----------------------------------------------------------------------------------


def test_the_examples_of_the_specification_are_read() -> None:
    # Test1 {int32 a = 1}, Test2 {string b = 2}, Test3 {Test1 c = 3}, Test5 {repeated f = 6}
    data = bytes.fromhex("089601 120774657374696e67 1a03089601 3206038e029ea705")
    read = message(data)
    assert read.integer(1) == 150
    assert read.text(2) == "testing"
    inner = read.message(3)
    assert inner is not None
    assert (inner.begin, inner.end, inner.integer(1)) == (14, 17, 150)
    assert read.integers(6) == (3, 270, 86942)


def test_what_is_not_written_is_empty() -> None:
    read = message(b"")
    assert not read.has(1)
    assert (read.integer(1), read.text(1), read.raw(1)) == (0, "", b"")
    assert (read.message(1), read.span(1), read.messages(1), read.spans(1)) == (None, None, [], [])
    assert (read.integers(1), read.floats(1), read.texts(1), read.raws(1)) == ((), (), (), [])


@pytest.mark.parametrize("number", [1, 15, 16, 25, 2047, 2048])
def test_a_field_is_found_by_its_number_however_many_bytes_that_takes(number: int) -> None:
    data = integer(1, 7) + field(number, "here") + integer(3, 9)
    read = message(data)
    assert read.text(number) == "here"
    assert (read.integer(1), read.integer(3)) == (7, 9)
    assert read.has(number)


@pytest.mark.parametrize("length", [0, 1, 127, 128, 300, 16383, 16384, 70000])
def test_a_field_may_have_any_length(length: int) -> None:
    read = message(field(2, "a" * length) + field(1, "after"))
    assert (read.text(2), read.text(1)) == ("a" * length, "after")


def test_of_a_value_written_several_times_the_last_counts() -> None:
    read = message(
        integer(1, 5) + field(2, "a") + float32(3, 0.5) + integer(1, 6) + field(2, "b")
        + float32(3, 1.5)
    )  # fmt: skip
    assert (read.integer(1), read.text(2), read.floats(3)[-1]) == (6, "b", 1.5)


def test_repeated_fields_keep_their_order_whatever_stands_between_them() -> None:
    read = message(field(1, "a") + field(2, "x") + field(1, "b") + integer(3, 1) + field(1, "c"))
    assert read.texts(1) == ("a", "b", "c")
    assert read.raws(1) == [b"a", b"b", b"c"]
    assert sorted(read.pieces({2, 3})) == [(2, 5, 6), (3, 10, 11)]


def test_a_tag_written_in_more_bytes_than_it_needs_is_the_same_field() -> None:
    # 0x8A 0x00 is 10 in two bytes: field 1 with a length, as the plain 0x0A.
    long, plain = b"\x8a\x00\x01a", b"\x0a\x01b"
    assert message(long + plain + plain + long).texts(1) == ("a", "b", "b", "a")
    assert message(plain + long).texts(1) == ("b", "a")


def test_a_part_that_may_stand_once_and_stands_twice_is_refused_with_its_place() -> None:
    # Protobuf would merge the two; no writer splits a message. Tag, length and two bytes are
    # the first; after tag and length of the second its content begins: 4 + 2.
    data = field(3, integer(1, 5)) + field(3, integer(1, 6))
    read = message(data)
    assert len(read.messages(3)) == 2
    for ask in (read.message, read.span):
        with pytest.raises(WireError, match="a second time at byte 6"):
            ask(3)


@pytest.mark.parametrize("layout", ["f", "d"])
def test_numbers_of_fixed_width_are_read_one_by_one_and_packed(layout: str) -> None:
    one = float32 if layout == "f" else float64
    numbers = (0.5, -2.0, 1e30, float("inf"))
    packed = np.array(numbers, f"<{layout}").tobytes()
    expected = tuple(np.array(numbers, layout).tolist())
    single = b"".join(one(4, number) for number in numbers)
    for data in (single, field(4, packed), one(4, 0.5) + field(4, packed[len(packed) // 4 :])):
        assert message(data).floats(4, layout) == expected


def test_packed_numbers_and_single_ones_stay_in_the_order_they_are_written() -> None:
    packed = field(8, b"\x02\x03")
    assert message(integer(8, 1) + packed + integer(8, 4)).integers(8) == (1, 2, 3, 4)
    assert message(packed + integer(8, 4) + packed).integers(8) == (2, 3, 4, 2, 3)
    single, several = float32(7, 9.0), field(7, np.array([1, 2], "<f4").tobytes())
    assert message(several + single).floats(7) == (1.0, 2.0, 9.0)


def test_half_a_number_of_fixed_width_is_refused() -> None:
    with pytest.raises(WireError, match="needs 2 bytes more"):
        message(field(4, b"123456")).floats(4)


def test_negative_numbers_are_read_in_every_form() -> None:
    read = message(integer(1, -1) + integer(2, -3) + field(2, written.varint(-4) + b"\x05"))
    assert read.integer(1) == -1
    assert read.integers(2) == (-3, -4, 5)


def test_a_text_that_is_not_utf8_is_refused_or_escaped_as_the_source_says() -> None:
    data = field(1, b"gr\xf6n")
    with pytest.raises(UnicodeDecodeError):
        message(data).text(1)
    with pytest.raises(UnicodeDecodeError):
        message(data).texts(1)
    assert message(data, "backslashreplace").text(1) == "gr\\xf6n"
    assert message(data, "backslashreplace").texts(1) == ("gr\\xf6n",)
    assert message(data).raw(1) == b"gr\xf6n"


def test_a_mapped_file_is_read_like_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "message"
    data = integer(1, -7) + field(2, "text") + field(3, field(2, "x" * 300))
    path.write_bytes(data)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        read = Message(Source(mapped), 0, len(data))
        inner = read.message(3)
        assert inner is not None
        assert (read.integer(1), read.text(2), inner.text(2)) == (-7, "text", "x" * 300)
        assert type(read.raw(2)) is bytes


def test_fields_are_listed_with_their_places() -> None:
    # At 0: tag, two bytes. At 3: tag, length, three bytes. At 8: tag, four. At 13: tag, eight.
    data = integer(1, 150) + field(2, "abc") + float32(3, 0.5) + float64(4, 0.5)
    assert list(message_fields(data, 0, len(data))) == [
        (1, 0, 1, 3), (2, 3, 5, 8), (3, 8, 9, 13), (4, 13, 14, 22),
    ]  # fmt: skip
    assert [number for number, *_ in message_fields(data, 3, 13)] == [2, 3]
    with pytest.raises(WireError, match="truncated"):
        list(message_fields(data, 0, len(data) - 1))


@pytest.mark.parametrize("length", [0, 1, 127, 128, 300, 16383, 16384, 70000])
def test_a_field_that_is_written_is_what_onnx_reads(length: int) -> None:
    content = bytes(range(256)) * (length // 256) + bytes(length % 256)
    assert encoded(9, content) == field(9, content)
    assert TensorProto.FromString(encoded(9, content)).raw_data == content


# -- bytes that are not a message ------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a length of eleven bytes
        b"\x3a\x7f",  # a length beyond the end
        b"\x3a\x80",  # half a length
        b"\x3a\x80\x01",  # a length of two bytes beyond the end
        b"\x3a",  # a tag and nothing else
        b"\x0b",  # the start of a group, which onnx.proto does not have
        b"\x08",  # a number that is not there
        b"\x08\x80",  # half a number
        b"\x0d\x00",  # half a 32-bit number
        b"\x09\x00",  # half a 64-bit number
        b"\x80",  # half a tag
        b"\xca\x01",  # a tag of two bytes and nothing else
    ],
)
def test_broken_wire_format_is_said_with_its_place(data: bytes) -> None:
    with pytest.raises(WireError, match="byte"):
        message(data)
    with pytest.raises(WireError, match="byte"):  # also where the file goes on after the message
        Message(Source(data + bytes(200)), 0, len(data))
    with pytest.raises(ModelUnreadableError, match="byte"):
        load_model(data)


def test_zeros_are_no_fields_and_the_first_one_is_named() -> None:
    with pytest.raises(WireError, match="zeros at byte 5"):
        message(field(1, "abc") + b"\0\0\0")


def test_a_part_must_not_reach_into_the_next_one() -> None:
    # The inner text claims five bytes, of which two are the next field of the outer message.
    data = field(1, b"\x0a\x05abc") + b"\x10\x01"
    assert message(data).integer(2) == 1
    with pytest.raises(WireError, match="needs 2 bytes more"):
        message(data).message(1)


# -- what a model may do with the format -----------------------------------------------------


def test_the_graph_of_a_model_must_not_be_written_twice() -> None:
    graph = field(7, graph_of().SerializeToString())
    with pytest.raises(ModelUnreadableError, match="a second time"):
        load_model(around(graph_of().SerializeToString()) + graph)


def test_training_information_is_never_read() -> None:
    model = onnx.ModelProto.FromString(model_of(graph_of()))
    model.training_info.add().algorithm.CopyFrom(graph_of(initializer=[floats("w", 300)]))
    assert not loaded(model.SerializeToString()).constants
    assert not loaded(model_of(graph_of()) + field(20, b"\xff\xff")).constants


def typed(kind: bytes) -> ValueType:
    """The type of the input "v", of which the TypeProto is given as bytes."""
    graph = graph_of().SerializeToString() + field(11, field(1, "v") + field(2, kind))
    return loaded(around(graph)).inputs[-1].type


def dimensions(*dims: bytes) -> bytes:
    """A TypeProto of float32 with dimensions given as bytes."""
    return field(1, integer(1, 1) + field(2, b"".join(field(1, dim) for dim in dims)))


@pytest.mark.parametrize(
    ("dim", "which", "read"),
    [
        (integer(1, 5), "dim_value", 5),
        (field(2, "n"), "dim_param", SymbolicDim("n")),
        (integer(1, 5) + field(2, "n"), "dim_param", SymbolicDim("n")),
        (field(2, "n") + integer(1, 5), "dim_value", 5),
        (field(2, "n") + integer(1, 5) + field(2, "m"), "dim_param", SymbolicDim("m")),
        (integer(1, 5) + field(3, "DATA_BATCH"), "dim_value", 5),
        (field(3, "DATA_BATCH") + field(2, "n"), "dim_param", SymbolicDim("n")),
        (integer(1, 1 << 40), "dim_value", 1 << 40),
        (integer(1, -1), "dim_value", SymbolicDim("?v.0", named=False)),
        (integer(1, 5) + field(2, "?"), "dim_param", SymbolicDim("?v.0", named=False)),
        (b"", None, SymbolicDim("?v.0", named=False)),
        (float32(1, 1.0), None, SymbolicDim("?v.0", named=False)),  # in a form it does not have
    ],
)
def test_of_a_dimension_s_size_and_name_the_last_one_counts(
    dim: bytes, which: str | None, read: int | SymbolicDim
) -> None:
    # onnx.proto: oneof value {int64 dim_value = 1; string dim_param = 2}; string denotation = 3
    proto = onnx.TypeProto.FromString(dimensions(dim)).tensor_type.shape.dim[0]
    assert proto.WhichOneof("value") == which
    assert typed(dimensions(dim)).shape == (read,)


def test_of_two_kinds_of_type_the_last_one_counts() -> None:
    tensor, sequence = dimensions(integer(1, 2)), field(4, field(1, dimensions()))
    assert onnx.TypeProto.FromString(tensor + sequence).WhichOneof("value") == "sequence_type"
    assert typed(tensor + sequence) == ValueType(
        "sequence", element=ValueType("tensor", DType.FLOAT, ())
    )
    assert typed(sequence + tensor) == ValueType("tensor", DType.FLOAT, (2,))
    assert typed(field(6, "a denotation") + tensor).shape == (2,)


def test_a_map_s_key_and_a_shape_before_its_element_type_are_read() -> None:
    tensor = field(1, field(2, field(1, integer(1, 3))) + integer(1, 7))
    assert typed(tensor) == ValueType("tensor", DType.INT64, (3,))
    assert typed(field(5, field(2, tensor) + integer(1, 8))).element == typed(tensor)


def test_types_nested_without_end_are_refused() -> None:
    kind = dimensions()
    for _ in range(500):
        kind = field(4, field(1, kind))
    with pytest.raises(ModelUnreadableError, match="nested deeper"):
        typed(kind)


@pytest.mark.parametrize("depth", [70, 1000])
def test_bodies_nested_without_end_are_refused(depth: int) -> None:
    # A body in a body in a body: GraphProto.node.attribute.g, with attribute type GRAPH (5)
    relu = field(1, "x") + field(2, "y") + field(4, "Relu")
    data = field(1, relu)
    for _ in range(depth):
        attribute = field(1, "body") + field(6, data) + integer(20, 5)
        data = field(1, field(2, "y") + field(4, "Foo") + field(5, attribute) + field(7, "my"))
    with pytest.raises(InvalidGraphError, match="nest deeper"):
        load_model(around(data))


@pytest.mark.parametrize("seed", range(4))
def test_declared_types_are_found_wherever_they_stand_in_the_graph(seed: int) -> None:
    # GraphProto: 1 node, 12 output, 13 value_info. Long names make some of them large.
    names = [f"t{i}" * (1 + 60 * (i % 3)) for i in range(6)]
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [i]).SerializeToString()
        for i, name in enumerate(names)
    ]
    fields = [field(12 if i == 0 else 13, info) for i, info in enumerate(infos)]
    node = field(1, "x") + field(2, names[0]) + field(4, "Relu")
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]).SerializeToString()
    fields += [field(1, node), field(11, value), field(10, "d" * 500)]
    expected = {name: ValueType("tensor", DType.FLOAT, (i,)) for i, name in enumerate(names)}
    for data in (b"".join(fields), written.shuffled(fields, seed)):
        assert dict(loaded(around(data)).declared) == expected


def test_an_output_s_type_goes_before_that_of_a_value_of_its_name() -> None:
    graph = graph_of()
    graph.value_info.append(helper.make_tensor_value_info("y", TensorProto.INT8, [1]))
    assert loaded(model_of(graph)).declared["y"] == ValueType("tensor", DType.FLOAT, (300,))


def test_a_broken_type_that_nobody_asks_for_is_no_error_until_somebody_does() -> None:
    node = field(1, "x") + field(2, "y") + field(4, "Relu")
    data = with_nodes(node)
    assert loaded(data).declared == {}
    broken = field(1, "t") + field(2, field(1, b"\x08"))
    graph = loaded(around(field(1, node) + field(12, field(1, "y")) + field(13, broken)
                          + field(11, field(1, "x"))))  # fmt: skip
    assert graph.declared["y"] == ValueType("opaque")
    with pytest.raises(WireError, match="the declared type of 't' is broken"):
        graph.declared["t"]


# -- any bytes at all ------------------------------------------------------------------------


def answer(data: bytes) -> str:
    """What analysing does with the bytes; anything but an answer or an OnnxroofError escapes."""
    try:
        onnxroof.analyze(data, keep_going=True).to_dict()
    except OnnxroofError:
        return "error"
    return "answer"


def small_model() -> bytes:
    body = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["t"])], "body", [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, [2, 4])],
    )  # fmt: skip
    nodes = [
        helper.make_node(
            "Constant", [], ["shape"], value=numpy_helper.from_array(np.array([2, 4]))
        ),
        helper.make_node("Conv", ["image", "k"], ["c"], pads=[1, 1, 1, 1], name="/conv"),
        helper.make_node("If", ["flag"], ["i"], then_branch=body, else_branch=body),
        helper.make_node("F", ["i"], ["f"], domain="my"),
        helper.make_node("Reshape", ["f", "shape"], ["y"]),
    ]
    function = helper.make_function(
        "my", "F", ["a"], ["b"], [helper.make_node("Softmax", ["a"], ["b"], axis=-1)],
        [helper.make_opsetid("", 21)],
    )  # fmt: skip
    graph = helper.make_graph(
        nodes, "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4]),
            helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 4, 4]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "c")],
        [floats("w", 4), helper.make_tensor("k", TensorProto.FLOAT, [2, 1, 3, 3], [0.5] * 18)],
    )  # fmt: skip
    return model_of(graph, (function,))


def test_the_model_that_is_broken_below_works_while_whole() -> None:
    assert answer(small_model()) == "answer"


def test_a_model_cut_at_any_byte_is_an_error_or_an_answer() -> None:
    data = small_model()
    answers = [answer(data[:length]) for length in range(len(data))]
    assert answers[0] == "error"
    assert answers.count("error") > 0.9 * len(data)


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits_are_an_error_or_an_answer(seed: int) -> None:
    source = random.Random(seed)
    data = small_model()
    start = time.monotonic()
    for _ in range(150):
        broken = bytearray(data)
        for _ in range(source.randint(1, 4)):
            broken[source.randrange(len(data))] ^= 1 << source.randrange(8)
        answer(bytes(broken))
    assert time.monotonic() - start < 60


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_more_flipped_bytes_are_an_error_or_an_answer(seed: int) -> None:
    source = random.Random(seed)
    data = small_model()
    for _ in range(400):
        broken = bytearray(data)
        for _ in range(source.randint(1, 6)):
            broken[source.randrange(len(data))] = source.randrange(256)
        answer(bytes(broken))


@pytest.mark.slow
def test_half_a_gigabyte_of_weights_opens_in_the_memory_of_its_graph(tmp_path: Path) -> None:
    # A file with a hole: 500 MB of zeros as the raw_data of one float32 initializer
    count = 125_000_000
    head = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[count]).SerializeToString()

    raw = field_head(9, 4 * count)
    tensor_bytes = len(head) + len(raw) + 4 * count
    graph = graph_of().SerializeToString()
    initializer = field_head(5, tensor_bytes)
    model = onnx.ModelProto(ir_version=10, opset_import=[helper.make_opsetid("", 21)])
    length = len(graph) + len(initializer) + tensor_bytes
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        file.write(model.SerializeToString() + field_head(7, length) + graph + initializer)
        file.write(head + raw)
        file.truncate(file.tell() + 4 * count)
    script = (
        "import resource, sys, onnxroof\n"
        "analysis = onnxroof.analyze(sys.argv[1])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, analysis.model.file_bytes)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    kilobytes, file_bytes = map(int, run.stdout.split())
    assert file_bytes > 4 * count
    assert kilobytes < 120_000


def test_fields_that_nobody_asks_for_are_passed_over() -> None:
    # a million documentation strings of no length cost no record each
    data = field(1, "a") + field(6, "") * 1_000_000 + field(1, "b")
    read = Message(Source(data), 0, len(data), frozenset({1}))
    assert read.texts(1) == ("a", "b")
    assert not read.spans(6)


def test_fields_in_a_row_that_are_read_later_are_one_place() -> None:
    # a million of no length cost no record each; together they are a message in itself. Then one
    # alone, and one whose tag takes two bytes: 0xB2 0x00 is 50, as the plain 0x32
    row, alone, long = field(6, "c") + field(6, "") * 1_000_000, field(6, "d"), b"\xb2\x00\x01e"
    data = field(1, "a") + row + field(1, "b") + alone + long
    read = Message(Source(data), 0, len(data), frozenset({1}), frozenset({6}))
    assert read.texts(1) == ("a", "b")
    assert [data[start:stop] for start, stop in read.spans(6)] == [row, alone, long]
    texts = [Message(Source(data), *span).texts(6) for span in read.spans(6)]
    assert texts == [("c", *[""] * 1_000_000), ("d",), ("e",)]
