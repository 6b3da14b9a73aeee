"""Fitting constants to measured models: it helps, or the base profile stays."""

from __future__ import annotations

import math
import random
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from onnxroof import cli
from onnxroof.calibration.cases import GROUPS, Case, adjusted, build_cases, runtime_of
from onnxroof.calibration.command import fit_command
from onnxroof.calibration.fit import BETTER, LARGEST, Fit, fit
from onnxroof.calibration.fit_report import fit_text
from onnxroof.calibration.measurements import Measured, read_measurements
from onnxroof.errors import MeasurementError, UsageError
from onnxroof.hardware.read import check_profile, load_profile
from onnxroof.latency.constants import CPU, Constants
from onnxroof.latency.predict import constants_of
from tests.builders import model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BASE = load_profile("10980xe")
RUNTIME = runtime_of(BASE, "onnxruntime")


def convolution(channels: int, pixels: int) -> str:
    return f"""agraph (float[n,{channels},{pixels},{pixels}] x, float[{channels},{channels},3,3] w)
        => (float y) {{ y = Conv <pads = [1,1,1,1]> (x, w) }}"""


def depthwise(channels: int, pixels: int) -> str:
    return f"""agraph (float[n,{channels},{pixels},{pixels}] x, float[{channels},1,3,3] w)
        => (float y) {{ y = Conv <pads = [1,1,1,1], group = {channels}> (x, w) }}"""


def product(rows: int, columns: int) -> str:
    return f"""agraph (float[n,{rows},{columns}] x, float[{columns},{columns}] w)
        => (float y) {{ y = MatMul (x, w) }}"""


def elementwise(elements: int) -> str:
    return (
        f"agraph (float[n,{elements}] x, float[n,{elements}] z) => (float y) {{ y = Add (x, z) }}"
    )


NETS = {
    "conv64": convolution(64, 56), "conv128": convolution(128, 56), "conv256": convolution(256, 28),
    "wise64": depthwise(64, 112), "wise256": depthwise(256, 56), "wise512": depthwise(512, 28),
    "product256": product(256, 1024), "product512": product(512, 2048),
    "add1": elementwise(10**6), "add8": elementwise(8 * 10**6),
}  # fmt: skip
"""Ten models, one kernel each."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    for name, text in NETS.items():
        (path / f"{name}.onnx").write_bytes(model(text).SerializeToString())
    return path


@pytest.fixture(scope="module")
def cases(folder: Path) -> tuple[Case, ...]:
    """Ten models at two batches; the times are to be put in."""
    rows = [
        Measured(str(folder / f"{name}.onnx"), 1.0, batch, None, {}, 1)
        for name in NETS
        for batch in (1, 4)
    ]
    return build_cases(rows, BASE, RUNTIME)


def as_if(
    cases: tuple[Case, ...], seed: int = 0, noise: float = 0.0, **speeds: float
) -> list[Case]:
    """The cases as a device with other speeds would run them, with noise."""
    chance = random.Random(seed)
    return [
        replace(case, seconds=case.predict(RUNTIME, speeds) * math.exp(chance.gauss(0, noise)))
        for case in cases
    ]


def error(cases: list[Case], speeds: dict[str, float]) -> float:
    off = [abs(case.predict(RUNTIME, speeds) / case.seconds - 1) for case in cases]
    return sum(off) / len(off)


# -- what is fitted --------------------------------------------------------------------------


def test_every_constant_that_a_fit_changes_exists() -> None:
    fields = set(Constants.__dataclass_fields__)
    assert {name for group in GROUPS.values() for name in group} <= fields


def test_twice_as_fast_is_half_the_slots_and_twice_the_share() -> None:
    known = constants_of(adjusted(BASE, {"depthwise": 2.0, "product": 2.0, "host": 2.0}))
    assert known.depthwise_slots == CPU.depthwise_slots / 2
    assert known.product_share == CPU.product_share * 2
    assert adjusted(BASE, {"host": 2.0}).host_factor == BASE.host_factor / 2


def test_a_case_predicts_what_the_report_says(cases: tuple[Case, ...], folder: Path) -> None:
    import onnxroof

    path = str(folder / "conv64.onnx")
    reported = onnxroof.analyze(path, BASE, dims={"n": 1}, runtime="onnxruntime").rooflines[0]
    assert cases[0].predict(RUNTIME, {}) == pytest.approx(reported.latency_seconds)


# -- it helps --------------------------------------------------------------------------------


def test_speeds_that_made_the_times_are_found(cases: tuple[Case, ...]) -> None:
    true = {"convolution": 0.6, "product": 0.9, "depthwise": 0.5, "memory": 0.7}
    found = fit(as_if(cases, **true), RUNTIME)
    assert found.improves
    for group, speed in true.items():
        assert found.speeds[group] == pytest.approx(speed, rel=0.1)
    assert found.fitted_error < 0.05 < found.base_error


@pytest.mark.parametrize("seed", range(4))
def test_ten_measurements_improve_the_half_that_was_held_out(
    cases: tuple[Case, ...], seed: int
) -> None:
    chance = random.Random(seed)
    speeds = {group: math.exp(chance.uniform(-0.8, 0.2)) for group in GROUPS}
    measured = as_if(cases, seed, 0.08, **speeds)
    found = fit(measured[::2], RUNTIME)
    assert error(measured[1::2], dict(found.speeds)) < error(measured[1::2], {})


# -- or it does not hurt ---------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_where_the_base_is_right_noise_changes_little_or_nothing(
    cases: tuple[Case, ...], seed: int
) -> None:
    measured = as_if(cases, seed, 0.1)
    random.Random(seed).shuffle(measured)
    found = fit(measured[:10], RUNTIME)
    assert error(measured[10:], dict(found.speeds)) < error(measured[10:], {}) + 0.03


def test_times_without_rhyme_keep_the_base(cases: tuple[Case, ...]) -> None:
    # as often four times too slow as four times too fast, the same for both batches of a model
    scrambled = [
        replace(case, seconds=case.predict(RUNTIME, {}) * 4 ** (1 - 2 * (place // 2 % 2)))
        for place, case in enumerate(cases)
    ]
    found = fit(scrambled, RUNTIME)
    assert not found.improves
    assert found.speeds == {}
    assert found.left_out_error >= BETTER * found.base_error
    assert "the base is kept" in fit_text(BASE, found)


def test_fewer_measurements_than_constants_move_all_as_one(cases: tuple[Case, ...]) -> None:
    few = [cases[0], cases[6], cases[12]]  # a convolution, a depthwise one, a product
    found = fit(as_if(tuple(few), **dict.fromkeys(GROUPS, 0.5)), RUNTIME)
    assert found.tied
    assert len(set(found.speeds.values())) == 1
    assert found.improves


def test_no_speed_leaves_its_bounds(cases: tuple[Case, ...]) -> None:
    found = fit([replace(case, seconds=case.predict(RUNTIME, {}) * 10) for case in cases], RUNTIME)
    limit = math.exp(LARGEST)
    assert all(1 / limit - 1e-9 <= speed <= limit + 1e-9 for speed in found.speeds.values())
    assert "is the base profile that of this device" in fit_text(BASE, found)


def test_what_only_one_model_shows_stays_as_it_is(cases: tuple[Case, ...]) -> None:
    # three convolutions and one product, which ran four times too slow
    some = [cases[0], cases[2], cases[4], replace(cases[12], seconds=cases[12].seconds)]
    times = as_if(tuple(some), convolution=0.5, product=0.25)
    assert set(fit(times, RUNTIME).speeds) == {"convolution"}


def test_one_measurement_that_went_wrong_does_not_bend_the_rest(cases: tuple[Case, ...]) -> None:
    right = as_if(cases, **dict.fromkeys(GROUPS, 0.6))
    wrong = [replace(right[0], seconds=5 * right[0].seconds), *right[1:]]
    found = fit(wrong, RUNTIME)
    assert error(right, dict(found.speeds)) < 0.1


def test_a_few_measurements_move_less_than_many(cases: tuple[Case, ...]) -> None:
    def moved(some: list[Case]) -> float:
        return abs(math.log(fit(some, RUNTIME, ["convolution"]).speeds["convolution"]))

    slow = as_if(cases, convolution=0.5)[:6]
    assert moved([slow[0], slow[2]]) <= moved(slow)


# -- what is refused -------------------------------------------------------------------------


def test_more_constants_than_measurements_are_refused(cases: tuple[Case, ...]) -> None:
    with pytest.raises(MeasurementError, match="3 constants need at least as many measurements"):
        fit([cases[0], cases[6]], RUNTIME, ["convolution", "depthwise", "memory"])


def test_one_model_is_refused(cases: tuple[Case, ...]) -> None:
    with pytest.raises(MeasurementError, match="at least two models"):
        fit(cases[:2], RUNTIME)


def test_unknown_constants_are_refused(cases: tuple[Case, ...]) -> None:
    with pytest.raises(UsageError, match="'clock' is not one of convolution, product"):
        fit(cases, RUNTIME, ["clock"])


# -- the table -------------------------------------------------------------------------------


def table(folder: Path, text: str) -> str:
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_table_has_paths_times_batches_threads_and_dimensions(folder: Path) -> None:
    path = table(folder, "path,milliseconds,batch,threads,seq\nconv64.onnx,2.5,8,4,128\n\nb,1,,,\n")
    first, second = read_measurements(path)
    assert (first.seconds, first.batch, first.threads) == (pytest.approx(2.5e-3), 8, 4)
    assert first.dims == {"seq": 128}
    assert first.path == str(folder / "conv64.onnx")
    assert (second.path, second.batch, second.dims) == ("b", None, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column path and no column milliseconds"),
        ("path\na\n", "no column milliseconds"),
        ("path,milliseconds\n", "holds no measurement"),
        ("path,milliseconds,path\n", "a name of its own"),
        ("path,milliseconds\na\n", "line 2: 1 cells under 2 headings"),
        ("path,milliseconds\n,3\n", "line 2: the path of a model is missing"),
        ("path,milliseconds\na,0\n", "line 2: milliseconds must be more than 0"),
        ("path,milliseconds\na,fast\n", "more than 0, not 'fast'"),
        ("path,milliseconds\na,nan\n", "more than 0"),
        ("path,milliseconds,batch\na,1,two\n", "'batch' must be a whole number"),
        ("path,milliseconds,batch\na,1,0\n", "'batch' must be a whole number"),
        ('path,milliseconds\n"a,1\n', "comma-separated"),
    ],
)
def test_a_table_that_cannot_be_read_says_where(folder: Path, text: str, said: str) -> None:
    with pytest.raises(MeasurementError, match=said):
        read_measurements(table(folder, text))


def test_a_model_that_is_not_there_is_named_with_its_line(folder: Path) -> None:
    rows = read_measurements(table(folder, "path,milliseconds\nnone.onnx,1\n"))
    with pytest.raises(MeasurementError, match=r"line 2, none\.onnx"):
        build_cases(rows, BASE, RUNTIME)


def test_a_batch_the_model_cannot_have_is_refused(folder: Path) -> None:
    fixed = "agraph (float[1,8] x) => (float[1,8] y) { y = Relu (x) }"
    (folder / "fixed.onnx").write_bytes(model(fixed).SerializeToString())
    rows = read_measurements(table(folder, "path,milliseconds,batch\nfixed.onnx,1,8\n"))
    with pytest.raises(MeasurementError, match="has batch 1, not 8"):
        build_cases(rows, BASE, RUNTIME)


def test_a_runtime_without_times_is_refused() -> None:
    with pytest.raises(MeasurementError, match="a set of fusions only"):
        runtime_of(BASE, "none")


# -- the profile and the command -------------------------------------------------------------


@pytest.fixture
def measurements(cases: tuple[Case, ...], folder: Path) -> Callable[..., str]:
    def written(**speeds: float) -> str:
        lines = [
            f"{case.path},{case.seconds * 1e3},{batch}"
            for case, batch in zip(as_if(cases, **speeds), (1, 4) * len(NETS), strict=True)
        ]
        return table(folder, "path,milliseconds,batch\n" + "\n".join(lines) + "\n")

    return written


def test_the_fitted_profile_is_valid_and_predicts_the_measurements(
    measurements: Callable[..., str], tmp_path: Path, cases: tuple[Case, ...]
) -> None:
    true = {"convolution": 0.6, "product": 0.9, "depthwise": 0.5, "memory": 0.7}
    outcome = fit_command("10980xe", measurements(**true), "mine", "onnxruntime")
    path = tmp_path / "mine.yaml"
    path.write_text(outcome.profile, encoding="utf-8")
    assert check_profile(path) == ()
    profile = load_profile(path)
    assert profile.name == "mine"
    fitted = build_cases(
        [Measured(c.path, 1, 4, None, {}, 1) for c in cases[1::2]], profile, RUNTIME
    )
    for ours, case in zip(fitted, as_if(cases, **true)[1::2], strict=True):
        assert ours.predict(RUNTIME, {}) == pytest.approx(case.seconds, rel=0.1)


def test_a_fit_says_on_what_it_rests(measurements: Callable[..., str]) -> None:
    outcome = fit_command("10980xe", measurements(convolution=0.5), "mine", "onnxruntime")
    text = " ".join(outcome.profile.split())
    assert "table.csv, 20 rows" in text
    assert "for models left out" in text
    assert "latency_constants.convolution_share" in text


def test_a_profile_can_be_fitted_again(measurements: Callable[..., str], tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    path = measurements(convolution=0.5, memory=0.6)
    first.write_text(fit_command("10980xe", path, "first", "onnxruntime").profile)
    path = measurements(convolution=0.3, memory=0.6)
    second.write_text(fit_command(str(first), path, "second", "onnxruntime").profile)
    assert check_profile(second) == ()


def test_a_base_that_is_right_comes_back_with_a_note(
    measurements: Callable[..., str], tmp_path: Path
) -> None:
    outcome = fit_command("10980xe", measurements(), "same", "onnxruntime")
    path = tmp_path / "same.yaml"
    path.write_text(outcome.profile, encoding="utf-8")
    profile = load_profile(path)
    assert profile.latency_constants == BASE.latency_constants
    assert "did not help" in profile.notes[-1]
    assert "the base is kept" in outcome.table


def test_the_command_writes_the_profile_and_shows_what_it_did(
    measurements: Callable[..., str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:  # fmt: skip
    path = tmp_path / "mine.yaml"
    arguments = ["hw", "fit", measurements(convolution=0.5), "--hw", "10980xe", "--runtime",
                 "onnxruntime", "--constants", "convolution,memory", "-o", str(path)]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["onnxroof", *arguments])
    with pytest.raises(SystemExit) as done:
        cli.main()
    assert not done.value.code
    assert check_profile(path) == ()
    assert "mean absolute error" in capsys.readouterr().out


def test_errors_are_means_of_absolute_shares() -> None:
    from onnxroof.calibration.fit import FittedRow

    # 50 % and 0 % off; 10 % and 20 %; 100 % and 0 %
    rows = (FittedRow("a", 2.0, 3.0, 2.2, 4.0), FittedRow("b", 5.0, 5.0, 4.0, 5.0))
    found = Fit({}, tied=False, improves=True, rows=rows)
    assert found.base_error == pytest.approx(0.25)
    assert found.fitted_error == pytest.approx(0.15)
    assert found.left_out_error == pytest.approx(0.5)
