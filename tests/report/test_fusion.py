"""The sections that explain fusion."""

from __future__ import annotations

from onnxroof.report.markdown import render_markdown
from onnxroof.report.render import Extras, TableOptions
from onnxroof.report.text import render_text
from tests.builders import model
from tests.report.models import analysis
from tests.report.test_text import line_with

EXPLAIN = Extras(fusion=True)

CONVOLUTIONS = """agraph (float[1, 4, 8, 8] x, float[4, 4, 1, 1] w)
    => (float[1, 4, 8, 8] y, float[1, 4, 8, 8] d)
    { [one] c = Conv (x, w)  [act] a = Relu (c)  [two] d = Conv (a, w)  [last] y = Relu (d) }"""


def test_hits_stand_with_their_reason_saving_and_what_never_reaches_memory() -> None:
    text = render_text(analysis(model(CONVOLUTIONS), runtime="onnxruntime"), extras=EXPLAIN)
    # the 4×8×8 result of the first convolution is neither written nor read
    assert "convolution-activation: 1 kernel, 2.05 kB of traffic saved" in text
    assert "fold into weights and bias" in " ".join(text.split())
    hits = text[text.index("never in memory") :]
    assert line_with(hits, "one") == "one Conv+Relu 2.05 kB c"


def test_misses_stand_with_their_reason() -> None:
    text = render_text(analysis(model(CONVOLUTIONS), runtime="onnxruntime"), extras=EXPLAIN)
    misses = text[text.index("not fused") :]
    assert line_with(misses, "convolution-activation") == (
        "convolution-activation 1 two its intermediate result is a graph output"
    )


def test_fusion_is_explained_only_when_asked_for() -> None:
    assert "not fused" not in render_text(analysis(model(CONVOLUTIONS)))
    assert "Not fused" in render_markdown(analysis(model(CONVOLUTIONS)), extras=EXPLAIN)


def test_the_kernels_of_a_rule_are_cut_after_the_top() -> None:
    text = CONVOLUTIONS.replace(", float[1, 4, 8, 8] d", "")
    run = analysis(model(text), runtime="onnxruntime")
    assert "the 1 that save most; 1 more with --top 0" in render_text(
        run, TableOptions(top=1), extras=EXPLAIN
    )
    assert "more with --top 0" not in render_text(run, TableOptions(top=0), extras=EXPLAIN)


def test_bodies_of_control_flow_are_explained_too() -> None:
    text = """agraph (float[4] x, bool c) => (float[4] y) {
        y = If (c) <then_branch = yes () => (float[4] t) { r = Relu (x)  t = Sin (r) },
                    else_branch = no () => (float[4] e) { e = Abs (x) }>
    }"""
    shown = render_text(analysis(model(text), runtime="basic"), extras=EXPLAIN)
    body = shown[shown.index("fused in then_branch") :]
    # Relu's 4 floats are neither written nor read
    assert "elementwise: 1 kernel, 32 B of traffic saved" in body
