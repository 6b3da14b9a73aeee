"""Where values come from, and what is refused."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxroof.graph.load import load_model
from onnxroof.graph.types import Constant, DType, Payload
from onnxroof.graph.weights import WeightReader, WeightsUnavailable

if TYPE_CHECKING:
    from pathlib import Path

VALUES = np.arange(1024, dtype=np.float32).reshape(32, 32)  # 4 KiB: left in the file


def model_with(tensor: TensorProto) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])], "g", [],
        [helper.make_tensor_value_info("y", tensor.data_type, list(tensor.dims))], [tensor],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def external(location: str, **entries: int) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=VALUES.shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def read(folder: Path, tensor: TensorProto) -> np.ndarray:
    path = folder / "model.onnx"
    path.write_bytes(model_with(tensor).SerializeToString())
    constant = load_model(path).graph.constants["w"]
    with WeightReader(str(path)) as reader:
        return np.array(reader.bits(constant))


def test_raw_data_is_seen_where_it_lies(tmp_path: Path) -> None:
    bits = read(tmp_path, numpy_helper.from_array(VALUES, "w"))
    assert np.array_equal(bits.view(np.float32), VALUES.ravel())


def test_a_view_is_not_a_copy_and_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_with(numpy_helper.from_array(VALUES, "w")).SerializeToString())
    constant = load_model(path).graph.constants["w"]
    reader = WeightReader(str(path))
    bits = reader.bits(constant)
    assert not bits.flags.owndata
    assert not bits.flags.writeable


def test_values_come_from_bytes_when_there_is_no_file() -> None:
    content = model_with(numpy_helper.from_array(VALUES, "w")).SerializeToString()
    constant = load_model(content).graph.constants["w"]
    bits = WeightReader(None, content).bits(constant)
    assert np.array_equal(bits.view(np.float32), VALUES.ravel())


def test_external_data_is_read_at_its_offset(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"\xff" * 64 + VALUES.tobytes())
    bits = read(tmp_path, external("data.bin", offset=64, length=4096))
    assert np.array_equal(bits.view(np.float32), VALUES.ravel())


def test_external_data_without_a_length_takes_what_the_shape_needs(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(VALUES.tobytes() + b"more")
    bits = read(tmp_path, external("data.bin"))
    assert np.array_equal(bits.view(np.float32), VALUES.ravel())


@pytest.mark.parametrize(
    ("content", "entries", "reason"),
    [
        (None, {}, "external data file 'data.bin' is missing"),
        (b"short", {}, "its data end at byte 4096, the file at 5"),
        (b"", {}, "its data end at byte 4096, the file at 0"),
        (bytes(4096), {"length": 100}, "100 bytes are stored where its shape needs 4096"),
        (bytes(4096), {"offset": 10**15}, "the file at 4096"),
    ],
)
def test_what_cannot_be_read_is_said(
    tmp_path: Path, content: bytes | None, entries: dict[str, int], reason: str
) -> None:
    if content is not None:
        (tmp_path / "data.bin").write_bytes(content)
    with pytest.raises(WeightsUnavailable, match=reason):
        read(tmp_path, external("data.bin", **entries))


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside.bin"
    outside.write_bytes(VALUES.tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "data.bin").symlink_to(outside)
    with pytest.raises(WeightsUnavailable, match="leads out of the model's folder: refused"):
        read(folder, external("data.bin"))


def test_a_link_inside_the_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.bin").write_bytes(VALUES.tobytes())
    (tmp_path / "data.bin").symlink_to(tmp_path / "real.bin")
    assert read(tmp_path, external("data.bin")).size == 1024


def test_a_folder_is_no_data_file(tmp_path: Path) -> None:
    (tmp_path / "data.bin").mkdir()
    with pytest.raises(WeightsUnavailable, match="is missing"):
        read(tmp_path, external("data.bin"))


def test_a_location_that_only_a_constant_claims_is_refused_too(tmp_path: Path) -> None:
    payload = Payload("../outside.bin", 0, None)
    constant = Constant("w", DType.FLOAT, (1024,), 4096, payload=payload)
    (tmp_path.parent / "outside.bin").write_bytes(bytes(4096))
    with pytest.raises(WeightsUnavailable, match="refused"):
        WeightReader(str(tmp_path / "model.onnx")).bits(constant)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_packed_typed_fields_are_seen_as_raw(tmp_path: Path, dtype: type) -> None:
    values = VALUES.astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    tensor = helper.make_tensor("w", kind, values.shape, values.ravel().tolist())
    assert np.array_equal(read(tmp_path, tensor).view(dtype), values.ravel())


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.uint8, np.int64])
def test_numbers_of_variable_length_are_decoded(tmp_path: Path, dtype: type) -> None:
    values = (VALUES % 100 - 20).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    tensor = helper.make_tensor("w", kind, values.shape, values.ravel().tolist())
    assert np.array_equal(read(tmp_path, tensor).view(dtype), values.ravel())


def test_types_narrower_than_a_byte_come_as_their_bytes(tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.INT4, dims=[4095])
    tensor.raw_data = bytes(range(256)) * 8
    assert read(tmp_path, tensor).size == math.ceil(4095 / 2)


def test_a_model_from_memory_has_no_values_to_view() -> None:
    constant = load_model(model_with(numpy_helper.from_array(VALUES, "w"))).graph.constants["w"]
    with pytest.raises(WeightsUnavailable, match="not read from a file"):
        WeightReader(None).bits(constant)
