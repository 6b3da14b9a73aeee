from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxroof
from onnxroof.errors import InvalidGraphError, ModelUnreadableError, OnnxroofError
from onnxroof.graph.load import load_model
from tests.builders import model

MODELS = Path(__file__).parents[2] / "models"


def relu_model() -> onnx.ModelProto:
    return model("agraph (float[2,3] x) => (float[2,3] y) { y = Relu(x) }")


def external(location: str, *more: tuple[str, str]) -> onnx.ModelProto:
    """A MatMul whose weight lies in another file; `more` are further entries, in order."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), *more):
        tensor.external_data.add(key=key, value=value)
    proto = model("agraph (float[1,4] x) => (float[1,4] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(tensor)
    return proto


# -- sources ---------------------------------------------------------------------------------


def test_a_path_bytes_and_a_proto_give_the_same_analysis() -> None:
    source = MODELS / "mobilenet_v2_unfused.onnx"
    reports = []
    proto = onnx.load(source, load_external_data=False)
    for item in (source, str(source), source.read_bytes(), proto):
        analysis = onnxroof.analyze(item)
        reports.append((analysis.totals, analysis.memory.peak_activation_bytes))
    assert reports.count(reports[0]) == 4


def test_bytes_of_every_kind_are_read() -> None:
    data = relu_model().SerializeToString()
    for source in (data, bytearray(data), memoryview(data)):
        assert load_model(source).file_bytes == len(data)


def test_a_proto_is_not_modified() -> None:
    proto = onnx.load(MODELS / "squeezenet1_1.onnx", load_external_data=False)
    before = proto.SerializeToString(deterministic=True)
    onnxroof.analyze(proto)
    assert proto.SerializeToString(deterministic=True) == before


def test_a_proto_with_its_weights_gives_what_its_bytes_give() -> None:
    proto = model("agraph (float[1,64] x) => (float[1,64] y) { y = MatMul(x, w) }")
    weight = np.ones((64, 64), np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    for source in (proto, proto.SerializeToString()):
        totals = onnxroof.analyze(source).totals
        assert (totals.macs, totals.parameters, totals.weight_bytes) == (4096, 4096, 4 * 4096)


def test_facts_of_the_file_are_kept(tmp_path: Path) -> None:
    proto = relu_model()
    proto.producer_name, proto.producer_version = "maker", "2.0"
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    loaded = load_model(path)
    assert loaded.producer == "maker 2.0"
    assert loaded.opsets == {"": 21}
    assert loaded.ir_version == 10
    assert (loaded.path, loaded.file_bytes) == (str(path), path.stat().st_size)


def test_something_else_is_refused_by_its_type() -> None:
    with pytest.raises(ModelUnreadableError, match="int"):
        load_model(3)  # type: ignore[arg-type]


# -- files that are not models ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs"),
        (b"PK\x03\x04rest", "zip"),
        (gzip.compress(b"x", mtime=0), "unpack"),
        (b"\x89HDF\r\n", "HDF5"),
        (b"\x89PNG\r\n\x1a\n", "a PNG picture"),
        (b"\x1c\0\0\0TFL3", "a TensorFlow Lite model"),
        (b"{}", "not an ONNX model|truncated"),
        (b"hello world\n", "a text file, not an ONNX model"),
        # the 32 bytes that are looked at end within a letter
        ("Text mit einem Umlaut am Ende: ä".encode(), "a text file, not an ONNX model"),
        (b"some text,\tmore of it\r\n", "a text file, not an ONNX model"),
        (b"\x08\x0a", "no graph"),
        ("Netron läuft".encode(), "a text file, not an ONNX model"),
    ],
)
def test_a_file_that_is_no_model_is_told_by_what_it_is(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelUnreadableError, match=message) as caught:
        load_model(path)
    assert str(path) in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_said_to_be_truncated(share: float, tmp_path: Path) -> None:
    data = (MODELS / "squeezenet1_1.onnx").read_bytes()
    path = tmp_path / "m.onnx"
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(ModelUnreadableError, match="truncated"):
        load_model(path)


def test_of_a_truncated_file_it_is_asked_whether_it_was_copied_whole() -> None:
    # field 7, the graph, says five bytes and has two
    with pytest.raises(ModelUnreadableError, match=r"needs 3 bytes more .* copied whole"):
        load_model(b"\x08\x0a\x3a\x05ab")


def test_a_missing_file_and_a_folder_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ModelUnreadableError, match="No such file"):
        load_model(tmp_path / "none.onnx")
    with pytest.raises(ModelUnreadableError, match="a folder, not a model; `onnxroof rank`"):
        load_model(tmp_path)
    with pytest.raises(ModelUnreadableError, match="cannot be read"):
        load_model("a\0b.onnx")


def test_an_empty_graph_is_refused() -> None:
    proto = onnx.ModelProto(ir_version=10, opset_import=[helper.make_opsetid("", 21)])
    proto.graph.name = "empty"
    with pytest.raises(InvalidGraphError, match="neither nodes nor outputs"):
        load_model(proto)


def test_a_graph_of_constants_alone_is_a_model() -> None:
    proto = model("agraph () => (float[2] y) { y = Constant <value = float[2] {1.0, 2.0}> () }")
    analysis = onnxroof.analyze(proto)
    assert analysis.tensors["y"].shape == (2,)
    assert (analysis.totals.flops, analysis.totals.parameters) == (0, 2)


# -- external data ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "location",
    ["../w.bin", "/etc/passwd", "C:\\w.bin", "c:w.bin", "a/../../w.bin", "..\\w.bin", "",
     "\\\\host\\w", "a/.."],
)  # fmt: skip
def test_external_data_outside_the_folder_is_refused(location: str) -> None:
    with pytest.raises(InvalidGraphError, match="leaves the model's folder") as caught:
        load_model(external(location))
    assert "'w'" in str(caught.value)


def test_a_second_location_is_never_used() -> None:
    # The first one is what was checked, so it is also what a reader of the bytes is given.
    model = load_model(external("w.bin", ("location", "../w.bin")))
    payload = model.graph.constants["w"].payload
    assert payload is not None
    assert payload.file == "w.bin"


def test_external_data_are_counted_without_being_opened(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(external("w.bin", ("offset", "16"), ("length", "64")).SerializeToString())
    analysis = onnxroof.analyze(path)
    assert (analysis.totals.parameters, analysis.totals.weight_bytes) == (16, 64)
    assert analysis.model.external_files == ("w.bin",)
    assert any("missing" in said and "'w.bin'" in said for said in analysis.assumptions)
    payload = analysis.model.graph.constants["w"].payload
    assert payload is not None
    assert (payload.file, payload.offset_bytes, payload.length_bytes) == ("w.bin", 16, 64)


def test_external_data_that_are_there_need_no_remark(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(b"")
    path = tmp_path / "m.onnx"
    path.write_bytes(external("data/w.bin").SerializeToString())
    assert not onnxroof.analyze(path).assumptions


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "tab\there"])
def test_odd_names_of_data_files_are_only_missing(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(external(name).SerializeToString())
    (said,) = onnxroof.analyze(path).assumptions
    assert "external data missing" in said
    assert said.isprintable()
    assert len(said) < 500


@pytest.mark.parametrize("number", ["-1", "9" * 5000, "x", "٣", ""])
def test_offsets_that_are_no_numbers_are_no_crash(number: str) -> None:
    loaded = load_model(external("w.bin", ("offset", number), ("length", number)))
    payload = loaded.graph.constants["w"].payload
    assert payload is not None
    assert (payload.offset_bytes, payload.length_bytes) == (0, None)


@pytest.mark.parametrize("entry", [("offset", "16"), ("\0payload", "7"), ("Location", "w.bin")])
def test_external_data_without_a_location_are_refused(entry: tuple[str, str]) -> None:
    proto = external("w.bin")
    tensor = proto.graph.initializer[0]
    del tensor.external_data[:]
    tensor.external_data.add(key=entry[0], value=entry[1])
    with pytest.raises(InvalidGraphError, match="leaves the model's folder"):
        load_model(proto)


# -- repairs ---------------------------------------------------------------------------------


def test_initializers_listed_as_inputs_of_an_old_file_are_weights() -> None:
    # Conv of IR 3: y is 1×4×6×6 = 144 elements of 27 products each; 4·27 + 4 = 112 parameters
    proto = model(
        """agraph (float[1,3,8,8] x, float[4,3,3,3] w, float[4] b) => (float y)
        { y = Conv(x, w, b) }""",
        opset=8, ir=3,
    )  # fmt: skip
    proto.graph.initializer.append(helper.make_tensor("w", 1, [4, 3, 3, 3], [0.0] * 108))
    proto.graph.initializer.append(helper.make_tensor("b", 1, [4], [0.0] * 4))
    analysis = onnxroof.analyze(proto)
    assert list(analysis.inputs) == ["x"]
    totals = analysis.totals
    assert (totals.macs, totals.flops, totals.parameters) == (3888, 2 * 3888 + 144, 112)
    assert any("also lists as inputs" in sentence for sentence in analysis.assumptions)


def test_a_newer_file_may_do_so_without_a_remark() -> None:
    # From IR 4 on it means a default that the caller may override: still a weight
    proto = model("agraph (float[4] x, float[4] w) => (float y) { y = Add(x, w) }")
    proto.graph.initializer.append(helper.make_tensor("w", 1, [4], [0.0] * 4))
    analysis = onnxroof.analyze(proto)
    assert (list(analysis.inputs), analysis.totals.parameters) == (["x"], 4)
    assert not analysis.assumptions


def test_an_unsorted_graph_is_sorted_and_said_so() -> None:
    proto = model(
        """agraph (float[2,4] x, float[4,8] v, float[8,3] w) => (float y)
        { y = MatMul(b, w)  b = Relu(a)  a = MatMul(x, v) }"""
    )
    analysis = onnxroof.analyze(proto)
    assert [node.op_type for node in analysis.nodes] == ["MatMul", "Relu", "MatMul"]
    assert analysis.totals.macs == 2 * 4 * 8 + 2 * 8 * 3
    assert any("not topologically sorted" in sentence for sentence in analysis.assumptions)


def test_names_that_are_not_utf8_are_read_with_escapes() -> None:
    # "Größe" in Latin-1: ö is 0xf6, ß is 0xdf, neither valid UTF-8 there
    data = model("agraph (float[2] x) => (float y) { grXXe = Relu(x)  y = Relu(grXXe) }")
    broken = data.SerializeToString().replace(b"grXXe", b"gr\xf6\xdfe")
    analysis = onnxroof.analyze(broken)
    assert analysis.tensors["gr\\xf6\\xdfe"].shape == (2,)
    assert any("not UTF-8" in sentence for sentence in analysis.assumptions)
    assert analysis.totals.flops == 4


@pytest.mark.parametrize("place", [b"my.domain", b"MyOp", b"my node", b"a scope", b"free_dim"])
def test_any_text_may_be_something_other_than_utf8(place: bytes) -> None:
    node = helper.make_node("MyOp", ["x"], ["y"], name="my node", domain="my.domain")
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'a scope']")
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("x", 1, [1, "free_dim"])],
        [helper.make_tensor_value_info("y", 1, [1])],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("my.domain", 1)]
    data = helper.make_model(graph, opset_imports=imports).SerializeToString()
    broken = data.replace(place, b"\xff" * len(place))
    loaded = load_model(broken)
    assert any("not UTF-8" in sentence for sentence in loaded.assumptions)
    onnxroof.analyze(broken, input_shapes={"x": (1, 4)}).to_dict()


# -- weights stay out ------------------------------------------------------------------------


def test_only_tiny_tensors_keep_their_values() -> None:
    proto = model("agraph (float[1,512] x) => (float y, float z) { y = Add(x, w) z = Add(x, v) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(512, np.float32), "w"))
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), "v"))
    constants = load_model(proto).graph.constants
    assert constants["w"].value is None
    assert not constants["w"].may_have_value
    assert constants["v"].value == np.ones(1, np.float32)


@pytest.mark.parametrize("file", sorted(MODELS.glob("*.onnx")), ids=lambda file: file.stem)
def test_every_shipped_model_loads(file: Path) -> None:
    loaded = load_model(file)
    assert loaded.graph.nodes
    assert [node.index for node in loaded.graph.nodes] == list(range(len(loaded.graph.nodes)))


def test_errors_of_loading_are_onnxroof_errors() -> None:
    with pytest.raises(OnnxroofError):
        onnxroof.analyze(b"\x00")
