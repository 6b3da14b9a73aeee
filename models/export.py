"""Make the weightless models of this folder from the libraries that define them.

    python models/export.py --list
    python models/export.py resnet50 mobilenet_v2_qdq -o out
    python models/export.py --all -o out

Weights are random and never leave memory (quantizers, which work on files, use a temporary
folder). Needs the extra ``models``: torch, torchvision, timm, transformers, onnxscript,
onnxruntime, magika. Node names and details of a graph follow the versions of those libraries, so
a fresh export counts the same work without being the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import derive
import onnx
import sources
from sources import export_dynamo, export_torchscript
from weightless import remove_traces, remove_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Recipe = Callable[[], onnx.ModelProto]


def script(source: Callable[[], sources.Source], *, fold: bool = True) -> Recipe:
    """PyTorch's TorchScript exporter; ``fold=False`` keeps BatchNormalization apart."""
    return lambda: export_torchscript(source(), fold=fold)


def dynamo(source: Callable[[], sources.Source]) -> Recipe:
    """PyTorch's dynamo exporter, whose nodes carry name scopes."""
    return lambda: export_dynamo(source())


def from_package(package: str, path: str) -> Recipe:
    """A model file that ships inside a Python package."""
    return lambda: onnx.load_model_from_string((resources.files(package) / path).read_bytes())


def then(base: Recipe, transform: Callable[[onnx.ModelProto], onnx.ModelProto]) -> Recipe:
    """Another recipe's model, quantized, converted or optimized."""
    return lambda: transform(base())


vision = sources.torchvision_classifier
RESNET50 = script(partial(vision, "resnet50"))
MOBILENET_V2 = script(partial(vision, "mobilenet_v2"))
BERT_SMALL = script(partial(sources.bert, sources.BERT_SMALL, sequence=128))

RECIPES: dict[str, Recipe] = {
    "resnet50": RESNET50,
    "resnet50_unfused": script(partial(vision, "resnet50"), fold=False),
    "resnet50_dynamo": dynamo(partial(vision, "resnet50", free_batch="batch")),
    "resnet50_fp16": then(RESNET50, derive.to_float16),
    "resnet50_ort_extended": then(RESNET50, partial(derive.optimize, level="extended")),
    "resnet50_ort_all": then(RESNET50, partial(derive.optimize, level="all")),
    "vgg16": script(partial(sources.timm_classifier, "vgg16")),
    "squeezenet1_1": script(partial(vision, "squeezenet1_1")),
    "shufflenet_v2_x1_0": script(partial(vision, "shufflenet_v2_x1_0")),
    "mobilenet_v2": MOBILENET_V2,
    "mobilenet_v2_unfused": script(partial(vision, "mobilenet_v2"), fold=False),
    "mobilenet_v2_qdq": then(MOBILENET_V2, partial(derive.quantize_static, style="qdq")),
    "mobilenet_v2_qop": then(MOBILENET_V2, partial(derive.quantize_static, style="qop")),
    "mobilenet_v3_large": script(partial(vision, "mobilenet_v3_large")),
    "efficientnet_b0": script(partial(vision, "efficientnet_b0")),
    "inception_v3": script(partial(vision, "inception_v3", size=299, init_weights=False)),
    "light_densenet121": from_package("onnx", "backend/test/data/light/light_densenet121.onnx"),
    "convnext_tiny": script(partial(sources.timm_classifier, "convnext_tiny", free_batch="N")),
    "deeplabv3_mobilenet_v3_large": script(
        partial(sources.torchvision_segmenter, "deeplabv3_mobilenet_v3_large")
    ),
    "vit_b_16": script(partial(vision, "vit_b_16")),
    "swin_t_dynamo": dynamo(partial(vision, "swin_t")),
    "ssdlite320_mobilenet_v3_large": script(
        partial(sources.torchvision_detector, "ssdlite320_mobilenet_v3_large")
    ),
    "fasterrcnn_mobilenet_v3_large_320_fpn": script(
        partial(sources.torchvision_detector, "fasterrcnn_mobilenet_v3_large_320_fpn")
    ),
    "bert_base_dynamic": script(partial(sources.bert, {}, sequence=128, free=True)),
    "minilm_l6_dynamo": dynamo(partial(sources.bert, sources.MINILM_L6, sequence=128, free=True)),
    "bert_small_dynq": then(BERT_SMALL, derive.quantize_dynamic),
    "bert_small_nbits4": then(BERT_SMALL, derive.quantize_weights_to_4_bits),
    "bert_small_ort_extended": then(BERT_SMALL, partial(derive.optimize, level="extended")),
    "gpt2_dynamic": script(sources.gpt2_prefill),
    "gpt2_decode_dynamic": script(sources.gpt2_decode),
    "mixtral_2l": script(sources.mixtral),
    "whisper_tiny_decoder": script(sources.whisper_decoder),
    "lstm_2x512_dynamic": script(sources.lstm),
    "bigru_2x256_dynamo": dynamo(sources.bidirectional_gru),
    "deepspeech2": script(sources.deep_speech),
    "magika": from_package("magika", "models/standard_v3_3/model.onnx"),
}


def export(name: str, folder: Path) -> Path:
    """Build one model, take its weights out and write it as ``folder/name.onnx``."""
    model = RECIPES[name]()
    remove_weights(model)
    remove_traces(model)
    path = folder / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: model names, or ``--all``, and the folder to write to."""
    parser = argparse.ArgumentParser(description="export weightless models")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="see --list")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--all", action="store_true", help="export every model")
    parser.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(RECIPES))
        return
    names = list(RECIPES) if options.all else options.models
    unknown = [name for name in names if name not in RECIPES]
    if unknown or not names:
        sys.exit(f"unknown models: {', '.join(unknown)}; see --list" if unknown else "see --help")
    options.output.mkdir(parents=True, exist_ok=True)
    for name in names:
        print(export(name, options.output))


if __name__ == "__main__":
    main()
