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
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

import click

from onnxroof import __version__
from onnxroof.report.render import DEFAULT_WIDTH, Format, TableOptions, render
from onnxroof.report.rows import By, Sort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from enum import Enum

    from onnxroof.analysis import Analysis
    from onnxroof.errors import OnnxroofError
    from onnxroof.hardware.profile import PeakKind
    from onnxroof.lint.result import LintResult

P = ParamSpec("P")

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

    return RUNTIMES


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


def model_options(function: Callable[P, None]) -> Callable[P, None]:
    """The options of every command that analyses a model at given sizes on given devices."""
    options = (
        click.option(
            "--hw", multiple=True, metavar="NAME|FILE", shell_complete=_completing(_hardware_names),
            help="Device: a profile's name (see `onnxroof hw list`) or a YAML file; repeatable,"
            " one column each. Without it: counts only.",
        ),
        click.option(
            "--runtime", shell_complete=_completing(_runtime_names), metavar="NAME",
            help="Whose fusion rules to apply; by default those of the first device.",
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
            help="Whole shape of an input: x=1x3x640x640. May be repeated.",
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
    for option in reversed(options):
        function = option(function)
    return function


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
    "--lint/--no-lint", "with_lint", default=True,
    help="Add what `onnxroof lint` finds on the first device, without values of weights.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Exit with 1 unless everything could be counted.")
@_with_exit_codes
def report(  # noqa: PLR0913, PLR0917 - one parameter an option
    model: str,
    hw: tuple[str, ...],
    runtime: str | None,
    peak: PeakKind,
    threads: int | None,
    dim: tuple[str, ...],
    input_: tuple[str, ...],
    precision: str,
    operators: str | None,
    top: int | None,
    by: str,
    sort: str | None,
    scope_depth: int,
    format_: str,
    output: str | None,
    tensors: bool,
    formulas: bool | None,
    with_lint: bool,
    strict: bool,
) -> None:
    """Report what MODEL costs, and how long it takes on each device."""
    from onnxroof.api import analyze
    from onnxroof.options import parse_dims, parse_input_shapes

    analysis = analyze(
        model,
        hw,
        dims=parse_dims(dim),
        input_shapes=parse_input_shapes(input_),
        precision=precision,
        runtime=runtime,
        peak=peak,
        threads=threads,
        operators=operators,
        keep_going=True,
    )
    table = TableOptions(By(by), Sort(sort) if sort else None, top, scope_depth)
    text = render(
        analysis,
        Format(format_),
        table,
        width=_width(output),
        with_tensors=tensors,
        with_formulas=formulas,
        findings=_lint_for_report(analysis) if with_lint and format_ != "csv" else None,
    )
    _write(text, output)
    _fail_on_findings(analysis, strict=strict)


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
    hw: tuple[str, ...],
    runtime: str | None,
    peak: PeakKind,
    threads: int | None,
    dim: tuple[str, ...],
    input_: tuple[str, ...],
    precision: str,
    operators: str | None,
    weights: bool | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    baseline: str,
    fail_on: str,
    format_: str,
    output: str | None,
) -> None:
    """Find what makes MODEL slow, large or wrong on a device, and what a change would save."""
    from onnxroof.api import analyze
    from onnxroof.errors import UsageError
    from onnxroof.lint.command import LintOptions, lint_command
    from onnxroof.lint.render import LintFormat
    from onnxroof.lint.rule import Severity
    from onnxroof.options import parse_dims, parse_input_shapes

    if len(hw) > 1:
        raise UsageError("savings hold for one device: give one --hw, and run once a device")
    analysis = analyze(
        model,
        hw,
        dims=parse_dims(dim),
        input_shapes=parse_input_shapes(input_),
        precision=precision,
        runtime=runtime,
        peak=peak,
        threads=threads,
        operators=operators,
        keep_going=True,
    )
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
    help="Whole shape of an input, which is then fixed: x=1x3x640x640. May be repeated.",
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
    """Show the totals and output shapes of MODEL as formulas in its free dimensions."""
    import json

    from onnxroof.formula import formulas_of
    from onnxroof.options import parse_dims, parse_input_shapes
    from onnxroof.report.formulas import formulas_data, formulas_text

    forms = formulas_of(model, dims=parse_dims(dim), input_shapes=parse_input_shapes(input_))
    if format_ == "json":
        _write(json.dumps(formulas_data(forms), indent=2) + "\n", output)
    else:
        _write(formulas_text(forms), output)


@command.command("sweep")
@click.argument("model")
@model_options
@click.option(
    "--format", "format_", type=_choice(Format), default=Format.TEXT.value, show_default=True,
    help="What to write.",
)  # fmt: skip
@output_option
@_with_exit_codes
def sweep_model(  # noqa: PLR0913, PLR0917 - one parameter an option
    model: str,
    hw: tuple[str, ...],
    runtime: str | None,
    peak: PeakKind,
    threads: int | None,
    dim: tuple[str, ...],
    input_: tuple[str, ...],
    precision: str,
    operators: str | None,
    format_: str,
    output: str | None,
) -> None:
    """Report time, throughput and memory of MODEL at many sizes, and the knee.

    --dim takes several sizes here: batch=1,2,4 or batch=1..256*2 (times 2) or seq=128..512+128
    (plus 128); several dimensions make every combination.
    """
    import math

    from onnxroof.errors import UsageError
    from onnxroof.options import parse_input_shapes
    from onnxroof.progress import Progress
    from onnxroof.report.sweep import render_sweep
    from onnxroof.sweep import parse_ranges, sweep

    ranges = parse_ranges(dim)
    if not ranges:
        raise UsageError("nothing to sweep: give sizes of a dimension, as in --dim batch=1..256*2")
    with Progress(math.prod(map(len, ranges.values())), "points") as bar:
        found = sweep(
            model,
            hw,
            ranges=ranges,
            input_shapes=parse_input_shapes(input_),
            precision=precision,
            runtime=runtime,
            peak=peak,
            threads=threads,
            operators=operators,
            progress=bar.advance,
        )
    _write(render_sweep(found, Format(format_), _width(output)), output)


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
    """Check a profile of your own in FILE; lists every problem at once."""
    from onnxroof.errors import InvalidProfileError
    from onnxroof.hardware.read import check_profile

    problems = check_profile(file)
    if problems:
        raise InvalidProfileError(file, problems)
    _write(f"{file}: no problems\n", None)


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
    from onnxroof.errors import ShapeMismatchError, UnsupportedOperatorError, quoted

    if analysis.problems:
        raise ShapeMismatchError(analysis.problems)
    unknown = analysis.coverage.unknown
    if strict and (unknown or analysis.unresolved):
        reasons = [
            f"{quoted(name)} ({count} node{'s' if count != 1 else ''}): {reason}"
            for name, (count, reason) in sorted(unknown.items())
        ] or [f"shape of {quoted(item.tensor)}: {item.reason}" for item in analysis.unresolved]
        raise UnsupportedOperatorError(sorted(unknown), reasons)


def _write(text: str, output: str | None) -> None:
    """To the file, whole or not at all, or to standard output."""
    if output is not None:
        from onnxroof.files import write_whole

        write_whole(output, text)
        return
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    sys.stdout.write(text)
    sys.stdout.flush()


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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _complain(error: OnnxroofError) -> None:
    click.echo(f"onnxroof: {error}", err=True)
