"""The profiles that come with onnxroof, against their README and the literature."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from onnxroof.hardware import read
from onnxroof.hardware.generate import generated_files
from onnxroof.hardware.profile import WIDER_TYPES, HardwareProfile
from onnxroof.hardware.schema import known_keys

if TYPE_CHECKING:
    from pathlib import Path

NAMES = read.available_profiles()
README = (read.profile_directory() / "README.md").read_text(encoding="utf-8")


def readme_rows() -> list[tuple[str, str, str, str, str]]:
    """(name, device, type, vendor ridge point, sustained ridge point) of the README's table."""
    rows = re.findall(r"^\| `(.+?)` \| (.+?) \| (\w+) \| ([\d.]+) \| ([\d.–]+) \|$", README, re.M)
    assert rows
    return rows


MEASURED = ("10980xe", "mobile-arm", "v100")
"""Profiles whose figures come with micro-benchmarks."""


def test_profiles_of_every_kind_of_machine_ship() -> None:
    assert set(NAMES) >= {*MEASURED, "i9-10940x", "xeon-gold-6240", "rtx-2080-ti", "a100", "h100"}
    assert set(NAMES) >= {"raspberry-pi-4", "snapdragon-855", "pixel3", "jetson-xavier"}


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_profile_has_no_problems_and_is_called_like_its_file(name: str) -> None:
    assert read.check_profile(read.profile_directory() / f"{name}.yaml") == ()
    assert read.load_profile(name).name == name


@pytest.mark.parametrize("name", NAMES)
def test_the_unchecked_fast_path_reads_the_same_profile(name: str) -> None:
    by_path = read.load_profile(read.profile_directory() / f"{name}.yaml")
    assert by_path == read.load_profile(name)


@pytest.mark.parametrize("name", NAMES)
def test_main_memory_has_the_vendors_bandwidth(name: str) -> None:
    level = read.load_profile(name).main_memory
    assert level.level == "dram"
    assert level.vendor_bytes_per_second is not None
    assert level.sustained_bytes_per_second is not None or name not in MEASURED


@pytest.mark.parametrize(("name", "device", "kind", "vendor", "sustained"), readme_rows())
def test_ridge_points_of_the_readme_are_those_of_the_files(
    name: str, device: str, kind: str, vendor: str, sustained: str
) -> None:
    profile = read.load_profile(name)
    assert f"{profile.ridge_point(kind, 'matrix'):.1f}" == vendor
    if sustained == "–":
        assert profile.main_memory.sustained_bytes_per_second is None
    else:
        assert f"{profile.ridge_point(kind, 'matrix', 'sustained'):.1f}" == sustained


def test_the_readme_lists_every_profile() -> None:
    assert {row[0] for row in readme_rows()} == set(NAMES)


def test_the_readme_explains_every_key_and_type() -> None:
    words = set(re.findall(r"`(\w+)`", README))
    assert set(known_keys()) <= words
    assert set(WIDER_TYPES) <= words


def test_the_example_of_the_readme_is_a_valid_profile(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.+?)```", README, re.DOTALL)
    assert example is not None
    path = tmp_path / "my-npu.yaml"
    path.write_text(example[1], encoding="utf-8")
    assert read.check_profile(path) == ()
    # 250 TOP/s over 900 GB/s
    assert read.load_profile(path).ridge_point("int8", "matrix") == pytest.approx(250e12 / 900e9)


def test_the_processor_of_the_readme_is_a_valid_profile(tmp_path: Path) -> None:
    _, example = re.findall(r"```yaml\n(.+?)```", README, re.DOTALL)
    path = tmp_path / "my-board.yaml"
    path.write_text(example, encoding="utf-8")
    assert read.check_profile(path) == ()
    # 4 cores · 2 GHz · 8 FLOP over 12.8 GB/s
    assert read.load_profile(path).ridge_point("fp32", "vector") == pytest.approx(64 / 12.8)


@pytest.mark.parametrize("name", ["profile.schema.json", "checked.json"])
def test_generated_files_are_fresh(name: str) -> None:
    directory = read.profile_directory()
    fresh = generated_files(directory)[name]
    assert (directory / name).read_text(encoding="utf-8") == fresh, (
        "run: python -m onnxroof.hardware.generate"
    )


def test_10980xe_has_the_ridge_points_of_the_literature() -> None:
    profile = read.load_profile("10980xe")
    # 16 cores · 4.5 GHz · 64 FLOP a cycle = 4608 GFLOP/s over 96 GB/s
    assert profile.ridge_point("fp32", "matrix") == 16 * 4.5 * 64 / 96 == 48
    # 2.86 TFLOP/s over 74 GB/s, both measured
    assert profile.ridge_point("fp32", "matrix", "sustained") == pytest.approx(2860 / 74)
    assert profile.ridge_point("fp32", "matrix", "sustained") == pytest.approx(38.6, abs=0.05)


def test_v100_has_the_ridge_point_of_its_data_sheet_and_explains_the_other() -> None:
    profile = read.load_profile("v100")
    assert profile.ridge_point("fp16", "matrix") == pytest.approx(125_000 / 900)
    assert round(125_000 / 900, 1) == 138.9
    assert round(125_000 / 720, 1) == 173.6
    assert any("138.9" in note and "173.6" in note and "720" in note for note in profile.notes)


def test_v100_runs_fp32_matrices_and_fp16_elementwise_work_on_its_cuda_cores() -> None:
    profile = read.load_profile("v100")
    assert profile.peak_ops_per_second("fp32", "matrix").ops_per_second == 15.7e12
    assert profile.peak_ops_per_second("fp16", "vector").ops_per_second == 31.3e12


def test_v100_has_no_integer_tensor_cores() -> None:
    found = read.load_profile("v100").peak_ops_per_second("int8", "matrix")
    assert (found.compute_type, found.engine) == ("fp16", "matrix")
    assert len(found.assumptions) == 1


def test_v100_figures_are_those_measured_by_others() -> None:
    profile = read.load_profile("v100")
    found = profile.peak_ops_per_second("fp16", "matrix", "sustained")
    assert found.ops_per_second == 112.28e12  # DeepBench, fastest GEMM
    assert profile.bandwidth_bytes_per_second("sustained") == 828.758e9  # ERT
    assert [level.capacity_bytes for level in profile.memory] == [128 << 10, 6 << 20, 16 << 30]
    # 80 SMs · 16 special functions a cycle · 1.53 GHz
    assert profile.special_function_ops_per_second == pytest.approx(80 * 16 * 1.53e9)


def test_mobile_arm_holds_one_big_core_and_four_threads() -> None:
    four = read.load_profile("mobile-arm")
    one = four.for_threads(1)
    assert (four.threads, one.threads) == (4, 1)
    # Cortex-A76: 2 pipes · 4 lanes · 2 = 16 FLOP a cycle; twice that in fp16; 64 in int8
    for profile, gigahertz in ((one, 2.6), (four, 2 * 2.6 + 2 * 1.92)):
        for kind, per_cycle in (("fp32", 16), ("fp16", 32), ("int8", 64)):
            rate = profile.peak_ops_per_second(kind, "matrix").ops_per_second
            assert rate == pytest.approx(gigahertz * 1e9 * per_cycle), (kind, gigahertz)


def test_mobile_arm_sustains_what_was_measured_on_each_cluster() -> None:
    four = read.load_profile("mobile-arm")
    one = four.for_threads(1)
    found = one.peak_ops_per_second("fp32", "vector", "sustained")
    assert found.ops_per_second == 41.527e9
    found = four.peak_ops_per_second("fp32", "vector", "sustained")
    assert found.ops_per_second == pytest.approx(83.087e9 + 53.330e9)


def test_a_variant_keeps_what_it_does_not_replace() -> None:
    four = read.load_profile("mobile-arm")
    one = four.for_threads(1)
    assert one.memory[:-1] == four.memory[:-1]
    assert one.kernel_overhead_seconds == four.kernel_overhead_seconds
    assert one.bandwidth_bytes_per_second() == four.bandwidth_bytes_per_second()


@pytest.mark.parametrize("name", NAMES)
def test_every_source_can_be_looked_up(name: str) -> None:
    profile: HardwareProfile = read.load_profile(name)
    assert all(source.title and (source.url or source.where) for source in profile.sources)
    assert all(profile.sources_of(f"{engine}_engine") for engine, _ in profile.engines())
    assert profile.sources_of("kernel_overhead_us")
