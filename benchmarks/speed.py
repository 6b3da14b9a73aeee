"""How fast onnxroof is, as ratios to other things measured in the same run."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from graphs import chain, fan_out, matmul_stack, transformer

import onnxroof
from onnxroof.hardware.read import load_profile

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
RESNET = ROOT / "models" / "resnet50.onnx"


@dataclass
class Row:
    """One comparison: our minimum, theirs, and the ratio the project promises."""

    name: str
    ratio: float
    target: str
    holds: bool


def interleaved(repeats: int, *calls: Callable[[], object]) -> list[float]:
    """Minimum seconds of each call, the calls taking turns so that noise hits all alike."""
    best = [float("inf")] * len(calls)
    for _ in range(repeats):
        for i, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def analyze(source: object) -> Callable[[], object]:
    """Our whole analysis, the profile read beforehand."""
    profile = load_profile("v100")
    return lambda: onnxroof.analyze(source, profile)


def onnx_inference(path: Path) -> Callable[[], object]:
    """onnx.load and shape inference on the same file, weights not looked for."""
    return lambda: onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False))


def onnx_tool(path: Path) -> Callable[[], object]:
    """onnx-tool's shape inference, profile and table."""
    import onnx_tool

    def run() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            onnx_tool.model_profile(str(path))

    return run


def model_info(path: Path) -> Callable[[], object]:
    """onnxsim's ModelInfo."""
    from onnxsim import model_info as info

    return lambda: info.ModelInfo(onnx.load(path, load_external_data=False))


def opcounter(path: Path) -> Callable[[], object]:
    """onnx-opcounter's MAC count."""
    from onnx_opcounter import calculate_macs

    def run() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            calculate_macs(onnx.load(path, load_external_data=False))

    return run


def installed(module: str) -> bool:
    """Whether a tool to compare with is there."""
    return importlib.util.find_spec(module) is not None


def against(rows: list[Row], name: str, ours: float, theirs: float, at_least: float) -> None:
    """A row "N × faster than"."""
    ratio = theirs / ours
    rows.append(Row(name, ratio, f"≥ {at_least:g} × faster", ratio >= at_least))


def within(rows: list[Row], name: str, ours: float, theirs: float, at_most: float) -> None:
    """A row "N × the time of"."""
    ratio = ours / theirs
    rows.append(Row(name, ratio, f"≤ {at_most:g} ×", ratio <= at_most))


def resnet(rows: list[Row], folder: Path, repeats: int) -> None:
    """ResNet-50 without weights."""
    ours, inferred = interleaved(3 * repeats, analyze(RESNET), onnx_inference(RESNET))
    within(rows, "ResNet-50: analysis / onnx load + infer_shapes", ours, inferred, 5)
    weighted = folder / "resnet50.onnx"
    weighted.write_bytes(_with_zero_weights(RESNET).SerializeToString())
    ours = interleaved(repeats, analyze(weighted))[0]
    if installed("onnx_tool"):
        theirs = interleaved(max(repeats // 3, 2), onnx_tool(weighted))[0]
        against(rows, "ResNet-50: onnx-tool / analysis", ours, theirs, 8)
    if installed("onnx_opcounter"):
        theirs = interleaved(max(repeats // 3, 2), opcounter(weighted))[0]
        against(rows, "ResNet-50: onnx-opcounter / analysis", ours, theirs, 1)


def big_transformer(rows: list[Row], folder: Path, repeats: int) -> None:
    """A 5,000-node transformer, with the weights such models have and with a ninth of them.

    SmolLM2-135M has 3,645 nodes as exported, and 135 million parameters; this one has 127 million.
    The other tools carry every byte of them along, so how much faster we are depends on them.
    """
    path, narrow, half = (folder / f"{name}.onnx" for name in ("transformer", "narrow", "half"))
    for file, layers, width in ((path, 128, 288), (narrow, 128, 96), (half, 64, 96)):
        file.write_bytes(transformer(layers, width=width).SerializeToString())
    nodes = len(onnxroof.analyze(narrow).nodes)
    ours = interleaved(repeats, analyze(path))[0]
    ours_narrow, ours_half = interleaved(repeats, analyze(narrow), analyze(half))
    within(rows, f"{nodes} nodes / half as many (linear: 2)", ours_narrow, ours_half, 2.6)
    inferred = interleaved(3, onnx_inference(narrow))[0]
    print(
        f"  {nodes} nodes: {ours_narrow / nodes * 1e6:.1f} µs a node, where onnx load +"
        f" infer_shapes takes {inferred / nodes * 1e6:.1f}"
    )
    for module, tool, call, target in (
        ("onnx_tool", "onnx-tool", onnx_tool, 20),
        ("onnxsim", "ModelInfo", model_info, 50),
    ):
        if installed(module):
            theirs, theirs_narrow = interleaved(1, call(path), call(narrow))
            against(rows, f"{nodes} nodes: {tool} / analysis", ours, theirs, target)
            print(f"  {tool}, a ninth of the weights: {theirs_narrow / ours_narrow:.1f} ×")


def large_graphs(rows: list[Row], folder: Path, repeats: int) -> None:
    """Long chains and wide fan-out: linear in nodes."""
    for name, small, large in (
        ("chain of 20,000 / 5,000 nodes (linear: 4)", chain(5_000), chain(20_000)),
        ("200-way fan-out × 50 / × 12 (linear: 4.2)", fan_out(200, 12), fan_out(200, 50)),
    ):
        paths = []
        for i, proto in enumerate((small, large)):
            paths.append(folder / f"g{i}.onnx")
            paths[i].write_bytes(proto.SerializeToString())
        ours_small, ours_large = interleaved(repeats, *map(analyze, paths))
        within(rows, name, ours_large, ours_small, 5.5)
        print(f"  {name}: {ours_large / len(large.graph.node) * 1e6:.1f} µs a node")


def embedded_weights(rows: list[Row], folder: Path, repeats: int) -> None:
    """500 MB of weights inside the file against the same model without them."""
    heavy, light = folder / "heavy.onnx", folder / "light.onnx"
    matmul_stack(heavy, 500, embed=True)
    matmul_stack(light, 500, embed=False)
    with_weights, without = interleaved(repeats, analyze(heavy), analyze(light))
    allowed = 0.003 + 1.5 * without
    within(rows, "500 MB of weights / (3 ms + 1.5 × without)", with_weights, allowed, 1)


def whole_command(rows: list[Row], repeats: int) -> None:
    """`onnxroof report` against `import onnx`, whole processes."""
    command = [sys.executable, "-m", "onnxroof", "report", str(RESNET), "--hw", "v100"]
    bare = [sys.executable, "-c", "import onnx"]

    def run(arguments: list[str]) -> Callable[[], object]:
        return lambda: subprocess.run(arguments, check=True, capture_output=True)

    ours, theirs = interleaved(repeats, run(command), run(bare))
    within(rows, "report of ResNet-50 / python -c 'import onnx'", ours, theirs, 2)
    ours, bare_python = interleaved(
        repeats, run([sys.executable, "-m", "onnxroof", "--help"]), run([sys.executable, "-c", ""])
    )
    print(f"  --help: {ours * 1e3:.0f} ms, a bare interpreter {bare_python * 1e3:.0f} ms")


def _with_zero_weights(path: Path) -> onnx.ModelProto:
    """The model with weight bytes again, for tools that insist on them."""
    proto = onnx.load(path, load_external_data=False)
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            elements = 1
            for dim in tensor.dims:
                elements *= dim
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = bytes(4 * elements)
    return proto


def main() -> int:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    repeats = 5 if parser.parse_args().quick else 15
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        resnet(rows, folder, repeats)
        big_transformer(rows, folder, repeats)
        large_graphs(rows, folder, repeats)
        embedded_weights(rows, folder, repeats)
    whole_command(rows, repeats)
    width = max(len(row.name) for row in rows)
    for row in rows:
        mark = "ok" if row.holds else "MISSED"
        print(f"{row.name:{width}}  {row.ratio:8.2f}  {row.target:16} {mark}")
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
