"""Hits carry their reason and saving, misses their cause."""

from __future__ import annotations

from onnxroof.fusion.explain import explain_fusion
from tests.fusion.plans import plan

CONV = (
    "g (float[1,4,8,8] x) => (float y) <float[4,4,1,1] w> "
    "{ c = Conv(x, w)  a = Add(c, x)  y = Relu(a) }"
)


def test_a_hit_tells_what_it_saves() -> None:
    (hit,) = explain_fusion(plan(CONV, "tensorrt")).hits
    assert hit.rule == "convolution-residual-activation"
    assert "accumulators" in hit.why
    # c and a are neither written nor read, x is read once instead of twice: 5 × 256 elements
    assert hit.saved_bytes == 5 * 256 * 4


def test_what_another_runtime_would_fuse_is_listed() -> None:
    (miss,) = explain_fusion(plan(CONV, "onnxruntime")).misses
    assert miss.reason == "not in this runtime"
    assert miss.rule == "convolution-residual-activation"
    assert miss.nodes == (0, 1, 2)


def test_a_candidate_that_failed_keeps_its_own_reason() -> None:
    text = CONV.replace("(float y)", "(float y, float a)")
    reasons = {miss.reason for miss in explain_fusion(plan(text, "tensorrt")).misses}
    assert "its intermediate result is a graph output" in reasons
