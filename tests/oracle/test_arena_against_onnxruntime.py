"""ONNX Runtime's memory pattern lies between our peak with buffers shared and preallocation.

With `enable_mem_pattern` ONNX Runtime plans, after a first run, one block for all activations but
the caller's inputs and outputs. It runs elementwise operators in place and passes views on, so
what bounds it from below is our peak with both, not the plain liveness peak.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import onnx
import pytest

from onnxroof.bindings import Bindings
from onnxroof.cost import count_costs
from onnxroof.fusion.plan import plan_kernels
from onnxroof.graph.load import load_model
from onnxroof.memory import MemoryPlan, plan_memory
from onnxroof.memory.sharing import in_place, views
from onnxroof.shapes import infer_shapes
from tests.memory.test_against_execution import small_model

if TYPE_CHECKING:
    from pathlib import Path

    from onnxroof.memory.lifetimes import Lifetimes

pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.oracle

RUN = """
import sys
import numpy as np
import onnx
import onnxruntime as ort

ort.set_default_logger_severity(0)
ort.set_default_logger_verbosity(1)
cpu = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
grow_by_need = {"max_mem": 0, "arena_extend_strategy": 1, "initial_chunk_size_bytes": 256,
                "max_dead_bytes_per_chunk": 256}
ort.create_and_register_allocator(cpu, ort.OrtArenaCfg(grow_by_need))
options = ort.SessionOptions()
options.log_severity_level, options.log_verbosity_level = 0, 1
options.enable_mem_pattern = True
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
options.intra_op_num_threads = 1
options.add_session_config_entry("session.use_env_allocators", "1")
options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
types = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
inputs = {i.name: np.ones(i.shape, types[i.type]) for i in session.get_inputs()}
shrink = ort.RunOptions()
shrink.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
session.run(None, inputs, shrink)
print("PATTERN", file=sys.stderr, flush=True)
session.run(None, inputs, shrink)
"""


def pattern_bytes(path: Path) -> int:
    """The block ONNX Runtime asks for at the second run: what its arena grows by, at most."""
    ran = subprocess.run(
        [sys.executable, "-c", RUN, str(path)], capture_output=True, text=True, check=True
    )
    after = ran.stderr.split("PATTERN", 1)[1]
    grown = [int(size) for size in re.findall(r"\(requested\) num_bytes: (\d+)", after)]
    return max(grown)


def without_callers(plan: MemoryPlan) -> Lifetimes:
    """Lifetimes with the caller's inputs and outputs left out."""
    graph = plan.kernels.cost.shaped.graph
    callers = {item.name for item in graph.inputs} | set(graph.outputs)
    lifetimes = plan.lifetimes
    sizes = [
        0 if name in callers else size
        for name, size in zip(lifetimes.names, lifetimes.sizes, strict=True)
    ]
    return replace(lifetimes, sizes=sizes)


@pytest.mark.parametrize(
    "name",
    ["squeezenet1_1", "mobilenet_v2_unfused", "resnet50_unfused", "efficientnet_b0",
     "mobilenet_v3_large", "minilm_l6_dynamo"],
)  # fmt: skip
def test_the_memory_pattern_lies_between(name: str, tmp_path: Path) -> None:
    proto = small_model(name)
    onnx.save(proto, tmp_path / "model.onnx")
    shaped, _ = infer_shapes(load_model(proto).graph, Bindings.of({}))
    cost = count_costs(shaped)
    plan = plan_memory(plan_kernels(cost, "none"))
    own = without_callers(plan)
    aliased = own.merged(views(cost))
    least = max(aliased.merged(in_place(cost, aliased)).live_bytes())
    assert least <= pattern_bytes(tmp_path / "model.onnx") <= sum(own.sizes)
