"""PyTorch modules priced without their weights; runs where PyTorch is installed."""

from __future__ import annotations

import pytest

import onnxroof
from onnxroof import CostFunction

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

pytestmark = pytest.mark.filterwarnings("ignore")


def network() -> object:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(),
        nn.Linear(64 * 16 * 16, 1000),
    ).eval()  # fmt: skip


def test_a_module_is_priced_with_its_weights_left_where_they_are() -> None:
    proto = CostFunction.from_torch(network(), torch.zeros(1, 3, 32, 32))
    assert proto.ByteSize() < 100_000  # its weights take 65 MB
    # 16·16·64·27 of the convolution and 16384·1000 of the linear layer
    assert CostFunction("v100", "macs")(proto) == 16 * 16 * 64 * 27 + 16_384 * 1000
    # weights and biases; batch normalization has four vectors
    parameters = (64 * 27 + 64) + 4 * 64 + (16_384 * 1000 + 1000)
    assert CostFunction("v100", "parameters")(proto) == parameters


def test_a_module_without_weights_costs_the_same() -> None:
    with torch.device("meta"):
        shadow = network()
    example = torch.zeros(1, 3, 32, 32)
    cost = CostFunction("v100", ("latency_seconds", "parameters"))
    assert cost(cost.from_torch(shadow, example)) == cost(cost.from_torch(network(), example))


def test_what_cannot_be_exported_is_an_error_that_says_so() -> None:
    class Odd(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(onnxroof.UsageError, match="cannot export"):
        CostFunction.from_torch(Odd(), torch.zeros(3))
