"""Expected against measured latencies, from data kept in `benchmarks/data`.

    python benchmarks/accuracy.py                 # prints the tables
    python benchmarks/accuracy.py --write         # and puts them into docs/accuracy.md
    python benchmarks/accuracy.py --networks 60   # fewer networks of each search space

Two minutes on one core with all networks. Nothing is fitted here.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import networks
import numpy as np
from statistics_of_ranks import kendall, mape, scaled_mape, spearman

from onnxroof.api import memo_for
from onnxroof.bindings import Bindings
from onnxroof.cost import count_costs, total
from onnxroof.fusion.plan import plan_kernels
from onnxroof.graph.load import load_model
from onnxroof.hardware.read import load_profile
from onnxroof.latency.predict import Predictor
from onnxroof.latency.runtime_read import load_runtime
from onnxroof.roofline import apply_roofline
from onnxroof.shapes import infer_shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from statistics_of_ranks import Floats

    from onnxroof.fusion.plan import KernelPlan

DATA = Path(__file__).parent / "data"
REPORT = Path(__file__).parents[1] / "docs" / "accuracy.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"

HOSTS = {
    "titanx": "titan-x", "titanxp": "titan-xp", "titan_xp": "titan-xp", "1080ti": "gtx-1080-ti",
    "2080ti": "rtx-2080-ti", "v100": "v100", "silver_4114": "xeon-silver-4114",
    "silver_4210r": "xeon-silver-4210r", "gold_6240": "xeon-gold-6240", "pixel3": "pixel3",
    "samsung_a50": "samsung-a50", "samsung_s7": "samsung-s7", "essential_ph_1": "essential-ph-1",
}  # fmt: skip
"""Names in the tables → our profiles."""

PHONES = ("samsung_a50", "samsung_s7", "essential_ph_1")
FLOORS_US = {"conv": 200, "linear": 57, "bmm": 41, "softmax": 38, "ln": 56}
"""Launch that the single-kernel table includes: its fastest kernels of each class."""


class Planner:
    """Plans models once and prices them on devices; equal kernels are priced once."""

    def __init__(self, fusion: str, precision: str = "") -> None:
        self.fusion = fusion
        self.memo = memo_for(precision)
        self.predictors: dict[tuple[str, str, int | None], Predictor] = {}

    def plan(self, source: object, dims: dict[str, int] | None = None) -> KernelPlan:
        """The kernels of a model."""
        model = load_model(source)  # type: ignore[arg-type]
        shaped, _ = infer_shapes(model.graph, Bindings.of(dims, None), self.memo)
        return plan_kernels(count_costs(shaped), self.fusion)

    def seconds(
        self, plan: KernelPlan, hardware: str, runtime: str, threads: int | None = None
    ) -> tuple[float, float]:
        """(expected, bound) on a device under a runtime."""
        key = (hardware, runtime, threads)
        if key not in self.predictors:
            profile = load_profile(hardware)
            profile = profile if threads is None else profile.for_threads(threads)
            self.predictors[key] = Predictor(profile, load_runtime(runtime))
        predictor = self.predictors[key]
        result = predictor.expect(apply_roofline(plan, predictor.device), plan)
        return result.latency_seconds, result.bound_seconds


def rows_of(name: str) -> list[dict[str, str]]:
    """A table of the data folder."""
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A pipe table; the first column is text."""
    lines = [f"| {' | '.join(header)} |", f"| --- |{' ---: |' * (len(header) - 1)}"]
    lines += [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    return "\n".join(lines)


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def percent(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.1f} %"


# --- Search spaces -----------------------------------------------------------------------------

BATCHES = {"nb201": (1, 32, 256), "fbnet": (1, 32, 64), "ofa": (1, 32, 64)}
NAMES = {"nb201": "NAS-Bench-201", "fbnet": "FBNet", "ofa": "once-for-all"}


@dataclass(frozen=True)
class Space:
    """Networks of a space with what was measured of them."""

    name: str
    columns: dict[str, Floats]
    build: Callable[[int, int, bool], object]
    count: int


def spaces(limit: int) -> Iterator[Space]:
    """The three search spaces."""
    data = np.load(DATA / "nas.npz")
    cells, choices = data["nb201/arch"], data["fbnet/op_idx"]

    def ofa(at: int, batch: int, _: bool) -> object:
        picked = ([int(v) for v in data[f"ofa/{key}"][at]] for key in ("ks", "e", "d"))
        return networks.once_for_all(*picked, int(data["ofa/r"][at]), batch)

    builders = {
        "nb201": lambda at, batch, dead: networks.nas_bench_201(
            str(cells[at]), batch, removes_dead=dead
        ),
        "fbnet": lambda at, batch, _: networks.fbnet([int(v) for v in choices[at]], batch),
        "ofa": ofa,
    }
    inputs = {"arch", "op_idx", "ks", "e", "d", "r"}
    for name, build in builders.items():
        columns = {
            key.partition("/")[2]: data[key].astype(float)
            for key in data.files
            if key.startswith(name + "/") and key.partition("/")[2] not in inputs
        }
        count = min(limit, len(next(iter(columns.values()))))
        yield Space(name, columns, build, count)


def device_and_batch(column: str) -> tuple[str, int]:
    """ "1080ti_32" → ("1080ti", 32); without a number batch 1, phones keep theirs."""
    if column in PHONES:
        return column, 1
    device, _, batch = column.rpartition("_")
    return (device, int(batch)) if batch.isdigit() and device in HOSTS else (column, 1)


def runtime_of(device: str) -> str:
    """What the tables ran on a device."""
    if device in PHONES:
        return "pytorch-mobile"
    return "tflite" if device == "pixel3" else "pytorch-eager"


def search_spaces(limit: int) -> str:
    """Rank correlation and error on every device and batch."""
    rows: list[list[object]] = []
    for space in spaces(limit):
        by_setup: dict[tuple[int, str], list[str]] = defaultdict(list)
        for column in space.columns:
            device, batch = device_and_batch(column)
            by_setup[batch, runtime_of(device)].append(column)
        for (batch, runtime), columns in sorted(by_setup.items()):
            rows += _space_rows(space, batch, runtime, columns)
    header = (
        "space, device, batch", "Spearman", "MACs alone", "kernel count alone", "MAPE",
        "MAPE, one constant", "predicted / measured",
    )  # fmt: skip
    return table(header, rows)


def _space_rows(space: Space, batch: int, runtime: str, columns: list[str]) -> list[list[object]]:
    planner = Planner(load_runtime(runtime).fusion)
    counter = Planner("none")
    expected: dict[str, list[float]] = defaultdict(list)
    macs, kernels = [], []
    for at in range(space.count):
        model = space.build(at, batch, runtime == "tflite")
        plan = planner.plan(model)
        macs.append(total(plan.cost).macs)
        kernels.append(len(counter.plan(space.build(at, batch, False)).kernels))
        for column in columns:
            device = HOSTS[device_and_batch(column)[0]]
            expected[column].append(1e3 * planner.seconds(plan, device, runtime)[0])
    rows: list[list[object]] = []
    for column in sorted(columns):
        measured, found = space.columns[column][: space.count], np.array(expected[column])
        rows.append([
            f"{NAMES[space.name]} {HOSTS[device_and_batch(column)[0]]} {batch}",
            spearman(found, measured), spearman(np.array(macs, float), measured),
            spearman(np.array(kernels, float), measured), percent(mape(found, measured)),
            percent(scaled_mape(found, measured)), f"{np.median(found / measured):.2f}",
        ])  # fmt: skip
    return rows


# --- Image models ------------------------------------------------------------------------------


def models(folder: str) -> Callable[[str], bytes]:
    """Reads a model of the archive."""
    archive = zipfile.ZipFile(DATA / "models.zip")
    return lambda name: archive.read(f"{folder}/{name}")


def image_models() -> str:
    """timm: CPUs at batch 1 with torch.compile, GPUs at large batch in half precision."""
    read, rows = models("timm"), rows_of("timm.csv")
    compiled, eager = Planner("torch-compile"), Planner("eager", "fp16")
    lines: list[list[object]] = []
    for device in ("i9-10940x", "i7-12700h"):
        found = [
            1e3 * compiled.seconds(compiled.plan(read(row["file"]), {"N": 1}), device,
                                   "torch-compile")[0]
            for row in rows
        ]  # fmt: skip
        lines.append(_tau_row(device, found, [float(row[f"{device}_ms"]) for row in rows]))
    for device in ("rtx-3090", "rtx-4090"):
        found = []
        for row in rows:
            batch = int(row[f"{device}_batch"])
            plan = eager.plan(read(row["file"]), {"N": batch})
            found.append(1e3 * eager.seconds(plan, device, "pytorch-eager")[0] / batch)
        measured = [float(row[f"{device}_ms_per_image"]) for row in rows]
        lines.append(_tau_row(device, found, measured))
    return table(_TAU_HEADER, lines)


_TAU_HEADER = (
    "device", "models", "Kendall's tau", "MAPE", "MAPE, one constant", "predicted / measured",
)  # fmt: skip


def _tau_row(label: str, found: list[float], measured: list[float]) -> list[object]:
    x, y = np.array(found), np.array(measured)
    return [
        label, len(x), kendall(x, y), percent(mape(x, y)), percent(scaled_mape(x, y)),
        f"{np.median(x / y):.2f}",
    ]  # fmt: skip


# --- V100 --------------------------------------------------------------------------------------


def kernels() -> str:
    """Single kernels on V100."""
    from kernels import one_kernel

    planner = Planner("none")
    by_class: dict[str, list[tuple[float, float]]] = defaultdict(list)
    plans: dict[tuple[str, ...], float] = {}
    for row in rows_of("v100_kernels.csv"):
        key = tuple(value for name, value in row.items() if name != "milliseconds")
        if key not in plans:
            plan = planner.plan(one_kernel(row))
            predictor = _device_only("v100")
            result = predictor.expect(apply_roofline(plan, predictor.device), plan)
            plans[key] = result.latency_seconds
        launch = FLOORS_US.get(row["op"], 32) / 1e3
        by_class[row["op"]].append((1e3 * plans[key] + launch, float(row["milliseconds"])))
    lines = []
    for name, pairs in by_class.items():
        found, measured = np.array(pairs).T
        errors = np.abs(found - measured) / measured
        large = measured > 0.1
        lines.append([
            name, len(pairs), percent(float(np.median(errors))),
            percent(float(np.median(errors[large]))), int(large.sum()),
            f"{np.median(found[large] / measured[large]):.2f}",
        ])  # fmt: skip
    header = (
        "kernel", "rows", "median error", "over 100 µs", "rows over 100 µs", "predicted / measured",
    )  # fmt: skip
    return table(header, lines)


def _device_only(name: str) -> Predictor:
    """Eager kernels without the framework's time, which the table states on its own."""
    runtime = load_runtime("pytorch-eager")
    host = replace(runtime.accelerator.host, other=0, product=0, convolution=0, normalization=0)
    accelerator = replace(runtime.accelerator, host=replace(host, copy=0))
    return Predictor(load_profile(name), replace(runtime, accelerator=accelerator))


def transformers() -> str:
    """Whole transformers, eager, fp32."""
    planner = Planner("none")
    lines: list[list[object]] = []
    by_device: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows_of("transformers.csv"):
        sizes = networks.TRANSFORMERS[row["model"]]
        plan = planner.plan(networks.transformer(sizes, int(row["sequence"]), int(row["batch"])))
        found = 1e3 * planner.seconds(plan, row["profile"], "pytorch-eager")[0]
        measured = float(row["milliseconds"])
        by_device[row["profile"]].append((found, measured))
        label = f"{row['model']}, {row['sequence']} tokens, batch {row['batch']}, {row['profile']}"
        lines.append([label, f"{measured:.0f}", f"{found:.0f}", f"{found / measured:.2f}"])
    for device, pairs in by_device.items():
        found_all, measured_all = np.array(pairs).T
        lines.append([f"**MAPE on {device}**", "", "", percent(mape(found_all, measured_all))])
    return table(("model", "measured ms", "expected ms", "predicted / measured"), lines)


def whole_models() -> str:
    """CNNs on V100 by framework."""
    read = models("other")
    planners: dict[tuple[str, str], Planner] = {}
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows_of("v100_models.csv"):
        if int(row["batch"]) < 32 and row["runtime"] != "tensorrt":
            continue
        precision = "" if row["precision"] == "fp32" else "fp16"
        fusion = load_runtime(row["runtime"]).fusion
        planner = planners.setdefault((fusion, precision), Planner(fusion, precision))
        plan = planner.plan(read(f"{row['model']}.batch.onnx"), {"batch": int(row["batch"])})
        found = 1e3 * planner.seconds(plan, "v100", row["runtime"])[0]
        label = f"{row['model']}, {row['framework']}, {row['precision']}"
        groups[label].append((found, float(row["milliseconds"])))
    lines = []
    for label, pairs in sorted(groups.items()):
        found_all, measured_all = np.array(pairs).T
        ratio = f"{np.median(found_all / measured_all):.2f}"
        lines.append([label, len(pairs), percent(mape(found_all, measured_all)), ratio])
    return table(("model, framework, type", "rows", "MAPE", "predicted / measured"), lines)


# --- ARM ---------------------------------------------------------------------------------------


def arm() -> str:
    """Mobile networks on ARM processors."""
    read = models("other")
    planners: dict[tuple[str, str], Planner] = {}
    plans: dict[tuple[str, str, str], KernelPlan] = {}
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    for row in rows_of("arm.csv"):
        fusion = load_runtime(row["runtime"]).fusion
        precision = "" if row["precision"] == "fp32" else row["precision"]
        planner = planners.setdefault((fusion, precision), Planner(fusion, precision))
        key = (fusion, precision, row["model"])
        if key not in plans:
            plans[key] = planner.plan(mobile_network(row["model"], read))
        found, _ = planner.seconds(plans[key], row["profile"], row["runtime"], int(row["threads"]))
        group = (row["framework"], row["board"], row["threads"], row["precision"])
        groups[group].append((1e3 * found, float(row["milliseconds"])))
    lines = []
    for (framework, board, threads, precision), pairs in groups.items():
        if len(pairs) < 5:
            continue
        label = f"{framework}, {board}, {threads} thread{'s' * (threads != '1')}, {precision}"
        lines.append(_tau_row(label, [pair[0] for pair in pairs], [pair[1] for pair in pairs]))
    return table(_TAU_HEADER, lines)


def mobile_network(name: str, read: Callable[[str], bytes]) -> object:
    """A model of the archive, or "v2|0.5|160": a MobileNet by version, width and pixels."""
    kind, *parts = name.split("|")
    if kind == "v1":
        return networks.mobilenet_v1(float(parts[0]), int(parts[1]))
    if kind == "v2":
        return networks.mobilenet_v2(float(parts[0]), int(parts[1]))
    if kind == "v3":
        return networks.mobilenet_v3(
            parts[0], float(parts[1]), int(parts[2]), minimalistic=len(parts) > 3
        )
    return read(f"{name}.onnx")


def main() -> None:
    """Print or write every table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", type=int, default=300)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    sections = {
        "Search spaces": lambda: search_spaces(options.networks),
        "Image models (timm)": image_models,
        "Single kernels on V100": kernels,
        "Transformers": transformers,
        "CNNs on V100 by framework": whole_models,
        "ARM processors": arm,
    }
    out = io.StringIO()
    for title, section in sections.items():
        if options.only.lower() in title.lower():
            text = f"## {title}\n\n{section()}\n\n"
            out.write(text)
            sys.stdout.write(text)
            sys.stdout.flush()
    if options.write and not options.only:
        report = REPORT.read_text(encoding="utf-8")
        before, after = report.split(BEGIN)[0], report.split(END)[1]
        text = f"{before}{BEGIN}\n\n{out.getvalue().rstrip()}\n\n{END}{after}"
        REPORT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
