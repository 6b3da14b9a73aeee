from __future__ import annotations

import copy
import dataclasses
import json
import logging
import pickle
import random
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import onnxroof
from onnxroof.errors import OnnxroofError, ProfileError, ShapeMismatchError, UsageError
from tests.builders import model

MODELS = Path(__file__).parents[1] / "models"
SMALL = ("squeezenet1_1", "bigru_2x256_dynamo", "mixtral_2l", "mobilenet_v2_qdq")
MATMUL = "agraph (float[N,8] x, float[8,4] w) => (float y) { y = MatMul(x, w) }"
CONTRADICTION = "agraph (float[2,3] x, float[4,5] w) => (float[] y) { y = MatMul(x, w) }"


def analysis_of(name: str) -> onnxroof.Analysis:
    return onnxroof.analyze(MODELS / f"{name}.onnx", ("v100", "10980xe"), dims=free(name))


def free(name: str) -> dict[str, int]:
    return {"sequence": 16} if name.endswith("_dynamic") else {}


# -- one call --------------------------------------------------------------------------------


def test_one_call_gives_everything() -> None:
    analysis = onnxroof.analyze(model(MATMUL), "v100", dims={"N": 2})
    assert analysis.totals.macs == 64
    assert analysis.nodes[0].flops == 128
    assert analysis.tensors["y"].shape == (2, 4)
    assert analysis.memory.peak_activation_bytes > 0
    assert analysis.rooflines[0].latency_seconds > 0
    assert analysis.coverage.complete
    assert analysis.inputs["x"].shape == (2, 8)


def test_without_hardware_there_is_no_time() -> None:
    assert onnxroof.analyze(model(MATMUL)).rooflines == ()


def test_several_devices_may_be_given_by_name_profile_or_file() -> None:
    names = ("v100", onnxroof.load_profile("10980xe"))
    rooflines = onnxroof.analyze(model(MATMUL), names).rooflines
    assert [result.hardware.name for result in rooflines] == ["v100", "10980xe"]


def test_fp16_halves_the_bytes_of_activations_and_reads() -> None:
    # [1,8] and [1,4] activations, [8,4] weights as inputs: 4·(8 + 32 + 4) bytes
    for precision, size in (
        ("", 4),
        ("fp32", 4),
        ("fp16", 2),
        ("bf16", 2),
        ("int8", 1),
        ("fp8", 1),
    ):
        totals = onnxroof.analyze(model(MATMUL), precision=precision).totals
        assert totals.traffic_bytes == size * 44


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "fp8", "int8"])
def test_scales_of_a_resize_are_known_at_any_precision(precision: str) -> None:
    # what steers shapes is a value, in whatever type weights are stored
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["u"]),
        helper.make_node("Relu", ["u"], ["y"]),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 1, 4, 5]), ("y", None))
    )
    scales = helper.make_tensor("scales", TensorProto.FLOAT, [4], [1, 1, 2, 3])
    proto = helper.make_model(helper.make_graph(nodes, "g", [x], [y], [scales]))
    analysis = onnxroof.analyze(proto, precision=precision)
    assert analysis.tensors["y"].shape == (1, 1, 2 * 4, 3 * 5)
    assert analysis.nodes[1].flops == 8 * 15


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "fp8", "int8"])
def test_shape_arithmetic_is_as_exact_as_in_the_file_at_any_precision(precision: str) -> None:
    # 32 · 10 = 320 is none of int8, 3000 · 32 = 96,000 none of fp16
    for factor, size in (("10.0", 320), ("3000.0", 96_000)):
        text = """agraph (float[32,1] x, float[SIZE] z) => (float y) <float[1] factor = {FACTOR}> {
            rows = Shape <start = 0, end = 1> (x) many = Cast <to = 1> (rows)
            more = Mul(many, factor) size = Cast <to = 7> (more) y = Reshape(z, size) }"""
        proto = model(text.replace("SIZE", str(size)).replace("FACTOR", factor))
        analysis = onnxroof.analyze(proto, precision=precision)
        assert analysis.tensors["y"].shape == (size,)


def test_small_weights_whose_elements_are_known_are_stored_in_the_precision_too() -> None:
    # x, y: 8 elements each, b: 8 elements, all of two bytes
    text = "agraph (float[8] x) => (float y) <float[8] b = {1,2,3,4,5,6,7,8}> { y = Add(x, b) }"
    assert onnxroof.analyze(model(text), precision="fp16").totals.traffic_bytes == 3 * 8 * 2


def test_precision_reaches_constants_that_are_computed_before_the_run() -> None:
    # Eight zeros, made when the model is loaded, are halves: x, zeros and y, 8 · 2 bytes each
    text = """agraph (float[8] x) => (float y) <int64[1] eight = {8}>
        { zeros = ConstantOfShape(eight) y = Add(x, zeros) }"""
    assert onnxroof.analyze(model(text), precision="fp16").totals.traffic_bytes == 3 * 8 * 2


def test_macs_of_a_precision_are_of_its_type() -> None:
    totals = onnxroof.analyze(model(MATMUL), precision="fp16").totals
    assert totals.macs_by_dtype == {"fp16": 32}


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"precision": "fp12"}, UsageError),
        ({"hardware": "v10"}, ProfileError),
        ({"hardware": "10980xe", "threads": 64}, ProfileError),
        ({"dims": {"M": 2}}, OnnxroofError),
        ({"peak": "best", "hardware": "v100"}, UsageError),
        ({"runtime": "mine"}, UsageError),
    ],
)
def test_an_argument_that_cannot_be_understood_is_an_error(
    how: dict[str, object], error: type[OnnxroofError]
) -> None:
    with pytest.raises(error):
        onnxroof.analyze(model(MATMUL), **how)  # type: ignore[arg-type]


def test_a_contradiction_is_an_error_or_a_problem() -> None:
    with pytest.raises(ShapeMismatchError):
        onnxroof.analyze(model(CONTRADICTION))
    analysis = onnxroof.analyze(model(CONTRADICTION), keep_going=True)
    assert len(analysis.problems) == 1
    assert analysis.totals.is_lower_bound


def test_library_code_neither_prints_nor_logs(capfd: pytest.CaptureFixture[str]) -> None:
    handlers = list(logging.getLogger().handlers)
    onnxroof.analyze(MODELS / "squeezenet1_1.onnx", "v100").to_dict()
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger().handlers == handlers


# -- the same again --------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_two_runs_give_one_report(name: str) -> None:
    first, second = (json.dumps(analysis_of(name).to_dict()) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", SMALL)
def test_an_analysis_survives_pickling(name: str) -> None:
    analysis = analysis_of(name)
    for other in (pickle.loads(pickle.dumps(analysis)), copy.deepcopy(analysis)):
        assert other.to_dict() == analysis.to_dict()


def test_an_unpickled_analysis_still_finds_its_formulas() -> None:
    analysis = pickle.loads(pickle.dumps(onnxroof.analyze(model(MATMUL), precision="fp16")))
    assert str(analysis.formula("macs")) == "32·N"
    assert str(analysis.formula("traffic_bytes")) == "24·N + 64"


@pytest.mark.parametrize("name", sorted(file.stem for file in MODELS.glob("*.onnx")))
def test_every_shipped_model_is_counted_whole(name: str) -> None:
    proto = onnx.load(MODELS / f"{name}.onnx", load_external_data=False)
    dims = {
        dim.dim_param: 8
        for item in proto.graph.input
        for dim in item.type.tensor_type.shape.dim
        if dim.dim_param and "+" not in dim.dim_param
    }
    analysis = onnxroof.analyze(MODELS / f"{name}.onnx", "10980xe", dims=dims)
    assert analysis.coverage.complete, analysis.coverage.unknown
    assert not analysis.unresolved
    assert analysis.totals.macs > 0


# -- graphs that are not what they should be -------------------------------------------------


def broken(proto: onnx.ModelProto, source: random.Random) -> onnx.ModelProto:
    """The model with a few fields changed for others that parse."""
    copied = onnx.ModelProto()
    copied.CopyFrom(proto)
    for _ in range(source.randint(1, 3)):
        node = source.choice(copied.graph.node)
        if source.randrange(3) == 0 and node.attribute:
            break_attribute(node, source)
        elif source.randrange(3) == 0 and copied.graph.initializer:
            tensor = source.choice(copied.graph.initializer)
            tensor.data_type = source.choice([tensor.data_type, source.randint(0, 25)])
            tensor.dims[:] = [source.choice([0, 1, 2, 3, 64, 2**31]) for _ in tensor.dims]
        else:
            break_edges(node, copied.graph, source)
    return copied


def break_attribute(node: onnx.NodeProto, source: random.Random) -> None:
    position = source.randrange(len(node.attribute))
    attribute = node.attribute[position]
    change = source.randrange(3)
    if change == 0:
        del node.attribute[position]
    elif change == 1:
        attribute.type = source.randint(0, 14)
    else:
        attribute.i = source.choice([-1, 0, 1, 7, 2**62, -(2**63)])
        values = [source.choice([-3, 0, 1, 2, 5, 2**40]) for _ in attribute.ints]
        attribute.ClearField("ints")
        attribute.ints.extend(values[: source.randint(0, len(values) + 1)])


def break_edges(node: onnx.NodeProto, graph: onnx.GraphProto, source: random.Random) -> None:
    names = [name for other in graph.node for name in (*other.input, *other.output)]
    change = source.randrange(4)
    if change == 0 and node.input:
        del node.input[source.randrange(len(node.input))]
    elif change == 1 and node.input:
        node.input[source.randrange(len(node.input))] = source.choice(names)
    elif change == 2 and node.output:
        node.output[0] = source.choice(["", "other", node.output[0] + "x"])
    else:
        node.op_type = source.choice(graph.node).op_type


def check_broken(name: str, seed: int, rounds: int) -> None:
    proto = onnx.load(MODELS / f"{name}.onnx", load_external_data=False)
    source = random.Random(seed)
    for _ in range(rounds):
        candidate = broken(proto, source)
        try:
            onnxroof.analyze(candidate, "v100", dims=free(name), keep_going=True).to_dict()
        except OnnxroofError:
            continue


BREAKABLE = (
    "squeezenet1_1", "bigru_2x256_dynamo", "mobilenet_v2_qop", "lstm_2x512_dynamic", "magika",
    "bert_small_nbits4", "shufflenet_v2_x1_0", "light_densenet121",
)  # fmt: skip


@pytest.mark.parametrize("name", BREAKABLE[:3])
def test_a_malformed_graph_is_an_error_or_an_answer(name: str) -> None:
    check_broken(name, seed=1, rounds=15)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", sorted(file.stem for file in MODELS.glob("*.onnx")))
def test_many_malformed_graphs_are_errors_or_answers(name: str, seed: int) -> None:
    check_broken(name, seed=seed, rounds=20)


def test_what_is_said_of_a_device_does_not_depend_on_the_others() -> None:
    # TensorRT's kernels have no workspace where ONNX Runtime's lower convolutions to matrices
    model = MODELS / "resnet50.onnx"
    both = [onnxroof.analyze(model, order) for order in (("v100", "10980xe"), ("10980xe", "v100"))]
    for name in ("v100", "10980xe"):
        alone = onnxroof.analyze(model, name)
        expected = list(alone.to_dict()["memory"]["budgets"])
        for analysis in both:
            found = analysis.to_dict()["memory"]["budgets"]
            assert [item for item in found if item["hardware"] == name] == expected
            (device,) = [
                at for at, result in enumerate(analysis.rooflines) if result.hardware.name == name
            ]
            assert len(analysis.kernels_on(device).kernels) == len(alone.kernels.kernels)
            assert analysis.kernels_on(device).traffic_bytes == alone.kernels.traffic_bytes
            assert analysis.memory_on(device).fused_peak.nbytes == alone.memory.fused_peak.nbytes
    assert both[0].kernels.traffic_bytes != both[1].kernels.traffic_bytes


def test_two_devices_of_one_name_are_told_apart() -> None:
    profile = onnxroof.load_profile("v100")
    faster = dataclasses.replace(profile, kernel_overhead_seconds=0.0)
    analysis = onnxroof.analyze(MODELS / "resnet50.onnx", [profile, faster])
    assert [result.hardware.name for result in analysis.rooflines] == ["v100", "v100_2"]
    assert analysis.rooflines[1].bound_seconds < analysis.rooflines[0].bound_seconds


def test_threads_of_a_device_without_any_are_said_to_change_nothing() -> None:
    analysis = onnxroof.analyze(MODELS / "resnet50.onnx", ["v100", "mobile-arm"], threads=2)
    said = [line for line in analysis.assumptions if "no threads" in line]
    assert said == ["v100 has no threads: the number asked for changes nothing there"]
