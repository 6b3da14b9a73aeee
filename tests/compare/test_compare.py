"""Comparison: what is the same whatever it is called, what is new, gone, slower."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from onnxroof import GraphBuilder, UsageError, analyze
from onnxroof.compare.command import CompareOptions, compare_command, parse_percent
from onnxroof.compare.comparison import Change, compare
from onnxroof.compare.match import Item, match
from onnxroof.compare.render import CompareFormat, as_json, headline, render, sections
from onnxroof.hardware.read import load_profile
from tests.builders import model

if TYPE_CHECKING:
    from onnxroof import Analysis


def stack(widths: list[int], *, prefix: str = "layer", named: bool = True) -> GraphBuilder:
    """Convolutions 3×3 with a ReLU each."""
    g = GraphBuilder("stack")
    x = g.input((1, 3, 32, 32))
    for number, width in enumerate(widths):
        name = f"{prefix}{number}" if named else ""
        x = g.relu(g.conv(x, width, 3, name=name), name=f"{name}.relu" if named else "")
    g.output(x)
    return g


def changes(before: GraphBuilder, after: GraphBuilder) -> list[tuple[str, str]]:
    found = compare(*(analyze(graph, "mobile-arm") for graph in (before, after)))
    return [(kernel.change.value, kernel.name) for kernel in found.changed]


def test_a_model_is_the_same_as_itself() -> None:
    found = compare(*(analyze(stack([8, 16]), "v100") for _ in range(2)))
    assert {kernel.change for kernel in found.kernels} == {Change.SAME}
    assert found.growth() == 0


def test_new_names_change_nothing() -> None:
    before, after = stack([8, 16, 32]), stack([8, 16, 32], prefix="block/conv")
    assert changes(before, after) == []
    found = compare(*(analyze(graph, "v100") for graph in (before, after)))
    assert {kernel.change for kernel in found.kernels} == {Change.RENAMED}


def test_a_layer_put_in_the_middle_is_the_only_new_one_though_numbers_shift() -> None:
    # exporters number nodes, so every node behind the new one has another name
    before = stack([8, 16, 32, 64], named=False)
    after = stack([8, 16, 16, 32, 64], named=False)
    assert changes(before, after) == [("new", "Conv_4")]


def test_a_layer_that_grew_is_slower_and_one_that_is_left_out_is_gone() -> None:
    assert changes(stack([8, 16, 32]), stack([8, 16, 64])) == [("slower", "layer2")]
    assert changes(stack([8, 16, 32]), stack([8, 16])) == [("gone", "layer2")]


def test_traffic_and_kernels_are_those_of_each_devices_runtime() -> None:
    # convolution and ReLU are one kernel by TensorFlow Lite's rules, two without any
    devices = [load_profile("mobile-arm"), replace(load_profile("v100"), runtime="none")]
    before, after = (analyze(stack(widths), devices) for widths in ([8], [8, 16]))
    found = [f for f in compare(before, after).figures if f.metric.name == "kernels"]
    assert [(f.devices, f.before, f.after) for f in found] == [
        (("mobile-arm",), 1, 2), (("v100",), 2, 4),
    ]  # fmt: skip
    text, _ = compare_command((before, after), CompareOptions())
    assert "kernels on mobile-arm" in text
    assert "kernels on v100" in text
    assert "Kernels of mobile-arm, at which the times on all devices stand:" in text
    shown, _ = compare_command((before, after), CompareOptions(format_=CompareFormat.JSON))
    figures = json.loads(shown)["figures"]
    assert {"metric": "kernels", "hardware": ["v100"], "before": 2, "after": 4} in figures


def test_growth_is_the_largest_over_the_devices() -> None:
    analyses = [analyze(stack(widths), ("v100", "mobile-arm")) for widths in ([64], [256])]
    found = compare(*analyses)
    ratios = [after.latency_seconds / before.latency_seconds
              for before, after in zip(*(a.rooflines for a in analyses), strict=True)]  # fmt: skip
    assert found.growth() == pytest.approx(max(ratios) - 1)


def test_without_a_device_work_is_compared() -> None:
    found = compare(analyze(stack([8])), analyze(stack([16])))
    # the convolution and the ReLU have twice the channels, so twice the work
    assert found.growth() == pytest.approx(1.0)
    assert [(k.change, k.name) for k in found.changed] == [(Change.SLOWER, "layer0")]


def test_the_command_fails_when_latency_grew_more_than_allowed() -> None:
    analyses = [analyze(stack(widths), "mobile-arm") for widths in ([64, 64], [64, 64, 64])]
    for allowed, code in ((None, 0), (10.0, 0), (0.05, 1)):
        text, ended = compare_command(analyses, CompareOptions(fail_above=allowed))
        assert ended == code
        assert ("not allowed" in text) == bool(code)
        assert "layer2" in text


def test_markdown_is_fit_for_a_comment_and_json_for_programs() -> None:
    analyses = [analyze(stack(widths), ("v100", "mobile-arm")) for widths in ([8], [8, 8])]
    text, _ = compare_command(analyses, CompareOptions(format_=CompareFormat.MARKDOWN))
    assert text.startswith("## stack → stack: latency ")
    assert "| new " in text
    document = json.loads(compare_command(analyses, CompareOptions(format_=CompareFormat.JSON))[0])
    assert document["hardware"] == ["v100", "mobile-arm"]
    assert [kernel["change"] for kernel in document["kernels"]] == ["new", "same"]


def test_one_model_is_compared_on_several_devices() -> None:
    analysis = analyze(stack([64, 64]), ("mobile-arm", "v100"))
    text, code = compare_command([analysis], CompareOptions())
    assert code == 0
    assert text.startswith("stack: fastest on v100")
    assert "1.00 ×" in text
    for options in (CompareOptions(fail_above=0.1), CompareOptions()):
        with pytest.raises(UsageError):
            compare_command([analyze(stack([8])) if options.fail_above is None else analysis],
                            options)  # fmt: skip


@pytest.mark.parametrize(("text", "share"), [("10%", 0.1), ("5", 0.05), ("0 %", 0.0)])
def test_percentages_are_read(text: str, share: float) -> None:
    assert parse_percent(text, "--fail-above") == pytest.approx(share)


@pytest.mark.parametrize("text", ["much", "-3%", "nan", "1e9"])
def test_other_text_is_no_percentage(text: str) -> None:
    with pytest.raises(UsageError, match="for example 10%"):
        parse_percent(text, "--fail-above")


def test_every_item_is_in_exactly_one_pair() -> None:
    source = random.Random(3)
    for _ in range(200):
        lists = [
            [
                Item(source.choice("abcd"), source.choice(["", "s", "t"]), source.choice("xy"),
                     source.randrange(3))
                for _ in range(source.randrange(12))
            ]
            for _ in range(2)
        ]  # fmt: skip
        pairs = match(*lists)
        assert sorted(a for a, _ in pairs if a is not None) == list(range(len(lists[0])))
        assert [b for _, b in pairs if b is not None] == list(range(len(lists[1])))
        for a, b in pairs:
            if a is not None and b is not None:
                assert lists[0][a].kind == lists[1][b].kind or (
                    lists[0][a].signature == lists[1][b].signature
                )


def test_a_kernel_that_fuses_more_is_the_same_kernel() -> None:
    def network(*, normalized: bool) -> GraphBuilder:
        g = GraphBuilder("n")
        x = g.conv(g.input((1, 16, 32, 32)), 16, 3, name="a")
        x = g.batch_norm(x, name="n") if normalized else x
        g.output(g.relu(x, name="r"))
        return g

    # the normalization folds into the convolution, which then does a little more: its bias
    found = compare(*(analyze(network(normalized=yes), "mobile-arm") for yes in (False, True)))
    (kernel,) = found.kernels
    assert kernel.change not in {Change.APPEARED, Change.VANISHED}
    assert kernel.op_type == "Conv+Relu → Conv+BatchNormalization+Relu"


def test_what_the_figures_of_either_model_are_is_said() -> None:
    # One trip of a loop against ten: 10 times the MACs, and yet nothing is known to have grown
    def loop(trips: str) -> Analysis:
        return analyze(
            model(
                f"""agraph (float[8,8] x, int64 n) => (float[8,8] y)
                <bool yes = {{1}}, int64 ten = {{10}}> {{ y = Loop({trips}, yes, x)
                <body = b (int64 i, bool go, float[8,8] h) => (bool on, float[8,8] next) {{
                on = Identity(go) next = MatMul(h, h) }}> }}"""
            )
        )

    found = compare(loop("n"), loop("ten"))
    text = render(sections(found, 5), headline(found), markdown=False)
    assert "before: figures are per trip" in text
    assert "after: figures are" not in text
    assert json.loads(as_json(found))["exactness"] == {"before": "per trip", "after": "exact"}
