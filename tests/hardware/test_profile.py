"""Figures, fallbacks and ridge points of profiles made by hand."""

from __future__ import annotations

import pickle

import pytest

from onnxroof.errors import ProfileError
from onnxroof.hardware.profile import (
    WIDER_TYPES,
    EngineProfile,
    HardwareProfile,
    MemoryLevel,
    Peak,
    Source,
)

TENSOR = EngineProfile("tensor cores", (Peak("fp16", 100e12, 80e12), Peak("int8", 200e12)))
SIMD = EngineProfile("SIMD", (Peak("fp32", 10e12, 9e12), Peak("fp16", 20e12)))
DRAM = MemoryLevel("dram", 10**9, 1, 500e9, 400e9)


def device(**changes: object) -> HardwareProfile:
    fields: dict[str, object] = {
        "name": "dev",
        "title": "Device",
        "vendor": "Example",
        "kind": "gpu",
        "matrix_engine": TENSOR,
        "vector_engine": SIMD,
        "memory": (DRAM,),
        "kernel_overhead_seconds": 1e-6,
        "runtime": "none",
    }
    return HardwareProfile(**{**fields, **changes})  # type: ignore[arg-type]


def test_matrix_work_runs_on_the_matrix_engine_and_elementwise_work_does_not() -> None:
    assert device().peak_ops_per_second("fp16", "matrix").ops_per_second == 100e12
    assert device().peak_ops_per_second("fp16", "vector").ops_per_second == 20e12


def test_a_type_only_the_vector_engine_has_runs_there_without_an_assumption() -> None:
    found = device().peak_ops_per_second("fp32", "matrix")
    assert (found.ops_per_second, found.engine) == (10e12, "vector")
    assert found.assumptions == ()


def test_a_missing_type_falls_back_to_the_next_wider_one_and_says_so() -> None:
    found = device().peak_ops_per_second("bf16", "matrix")  # bf16 → tf32 → fp32, not fp16
    assert (found.compute_type, found.ops_per_second) == ("fp32", 10e12)
    assert found.assumptions == (
        "dev has no bf16 peak on its vector engine: computed there in fp32",
    )


def test_elementwise_int8_never_borrows_the_matrix_engine() -> None:
    found = device().peak_ops_per_second("int8", "vector")
    assert (found.compute_type, found.engine) == ("fp16", "vector")


def test_four_bit_integers_compute_as_eight_bit_ones() -> None:
    assert device().peak_ops_per_second("int4", "matrix").compute_type == "int8"


def test_a_narrower_type_never_stands_in() -> None:
    found = device().peak_ops_per_second("fp64", "vector")
    assert found.ops_per_second is None
    assert found.assumptions == ("dev has no peak for fp64 or a wider type: compute time unknown",)


def test_an_unheard_of_type_is_unknown() -> None:
    assert device().peak_ops_per_second("complex64", "vector").ops_per_second is None
    assert device().ridge_point("complex64", "vector") is None


def test_a_missing_sustained_figure_falls_back_to_the_vendor_and_says_so() -> None:
    found = device().peak_ops_per_second("int8", "matrix", "sustained")
    assert (found.ops_per_second, found.kind) == (200e12, "vendor")
    assert found.assumptions == (
        "dev has no sustained int8 peak for its matrix engine: the vendor figure is used",
    )


def test_ridge_points_divide_figures_of_one_kind() -> None:
    assert device().ridge_point("fp16", "matrix") == 100e12 / 500e9
    assert device().ridge_point("fp16", "matrix", "sustained") == 80e12 / 400e9


def test_a_missing_sustained_bandwidth_falls_back_to_the_vendor_and_says_so() -> None:
    profile = device(memory=(MemoryLevel("dram", vendor_bytes_per_second=500e9),))
    assert profile.bandwidth_bytes_per_second("sustained") == 500e9
    assert profile.bandwidth_assumptions("sustained") == (
        "dev has no sustained bandwidth: the vendor figure is used",
    )
    assert profile.bandwidth_assumptions("vendor") == ()


def test_main_memory_without_bandwidth_is_an_error() -> None:
    with pytest.raises(ProfileError, match="main memory dram has no bandwidth"):
        device(memory=(MemoryLevel("dram"),)).bandwidth_bytes_per_second()


def test_a_device_without_a_matrix_engine_computes_matrices_on_its_vector_engine() -> None:
    found = device(matrix_engine=None).peak_ops_per_second("fp16", "matrix")
    assert (found.ops_per_second, found.engine) == (20e12, "vector")


def test_thread_counts_without_figures_are_an_error_that_lists_the_others() -> None:
    one = device(threads=1)
    four = device(threads=4, thread_variants=(one,))
    assert four.for_threads(4) is four
    assert four.for_threads(1) is one
    with pytest.raises(ProfileError, match="no figures for 2 threads; it has: 1, 4"):
        four.for_threads(2)
    with pytest.raises(ProfileError, match="no threads to choose"):
        device().for_threads(2)


def test_sources_of_a_key_are_those_above_and_below_it() -> None:
    table = Source("table", "T", "datasheet", ("memory",))
    other = Source("other", "O", "datasheet", ("memory.dram.capacity_gb", "memory2"))
    profile = device(sources=(table, other))
    assert profile.sources_of("memory.dram") == (table, other)
    assert profile.sources_of("memory.dram.bandwidth_gb_per_s") == (table,)
    assert profile.sources_of("mem") == ()


def test_compute_types_are_those_of_both_engines() -> None:
    assert device().compute_types == ("fp32", "fp16", "int8")


def test_profiles_are_hashable_and_picklable() -> None:
    assert pickle.loads(pickle.dumps(device())) == device()
    assert len({device(), device()}) == 1


def test_wider_types_are_known_types_at_least_as_wide() -> None:
    bits = {name: int(name.strip("fpbtinx")) for name in WIDER_TYPES}
    bits["tf32"] = 19
    for narrow, wider in WIDER_TYPES.items():
        assert all(bits[wide] >= bits[narrow] for wide in wider)
