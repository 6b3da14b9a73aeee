from __future__ import annotations

import random
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

import onnxroof
from onnxroof.errors import OnnxroofError
from onnxroof.graph.wire import LARGEST_KEPT_BYTES, WireError, skeleton

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onnxroof.graph.types import Payload

LARGE = 300
"""float32 elements: 1200 bytes, more than stays in the graph."""

SMALL = 8


def floats(name: str, count: int) -> TensorProto:
    return numpy_helper.from_array(np.arange(count, dtype=np.float32), name)


def model_of(graph: onnx.GraphProto, functions: tuple[onnx.FunctionProto, ...] = ()) -> bytes:
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
    model = helper.make_model(graph, opset_imports=imports, functions=functions)
    return model.SerializeToString()


def graph_of(nodes: list[onnx.NodeProto] | None = None, **more: object) -> onnx.GraphProto:
    nodes = nodes or [helper.make_node("Relu", ["x"], ["y"])]
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [LARGE])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [LARGE])
    return helper.make_graph(nodes, "g", [value], [result], **more)


def stripped(data: bytes) -> tuple[onnx.ModelProto, tuple[Payload, ...]]:
    left, payloads = skeleton(memoryview(data))
    return onnx.ModelProto.FromString(left), payloads


def bytes_at(data: bytes, payload: Payload) -> bytes:
    assert payload.length_bytes is not None
    return data[payload.offset_bytes : payload.offset_bytes + payload.length_bytes]


def has_data(tensor: TensorProto) -> bool:
    return bool(tensor.raw_data or tensor.float_data or tensor.int64_data or tensor.int32_data)


# -- what goes and what stays ----------------------------------------------------------------


def test_a_large_initializer_leaves_and_its_place_in_the_file_is_kept() -> None:
    data = model_of(graph_of(initializer=[floats("w", LARGE)]))
    model, payloads = stripped(data)
    tensor = model.graph.initializer[0]
    assert (tensor.name, list(tensor.dims), has_data(tensor)) == ("w", [LARGE], False)
    (payload,) = payloads
    assert (payload.file, payload.encoding, payload.length_bytes) == (None, "raw", 4 * LARGE)
    assert bytes_at(data, payload) == np.arange(LARGE, dtype="<f4").tobytes()


def test_a_tensor_of_a_kilobyte_stays() -> None:
    kept = floats("kept", LARGEST_KEPT_BYTES // 4)
    gone = floats("gone", LARGEST_KEPT_BYTES // 4 + 1)
    model, payloads = stripped(model_of(graph_of(initializer=[kept, gone])))
    assert [has_data(tensor) for tensor in model.graph.initializer] == [True, False]
    assert len(payloads) == 1


def test_nothing_changes_in_a_model_without_large_tensors() -> None:
    data = model_of(graph_of(initializer=[floats("w", SMALL)]))
    assert skeleton(memoryview(data)) == (data, ())


def test_all_but_the_data_of_a_large_tensor_stays() -> None:
    tensor = floats("w", LARGE)
    tensor.doc_string = "a weight"
    original = onnx.ModelProto.FromString(model_of(graph_of(initializer=[tensor])))
    model, _ = stripped(original.SerializeToString())
    model.graph.initializer[0].ClearField("external_data")
    original.graph.initializer[0].ClearField("raw_data")
    assert model == original


def places() -> Iterator[tuple[str, bytes]]:
    """Every place of a model where a large tensor may stand."""
    large = floats("w", LARGE)
    constant = helper.make_node("Constant", [], ["c"], value=large)
    yield "constant", model_of(graph_of([constant, helper.make_node("Relu", ["x"], ["y"])]))
    listed = helper.make_node("Foo", ["x"], ["y"], domain="my")
    attribute = AttributeProto(name="list", type=AttributeProto.TENSORS)
    attribute.tensors.add().CopyFrom(large)
    listed.attribute.add().CopyFrom(attribute)
    yield "list of tensors", model_of(graph_of([listed]))
    body = graph_of(initializer=[large])
    for name, graphs in (("subgraph", {"body": body}), ("list of subgraphs", {"bodies": [body]})):
        yield (
            name,
            model_of(graph_of([helper.make_node("Foo", ["x"], ["y"], domain="my", **graphs)])),
        )
    nested = graph_of([helper.make_node("Foo", ["x"], ["y"], domain="my", body=body)])
    yield (
        "nested",
        model_of(graph_of([helper.make_node("Bar", ["x"], ["y"], domain="my", body=nested)])),
    )
    sparse = helper.make_sparse_tensor(
        floats("s", LARGE), numpy_helper.from_array(np.arange(SMALL), "i"), [1000]
    )
    yield "sparse values", model_of(graph_of(sparse_initializer=[sparse]))
    indices = helper.make_sparse_tensor(
        floats("s", SMALL), numpy_helper.from_array(np.arange(float(LARGE)), "i"), [1000]
    )
    yield "sparse indices", model_of(graph_of(sparse_initializer=[indices]))
    imports = [helper.make_opsetid("", 21)]
    function = helper.make_function(
        "my", "F", ["a"], ["b"], [constant, helper.make_node("Relu", ["a"], ["b"])], imports
    )
    call = helper.make_node("F", ["x"], ["y"], domain="my")
    yield "function", model_of(graph_of([call]), (function,))
    with_default = helper.make_function(
        "my", "F", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], imports,
        attribute_protos=[helper.make_attribute("w", large)],
    )  # fmt: skip
    yield "default of a function attribute", model_of(graph_of([call]), (with_default,))


@pytest.mark.parametrize(("place", "data"), [pytest.param(*case, id=case[0]) for case in places()])
def test_a_large_tensor_leaves_from_wherever_it_stands(place: str, data: bytes) -> None:
    left, payloads = skeleton(memoryview(data))
    assert len(payloads) == 1
    assert len(left) < len(data) - 4 * LARGE + 100
    onnx.ModelProto.FromString(left)
    kind = "<f8" if place == "sparse indices" else "<f4"
    assert bytes_at(data, payloads[0]) == np.arange(LARGE, dtype=kind).tobytes()


@pytest.mark.parametrize(
    ("field", "dtype", "layout"),
    [
        ("float_data", TensorProto.FLOAT, "<f4"),
        ("double_data", TensorProto.DOUBLE, "<f8"),
    ],
)
def test_typed_data_leave_with_the_name_of_their_field(field: str, dtype: int, layout: str) -> None:
    # Packed fixed-width numbers are the elements themselves, little-endian, one after the other.
    tensor = helper.make_tensor("w", dtype, [LARGE], list(range(LARGE)))
    data = model_of(graph_of(initializer=[tensor]))
    model, (payload,) = stripped(data)
    assert not getattr(model.graph.initializer[0], field)
    assert payload.encoding == field
    assert bytes_at(data, payload) == np.arange(LARGE, dtype=layout).tobytes()


def test_packed_varints_leave_too() -> None:
    # 600 numbers of two bytes each
    numbers = list(range(200, 800))
    tensor = helper.make_tensor("w", TensorProto.INT64, [600], numbers)
    _, (payload,) = stripped(model_of(graph_of(initializer=[tensor])))
    assert (payload.encoding, payload.length_bytes) == ("int64_data", 1200)


def unpacked(count: int) -> bytes:
    """A TensorProto whose floats stand one by one, as old writers do: 5 bytes each."""
    head = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[count]).SerializeToString()
    return head + b"".join(b"\x25" + struct.pack("<f", i) for i in range(count))


def field_head(number: int, length: int) -> bytes:
    """Tag and length of a length-delimited field."""
    encoded = bytearray([number << 3 | 2])
    while length > 0x7F:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*encoded, length])


def field(number: int, content: bytes) -> bytes:
    return field_head(number, len(content)) + content


def wrapped(tensor: bytes) -> bytes:
    """A model with one initializer given as bytes: GraphProto field 5 in ModelProto field 7."""
    head = onnx.ModelProto(ir_version=10, opset_import=[helper.make_opsetid("", 21)])
    graph = graph_of().SerializeToString() + field(5, tensor)
    return head.SerializeToString() + field(7, graph)


def test_unpacked_data_leave_as_a_whole_message() -> None:
    data = wrapped(unpacked(LARGE))
    model, (payload,) = stripped(data)
    assert not model.graph.initializer[0].float_data
    assert payload.encoding == "message"
    read = TensorProto.FromString(bytes_at(data, payload))
    assert list(read.float_data) == list(range(LARGE))


def test_small_unpacked_data_stay() -> None:
    model, payloads = stripped(wrapped(unpacked(SMALL)))
    assert list(model.graph.initializer[0].float_data) == list(range(SMALL))
    assert payloads == ()


def test_strings_leave_too() -> None:
    tensor = helper.make_tensor("w", TensorProto.STRING, [100], [b"twenty bytes of text"] * 100)
    model, (payload,) = stripped(model_of(graph_of(initializer=[tensor])))
    assert not model.graph.initializer[0].string_data
    assert payload.encoding == "message"


def test_training_information_is_left_out_whole() -> None:
    model = onnx.ModelProto.FromString(model_of(graph_of()))
    info = model.training_info.add()
    info.algorithm.CopyFrom(graph_of(initializer=[floats("w", LARGE)]))
    left, payloads = stripped(model.SerializeToString())
    assert (len(left.training_info), payloads) == (0, ())


def test_payloads_of_several_tensors_keep_their_own_places() -> None:
    tensors = [
        numpy_helper.from_array(np.full(LARGE + i, i, np.float32), f"w{i}") for i in range(5)
    ]
    data = model_of(graph_of(initializer=tensors))
    constants = onnxroof.analyze(data).model.graph.constants
    for i in range(5):
        payload = constants[f"w{i}"].payload
        assert payload is not None
        assert bytes_at(data, payload) == np.full(LARGE + i, i, "<f4").tobytes()


# -- bytes that are not a model --------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a length of eleven bytes
        b"\x3a\x7f",  # a length beyond the end
        b"\x0b",  # the start of a group, which onnx.proto does not have
        b"\x08",  # a number that is not there
        b"\x0d\x00",  # half a 32-bit number
        b"\x09\x00",  # half a 64-bit number
    ],
)
def test_broken_wire_format_is_said_with_its_place(data: bytes) -> None:
    with pytest.raises(WireError, match="byte"):
        skeleton(memoryview(data))


def test_messages_nested_without_end_are_refused() -> None:
    # A body in a body in a body, each padded to be large enough to be looked into
    data = graph_of().SerializeToString()
    pad = field(10, b"x" * 2 * LARGEST_KEPT_BYTES)  # doc_string
    for _ in range(60):
        data = pad + field(1, field(5, field(6, data)))
    with pytest.raises(WireError, match="nested deeper"):
        skeleton(memoryview(field(7, data)))


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
