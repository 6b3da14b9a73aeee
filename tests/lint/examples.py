"""Examples of rules' docstrings as analyses.

An example is the text of a graph, after comment lines that may hold the options of the command
(`# onnxroof lint --hw v100`) and the opset (`# opset 15`). What is declared before the body without
a value is a weight.
"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

import onnx

from onnxroof.api import analyze
from onnxroof.lint.command import lint
from tests.builders import model

if TYPE_CHECKING:
    from onnxroof.lint.rule import Finding

_OPTIONS = argparse.ArgumentParser(prog="example", add_help=False)
_OPTIONS.add_argument("--hw", default="")
_OPTIONS.add_argument("--runtime", default=None)
_OPTIONS.add_argument("--weights", action="store_true")


def with_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Turn what is declared, not made and has no value into weights whose data lie elsewhere."""
    made = {name for node in proto.graph.node for name in node.output}
    made |= {tensor.name for tensor in proto.graph.initializer}
    for value in proto.graph.value_info:
        if value.name not in made:
            tensor = proto.graph.initializer.add(name=value.name)
            tensor.data_type = value.type.tensor_type.elem_type
            tensor.dims.extend(dim.dim_value for dim in value.type.tensor_type.shape.dim)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="weights.bin")
    return proto


def findings_of(example: str, *options: str) -> tuple[Finding, ...]:
    """What all rules find in an example."""
    opset, listed = 21, list(options)
    graph = []
    for line in example.splitlines():
        if line.startswith("# opset "):
            opset = int(line.split()[2])
        elif line.startswith("# onnxroof lint"):
            listed += shlex.split(line)[3:]
        else:
            graph.append(line)
    chosen = _OPTIONS.parse_args(listed)
    content = with_weights(model("\n".join(graph), opset=opset)).SerializeToString()
    hardware = (chosen.hw,) if chosen.hw else ()
    analysis = analyze(content, hardware, runtime=chosen.runtime)
    assert not analysis.problems, analysis.problems
    return lint(analysis, weights=chosen.weights, content=content).findings
