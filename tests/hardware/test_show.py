"""What `hw list`, `hw show` and `hw check` say."""

from __future__ import annotations

import json
from dataclasses import replace

from onnxroof.errors import ProfileProblem
from onnxroof.hardware import show
from onnxroof.hardware.read import available_profiles, load_profile

PROFILES = [load_profile(name) for name in available_profiles()]


def test_the_list_has_one_line_a_profile_with_its_ridge_points() -> None:
    lines = show.list_text(PROFILES).splitlines()
    v100 = next(line for line in lines if line.startswith("v100"))
    for shown in ("gpu", "15.7 TFLOP/s", "125 TFLOP/s fp16", "900 GB/s", "17.4", "138.9"):
        assert shown in v100


def test_show_has_peaks_ridge_points_notes_and_sources() -> None:
    text = show.show_text(load_profile("10980xe"))
    for shown in (
        "4.608 TFLOP/s",
        "2.86 TFLOP/s",
        "48.0",
        "38.6",
        "96 GB/s",
        "74 GB/s",
        "24.75 MiB",
    ):
        assert shown in text
    assert "[vendor-peaks] [measured-roofline]" in text
    assert "https://www.intel.com/" in text
    assert "18 × 32 KiB" in text


def test_show_has_every_thread_count() -> None:
    text = show.show_text(load_profile("mobile-arm"))
    assert "4 threads unless told otherwise" in text
    assert "With 1 thread\n" in text
    assert "41.53 GFLOP/s" in text


def test_data_is_in_base_units_and_survives_json() -> None:
    data = json.loads(json.dumps(show.show_data(load_profile("v100"))))
    tensor = data["peaks"][0]
    assert tensor == {
        "engine": "matrix",
        "compute_type": "fp16",
        "vendor_ops_per_second": 125e12,
        "sustained_ops_per_second": 112.28e12,
        "vendor_ridge_point_flop_per_byte": 125e12 / 900e9,
        "sustained_ridge_point_flop_per_byte": 112.28e12 / 828.758e9,
    }
    assert data["kernel_overhead_seconds"] == 0.9e-6
    assert data["memory"][-1]["capacity_bytes"] == 16 * 2**30
    listed = json.loads(json.dumps(show.list_data(PROFILES)))
    assert [entry["name"] for entry in listed] == list(available_profiles())


def test_check_says_all_is_well_or_lists_the_problems() -> None:
    assert show.check_text("a.yaml", ()) == "a.yaml: no problems\n"
    assert show.check_data("a.yaml", ()) == {"file": "a.yaml", "valid": True, "problems": []}
    problems = (ProfileProblem("kind", "must be cpu"), ProfileProblem("", "empty"))
    assert show.check_text("a.yaml", problems) == (
        "a.yaml: 2 problems\n  kind: must be cpu\n  empty\n"
    )
    assert show.check_data("a.yaml", problems)["valid"] is False


def test_control_characters_of_a_profile_are_made_visible() -> None:
    hostile = replace(PROFILES[0], title="\x1b[31mred", notes=("bell \x07",))
    for text in (show.show_text(hostile), show.list_text([hostile])):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\\x1b[31mred" in text
