"""The command line: arguments in, one call, a report out, an exit code.

Nothing heavier than typer is imported before a command runs, so `--help` and shell completion
answer at once. Exit codes: 0 fine, 1 findings (with --strict: not everything could be counted),
2 usage, 3 model, 4 shapes, 5 profile.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from onnxroof.light_typer import LightCommand, LightGroup
from onnxroof.report.render import DEFAULT_WIDTH, Format, TableOptions, render
from onnxroof.report.rows import By, Sort

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.errors import OnnxroofError

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 + SIGINT."""

app = typer.Typer(
    name="onnxroof",
    cls=LightGroup,
    help="What an ONNX model costs and how long it takes on named hardware, without running it.",
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
hardware_app = typer.Typer(
    cls=LightGroup,
    help="List, show and check hardware profiles.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
app.add_typer(hardware_app, name="hw")


class PeakChoice(Enum):
    """Which of a profile's figures to use."""

    VENDOR = "vendor"
    SUSTAINED = "sustained"


def main() -> None:
    """Run the command line; never returns.

    A command runs once and ends, so looking for garbage would cost a tenth of its time for
    nothing; `gc.freeze` spares the interpreter one last search on its way out.
    """
    gc.disable()
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        gc.freeze()
        gc.enable()


def _complete_hardware(incomplete: str) -> list[str]:
    """Names of shipped profiles that begin so."""
    from onnxroof.hardware.read import available_profiles

    return [name for name in available_profiles() if name.startswith(incomplete)]


def _complete_runtime(incomplete: str) -> list[str]:
    """Names of fusion sets that begin so."""
    from onnxroof.fusion.runtimes import RUNTIMES

    return [name for name in RUNTIMES if name.startswith(incomplete)]


def _print_version(value: bool) -> None:
    if value:
        from onnxroof import __version__

        typer.echo(f"onnxroof {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


@app.command(cls=LightCommand)
def report(  # noqa: PLR0913, PLR0917 - one parameter an option
    model: Annotated[str, typer.Argument(help="The ONNX file.", metavar="MODEL")],
    hw: Annotated[
        list[str] | None,
        typer.Option(
            help="Device: a profile's name (see `onnxroof hw list`) or a YAML file. May be"
            " repeated: one column each. Without it: counts only.",
            metavar="NAME|FILE",
            autocompletion=_complete_hardware,
        ),
    ] = None,
    runtime: Annotated[
        str | None,
        typer.Option(
            help="Whose fusion rules to apply; by default those of the first device.",
            autocompletion=_complete_runtime,
        ),
    ] = None,
    peak: Annotated[
        PeakChoice, typer.Option(help="Peaks of the data sheet, or measured ones.")
    ] = PeakChoice.VENDOR,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads, on devices that have figures for them.")
    ] = None,
    dim: Annotated[
        list[str] | None,
        typer.Option(help="Size of a free dimension: batch=8. May be repeated.", metavar="NAME=N"),
    ] = None,
    input_: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help="Whole shape of an input: x=1x3x640x640. May be repeated.",
            metavar="NAME=SHAPE",
        ),
    ] = None,
    precision: Annotated[
        str,
        typer.Option(
            help="As if weights and activations were stored and computed so: fp32, fp16, bf16,"
            " fp8 or int8.",
            show_default=False,
        ),
    ] = "",
    operators: Annotated[
        str | None,
        typer.Option(help="YAML file that describes operators of your own.", metavar="FILE"),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(min=0, help="Rows of the table, 0 for all; by default 15, in CSV all."),
    ] = None,
    by: Annotated[By, typer.Option(help="What a row of the table is.")] = By.KERNEL,
    sort: Annotated[
        Sort | None, typer.Option(help="Order of the rows; by default time, or flops without --hw.")
    ] = None,
    scope_depth: Annotated[
        int, typer.Option(min=1, help="Levels of module names that make a scope.")
    ] = 2,
    format_: Annotated[Format, typer.Option("--format", help="What to write.")] = Format.TEXT,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="Write to this file, not to the terminal.", metavar="FILE"
        ),
    ] = None,
    tensors: Annotated[
        bool, typer.Option("--tensors", help="In JSON, list every tensor too.")
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with 1 unless everything could be counted."),
    ] = False,
) -> None:
    """Report what a model costs, and how long it takes on each device."""
    with _exit_codes():
        from onnxroof.api import analyze
        from onnxroof.options import parse_dims, parse_input_shapes

        analysis = analyze(
            model,
            tuple(hw or ()),
            dims=parse_dims(dim or ()),
            input_shapes=parse_input_shapes(input_ or ()),
            precision=precision,
            runtime=runtime,
            peak=peak.value,
            threads=threads,
            operators=operators,
            keep_going=True,
        )
        table = TableOptions(by, sort, top, scope_depth)
        text = render(analysis, format_, table, width=_width(output), with_tensors=tensors)
        _write(text, output)
        _fail_on_findings(analysis, strict=strict)


@hardware_app.command("list", cls=LightCommand)
def list_hardware() -> None:
    """List the shipped profiles with their peak, bandwidth and ridge point."""
    with _exit_codes():
        from onnxroof.hardware.read import available_profiles, load_profile
        from onnxroof.hardware.show import list_text

        _write(list_text([load_profile(name) for name in available_profiles()]), None)


@hardware_app.command("show", cls=LightCommand)
def show_hardware(
    name: Annotated[
        str,
        typer.Argument(
            help="A profile's name or a YAML file.",
            metavar="NAME|FILE",
            autocompletion=_complete_hardware,
        ),
    ],
) -> None:
    """Show a profile: peaks, ridge points, memory, notes and the source of every number."""
    with _exit_codes():
        from onnxroof.hardware.read import load_profile
        from onnxroof.hardware.show import show_text

        _write(show_text(load_profile(name)), None)


@hardware_app.command("check", cls=LightCommand)
def check_hardware(
    file: Annotated[str, typer.Argument(help="The YAML file.", metavar="FILE")],
) -> None:
    """Check a profile of your own; lists every problem at once."""
    with _exit_codes():
        from onnxroof.errors import InvalidProfileError
        from onnxroof.hardware.read import check_profile

        problems = check_profile(file)
        if problems:
            raise InvalidProfileError(file, problems)
        _write(f"{file}: no problems\n", None)


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
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(INTERRUPTED) from error
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from error


def _complain(error: OnnxroofError) -> None:
    typer.echo(f"onnxroof: {error}", err=True)
