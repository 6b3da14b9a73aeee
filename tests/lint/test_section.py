"""The findings in a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onnxroof.api import analyze
from onnxroof.lint.command import lint
from onnxroof.report.render import Format, TableOptions, render

MODELS = Path(__file__).parents[2] / "models"


def report(name: str, format_: Format) -> str:
    analysis = analyze(MODELS / f"{name}.onnx", ("v100",))
    return render(analysis, format_, TableOptions(), findings=lint(analysis, weights=False))


@pytest.mark.parametrize("format_", [Format.TEXT, Format.MARKDOWN])
def test_a_report_for_people_has_one_line_a_rule(format_: Format) -> None:
    text = report("mobilenet_v2", format_).lower()
    section = text[text.index("findings") :]
    assert section.count("hwd002") == 1
    assert "(and 16 more)" in section.replace("\\", "")  # 17 depthwise convolutions


def test_a_report_without_findings_says_so() -> None:
    assert report("resnet50", Format.TEXT).endswith("(onnxroof lint has all of them)\nnone\n")


def test_the_json_report_has_every_finding() -> None:
    document = json.loads(report("mobilenet_v2", Format.JSON))
    analysis = analyze(MODELS / "mobilenet_v2.onnx", ("v100",))
    assert len(document["findings"]) == len(lint(analysis, weights=False).findings)
    savings = [finding["saving_seconds"] or 0 for finding in document["findings"]]
    assert savings == sorted(savings, reverse=True)
