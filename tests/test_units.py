"""Numbers and names for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxroof import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1"),
        (999, "999"),
        (1000, "1.00 k"),
        (999_499, "999 k"),
        (999_950, "1.00 M"),  # 999.95 k has no three digits below 1000 k
        (4_089_184_256, "4.09 G"),
        (None, "?"),
    ],
)
def test_counts_have_three_digits_and_a_decimal_prefix(value: int | None, text: str) -> None:
    assert units.count(value) == text


def test_a_unit_stands_behind_the_prefix() -> None:
    assert units.count(4_089_184_256, "MAC") == "4.09 GMAC"
    assert units.rate(125e12, "FLOP/s") == "125 TFLOP/s"


def test_a_kilobyte_is_1000_bytes_and_a_kibibyte_1024() -> None:
    assert units.size(102_400) == "102 kB"
    assert units.binary_size(102_400) == "100 KiB"
    assert units.binary_size(6 * 1024**2) == "6.00 MiB"
    assert units.binary_size(1023) == "1023 B"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (1.5, "1.50 s"),
        (0.9999, "1.00 s"),
        (0.00158, "1.58 ms"),
        (59.1e-6, "59.1 µs"),
        (9e-7, "900 ns"),
        (1e-12, "<1 ns"),
        (4321.0, "4321 s"),
        (None, "?"),
    ],
)
def test_durations_take_the_unit_that_fits(seconds: float | None, text: str) -> None:
    assert units.duration(seconds) == text


def test_something_is_never_written_as_nothing_nor_nearly_all_as_all() -> None:
    assert units.percent(0.0001) == "<0.1 %"
    assert units.percent(0.9999) == ">99.9 %"
    assert units.percent(0.0) == "0 %"
    assert units.percent(1.0) == "100 %"
    assert units.intensity(0.001) == "<0.01"
    assert units.intensity(0.0) == "0"
    assert units.intensity(None) == "–"


def test_control_characters_are_made_visible() -> None:
    assert units.printable("a\nb\x1b[31m\u202e") == "a\\nb\\x1b[31m\\u202e"
    assert units.printable("\ud800") == "\\ud800"
    assert units.printable("naïve/Größe") == "naïve/Größe"


def test_a_long_path_keeps_whole_components_at_its_end() -> None:
    name = "/backbone/layer3/layer3.0/conv2/Conv"
    assert units.shorten(name, 24) == "…/layer3.0/conv2/Conv"
    assert units.shorten(name, 100) == name


def test_a_long_single_name_keeps_what_it_is_and_its_number() -> None:
    assert units.shorten("node_scaled_dot_product_attention_123", 20) == "node_sc…ttention_123"


def test_names_that_differ_in_the_middle_stay_apart() -> None:
    names = [f"/m/encoder/layer.{n}/attention/output/dense/MatMul" for n in range(3)]
    assert units.shorten_all(names, 24) == [f"…/layer.{n}/…/MatMul" for n in range(3)]


def test_names_that_differ_in_two_places_keep_both() -> None:
    # by their ends they are two groups, of which each alone would be "…/block.1/…/Conv" and so on
    names = [f"/net/block.{n}/conv/conv.{m}/conv.{m}.0/Conv" for n in (1, 2) for m in (0, 1)]
    assert units.shorten_all(names, 31) == [
        f"…/block.{n}/…/conv.{m}/…/Conv" for n in (1, 2) for m in (0, 1)
    ]


def test_names_that_differ_inside_a_component_begin_there() -> None:
    names = [f"/model/{'x' * 30}_{n}_{'y' * 30}/MatMul" for n in range(2)]
    assert units.shorten_all(names, 12) == [f"…{n}_yyyyyyyy…" for n in range(2)]


def test_a_deeper_path_stays_apart_from_a_shallow_one() -> None:
    names = ["/model/attention/a_long_component/Add", "/model/attention/inner/a_long_component/Add"]
    assert len(set(units.shorten_all(names, 24))) == 2


@given(st.text(max_size=60), st.integers(1, 40))
def test_a_cut_name_is_no_longer_than_asked(name: str, width: int) -> None:
    assert len(units.shorten(name, width)) <= max(width, 0)
    assert len(units.truncate(name, width)) <= max(width, 0)


@given(st.lists(st.text("ab/.", min_size=1, max_size=40), max_size=6), st.integers(8, 20))
def test_names_cut_together_fit_and_keep_their_order(names: list[str], width: int) -> None:
    cut = units.shorten_all(names, width)
    assert len(cut) == len(names)
    assert all(len(text) <= width for text in cut)


@given(st.text(max_size=40))
def test_printable_text_is_one_line_any_terminal_can_show(text: str) -> None:
    shown = units.printable(text)
    assert shown.isprintable()
    shown.encode("utf-8")


def test_markdown_from_a_file_name_holds_no_escape_sequence_and_no_html() -> None:
    assert units.escaped("a\x1b[31m|<b>\nc") == "a\\\\x1b\\[31m\\|\\<b\\> c"


@pytest.mark.parametrize(
    ("names", "told_apart"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "b", "a", "a"], ["a", "b", "a_2", "a_3"]),
        # a name that is somebody's own is given to nobody else
        (["a", "a_2", "a"], ["a", "a_2", "a_3"]),
        (["a", "a", "a_2"], ["a", "a_3", "a_2"]),
    ],
)
def test_names_that_repeat_have_a_number(names: list[str], told_apart: list[str]) -> None:
    assert units.distinct(names) == told_apart
