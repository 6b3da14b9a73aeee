"""The networks of this folder as PyTorch modules with example inputs, and the two exporters.

Every function returns a ``Source``: a module in inference mode with random weights, the inputs to
trace it with, the names of inputs and outputs, and which of their axes are free.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx
import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Mapping

OPSET = 17
BERT_SMALL = {
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 2048,
}
MINILM_L6 = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}


@dataclass(frozen=True, slots=True)
class Source:
    """A module and what an exporter must know to trace it."""

    module: nn.Module
    inputs: dict[str, torch.Tensor]
    outputs: tuple[str, ...] = ("logits",)
    free_axes: dict[str, dict[int, str]] = field(default_factory=dict)


def prepared(module: nn.Module) -> nn.Module:
    """The module in inference mode, no two of its tensors equal.

    Fresh networks hold many equal tensors (ones, zeros), which the exporters would merge; trained
    networks do not.
    """
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            if tensor.is_floating_point():
                tensor.add_(torch.rand_like(tensor) * 1e-3)
    return module.eval()


def export_torchscript(source: Source, *, fold: bool = True) -> onnx.ModelProto:
    """Export by tracing; with ``fold`` constants fold and Conv absorbs BatchNormalization."""
    keep = torch.onnx.TrainingMode.PRESERVE
    stream = io.BytesIO()
    torch.onnx.export(
        prepared(source.module),
        tuple(source.inputs.values()),
        stream,
        dynamo=False,
        opset_version=OPSET,
        input_names=list(source.inputs),
        output_names=list(source.outputs),
        dynamic_axes=source.free_axes,
        do_constant_folding=fold,
        training=torch.onnx.TrainingMode.EVAL if fold else keep,
    )
    return onnx.load_model_from_string(stream.getvalue())


def export_dynamo(source: Source) -> onnx.ModelProto:
    """Export through ``torch.export`` with the exporter's own opset and optimizer."""
    shapes = None
    if source.free_axes:
        shapes = tuple(source.free_axes.get(name, {}) for name in source.inputs)
    program = torch.onnx.export(
        prepared(source.module),
        tuple(source.inputs.values()),
        dynamo=True,
        input_names=list(source.inputs),
        output_names=list(source.outputs),
        dynamic_shapes=shapes,
        verbose=False,
    )
    return program.model_proto


def image(size: int) -> torch.Tensor:
    """One RGB image, [1, 3, size, size]."""
    return torch.rand(1, 3, size, size)


def torchvision_classifier(
    name: str, size: int = 224, free_batch: str = "", **settings: bool
) -> Source:
    """A torchvision classification network without trained weights."""
    from torchvision.models import get_model

    free = {"input": {0: free_batch}} if free_batch else {}
    module = get_model(name, weights=None, **settings)
    return Source(module, {"input": image(size)}, free_axes=free)


def timm_classifier(name: str, size: int = 224, free_batch: str = "") -> Source:
    """A timm network without trained weights."""
    import timm

    free = {key: {0: free_batch} for key in ("input", "logits")} if free_batch else {}
    module = timm.create_model(name, pretrained=False)
    return Source(module, {"input": image(size)}, free_axes=free)


class Values(nn.Module):
    """Hands the values of the dictionaries that a torchvision task network returns on as tuples."""

    def __init__(self, network: nn.Module, *, listed: bool) -> None:
        super().__init__()
        self.network = network
        self.listed = listed

    def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Segmenters take a batch and return one dictionary; detectors take and return lists."""
        if self.listed:
            return tuple(self.network([pixels[0]])[0].values())
        return tuple(self.network(pixels).values())


def torchvision_segmenter(name: str, size: int = 520) -> Source:
    """A torchvision segmentation network with its auxiliary head."""
    from torchvision.models import get_model

    network = get_model(name, weights=None, weights_backbone=None, aux_loss=True)
    module = Values(network, listed=False)
    return Source(module, {"input": image(size)}, outputs=("out", "aux"))


def torchvision_detector(name: str, size: int = 320) -> Source:
    """A torchvision detection network, post-processing included."""
    from torchvision.models import get_model

    network = get_model(name, weights=None, weights_backbone=None)
    module = Values(network, listed=True)
    return Source(module, {"input": image(size)}, outputs=("boxes", "scores", "labels"))


class Picked(nn.Module):
    """A transformers model called by keyword, reduced to one field of what it returns."""

    def __init__(self, network: nn.Module, names: tuple[str, ...], result: str) -> None:
        super().__init__()
        self.network = network
        self.names = names
        self.result = result

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Run without a cache."""
        known = dict(zip(self.names, tensors, strict=True))
        return getattr(self.network(**known, use_cache=False), self.result)


def tokens(*shape: int) -> torch.Tensor:
    """Token identifiers, all one."""
    return torch.ones(shape, dtype=torch.int64)


def bert(settings: Mapping[str, int], sequence: int, *, free: bool = False) -> Source:
    """A BERT encoder; the default settings are those of BERT-base, uncased."""
    from transformers import BertConfig, BertModel

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = BertModel(BertConfig(**settings))

        def forward(
            self,
            input_ids: torch.Tensor,
            attention_mask: torch.Tensor,
            token_type_ids: torch.Tensor,
        ) -> torch.Tensor:
            return self.network(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
            ).last_hidden_state

    names = ("input_ids", "attention_mask", "token_type_ids")
    axes = {0: "batch", 1: "sequence"}
    free_axes = dict.fromkeys(names, axes) if free else {}
    return Source(
        Encoder(), dict.fromkeys(names, tokens(1, sequence)), ("output",), free_axes=free_axes
    )


def gpt2_prefill() -> Source:
    """GPT-2 reading a prompt of any length."""
    from transformers import GPT2Config, GPT2LMHeadModel

    names = ("input_ids", "attention_mask")
    module = Picked(GPT2LMHeadModel(GPT2Config()), names, "logits")
    axes = {0: "batch", 1: "sequence"}
    free = dict.fromkeys((*names, "logits"), axes)
    return Source(module, dict.fromkeys(names, tokens(1, 128)), free_axes=free)


class CachedDecoder(nn.Module):
    """GPT-2 taking and returning its key/value cache as plain tensors."""

    def __init__(self) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        super().__init__()
        self.network = GPT2LMHeadModel(GPT2Config())

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        *past: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """Return the logits and, layer by layer, the lengthened keys and values."""
        from transformers import DynamicCache

        pairs = list(zip(past[::2], past[1::2], strict=True))
        result = self.network(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=DynamicCache(ddp_cache_data=pairs),
            use_cache=True,
        )
        present = [tensor for layer in result.past_key_values for tensor in layer[:2]]
        return (result.logits, *present)


def gpt2_decode(past: int = 128) -> Source:
    """GPT-2 producing one token after ``past`` cached ones, [1, 12, past, 64] per layer."""
    inputs = {
        "input_ids": tokens(1, 1),
        "attention_mask": tokens(1, past + 1),
        "position_ids": torch.full((1, 1), past),
    }
    free = {
        "input_ids": {0: "batch"},
        "attention_mask": {0: "batch", 1: "past_sequence + 1"},
        "position_ids": {0: "batch"},
        "logits": {0: "batch"},
    }
    outputs = ["logits"]
    for layer in range(12):
        for kind in ("key", "value"):
            entry, present = f"past_key_values.{layer}.{kind}", f"present.{layer}.{kind}"
            inputs[entry] = torch.rand(1, 12, past, 64)
            outputs.append(present)
            free[entry] = {0: "batch", 2: "past_sequence"}
            free[present] = {0: "batch", 2: "past_sequence + 1"}
    return Source(CachedDecoder(), inputs, tuple(outputs), free_axes=free)


def mixtral() -> Source:
    """A two-layer Mixtral: 8 experts, 2 a token, 8 query and 2 key/value heads."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        hidden_size=512,
        intermediate_size=1792,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        experts_implementation="batched_mm",
    )
    names = ("input_ids", "attention_mask")
    module = Picked(MixtralForCausalLM(config), names, "logits")
    return Source(module, dict.fromkeys(names, tokens(1, 32)))


class SpeechDecoder(nn.Module):
    """The decoder of a Whisper model with its output projection."""

    def __init__(self) -> None:
        from transformers import WhisperConfig, WhisperForConditionalGeneration

        super().__init__()
        whole = WhisperForConditionalGeneration(WhisperConfig())
        self.decoder = whole.model.decoder
        self.projection = whole.proj_out

    def forward(self, input_ids: torch.Tensor, audio: torch.Tensor) -> torch.Tensor:
        """Logits of every position, given the encoder's output [1, 1500, 384]."""
        hidden = self.decoder(
            input_ids=input_ids,
            attention_mask=torch.ones_like(input_ids),
            encoder_hidden_states=audio,
            use_cache=False,
        ).last_hidden_state
        return self.projection(hidden)


def whisper_decoder() -> Source:
    """Whisper-tiny's decoder over 16 tokens."""
    inputs = {"input_ids": tokens(1, 16), "encoder_hidden_states": torch.rand(1, 1500, 384)}
    return Source(SpeechDecoder(), inputs)


class Sequences(nn.Module):
    """A recurrent layer reduced to its output sequence."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.rnn = layer

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        """Drop the final states."""
        return self.rnn(sequence)[0]


def lstm() -> Source:
    """Two LSTM layers of 512 units over a sequence of any length."""
    layer = nn.LSTM(512, 512, num_layers=2, batch_first=True)
    axes = {0: "batch", 1: "sequence"}
    free = dict.fromkeys(("input", "output"), axes)
    return Source(Sequences(layer), {"input": torch.rand(1, 100, 512)}, ("output",), free_axes=free)


def bidirectional_gru() -> Source:
    """Two bidirectional GRU layers of 256 units."""
    layer = nn.GRU(128, 256, num_layers=2, batch_first=True, bidirectional=True)
    return Source(Sequences(layer), {"input": torch.rand(1, 80, 128)}, ("output",))


class DeepSpeech(nn.Module):
    """Two strided convolutions over a spectrogram, five bidirectional GRUs, one projection."""

    def __init__(self, bins: int = 161, units: int = 800, symbols: int = 29) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), stride=(2, 2), padding=(20, 5), bias=False),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20),
            nn.Conv2d(32, 32, (21, 11), stride=(2, 1), padding=(10, 5), bias=False),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20),
        )
        width = 32 * -(-bins // 4)
        widths = [width, *[2 * units] * 4]
        self.recurrent = nn.ModuleList(
            nn.GRU(width, units, bidirectional=True, batch_first=True) for width in widths
        )
        self.projection = nn.Linear(2 * units, symbols)

    def forward(self, spectrogram: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of the symbols at every second frame of [1, 1, bins, frames]."""
        features = self.convolutions(spectrogram)
        batch, frames = features.shape[0], features.shape[-1]
        sequence = features.reshape(batch, -1, frames).transpose(1, 2)
        for layer in self.recurrent:
            sequence = layer(sequence)[0]
        return self.projection(sequence).log_softmax(-1)


def deep_speech() -> Source:
    """A network of the DeepSpeech2 kind on 200 frames of 161 bins."""
    return Source(DeepSpeech(), {"input": torch.rand(1, 1, 161, 200)}, ("scores",))
