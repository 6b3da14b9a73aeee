"""The table of docs/fusion.md holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onnxroof.bindings import Bindings
from onnxroof.cost import count_costs
from onnxroof.fusion.plan import plan_kernels
from onnxroof.graph.load import load_model
from onnxroof.shapes import infer_shapes
from tests.fusion.plans import MODELS

PAGE = (Path(__file__).parents[2] / "docs" / "fusion.md").read_text(encoding="utf-8")
HEADER = re.search(r"^\| model \| before \| (.+) \|$", PAGE, re.MULTILINE)
ROWS = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| (.+) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("name", "before", "cells"), ROWS)
def test_traffic_before_and_after_fusion(name: str, before: str, cells: str) -> None:
    loaded = load_model(MODELS / f"{name}.onnx")
    sizes = {"batch": 1, "sequence": 128} if name == "bert_base_dynamic" else {}
    cost = count_costs(infer_shapes(loaded.graph, Bindings.of(sizes))[0])
    assert HEADER is not None
    runtimes = [runtime.strip("` ") for runtime in HEADER.group(1).split("|")]
    plans = [plan_kernels(cost, runtime) for runtime in runtimes]
    assert before == f"{sum(node.traffic_bytes or 0 for node in cost.nodes) / 1e6:.1f}"
    assert [cell.strip() for cell in cells.split("|")] == [
        f"{plan.traffic_bytes / 1e6:.1f} ({len(plan.kernels)})" for plan in plans
    ]


def test_the_table_has_the_four_models() -> None:
    assert len(ROWS) == 4
