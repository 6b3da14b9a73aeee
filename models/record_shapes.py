"""Record the true shape of every tensor of a weightless model by running it in onnxruntime.

The files in this folder hold no weight bytes, so this script fills every missing tensor with
random values, makes every node output a graph output, runs the model once with all graph
optimisations off, and writes data type and shape of what came out. Shapes that follow from
shapes do not depend on the weights; models whose sizes follow from the data (detection heads)
are not recorded this way.

    python models/record_shapes.py resnet50 bert_base_dynamic --dim batch=2 --dim sequence=17
    python models/record_shapes.py gpt2_decode_dynamic --dim batch=1 --dim past_sequence=128 -o out

Needs onnxruntime and numpy; the tests that read the records do not.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from weightless import fill_missing_weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MODELS = Path(__file__).resolve().parent
RECORDS = MODELS.parent / "tests" / "data" / "shapes"


def example_inputs(model: onnx.ModelProto, dims: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Arrays for the graph inputs: ones for integers, noise for floats.

    Raises:
        SystemExit: a named dimension is not given.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    random = np.random.default_rng(1)
    arrays: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        tensor_type = value.type.tensor_type
        shape = [bound(dim, dims, value.name) for dim in tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor_type.elem_type)
        if np.issubdtype(dtype, np.floating):
            arrays[value.name] = random.standard_normal(shape).astype(dtype)
        else:
            arrays[value.name] = np.ones(shape, dtype)
    return arrays


def bound(dim: onnx.TensorShapeProto.Dimension, dims: Mapping[str, int], where: str) -> int:
    """The size of one input dimension; a name may be a sum such as ``past_sequence + 1``."""
    if dim.HasField("dim_value"):
        return dim.dim_value
    total = 0
    for term in dim.dim_param.split("+"):
        part = term.strip()
        if not part.isdigit() and part not in dims:
            sys.exit(f"input {where!r} needs a size for {part!r}: add --dim {part}=N")
        total += int(part) if part.isdigit() else dims[part]
    return total


def record(path: Path, dims: Mapping[str, int]) -> dict[str, object]:
    """Run the model of ``path`` once and return the shapes of everything it computed."""
    model = onnx.load(path, load_external_data=False)
    fill_missing_weights(model)
    outputs = {value.name for value in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name]
    model.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in names if name not in outputs
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = example_inputs(model, dims)
    values = dict(zip(names, session.run(names, feeds), strict=True))
    return {
        "runtime": f"onnxruntime {onnxruntime.__version__}",
        "weights": "random",
        "inputs": {name: spelled(array) for name, array in feeds.items()},
        "values": {name: spelled(values[name]) for name in names},
    }


def spelled(array: np.ndarray) -> str:
    """Data type and shape in one word: ``float32[1,3,224,224]``."""
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


def write_record(path: Path, content: Mapping[str, object]) -> None:
    """Write a record, the same bytes for the same content."""
    text = json.dumps(content, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: model names, ``--dim NAME=SIZE`` and the output folder."""
    parser = argparse.ArgumentParser(description="record true tensor shapes of models/*.onnx")
    parser.add_argument("models", nargs="+", metavar="MODEL", help="file name without .onnx")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE")
    parser.add_argument("-o", "--output", type=Path, default=RECORDS)
    options = parser.parse_args(arguments)
    dims = {name: int(size) for name, _, size in (item.partition("=") for item in options.dim)}
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.models:
        content = record(MODELS / f"{name}.onnx", dims)
        write_record(options.output / f"{name}.json.gz", content)


if __name__ == "__main__":
    main()
