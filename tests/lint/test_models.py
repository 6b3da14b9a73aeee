"""What lint says about real models: nothing about a clean one, the known traps about the others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from onnxroof.api import analyze
from onnxroof.lint.command import lint
from onnxroof.lint.rule import Finding, Severity

MODELS = Path(__file__).parents[2] / "models"


def found(name: str, hardware: str = "", **options: str) -> tuple[Finding, ...]:
    listed = (hardware,) if hardware else ()
    analysis = analyze(MODELS / f"{name}.onnx", listed, keep_going=True, **options)  # type: ignore[arg-type]
    return lint(analysis, weights=False).findings


@pytest.mark.parametrize("hardware", ["", "v100", "mobile-arm", "10980xe"])
def test_a_clean_resnet50_has_nothing_to_warn_about(hardware: str) -> None:
    assert not [f for f in found("resnet50", hardware) if f.severity is not Severity.INFO]


def test_a_clean_resnet50_has_not_even_a_remark_on_v100() -> None:
    assert found("resnet50", "v100") == ()


def test_depthwise_convolutions_of_mobilenet_wait_for_memory_on_v100() -> None:
    counts = Counter(finding.name for finding in found("mobilenet_v2", "v100"))
    # 17 inverted residual blocks, each with one depthwise convolution
    assert counts["memory-bound-grouped-convolution"] == 17
    assert counts["arithmetic-waits-for-memory"] == 1


def test_swish_of_efficientnet_costs_on_a_runtime_that_does_not_fuse_it() -> None:
    costly = [f for f in found("efficientnet_b0", "mobile-arm") if f.name == "expensive-activation"]
    # the largest, 96 channels of 112×112 in fp32, as a Sigmoid kernel: read and written once
    assert max(f.saving_bytes or 0 for f in costly) == 2 * 96 * 112 * 112 * 4


def test_inception_has_odd_windows() -> None:
    odd = [f for f in found("inception_v3", "v100") if f.name == "uncommon-convolution-kernel"]
    windows = Counter(finding.message.partition(" is ")[2].partition(";")[0] for finding in odd)
    # blocks 5b–5d: a 5×5 each; 6b–6e: three 1×7 and three 7×1 each, and one of both in 7a;
    # 7b and 7c: two 1×3 and two 3×1 each
    assert windows == {"5×5": 3, "1×7": 13, "7×1": 13, "1×3": 4, "3×1": 4}


def test_an_unfused_export_is_told_to_fold_once() -> None:
    (finding,) = [
        f for f in found("resnet50_unfused", "v100") if f.name == "foldable-batch-normalization"
    ]
    assert dict(finding.facts)["count"] == 53  # torchvision's ResNet-50 has 53 convolutions


def test_without_fusion_every_normalization_is_a_kernel_that_costs() -> None:
    names = Counter(f.name for f in found("resnet50_unfused", "v100", runtime="none"))
    assert names["unfused-batch-normalization"] == 53


def test_qdq_nodes_are_blocked_on_a_runtime_without_integer_kernels() -> None:
    blocked = [f for f in found("mobilenet_v2_qdq", runtime="none") if f.code == "QNT001"]
    assert blocked
    assert not [f for f in found("mobilenet_v2_qdq", runtime="onnxruntime") if f.code == "QNT001"]


def test_operators_of_another_runtime_fall_back() -> None:
    fallen = {dict(f.facts)["operator"] for f in found("bert_small_dynq", "v100") if f.nodes and
              f.name == "runtime-fallback"}  # fmt: skip
    assert fallen == {"MatMulInteger", "DynamicQuantizeLinear"}


def test_vgg_holds_its_parameters_in_one_layer() -> None:
    (finding,) = [f for f in found("vgg16", "v100") if f.name == "dominant-layer"]
    assert finding.tensors == ("pre_logits.fc1.weight",)
    share = dict(finding.facts)["share"]
    assert share == pytest.approx(4096 * 512 * 7 * 7 / 138_357_544)
