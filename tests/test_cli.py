"""The command line: what it prints where, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest

from onnxroof import cli
from tests.builders import model
from tests.report.models import UNKNOWN, contradiction, proto

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
RESNET = str(ROOT / "models" / "resnet50.onnx")

PROGRAM = "import sys; sys.argv = ['onnxroof']; from onnxroof.cli import main; main()"
"""The command under the name that the shell completes."""

Run = tuple[int, str, str]


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[onnx.ModelProto], str]:
    """Write a model to a file and give its path."""

    def written(model: onnx.ModelProto) -> str:
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        return str(path)

    return written


def spawn(*arguments: str) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "onnxroof", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_a_report_goes_to_standard_output_and_ends_with_0(run: Callable[..., Run]) -> None:
    code, out, err = run("report", RESNET, "--hw", "v100")
    assert (code, err) == (0, "")
    assert out.startswith(f"{RESNET} · onnxroof ")
    # torchvision publishes 4.089 G multiply-accumulates for ResNet-50
    assert "4,089,184,256" in out


def test_every_format_can_be_written_to_a_file(run: Callable[..., Run], tmp_path: Path) -> None:
    for name, start in [("text", RESNET), ("json", "{"), ("csv", "name,"), ("markdown", "## ")]:
        target = tmp_path / f"report.{name}"
        code, out, err = run("report", RESNET, "--format", name, "-o", str(target))
        assert (code, out, err) == (0, "", "")
        assert target.read_text(encoding="utf-8").startswith(start)
    assert len(list(tmp_path.iterdir())) == 4


def test_devices_may_be_several_and_a_file_of_the_users_own(
    run: Callable[..., Run], tmp_path: Path
) -> None:
    mine = tmp_path / "mine.yaml"
    shipped = (ROOT / "hardware_profiles" / "v100.yaml").read_text(encoding="utf-8")
    mine.write_text(shipped.replace("name: v100", "name: mine"), encoding="utf-8")
    code, out, _ = run("report", RESNET, "--hw", "v100", "--hw", str(mine), "--format", "json")
    assert code == 0
    names = [result["hardware"]["name"] for result in json.loads(out)["rooflines"]]
    assert names == ["v100", "mine"]


def test_options_reach_the_analysis(run: Callable[..., Run]) -> None:
    code, out, _ = run(
        "report", RESNET, "--input", "input=4x3x224x224", "--precision", "fp16", "--peak",
        "sustained", "--hw", "v100", "--format", "json", "--tensors", "--runtime", "none",
    )  # fmt: skip
    document = json.loads(out)
    assert code == 0
    assert document["inputs"][0]["shape"] == [4, 3, 224, 224]
    assert document["totals"]["macs"] == 4 * 4_089_184_256
    assert document["precision"] == "fp16"
    assert document["rooflines"][0]["peak_kind"] == "sustained"
    assert document["fusion"]["runtime"] == "none"
    assert document["tensors"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["report", RESNET, "--dim", "batch"], 2, "--dim batch=8"),
        (["report", RESNET, "--input", "x=1x"], 2, "--input x=1x3x640x640"),
        (["report", RESNET, "--sort", "time"], 2, "--hw v100"),
        (["report", RESNET, "--precision", "fp17"], 2, "fp16"),
        (["report", RESNET, "--runtime", "nobody"], 2, "onnxruntime"),
        (["report", RESNET, "-o", "/nonexistent/report"], 2, "cannot write"),
        (["report", "nonexistent.onnx"], 3, "nonexistent.onnx"),
        (["report", str(ROOT / "pyproject.toml")], 3, "not an ONNX model"),
        (["report", RESNET, "--dim", "batch=2"], 4, "'batch'"),
        (["report", RESNET, "--hw", "v10"], 5, "did you mean 'v100'?"),
        (["hw", "show", "v10"], 5, "did you mean 'v100'?"),
        (["hw", "check", "v10"], 5, "did you mean 'v100'?"),
        (["hw", "check", str(ROOT / "pyproject.toml")], 5, "pyproject.toml"),
    ],
)
def test_what_goes_wrong_is_said_on_standard_error_with_an_exit_code(
    run: Callable[..., Run], arguments: list[str], code: int, says: str
) -> None:
    ended, out, err = run(*arguments)
    assert (ended, out) == (code, "")
    assert err.startswith("onnxroof: ")
    assert says in err
    assert "Traceback" not in err
    if arguments[0] == "report":
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["report"], ["report", RESNET, "--by", "layer"], ["nonsense"], ["report", "--x"]]
)
def test_a_wrong_call_ends_with_2(run: Callable[..., Run], arguments: list[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert "Usage" in err


def test_a_node_that_cannot_be_leaves_a_partial_report_and_ends_with_4(
    run: Callable[..., Run], saved: Callable[[onnx.ModelProto], str]
) -> None:
    code, out, err = run("report", saved(contradiction()), "--strict")
    assert code == 4
    assert "problems" in out
    assert err.startswith("onnxroof: node 'bad' (MatMul) with inputs fp32[2×4], fp32[5×8]:")


def test_only_strict_fails_on_an_unknown_operator(
    run: Callable[..., Run], saved: Callable[[onnx.ModelProto], str]
) -> None:
    path = saved(proto(UNKNOWN))
    code, out, err = run("report", path)
    assert (code, err) == (0, "")
    assert "acme.Mystery × 1" in out
    code, _, err = run("report", path, "--strict")
    assert code == 1
    assert "'acme.Mystery' (1 node): no formula is known" in err


def test_only_strict_fails_on_a_loop_of_which_a_run_tells_the_trips(
    run: Callable[..., Run], saved: Callable[[onnx.ModelProto], str]
) -> None:
    path = saved(
        proto("""agraph (float[8,8] x, int64 m) => (float[8,8] y) <bool yes = {1}> {
            y = Loop(m, yes, x) <body = b (int64 i, bool go, float[8,8] h)
                => (bool on, float[8,8] next) { on = Identity(go) next = MatMul(h, h) }> }""")
    )
    code, out, err = run("report", path)
    assert (code, err) == (0, "")
    assert "512 per trip" in out  # 8 · 8 · 8 MACs
    code, _, err = run("report", path, "--strict")
    assert code == 1
    assert "how often a loop runs is computed at run time: one trip is counted" in err


def test_strict_is_content_when_everything_is_counted(run: Callable[..., Run]) -> None:
    assert run("report", RESNET, "--strict")[0] == 0


def test_profiles_can_be_listed_shown_and_checked(run: Callable[..., Run]) -> None:
    code, out, _ = run("hw", "list")
    assert code == 0
    assert all(name in out for name in ("v100", "10980xe", "mobile-arm"))
    assert "v100-datasheet" in run("hw", "show", "v100")[1]
    for profile in (str(ROOT / "hardware_profiles" / "v100.yaml"), "v100"):
        code, out, err = run("hw", "check", profile)
        assert (code, err) == (0, "")
        assert out.endswith("no problems\n")


def test_the_version_is_printed(run: Callable[..., Run]) -> None:
    assert run("--version")[1].startswith("onnxroof ")


def test_a_reader_that_leaves_is_no_error() -> None:
    process = spawn("report", RESNET, "--format", "json", "--tensors")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(60) == 0
    process.stderr.close()


def test_an_output_that_cannot_show_a_sign_gets_another(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onnxroof", "report", RESNET],
        capture_output=True, check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.stdout.isascii()


def test_an_interrupt_is_quiet_and_ends_as_shells_expect(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("onnxroof.api.analyze", interrupt)
    assert run("report", RESNET) == (cli.INTERRUPTED, "", "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("onnxroof report m.onnx --hw v", {"v100"}),
        ("onnxroof hw show 1", {"10980xe"}),
        ("onnxroof report m.onnx --runtime tensor", {"tensorrt"}),
        ("onnxroof report m.onnx --format js", {"json"}),
    ],
)
def test_the_shell_completes(words: str, expected: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True, text=True, check=False, timeout=60,
        env={
            **os.environ, "PYTHONPATH": str(ROOT), "_ONNXROOF_COMPLETE": "bash_complete",
            "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1),
        },
    )  # fmt: skip
    assert set(done.stdout.split()) == {f"plain,{word}" for word in expected}


def test_a_model_is_written_in_a_better_order(run: Callable[..., Run], tmp_path: Path) -> None:
    source = tmp_path / "decoder.onnx"
    source.write_bytes((ROOT / "models" / "whisper_tiny_decoder.onnx").read_bytes())
    target = tmp_path / "better.onnx"
    code, out, err = run("reorder", str(source), "-o", str(target))
    assert (code, err) == (0, "")
    assert "saves 1.75 MB" in out
    assert target.stat().st_size == source.stat().st_size
    assert target.stat().st_mode == source.stat().st_mode
    code, out, _ = run("report", str(target), "--reorder", "--format", "json")
    order = json.loads(out)["memory"]["order"]
    assert (code, order["saved_bytes"], order["is_optimal"]) == (0, 0, True)


def test_a_reordered_model_stays_beside_its_weights(
    run: Callable[..., Run], tmp_path: Path
) -> None:
    code, _, err = run("reorder", RESNET, "-o", str(tmp_path / "elsewhere.onnx"))
    assert code == 2
    assert "write the reordered model next to it" in err
    assert not list(tmp_path.iterdir())


def test_sections_come_when_asked_for(run: Callable[..., Run]) -> None:
    code, out, err = run("report", RESNET, "--explain-fusion", "--timeline", "--reorder")
    assert (code, err) == (0, "")
    for title in ("not fused", "never in memory", "alive over time", "better order"):
        assert title in out


def test_a_shape_with_another_number_of_sizes_is_a_matter_of_shapes(
    run: Callable[..., Run],
) -> None:
    code, _, err = run("report", RESNET, "--input", "input=1,3,10")
    assert code == 4
    assert "has 4 dimensions" in err


def test_a_model_without_formulas_ends_as_its_report_does(
    run: Callable[..., Run], tmp_path: Path
) -> None:
    file = tmp_path / "wrong.onnx"
    text = "agraph (float[2,3] x, float[4,5] w) => (float[q] y) { y = MatMul(x, w) }"
    file.write_bytes(model(text).SerializeToString())
    code, out, _ = run("formula", str(file))
    assert code == run("report", str(file))[0] == 4
    assert out.startswith("no formula: node")


def test_a_profile_whose_runtime_nobody_knows_is_no_good_profile(
    run: Callable[..., Run], tmp_path: Path
) -> None:
    board = tmp_path / "board.yaml"
    text = (ROOT / "hardware_profiles" / "mobile-arm.yaml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("runtime:")]
    board.write_text("\n".join([*lines, "runtime: ort", ""]), encoding="utf-8")
    code, _, err = run("hw", "check", str(board))
    assert code == 5
    assert "runtime: no runtime has this name" in err
