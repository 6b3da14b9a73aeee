"""`check`, `compare` and `rank` from the command line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest

from onnxroof import GraphBuilder, analyze
from onnxroof.progress import Progress
from onnxroof.quantities import BYTES, COUNT, SECONDS, parse_amount
from tests.builders import model

if TYPE_CHECKING:
    from collections.abc import Callable

Run = tuple[int, str, str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three models, 8, 16 and 32 filters wide, and a file that is none."""
    for width in (8, 16, 32):
        g = GraphBuilder(f"w{width}")
        x = g.input((1, 3, 64, 64))
        x = g.relu(g.conv(x, width, 3, name="first"))
        g.output(g.conv(x, width, 3, name="second"))
        onnx.save(g.to_onnx(), tmp_path / f"w{width}.onnx")
    (tmp_path / "broken.onnx").write_text("not a model", encoding="utf-8")
    return tmp_path


def test_check_ends_with_0_within_and_1_beyond_a_limit(
    run: Callable[..., Run], folder: Path
) -> None:
    model = str(folder / "w32.onnx")
    # 64·64 pixels · 32 filters · 27 and · 288: 41.3 M multiply-accumulates
    assert run("check", model, "--max-macs", "42M")[0] == 0
    code, out, err = run("check", model, "--max-macs", "41M")
    assert (code, err) == (1, "")
    assert "second (Conv)" in out


def test_check_takes_several_models_and_writes_junit_besides(
    run: Callable[..., Run], folder: Path
) -> None:
    models = [str(folder / f"w{width}.onnx") for width in (8, 32)]
    junit = folder / "junit.xml"
    code, out, _ = run("check", *models, "--max-macs", "10M", "--junit", str(junit),
                       "--format", "json")  # fmt: skip
    assert code == 1
    answers = [entry["checks"][0]["answer"] for entry in json.loads(out)["models"]]
    assert answers == ["within", "exceeds"]
    assert junit.read_text(encoding="utf-8").count("<testsuite ") == 2


def test_compare_says_what_changed_and_fails_beyond_the_allowed(
    run: Callable[..., Run], folder: Path
) -> None:
    models = [str(folder / f"w{width}.onnx") for width in (16, 32)]
    code, out, _ = run("compare", *models, "--hw", "mobile-arm", "--format", "markdown")
    assert code == 0
    assert "| slower | second " in out
    assert run("compare", *models, "--hw", "mobile-arm", "--fail-above", "10%")[0] == 1
    assert run("compare", models[0], "--hw", "v100", "--hw", "mobile-arm")[0] == 0
    assert run("compare", *models, models[0])[0] == 2


def test_rank_puts_the_fastest_first_and_says_what_it_could_not_read(
    run: Callable[..., Run], folder: Path
) -> None:
    for jobs in ("1", "2"):
        code, out, err = run("rank", str(folder), "--hw", "mobile-arm", "--jobs", jobs,
                             "--format", "csv")  # fmt: skip
        assert (code, err) == (0, "")
        rows = list(csv.DictReader(io.StringIO(out)))
        names = [row["model"].rpartition("/")[2] for row in rows]
        assert names == ["w8.onnx", "w16.onnx", "w32.onnx", "broken.onnx"]
        assert "not an ONNX model" in rows[-1]["problem"]
    assert run("rank", str(folder), "--strict")[0] == 1
    assert "not ranked: " in run("rank", str(folder), "--top", "1")[1]
    assert run("rank", str(folder), "--by", "throughput", "--hw", "v100", "--format", "markdown")[
        1
    ].count("w32") == 1  # fmt: skip


def test_rank_binds_a_dimension_in_the_models_that_have_it(
    run: Callable[..., Run], folder: Path
) -> None:
    proto = onnx.load(folder / "w8.onnx", load_external_data=False)
    proto.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    onnx.save(proto, folder / "free.onnx")
    command = ("rank", str(folder), "--by", "macs", "--format", "csv")
    assert "bind them, as in: --dim height=N" in run(*command)[1]
    for jobs in ("1", "2"):
        code, out, err = run(*command, "--dim", "height=32", "--jobs", jobs)
        assert (code, err) == (0, "")
        ranked = {row["model"].rpartition("/")[2]: row for row in csv.DictReader(io.StringIO(out))}
        # half of the 64 rows, half of the work
        assert 2 * int(ranked["free.onnx"]["macs"]) == int(ranked["w8.onnx"]["macs"])
    code, _, err = run(*command, "--dim", "hight=32")
    assert (code, "none of the models has a free dimension named 'hight'" in err) == (2, True)
    # one that cannot be ranked, because its height is free, has none of the name either
    code, _, err = run("rank", str(folder / "free.onnx"), "--dim", "hight=32")
    assert (code, "none of the models has a free dimension named 'hight'" in err) == (2, True)
    # but what only a run tells, nobody knows of it
    assert run("rank", str(folder / "free.onnx"), "--dim", "boxes.0=3")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rank", "nowhere"], "no such file or folder"),
        (["rank", ".", "--by", "beauty"], "is not one of"),
        (["rank", ".", "--by", "throughput"], "--hw NAME"),
        (["compare", "a.onnx", "b.onnx", "--fail-above", "much"], "for example 10%"),
        (["check", "a.onnx"], "nothing to check"),
    ],
)
def test_a_wrong_use_ends_with_2_and_the_reason(
    run: Callable[..., Run], folder: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: list[str], says: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert says in err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_progress_bar_is_for_terminals_and_wipes_itself() -> None:
    for stream, drawn in ((Terminal(), True), (io.StringIO(), False)):
        with Progress(2, "models", stream) as progress:
            progress.advance()
            progress.advance()
        assert ("2 of 2 models" in stream.getvalue()) == drawn
        assert stream.getvalue().endswith("\r\x1b[K") == drawn


@pytest.mark.parametrize(
    ("text", "units", "value"),
    [("5ms", SECONDS, 5e-3), ("1.5 µs", SECONDS, 1.5e-6), ("64MiB", BYTES, 64 * 2**20),
     ("20 MB", BYTES, 20_000_000), ("2G", COUNT, 2e9), ("7", COUNT, 7), ("1.5B", COUNT, 1.5e9)],
)  # fmt: skip
def test_amounts_are_read_with_their_unit(text: str, units: dict[str, float], value: float) -> None:
    assert parse_amount(text, units, "") == pytest.approx(value)


def test_a_ranking_in_a_spreadsheet_holds_numbers(run: Callable[..., Run], tmp_path: Path) -> None:
    # At most 64 elements are found, so as many times 8 products; a loop of which one trip counts
    found = """agraph (float[64] x, float[64,8] v) => (float y) {
        z = NonZero(x) t = Transpose(z) g = GatherND(v, t) u = Transpose(v) y = MatMul(g, u) }"""
    loop = """agraph (float[8,8] x, int64 m) => (float[8,8] y) <bool yes = {1}> {
        y = Loop(m, yes, x) <body = b (int64 i, bool go, float[8,8] h)
            => (bool on, float[8,8] next) { on = Identity(go) next = MatMul(h, h) }> }"""
    for name, text in (("found", found), ("loop", loop)):
        onnx.save(model(text), tmp_path / f"{name}.onnx")
    _, out, _ = run("rank", str(tmp_path), "--by", "macs", "--format", "csv")
    rows = {Path(row["model"]).stem: row for row in csv.DictReader(io.StringIO(out))}
    assert (rows["found"]["macs"], rows["found"]["exactness"]) == (str(64 * 8 * 64), "at most")
    assert (rows["loop"]["macs"], rows["loop"]["exactness"]) == ("512", "per trip")
    text = run("rank", str(tmp_path), "--by", "macs")[1]
    assert "at most 32.8 kMAC" in text
    assert "512 MAC per trip" in text


@pytest.mark.parametrize("command", [("check", "--max-macs", "1G"), ("compare",)])
def test_of_several_models_the_one_that_fails_is_named(
    run: Callable[..., Run], folder: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    text = "agraph (float[2,n] x) => (float[2,n] y) { y = Relu(x) }"
    onnx.save(model(text), tmp_path / "open.onnx")
    code, _, err = run(
        command[0], str(folder / "w8.onnx"), str(tmp_path / "open.onnx"), *command[1:]
    )
    assert code == 4
    assert "open.onnx': free dimensions without a size: 'n'" in err


def test_limits_on_kernels_and_traffic_hold_on_each_device_whatever_the_order(
    run: Callable[..., Run],
) -> None:
    # As published in the README: 56 kernels and 216 MB by TensorRT's rules; ONNX Runtime fuses less
    resnet = str(Path(__file__).parents[1] / "models" / "resnet50.onnx")
    answers = []
    for devices in (("v100", "10980xe"), ("10980xe", "v100")):
        hardware = [word for name in devices for word in ("--hw", name)]
        code, out, _ = run(
            "check", resnet, *hardware, "--max-kernels", "60", "--max-traffic", "250MB",
            "--format", "json",
        )  # fmt: skip
        assert code == 1
        checks = json.loads(out)["models"][0]["checks"]
        answers.append({(c["hardware"], c["metric"]): (c["value"], c["answer"]) for c in checks})
    assert answers[0] == answers[1]
    assert answers[0]["v100", "kernels"] == (56, "within")
    assert answers[0]["10980xe", "kernels"][1] == "exceeds"


@pytest.mark.parametrize(
    ("option", "text", "says"),
    [("--max-params", "5MB", "for example 5M"), ("--max-kernels", "few", "for example 200")],
)
def test_an_amount_that_is_none_is_answered_with_one_that_fits(
    run: Callable[..., Run], folder: Path, option: str, text: str, says: str
) -> None:
    code, _, err = run("check", str(folder / "w8.onnx"), option, text)
    assert code == 2
    assert says in err
    assert "with a unit or without" in err


def test_lint_says_how_many_nodes_it_could_not_judge(
    run: Callable[..., Run], tmp_path: Path
) -> None:
    text = "agraph (float[2,4] x) => (float[2,4] y) { a = acme.Mystery (x)  y = acme.Other (a) }"
    onnx.save(model(text, opsets={"acme": 1}), tmp_path / "custom.onnx")
    code, out, _ = run("lint", str(tmp_path / "custom.onnx"), "--hw", "v100")
    assert code == 0
    assert "2 of 2 nodes could not be judged" in " ".join(out.split())
    document = json.loads(run("lint", str(tmp_path / "custom.onnx"), "--format", "json")[1])
    shown = document["models"][0] if "models" in document else document
    assert (shown["nodes"], shown["unknown_nodes"]) == (2, 2)
    sarif = json.loads(run("lint", str(tmp_path / "custom.onnx"), "--format", "sarif")[1])
    (said,) = sarif["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert "2 of 2 nodes" in said["message"]["text"]


def test_devices_of_one_name_are_told_apart_everywhere_in_one_way(
    run: Callable[..., Run], folder: Path
) -> None:
    # a copy of the V100's profile that somebody edited: half its bandwidth
    shipped = Path(__file__).parents[1] / "hardware_profiles" / "v100.yaml"
    text = shipped.read_text(encoding="utf-8")
    assert "\nname: v100\n" in text
    dram = "bandwidth_gb_per_s: 900, sustained_bandwidth_gb_per_s: 828.758"
    half = "bandwidth_gb_per_s: 450, sustained_bandwidth_gb_per_s: 414.379"
    assert text.count(dram) == 1
    copy = folder / "copy.yaml"
    copy.write_text(text.replace(dram, half), encoding="utf-8")
    both = ["--hw", "v100", "--hw", str(copy)]
    model, other = str(folder / "w8.onnx"), str(folder / "w16.onnx")
    report = json.loads(run("report", model, *both, "--format", "json")[1])
    assert [result["hardware"]["name"] for result in report["rooflines"]] == ["v100", "v100_2"]
    bandwidths = [r["hardware"]["bandwidth_bytes_per_second"] for r in report["rooflines"]]
    assert bandwidths == [900e9, 450e9]
    budgets = {entry["hardware"] for entry in report["memory"]["budgets"]}
    assert budgets == {"v100", "v100_2"}
    assert "v100_2_seconds" in run("report", model, *both, "--format", "csv")[1]
    shown = run("compare", model, other, *both, "--format", "json")[1]
    assert json.loads(shown)["hardware"] == ["v100", "v100_2"]
    checks = json.loads(
        run("check", model, *both, "--max-latency", "1s", "--format", "json")[1]
    )["models"][0]["checks"]  # fmt: skip
    assert [check["budget"] for check in checks] == ["v100", "v100_2"]
    for command in (
        ["report", model, *both],
        ["report", model, *both, "--format", "markdown"],
        ["compare", model, *both],
        ["rank", model, *both, "--jobs", "1"],
        ["check", model, *both, "--max-latency", "1s"],
    ):
        code, out, _ = run(*command)
        assert code == 0
        assert "v100_2" in out.replace("\\", ""), command


def test_one_device_given_twice_is_two_columns(run: Callable[..., Run], folder: Path) -> None:
    twice = ["--hw", "v100", "--hw", "v100"]
    shown = run("rank", str(folder / "w8.onnx"), *twice, "--jobs", "1", "--format", "json")[1]
    document = json.loads(shown)
    assert document["hardware"] == ["v100", "v100_2"]
    (found,) = document["models"]
    assert found["latency_seconds:v100"] == found["latency_seconds:v100_2"]


def test_devices_of_one_name_are_told_apart_at_any_number_of_threads() -> None:
    # figures for fewer threads than the profile's 16 are scaled
    for threads in (8, 3):
        analysis = analyze(
            model("g (float[64] x) => (float[64] y) { y = Exp(x) }"),
            ("10980xe", "10980xe"),
            threads=threads,
        )
        assert [r.hardware.name for r in analysis.rooflines] == ["10980xe", "10980xe_2"]
        assert {r.hardware.threads for r in analysis.rooflines} == {threads}
