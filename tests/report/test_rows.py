"""The rows of every table."""

from __future__ import annotations

import pytest

from onnxroof.report.rows import NO_SCOPE, By, Sort, scope_at, table_rows
from tests.report.models import CHAIN, UNKNOWN, analysis, device


@pytest.mark.parametrize("by", list(By))
@pytest.mark.parametrize("runtime", ["none", "onnxruntime"])
def test_times_of_every_table_add_up_to_the_latency(by: By, runtime: str) -> None:
    found = analysis(CHAIN, device(runtime=runtime), runtime=runtime)
    rows = table_rows(found, by, Sort.TIME, 2)
    seconds = sum(row.times[0].seconds or 0.0 for row in rows)
    assert seconds == pytest.approx(found.rooflines[0].latency_seconds)
    assert sum(row.times[0].share or 0.0 for row in rows) == pytest.approx(1.0)


@pytest.mark.parametrize("by", list(By))
def test_macs_of_every_table_add_up_to_the_total(by: By) -> None:
    found = analysis()
    assert sum(row.macs or 0 for row in table_rows(found, by, Sort.NAME, 2)) == 4 * 8 + 8 * 3


def test_a_fused_node_has_no_time_of_its_own() -> None:
    found = analysis(CHAIN, device(runtime="onnxruntime"), runtime="onnxruntime")
    fused = {kernel.nodes for kernel in found.kernels.kernels if len(kernel.nodes) > 1}
    anchors = {kernel.anchor for kernel in found.kernels.kernels}
    inside = {index for nodes in fused for index in nodes} - anchors
    times = {row.name: row.times[0] for row in table_rows(found, By.NODE, Sort.NAME, 2)}
    for index in inside:
        time = times[found.nodes[index].name]
        assert (time.seconds, time.bound) == (None, "fused")


@pytest.mark.parametrize("sort", list(Sort))
def test_rows_fall_from_the_largest_and_unknown_ones_come_last(sort: Sort) -> None:
    rows = table_rows(analysis(UNKNOWN, device()), By.NODE, sort, 2)
    if sort in {Sort.FLOPS, Sort.MACS, Sort.INTENSITY}:
        assert rows[-1].name == "Mystery#1"
    if sort is Sort.NAME:
        assert [row.name for row in rows] == ["MatMul#0", "Mystery#1"]


def test_a_group_with_an_unknown_node_is_a_lower_bound() -> None:
    (row,) = table_rows(analysis(UNKNOWN), By.SCOPE, Sort.FLOPS, 1)
    # [2, 4] · [4, 8]: 2·4·8 MACs are known, the other node is not
    assert (row.name, row.nodes, row.macs, row.is_lower_bound) == (NO_SCOPE, 2, 64, True)


def test_a_scope_is_cut_to_its_first_levels() -> None:
    assert scope_at("encoder/layer.0/attention", 2) == "encoder/layer.0"
    assert scope_at("encoder", 2) == "encoder"
    assert scope_at("", 2) == NO_SCOPE
