"""MACs and parameters of models/ against what PyTorch counted and what the authors published.

PyTorch's MACs are half of `torch.utils.flop_counter` on the exported module, its parameters the sum
over `module.parameters()`. Where the graph holds something else, the difference is spelled out.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.golden.refresh import MODELS, golden_totals


class Count(NamedTuple):
    """A count by PyTorch and what the graph has more or less of."""

    counted: int
    difference: int = 0


RESNET50 = 25_557_032
MOBILENET_V2 = 3_504_872
BERT_BASE, MINILM, BERT_SMALL = 109_482_240, 22_713_216, 28_763_648
GPT2 = 124_439_808
POSITIONS_FOLDED = -(512 - 128) * 512
"""BERT-small at 128 tokens keeps the rows of its position table that it needs."""


def folded(channels: int) -> int:
    """BatchNormalization in the convolution: one bias where scale and bias were."""
    return channels - 2 * channels


def apart(channels: int) -> int:
    """BatchNormalization as a node: its running mean and variance are tensors of the graph."""
    return 2 * channels


def no_pooler(width: int) -> int:
    """A dense layer on the first token that the exported output does not need."""
    return -(width * width + width)


PARAMETERS = {
    "resnet50": Count(RESNET50, folded(26_560)),
    "resnet50_dynamo": Count(RESNET50, folded(26_560)),
    "resnet50_fp16": Count(RESNET50, folded(26_560)),
    "resnet50_ort_all": Count(RESNET50, folded(26_560)),
    "resnet50_ort_extended": Count(RESNET50, folded(26_560)),
    "resnet50_unfused": Count(RESNET50, apart(26_560)),
    "vgg16": Count(138_357_544),
    "squeezenet1_1": Count(1_235_496),
    "shufflenet_v2_x1_0": Count(2_278_604, folded(8_090)),
    "mobilenet_v2": Count(MOBILENET_V2, folded(17_056)),
    "mobilenet_v2_unfused": Count(MOBILENET_V2, apart(17_056)),
    "mobilenet_v2_qdq": Count(MOBILENET_V2, folded(17_056)),
    "mobilenet_v2_qop": Count(MOBILENET_V2, folded(17_056)),
    "mobilenet_v3_large": Count(5_483_032, folded(12_200)),
    "efficientnet_b0": Count(5_288_548, folded(21_008)),
    # The auxiliary classifier serves training only.
    "inception_v3": Count(27_161_264, folded(17_216) - 3_326_696),
    "convnext_tiny": Count(28_589_128),
    "deeplabv3_mobilenet_v3_large": Count(11_029_328, folded(14_002)),
    "vit_b_16": Count(86_567_656),
    "bert_base_dynamic": Count(BERT_BASE, no_pooler(768)),
    "minilm_l6_dynamo": Count(MINILM, no_pooler(384)),
    "bert_small_dynq": Count(BERT_SMALL, no_pooler(512)),
    "bert_small_nbits4": Count(BERT_SMALL, no_pooler(512)),
    "bert_small_ort_extended": Count(BERT_SMALL, no_pooler(512) + POSITIONS_FOLDED),
    # The embedding table a second time, transposed, for the output projection.
    "gpt2_dynamic": Count(GPT2, 50_257 * 768),
    "gpt2_decode_dynamic": Count(GPT2, 50_257 * 768),
    "whisper_tiny_decoder": Count(29_552_256, 51_865 * 384),
    "lstm_2x512_dynamic": Count(4_202_496),
}

MACS = {
    "resnet50": Count(4_089_184_256),
    "resnet50_dynamo": Count(4_089_184_256),
    "resnet50_fp16": Count(4_089_184_256),
    "resnet50_ort_all": Count(4_089_184_256),
    "resnet50_ort_extended": Count(4_089_184_256),
    "resnet50_unfused": Count(4_089_184_256),
    "vgg16": Count(15_470_264_320),
    "squeezenet1_1": Count(349_151_936),
    "shufflenet_v2_x1_0": Count(144_907_992),
    "mobilenet_v2": Count(300_774_272),
    "mobilenet_v2_unfused": Count(300_774_272),
    "mobilenet_v2_qdq": Count(300_774_272),
    "mobilenet_v2_qop": Count(300_774_272),
    "mobilenet_v3_large": Count(216_589_760),
    "efficientnet_b0": Count(385_814_752),
    "inception_v3": Count(5_713_216_096),
    # PyTorch's count of torchvision's DenseNet-121, which this file holds in Caffe2's form.
    "light_densenet121": Count(2_834_161_664),
    "convnext_tiny": Count(4_455_531_264),
    "deeplabv3_mobilenet_v3_large": Count(10_452_447_938),
    "vit_b_16": Count(17_563_828_224),
    "swin_t_dynamo": Count(4_490_566_656),
    "ssdlite320_mobilenet_v3_large": Count(583_171_904),
    "fasterrcnn_mobilenet_v3_large_320_fpn": Count(2_872_931_200),
    "bert_base_dynamic": Count(11_174_215_680, -768 * 768),
    "minilm_l6_dynamo": Count(1_434_599_424, -384 * 384),
    "bert_small_dynq": Count(1_677_983_744, -512 * 512),
    "bert_small_nbits4": Count(1_677_983_744, -512 * 512),
    "bert_small_ort_extended": Count(1_677_983_744, -512 * 512),
    "gpt2_dynamic": Count(16_114_089_984),
    "gpt2_decode_dynamic": Count(125_909_760),
    "mixtral_2l": Count(920_911_872),
    "whisper_tiny_decoder": Count(2_294_765_568),
    "lstm_2x512_dynamic": Count(419_430_400),
    "bigru_2x256_dynamo": Count(141_557_760),
    "deepspeech2": Count(6_713_129_600),
}

PUBLISHED_GIGA_MACS = {
    "resnet50": 4.089,
    "vgg16": 15.47,
    "squeezenet1_1": 0.349,
    "shufflenet_v2_x1_0": 0.145,
    "mobilenet_v2": 0.301,
    "mobilenet_v3_large": 0.217,
    "efficientnet_b0": 0.386,
    "inception_v3": 5.713,
    "light_densenet121": 2.834,
    "deeplabv3_mobilenet_v3_large": 10.452,
    "vit_b_16": 17.564,
    "swin_t_dynamo": 4.491,
    "ssdlite320_mobilenet_v3_large": 0.583,
}
"""Torchvision's published figures, in its three decimals."""


@pytest.mark.parametrize("name", MACS)
def test_macs_are_those_pytorch_counted(name: str) -> None:
    assert golden_totals(name)["macs"] == sum(MACS[name])


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_pytorch_counted(name: str) -> None:
    assert golden_totals(name)["parameters"] == sum(PARAMETERS[name])


@pytest.mark.parametrize("name", PUBLISHED_GIGA_MACS)
def test_macs_round_to_the_published_figure(name: str) -> None:
    macs = golden_totals(name)["macs"]
    assert isinstance(macs, int)
    assert round(macs / 1e9, 3) == PUBLISHED_GIGA_MACS[name]


def test_every_model_with_a_reference_is_in_the_folder() -> None:
    assert {*MACS, *PARAMETERS} <= {file.stem for file in MODELS.glob("*.onnx")}
