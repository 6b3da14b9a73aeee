"""The command line: arguments in, one call, a report out, an exit code.

Nothing heavier than click is imported before a command runs, so `--help` and shell completion
answer at once. Exit codes: 0 fine, 1 findings (with --strict: not everything could be counted),
2 usage, 3 model, 4 shapes, 5 profile.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict

import click

from onnxroof import __version__
from onnxroof.budgets.limits import KINDS
from onnxroof.report.render import DEFAULT_WIDTH, Extras, Format, TableOptions, render
from onnxroof.report.rows import By, Sort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from enum import Enum

    from onnxroof.analysis import Analysis
    from onnxroof.errors import OnnxroofError
    from onnxroof.hardware.profile import PeakKind
    from onnxroof.lint.result import LintResult
    from onnxroof.memory.order import NodeOrder

P = ParamSpec("P")

_INPUT_HELP = (
    "Whole shape of an input: x=1x3x640x640; a name in it, as in x=batch,3,640,640, leaves that"
    " dimension free. May be repeated."
)

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 + SIGINT."""


def main() -> None:
    """Run the command line; never returns.

    A command runs once and ends, so looking for garbage would cost a tenth of its time for
    nothing; `gc.freeze` spares the interpreter one last search on its way out.
    """
    gc.disable()
    try:
        command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        gc.freeze()
        gc.enable()


def _completing(names: Callable[[], Iterable[str]]) -> Callable[..., list[str]]:
    """A completion for click: the names that begin with what was typed."""

    def complete(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
        return [name for name in names() if name.startswith(typed)]

    return complete


def _hardware_names() -> Iterable[str]:
    from onnxroof.hardware.read import available_profiles

    return available_profiles()


def _runtime_names() -> Iterable[str]:
    from onnxroof.fusion.runtimes import RUNTIMES
    from onnxroof.latency.runtime_read import available_runtimes

    return dict.fromkeys((*available_runtimes(), *RUNTIMES))


def _choice(kind: type[Enum]) -> click.Choice[str]:
    """A choice among an enumeration's values."""
    return click.Choice([member.value for member in kind])


def _with_exit_codes(function: Callable[P, None]) -> Callable[P, None]:
    """A command whose errors raised on purpose are one line and an exit code."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with _exit_codes():
            function(*args, **kwargs)

    return run


class Settings(TypedDict):
    """What `analyze` and `sweep` are told alike."""

    input_shapes: dict[str, tuple[int | str, ...]]
    precision: str
    runtime: str | None
    peak: PeakKind
    threads: int | None
    operators: str | None


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What every command is told that analyses a model at given sizes on given devices."""

    hw: tuple[str, ...]
    runtime: str | None
    peak: PeakKind
    threads: int | None
    dim: tuple[str, ...]
    input_: tuple[str, ...]
    precision: str
    operators: str | None

    @property
    def dims(self) -> dict[str, int]:
        """Sizes of free dimensions. Raises UsageError for a text that is none."""
        from onnxroof.options import parse_dims

        return parse_dims(self.dim)

    @property
    def input_shapes(self) -> dict[str, tuple[int | str, ...]]:
        """Whole shapes of inputs. Raises UsageError for a text that is none."""
        from onnxroof.options import parse_input_shapes

        return parse_input_shapes(self.input_)

    @property
    def settings(self) -> Settings:
        """All but the devices and the free dimensions, as keyword arguments."""
        return {
            "input_shapes": self.input_shapes, "precision": self.precision,
            "runtime": self.runtime, "peak": self.peak, "threads": self.threads,
            "operators": self.operators,
        }  # fmt: skip


def model_options(function: Callable[..., None]) -> Callable[..., None]:
    """Take the options of `ModelOptions` and hand them over as one argument, `given`."""
    names = [field.name for field in fields(ModelOptions)]

    @wraps(function)
    def run(**arguments: Any) -> None:
        given = ModelOptions(**{name: arguments.pop(name) for name in names})
        function(given=given, **arguments)

    options = (
        click.option(
            "--hw", multiple=True, metavar="NAME|FILE", shell_complete=_completing(_hardware_names),
            help="Device: a profile's name (see `onnxroof hw list`) or a YAML file of your own."
            " Without it there are no times. May be repeated, except for lint.",
        ),
        click.option(
            "--runtime", shell_complete=_completing(_runtime_names), metavar="NAME",
            help="Whose fusions and times to expect; by default each device's own.",
        ),
        click.option(
            "--peak", type=click.Choice(["vendor", "sustained"]), default="vendor",
            show_default=True, help="Peaks of the data sheet, or measured ones.",
        ),
        click.option(
            "--threads", type=click.IntRange(min=1),
            help="Threads, on devices that have figures for them.",
        ),
        click.option(
            "--dim", multiple=True, metavar="NAME=N",
            help="Size of a free dimension: batch=8. May be repeated.",
        ),
        click.option(
            "--input", "input_", multiple=True, metavar="NAME=SHAPE",
            help=_INPUT_HELP,
        ),
        click.option(
            "--precision", default="", metavar="TYPE",
            help="As if weights and activations were stored and computed so: fp32, fp16, bf16, fp8"
            " or int8.",
        ),
        click.option(
            "--operators", metavar="FILE", help="YAML file that describes operators of your own."
        ),
    )  # fmt: skip
    taking: Callable[..., None] = run
    for option in reversed(options):
        taking = option(taking)
    return taking


def _analysis(model: str, given: ModelOptions, *, keep_going: bool = False) -> Analysis:
    """The analysis that was asked for."""
    from onnxroof.api import analyze

    return analyze(model, given.hw, dims=given.dims, keep_going=keep_going, **given.settings)


def output_option(function: Callable[P, None]) -> Callable[P, None]:
    """Where the result goes."""
    return click.option(
        "--output", "-o", metavar="FILE", help="Write to this file, not to the terminal."
    )(function)


@click.group(name="onnxroof", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="onnxroof %(version)s")
def command() -> None:
    """Say what an ONNX model costs and how long it takes on named hardware, without running it."""


@command.command()
@click.argument("model")
@model_options
@click.option(
    "--top", type=click.IntRange(min=0), metavar="N",
    help="Rows of the table, 0 for all; by default 15, in CSV all.",
)  # fmt: skip
@click.option(
    "--by", type=_choice(By), default=By.KERNEL.value, show_default=True,
    help="What a row of the table is.",
)  # fmt: skip
@click.option(
    "--sort", type=_choice(Sort), help="Order of the rows; by default time, or flops without --hw."
)
@click.option(
    "--scope-depth", type=click.IntRange(min=1), default=2, show_default=True, metavar="N",
    help="Levels of module names that make a scope.",
)  # fmt: skip
@click.option(
    "--format", "format_", type=_choice(Format), default=Format.TEXT.value, show_default=True,
    help="What to write.",
)  # fmt: skip
@output_option
@click.option("--tensors", is_flag=True, help="In JSON, list every tensor too.")
@click.option(
    "--formulas/--no-formulas", default=None,
    help="Show totals as formulas in the free dimensions; by default where that takes no time.",
)  # fmt: skip
@click.option(
    "--explain-fusion", is_flag=True,
    help="List what runs as one kernel and why, and what does not and why not.",
)  # fmt: skip
@click.option("--timeline", is_flag=True, help="Show what is alive over time, a bar a step.")
@click.option(
    "--reorder", "with_order", is_flag=True,
    help="Search for an order of the nodes with a lower peak of memory.",
)  # fmt: skip
@click.option(
    "--lint/--no-lint", "with_lint", default=True,
    help="Add what `onnxroof lint` finds on the first device, without values of weights.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Exit with 1 unless everything could be counted.")
@_with_exit_codes
def report(  # noqa: PLR0913, PLR0917 - one parameter an option
    model: str,
    given: ModelOptions,
    top: int | None,
    by: str,
    sort: str | None,
    scope_depth: int,
    format_: str,
    output: str | None,
    tensors: bool,
    formulas: bool | None,
    explain_fusion: bool,
    timeline: bool,
    with_order: bool,
    with_lint: bool,
    strict: bool,
) -> None:
    """Report what MODEL costs, and how long it takes on each device."""
    analysis = _analysis(model, given, keep_going=True)
    table = TableOptions(By(by), Sort(sort) if sort else None, top, scope_depth)
    order = _better_order(analysis) if with_order and format_ != "csv" else None
    text = render(
        analysis,
        Format(format_),
        table,
        width=_width(output),
        with_tensors=tensors,
        with_formulas=formulas,
        findings=_lint_for_report(analysis) if with_lint and format_ != "csv" else None,
        extras=Extras(explain_fusion, timeline, order),
    )
    _write(text, output)
    _fail_on_findings(analysis, strict=strict)


@command.command("reorder")
@click.argument("model")
@click.option(
    "--output", "-o", required=True, metavar="FILE", help="Where to write the reordered model."
)
@click.option(
    "--dim", multiple=True, metavar="NAME=N",
    help="Size of a free dimension: batch=8. May be repeated.",
)  # fmt: skip
@click.option(
    "--input", "input_", multiple=True, metavar="NAME=SHAPE",
    help=_INPUT_HELP,
)  # fmt: skip
@click.option("--operators", metavar="FILE", help="YAML file that describes operators of your own.")
@click.option(
    "--seconds", type=click.FloatRange(0, 3600),
    help="Time for the exact search, after which the best order found so far is taken; by default"
    " a budget of work, the same on every machine.",
)  # fmt: skip
@_with_exit_codes
def reorder_file(
    model: str,
    output: str,
    dim: tuple[str, ...],
    input_: tuple[str, ...],
    operators: str | None,
    seconds: float | None,
) -> None:
    """Write MODEL with its nodes in the order that keeps least alive; weights are copied as is."""
    from onnxroof.api import analyze
    from onnxroof.memory.order import reorder
    from onnxroof.memory.rewrite import reorder_model
    from onnxroof.options import parse_dims, parse_input_shapes
    from onnxroof.report.memory import order_text

    analysis = analyze(
        model, dims=parse_dims(dim), input_shapes=parse_input_shapes(input_), operators=operators
    )
    order = reorder(analysis.cost, seconds)
    nodes = analysis.model.graph.nodes
    reorder_model(model, output, [nodes[index] for index in order.order])
    _write(f"{output}: {order_text(order)}\n", None)


@command.command("lint")
@click.argument("model")
@model_options
@click.option(
    "--weights/--no-weights", default=None,
    help="Look at the values of weights; by default only where they are few.",
)  # fmt: skip
@click.option(
    "--select", multiple=True, metavar="RULE",
    help="Only these rules: codes, beginnings of codes, names. May be repeated.",
)  # fmt: skip
@click.option("--ignore", multiple=True, metavar="RULE", help="Not these rules. May be repeated.")
@click.option(
    "--baseline", default="", metavar="FILE",
    help="JSON file of accepted findings, each with a reason.",
)  # fmt: skip
@click.option(
    "--fail-on", type=click.Choice(["warning", "error"]), default="error", show_default=True,
    help="Exit with 1 when there is a finding at least this bad.",
)  # fmt: skip
@click.option(
    "--format", "format_", type=click.Choice(["text", "json", "markdown", "sarif"]),
    default="text", show_default=True, help="What to write.",
)  # fmt: skip
@output_option
@_with_exit_codes
def lint_model(  # noqa: PLR0913, PLR0917 - one parameter an option
    model: str,
    given: ModelOptions,
    weights: bool | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    baseline: str,
    fail_on: str,
    format_: str,
    output: str | None,
) -> None:
    """Find what makes MODEL slow, large or wrong on a device, and what a change would save."""
    from onnxroof.errors import UsageError
    from onnxroof.lint.command import LintOptions, lint_command
    from onnxroof.lint.render import LintFormat
    from onnxroof.lint.rule import Severity

    if len(given.hw) > 1:
        raise UsageError("savings hold for one device: give one --hw, and run once a device")
    analysis = _analysis(model, given, keep_going=True)
    options = LintOptions(
        weights, select, ignore, baseline, Severity(fail_on), LintFormat(format_), _width(output)
    )
    text, code = lint_command(analysis, options, _weights_progress())
    _write(text, output)
    _fail_on_findings(analysis, strict=False)
    sys.exit(code)


@command.command("explain")
@click.argument("rule", default="", metavar="[CODE|NAME]")
@_with_exit_codes
def explain_rule(rule: str) -> None:
    """Explain a lint rule: why it costs, a flagged and a clean graph, what to do; or list all."""
    from onnxroof.lint.command import explain_command

    _write(explain_command(rule), None)


@command.command("formula")
@click.argument("model")
@click.option(
    "--dim", multiple=True, metavar="NAME=N",
    help="A size at which the model is known to work. May be repeated.",
)  # fmt: skip
@click.option(
    "--input", "input_", multiple=True, metavar="NAME=SHAPE",
    help="Whole shape of an input: x=1x3x640x640 fixes it, x=batch,3,side,side has formulas in"
    " batch and side. May be repeated.",
)  # fmt: skip
@click.option(
    "--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="What to write.",
)  # fmt: skip
@output_option
@_with_exit_codes
def formula(
    model: str, dim: tuple[str, ...], input_: tuple[str, ...], format_: str, output: str | None
) -> None:
    """Show the totals and output shapes of MODEL as formulas in its free dimensions.

    Kernels are those of onnxruntime.
    """
    import json

    from onnxroof.errors import ShapeError
    from onnxroof.formula import formulas_of
    from onnxroof.options import parse_dims, parse_input_shapes
    from onnxroof.report.formulas import formulas_data, formulas_text

    forms = formulas_of(model, dims=parse_dims(dim), input_shapes=parse_input_shapes(input_))
    if format_ == "json":
        _write(json.dumps(formulas_data(forms), indent=2) + "\n", output)
    else:
        _write(formulas_text(forms), output)
    if forms.reason:  # nothing has a formula: as where a report has no shapes
        sys.exit(ShapeError.exit_code)


@command.command("sweep")
@click.argument("model")
@model_options
@click.option(
    "--format", "format_", type=_choice(Format), default=Format.TEXT.value, show_default=True,
    help="What to write.",
)  # fmt: skip
@output_option
@_with_exit_codes
def sweep_model(
    model: str,
    given: ModelOptions,
    format_: str,
    output: str | None,
) -> None:
    """Report time, throughput and memory of MODEL at many sizes, and the knee.

    --dim takes several sizes here: batch=1,2,4 or batch=1..256*2 (times 2) or seq=128..512+128
    (plus 128); several dimensions make every combination.
    """
    import math

    from onnxroof.errors import UsageError
    from onnxroof.progress import Progress
    from onnxroof.report.sweep import render_sweep
    from onnxroof.sweep import parse_ranges, sweep

    ranges = parse_ranges(given.dim)
    if not ranges:
        raise UsageError("nothing to sweep: give sizes of a dimension, as in --dim batch=1..256*2")
    with Progress(math.prod(map(len, ranges.values())), "points") as bar:
        found = sweep(model, given.hw, ranges=ranges, progress=bar.advance, **given.settings)
    _write(render_sweep(found, Format(format_), _width(output)), output)


def limit_options(function: Callable[P, None]) -> Callable[P, None]:
    """One option a limit."""
    for kind in reversed(KINDS):
        function = click.option(kind.flag, metavar="AMOUNT", help=kind.help)(function)
    return function


@command.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--budget", metavar="FILE", default="", help="YAML file of budgets, one a deployment."
)
@limit_options
@model_options
@click.option(
    "--format", "format_", default="text", show_default=True, help="What to write.",
    type=click.Choice(["text", "markdown", "json", "junit"]),
)  # fmt: skip
@click.option("--junit", metavar="FILE", help="Write JUnit XML to this file besides.")
@click.option("--strict", is_flag=True, help="Exit with 1 also where nobody can tell.")
@output_option
@_with_exit_codes
def check(
    models: tuple[str, ...],
    budget: str,
    given: ModelOptions,
    format_: str,
    junit: str | None,
    strict: bool,
    output: str | None,
    **limits: str | None,
) -> None:
    """Check models against budgets: within, exceeds (and what to look at), or cannot tell.

    Exits with 1 when a limit is exceeded. Limits on latency hold on each device given.
    """
    from onnxroof.budgets.command import CheckOptions, check_command
    from onnxroof.budgets.render import CheckFormat, render

    options = CheckOptions(
        budget, limits, given.hw, given.dims, given.input_shapes, given.precision, given.runtime,
        given.peak, given.threads, given.operators,
    )  # fmt: skip
    reports = check_command(models, options)
    if junit is not None:
        _write(render(reports, CheckFormat.JUNIT), junit)
    _write(render(reports, CheckFormat(format_)), output)
    sys.exit(max([report.exit_code(strict=strict) for report in reports]))


@command.command()
@click.argument("models", nargs=-1, required=True, metavar="BEFORE [AFTER]")
@model_options
@click.option(
    "--top", type=click.IntRange(min=0), default=15, show_default=True, metavar="N",
    help="Kernels to show, 0 for all.",
)  # fmt: skip
@click.option(
    "--fail-above", metavar="PERCENT",
    help="Exit with 1 when latency on a device (without one: FLOPs) grew by more than this.",
)  # fmt: skip
@click.option(
    "--format", "format_", default="text", show_default=True, help="What to write.",
    type=click.Choice(["text", "markdown", "json"]),
)  # fmt: skip
@output_option
@_with_exit_codes
def compare(
    models: tuple[str, ...],
    given: ModelOptions,
    top: int,
    fail_above: str | None,
    format_: str,
    output: str | None,
) -> None:
    """Compare two versions of a model, or one model on several devices.

    Kernels are matched whatever was renamed; the report says what appeared, vanished, or takes
    another time, and is made for a pull request's comment with --format markdown.
    """
    from onnxroof.compare.command import CompareOptions, compare_command, parse_percent
    from onnxroof.compare.render import CompareFormat
    from onnxroof.errors import UsageError, about

    if len(models) > 2:
        raise UsageError(f"compare takes one or two models, got {len(models)}; see `onnxroof rank`")
    allowed = None if fail_above is None else parse_percent(fail_above, "--fail-above")
    analyses = []
    for model in models:
        with about(model):
            analyses.append(_analysis(model, given))
    options = CompareOptions(top, allowed, CompareFormat(format_), _width(output))
    text, code = compare_command(analyses, options)
    _write(text, output)
    sys.exit(code)


@command.command()
@click.argument("places", nargs=-1, required=True, metavar="FOLDER|MODEL...")
@model_options
@click.option(
    "--by", default="", metavar="METRIC",
    help="What to rank by: latency_seconds (the default with a device), flops, parameters,"
    " peak_memory_bytes, …",
)  # fmt: skip
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Processes; one a core by default.")
@click.option(
    "--top", type=click.IntRange(min=0), default=0, metavar="N", help="Models to show, 0 for all."
)
@click.option(
    "--format", "format_", default="text", show_default=True, help="What to write.",
    type=click.Choice(["text", "markdown", "json", "csv"]),
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Exit with 1 unless every model could be ranked.")
@output_option
@_with_exit_codes
def rank(
    places: tuple[str, ...],
    given: ModelOptions,
    by: str,
    jobs: int | None,
    top: int,
    format_: str,
    strict: bool,
    output: str | None,
) -> None:
    """Rank all models in folders on each device, the best on the first device first."""
    from onnxroof.rank.command import rank_command
    from onnxroof.rank.ranking import RankFormat, RankOptions

    options = RankOptions(
        given.hw, by, jobs, top, given.dims, given.input_shapes, given.precision, given.runtime,
        given.peak, given.threads, given.operators, strict=strict,
        format_=RankFormat(format_), width=_width(output),
    )  # fmt: skip
    text, code = rank_command(places, options)
    _write(text, output)
    sys.exit(code)


@command.command("overlay")
@click.argument("model")
@click.option(
    "--trace", required=True, metavar="FILE",
    help="ONNX Runtime's profile (JSON), TensorRT's --exportProfile (JSON), or a table of name,"
    " milliseconds (CSV).",
)  # fmt: skip
@model_options
@click.option(
    "--sort", type=click.Choice(["lost", "measured", "error", "order"]), default="lost",
    show_default=True, help="Order of the rows: time beyond the bound, time, distance from what"
    " was expected, or as the kernels run.",
)  # fmt: skip
@click.option(
    "--top", type=click.IntRange(min=0), metavar="N",
    help="Rows of the table, 0 for all; by default 15, in CSV and JSON all.",
)  # fmt: skip
@click.option(
    "--format", "format_", type=_choice(Format), default=Format.TEXT.value, show_default=True,
    help="What to write.",
)  # fmt: skip
@output_option
@_with_exit_codes
def overlay_trace(
    model: str,
    trace: str,
    given: ModelOptions,
    sort: str,
    top: int | None,
    format_: str,
    output: str | None,
) -> None:
    """Lay measured times of MODEL over expected ones: who loses most time, how near the roof."""
    from onnxroof.calibration.overlay import OverlaySort, overlay
    from onnxroof.calibration.overlay_report import render_overlay
    from onnxroof.calibration.traces import read_trace

    measured = read_trace(trace)
    analysis = _analysis(model, given, keep_going=True)
    found = overlay(analysis, measured, OverlaySort(sort))
    _write(render_overlay(found, Format(format_), top, _width(output)), output)
    _fail_on_findings(analysis, strict=False)


@command.group("hw")
def hardware() -> None:
    """List, show and check hardware profiles."""


@hardware.command("list")
@_with_exit_codes
def list_hardware() -> None:
    """List the shipped profiles with their peak, bandwidth and ridge point."""
    from onnxroof.hardware.read import available_profiles, load_profile
    from onnxroof.hardware.show import list_text

    _write(list_text([load_profile(name) for name in available_profiles()]), None)


@hardware.command("show")
@click.argument("name", metavar="NAME|FILE", shell_complete=_completing(_hardware_names))
@_with_exit_codes
def show_hardware(name: str) -> None:
    """Show a profile: peaks, ridge points, memory, notes and the source of every number."""
    from onnxroof.hardware.read import load_profile
    from onnxroof.hardware.show import show_text

    _write(show_text(load_profile(name)), None)


@hardware.command("check")
@click.argument("file")
@_with_exit_codes
def check_hardware(file: str) -> None:
    """Check a profile, your own in FILE or a shipped one; lists every problem at once."""
    from onnxroof.errors import InvalidProfileError
    from onnxroof.hardware.read import check_profile

    problems = check_profile(file)
    if problems:
        raise InvalidProfileError(file, problems)
    _write(f"{file}: no problems\n", None)


@hardware.command("bench")
@click.option("--name", metavar="NAME", help="What the profile is called; by default as its file.")
@click.option(
    "--seconds", type=click.FloatRange(1, 3600), default=20.0, show_default=True,
    help="Time to spend; up to three times as much where other programs interfere.",
)  # fmt: skip
@click.option(
    "--accept-noise", is_flag=True, help="Write a profile however far measurements spread."
)
@output_option
@_with_exit_codes
def bench_hardware(
    name: str | None, seconds: float, accept_noise: bool, output: str | None
) -> None:
    """Measure the machine this runs on and write its profile; executes no model."""
    from onnxroof.calibration.command import bench_command
    from onnxroof.calibration.write import profile_name

    called = profile_name(name or output or "this-machine")
    outcome = bench_command(called, seconds, accept_noise=accept_noise)
    _write(outcome.profile, output)
    if output is not None:
        _write(outcome.table, None)
        return
    for warning in outcome.warnings:
        click.echo(f"onnxroof: mind {warning}", err=True)


@hardware.command("fit")
@click.argument("measurements", metavar="MEASUREMENTS")
@click.option(
    "--hw", required=True, metavar="NAME|FILE", shell_complete=_completing(_hardware_names),
    help="The profile to start from.",
)  # fmt: skip
@click.option(
    "--runtime", metavar="NAME", shell_complete=_completing(_runtime_names),
    help="What the models were measured with; by default the profile's.",
)  # fmt: skip
@click.option(
    "--constants", default="", metavar="LIST",
    help="Which to fit, of convolution, product, depthwise, memory, host; by default those that"
    " matter for the models.",
)  # fmt: skip
@click.option(
    "--name", metavar="NAME", help="What the new profile is called; by default as its file."
)
@output_option
@_with_exit_codes
def fit_hardware(
    measurements: str,
    hw: str,
    runtime: str | None,
    constants: str,
    name: str | None,
    output: str | None,
) -> None:
    """Fit a profile's latency constants to models measured on the device.

    MEASUREMENTS is a table (CSV) with the columns path and milliseconds, and as needed batch,
    threads and other free dimensions.
    """
    from onnxroof.calibration.command import fit_command
    from onnxroof.calibration.write import profile_name

    called = profile_name(name or output or "fitted")
    outcome = fit_command(hw, measurements, called, runtime, constants)
    _write(outcome.profile, output)
    if output is not None:
        _write(outcome.table, None)


@command.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes this command in SHELL.

    For bash, put `eval "$(onnxroof completion bash)"` into ~/.bashrc; zsh alike; for fish, write
    the script to ~/.config/fish/completions/onnxroof.fish.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is not None:
        click.echo(kind(command, {}, "onnxroof", "_ONNXROOF_COMPLETE").source())


def _better_order(analysis: Analysis) -> NodeOrder:
    """The node order with the lowest peak that a bounded search finds."""
    from onnxroof.memory.order import reorder

    return reorder(analysis.cost)


def _lint_for_report(analysis: Analysis) -> LintResult:
    """What lint finds without looking at values; a report reads no weights."""
    from onnxroof.lint.command import lint

    return lint(analysis, weights=False)


def _weights_progress() -> Callable[[int, int], None] | None:
    """How far reading weights is, on one line of a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        line = f"reading weights: {100 * done // total if total else 100} %"
        sys.stderr.write(f"\r{line}" if done < total else "\r" + " " * len(line) + "\r")
        sys.stderr.flush()

    return show


def _width(output: str | None) -> int:
    """Columns of the terminal; a fixed number for files and pipes."""
    import shutil

    if output is not None:
        return DEFAULT_WIDTH
    return shutil.get_terminal_size((DEFAULT_WIDTH, 0)).columns


def _fail_on_findings(analysis: Analysis, *, strict: bool) -> None:
    """After the report: what makes it partial ends the command with its exit code."""
    from onnxroof.errors import ShapeMismatchError

    if analysis.problems:
        raise ShapeMismatchError(analysis.problems)
    if strict:
        analysis.refuse_gaps()


def _write(text: str, output: str | None) -> None:
    """To the file, whole or not at all, or to standard output."""
    if output is not None:
        from onnxroof.files import write_whole

        write_whole(output, text)
        return
    if sys.stdout is None:  # closed by the shell: nobody is listening
        return
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        from onnxroof.errors import UsageError

        _forget_output()
        raise UsageError(f"cannot write standard output: {error.strerror}") from None


@contextmanager
def _exit_codes() -> Iterator[None]:
    """Turn errors raised on purpose into one line and an exit code.

    A reader that closed the pipe has what it wanted (`onnxroof … | head`): that is no error.
    """
    from onnxroof.errors import OnnxroofError

    try:
        yield
    except OnnxroofError as error:
        _complain(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        _forget_output()
        sys.exit(0)


def _forget_output() -> None:
    """Let what is left in the buffer go nowhere, or the interpreter tries again on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(error: OnnxroofError) -> None:
    """Say what is wrong; a path or name in it may hold control characters, which stay inert."""
    from onnxroof.units import printable

    lines = str(error).split("\n")
    click.echo("onnxroof: " + "\n".join(map(printable, lines)), err=True)
