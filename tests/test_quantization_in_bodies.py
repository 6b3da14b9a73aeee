"""Quantized values that enter and leave the bodies of If, Loop and Scan."""

from __future__ import annotations

import numpy as np
import pytest

import onnxroof
from tests.builders import costs, model, zeros

W = zeros("w", 8, 4, dtype=np.int8)


def test_a_gain_in_a_body_is_no_scale_of_another_body_with_equal_names() -> None:
    # h is in steps in the branch and a plain state in the loop: g's 4 numbers are trained
    proto = model(
        """agraph (uint8[2,8] x, bool k, float[2,4] u, int64 n) => (float[2,4] y, float[2,4] v) {
        y = If (k) <
            then_branch = one () => (float[2,4] a) {
                i = MatMulInteger(x, w) h = Cast <to = 1> (i) a = Mul(h, s) },
            else_branch = two () => (float[2,4] b) { b = Identity(u) }>
        v = Loop (n, , u) <body = three (int64 j, bool c, float[2,4] h) => (bool d, float[2,4] o) {
            d = Identity(c) o = Mul(h, g) }> }"""
    )
    proto.graph.initializer.extend([W, zeros("s", 4), zeros("g", 4)])
    found = onnxroof.analyze(proto).totals
    assert (found.parameters, found.quantization_bytes) == (8 * 4 + 4, 4 * 4)


@pytest.mark.parametrize(
    "node",
    [
        """y = Scan <num_scan_inputs = 2,
            body = b (float[2,8] h, int8[8,8] a, float[8] c) => (float[2,8] o) {
                d = DequantizeLinear <axis = 1> (a, c) o = MatMul(h, d) }> (x, k, s)""",
        """y, m, t = Loop (n, , x, v, r) <
            body = b (int64 i, bool g, float[2,8] h, int8[8,8] a, float[8] c)
                => (bool l, float[2,8] o, int8[8,8] e, float[8] f) {
                l = Identity(g) d = DequantizeLinear <axis = 1> (a, c) o = MatMul(h, d)
                e = Identity(a) f = Identity(c) }>""",
    ],
)
def test_a_scale_that_is_handed_to_a_body_is_no_parameter(node: str) -> None:
    # four layers of 8·8 weights scanned over, or the same 8·8 in every trip
    proto = model(f"agraph (float[2,8] x, int64 n) => (float[2,8] y) {{ {node} }}")
    layers = [zeros("k", 4, 8, 8, dtype=np.int8), zeros("s", 4, 8)]
    one = [zeros("v", 8, 8, dtype=np.int8), zeros("r", 8)]
    is_scan = "Scan" in node
    proto.graph.initializer.extend(layers if is_scan else one)
    found = onnxroof.analyze(proto).totals
    assert found.parameters == (4 * 8 * 8 if is_scan else 8 * 8)
    assert found.quantization_bytes == (4 * 8 * 4 if is_scan else 8 * 4)


def test_an_if_of_constants_alone_is_folded_and_read_as_one() -> None:
    # 8 parameters; nothing of the If is left for a kernel to wait for
    proto = model(
        """agraph (float[16,8] x) => (float[16,8] y) <bool k = {1}> {
        d = If (k) <then_branch = a () => (float[8] o) { o = Sqrt(v) },
            else_branch = b () => (float[8] p) { p = Exp(v) }>
        r = Relu(x) e = Mul(r, d) y = Sigmoid(e) }"""
    )
    proto.graph.initializer.append(zeros("v", 8))
    for runtime in ("none", "onnxruntime", "tensorrt", "torch-compile", "tflite"):
        found = onnxroof.analyze(proto, "v100", runtime=runtime)
        assert found.totals.parameters == 8
    assert costs(proto).nodes[0].status.value == "folded"


@pytest.mark.parametrize(
    "branch",
    ["o = DequantizeLinear(w, s)", "f = Cast <to = 1> (w) o = Mul(f, s)"],
)
def test_an_if_whose_branch_is_known_gives_out_what_it_holds(branch: str) -> None:
    # 8·4 weights and one scale, in a branch that is taken, as without the If
    taken = branch.replace("f =", "l =").replace("(f,", "(l,").replace("o =", "e =")
    body = f"""If (k) <then_branch = a () => (float[8,4] o) {{ {branch} }},
        else_branch = b () => (float[8,4] e) {{ {taken} }}>"""
    within = model(
        f"""agraph (float[2,8] x) => (float[2,4] y) <bool k = {{1}}> {{
        v = {body} y = MatMul(x, v) }}"""
    )
    without = model(f"agraph (float[2,8] x) => (float[2,4] y) {{ {branch} y = MatMul(x, o) }}")
    for proto in (within, without):
        proto.graph.initializer.extend([W, zeros("s")])
    found, expected = (onnxroof.analyze(proto).totals for proto in (within, without))
    assert found.parameters == expected.parameters == 32
    assert found.traffic_bytes == expected.traffic_bytes
