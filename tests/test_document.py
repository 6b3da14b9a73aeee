"""The JSON report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from onnxroof.document import SCHEMA_VERSION, as_dict
from onnxroof.memory.order import reorder
from onnxroof.report.json_report import render_json
from tests.builders import model
from tests.report.models import CHAIN, UNKNOWN, analysis, contradiction, device, renamed

DOCS = Path(__file__).parents[1] / "docs" / "json.md"

APPEND = """agraph (float[1, 2, 7, 4] past, float[1, 2, 1, 4] new) => (float[1, 2, 8, 4] present)
    { present = Concat <axis = 2> (past, new) }"""

PLAIN = {dict, list, str, int, float, bool, type(None)}


def parts(value: object) -> list[object]:
    """The value and everything in it."""
    if isinstance(value, dict):
        return [value, *(part for item in value.values() for part in parts(item))]
    if isinstance(value, list):
        return [value, *(part for item in value for part in parts(item))]
    return [value]


def keys(value: object) -> set[str]:
    return {key for part in parts(value) if isinstance(part, dict) for key in part}


def test_the_document_is_plain_data_and_survives_json() -> None:
    document = as_dict(analysis(CHAIN, device()), with_tensors=True)
    assert {type(part) for part in parts(document)} <= PLAIN
    assert json.loads(render_json(analysis(CHAIN, device()), with_tensors=True)) == document


def test_the_document_names_its_schema_and_tool() -> None:
    document = as_dict(analysis())
    assert document["schema_version"] == SCHEMA_VERSION
    assert next(iter(document)) == "schema_version"


def test_numbers_are_in_base_units() -> None:
    document = as_dict(analysis(CHAIN, device()))
    totals, roofline = document["totals"], document["rooflines"][0]  # type: ignore[index]
    assert (totals["macs"], totals["flops"], totals["parameters"]) == (56, 120, 56)  # type: ignore[index]
    assert totals["weight_bytes"] == 56 * 4  # type: ignore[index]
    assert roofline["latency_seconds"] == pytest.approx(380e-9)
    assert roofline["ridge_points_flop_per_byte"] == {"fp32": 1.0}


def test_unknown_is_null_and_listed_with_its_reason() -> None:
    document = as_dict(analysis(UNKNOWN))
    assert document["nodes"][1]["macs"] is None  # type: ignore[index]
    assert document["totals"]["is_lower_bound"] is True  # type: ignore[index]
    assert document["coverage"]["unknown_operators"] == [  # type: ignore[index]
        {
            "operator": "acme.Mystery",
            "nodes": 1,
            "reason": "no formula is known for operator acme.Mystery",
        }
    ]


def test_problems_are_part_of_the_document() -> None:
    (problem,) = as_dict(analysis(contradiction()))["problems"]  # type: ignore[misc]
    assert (problem["node"], problem["op_type"]) == ("bad", "MatMul")  # type: ignore[index]


def test_tensors_come_only_when_asked_for() -> None:
    assert "tensors" not in as_dict(analysis())
    tensors = as_dict(analysis(), with_tensors=True)["tensors"]
    shapes = {t["name"]: (t["dtype"], t["shape"], t["bytes"]) for t in tensors}  # type: ignore[attr-defined]
    assert shapes["a"] == ("fp32", [1, 8], 32)


def test_a_size_that_only_a_run_tells_has_two_ends() -> None:
    found = analysis(model("agraph (float[2, 4] x) => (int64[2, n] y) { y = NonZero (x) }"))
    (output,) = as_dict(found)["outputs"]  # type: ignore[misc]
    # NonZero finds between none and all 2·4 elements
    assert output["shape"] == [2, 8]  # type: ignore[index]
    assert output["shape_min"] == [2, 0]  # type: ignore[index]
    assert {type(part) for part in parts(output)} <= PLAIN


def test_bodies_hang_below_the_node_that_runs_them() -> None:
    text = """agraph (float[4] x, bool c) => (float[4] y) {
        y = If (c) <then_branch = yes () => (float[4] t) { t = Relu (x) },
                    else_branch = no () => (float[4] e) { e = Abs (x) }>
    }"""
    (node,) = as_dict(analysis(model(text)))["nodes"]  # type: ignore[misc]
    bodies = node["bodies"]  # type: ignore[index]
    assert [body["nodes"][0]["op_type"] for body in bodies] == ["Relu", "Abs"]
    assert all(body["is_alternative"] for body in bodies)


def test_the_same_model_gives_the_same_bytes() -> None:
    assert render_json(analysis(CHAIN, device())) == render_json(analysis(CHAIN, device()))


def test_names_of_any_kind_become_ascii() -> None:
    text = render_json(analysis(renamed("é\u202e\n")))
    assert text.isascii()
    assert json.loads(text)["nodes"][0]["name"] == "é\u202e\n"


def test_memory_has_every_figure_with_its_rule() -> None:
    memory = as_dict(analysis(CHAIN, device()))["memory"]
    table = {row["key"]: row["bytes"] for row in memory["table"]}  # type: ignore[index]
    # x 16 bytes, a and b 32 each, y 12: all of them; at most a and b together; y over nothing
    assert table["weights"] == 56 * 4
    assert table["preallocated"] == 16 + 32 + 32 + 12
    assert table["liveness"] == 32 + 32
    assert table["in_place"] == 16 + 32
    assert all(row["rule"] for row in memory["table"])  # type: ignore[index]
    assert memory["live_bytes"] == [16 + 32, 32 + 32, 32 + 12]  # type: ignore[index]


def test_a_cache_is_listed_layer_by_layer() -> None:
    cache = as_dict(analysis(model(APPEND)))["memory"]["kv_cache"]  # type: ignore[index]
    # 2 heads of 4 floats a token, 7 tokens before and 1 new
    assert cache["bytes_per_token"] == 2 * 4 * 4
    assert cache["total_bytes"] == 8 * 2 * 4 * 4
    assert cache["tensors"][0]["past"] == "past"


def test_hits_and_misses_of_fusion_are_part_of_the_document() -> None:
    text = """agraph (float[1, 4, 8, 8] x, float[4, 4, 1, 1] w) => (float[1, 4, 8, 8] y)
        { c = Conv (x, w)  y = Relu (c) }"""
    fused = as_dict(analysis(model(text), device(runtime="onnxruntime")))["fusion"]
    (hit,) = fused["hits"]  # type: ignore[index]
    # the 4×8×8 result of the convolution is neither written nor read
    assert hit["saved_bytes"] == 2 * 256 * 4
    assert fused["kernels"][hit["kernel"]]["elided_tensors"] == ["c"]  # type: ignore[index]
    alone = as_dict(analysis(model(text), device(runtime="none")))["fusion"]
    assert alone["hits"] == []  # type: ignore[index]
    assert [miss["reason"] for miss in alone["misses"]] == ["not in this runtime"]  # type: ignore[index]


def test_every_key_is_documented() -> None:
    documented = set(re.findall(r"`([a-z][a-z0-9_]*)`", DOCS.read_text(encoding="utf-8")))
    text = """agraph (float[2, 4] x, bool c) => (int64[2, n] y) {
        y = If (c) <then_branch = yes () => (int64[2, n] t) { t = NonZero (x) },
                    else_branch = no () => (int64[2, m] e) { e = NonZero (x) }>
    }"""
    branching = as_dict(analysis(model(text), device()), with_tensors=True)
    found = keys(branching) | keys(as_dict(analysis(UNKNOWN, device(runtime="tensorrt"))))
    found |= keys(as_dict(analysis(contradiction())))
    cache = analysis(model(APPEND))
    found |= keys(as_dict(cache, order=reorder(cache.cost)))
    data = {"fp32", "int64", "compute", "memory", "overhead", "unknown", "ai.onnx", "acme"}
    data |= {"built-in", "none", "bool"}
    assert found - documented - data == set()
