"""A ranking as text, markdown, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

from onnxroof import __version__, units
from onnxroof.bounded import upper
from onnxroof.hardware.read import load_profile
from onnxroof.metrics import METRICS, find_metric
from onnxroof.rank.ranking import PER_MODEL, RankFormat
from onnxroof.report.csv_report import safe_cell
from onnxroof.report.grid import fit, markdown_grid
from onnxroof.units import distinct, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onnxroof.rank.ranking import Ranked, RankOptions


def render(found: Sequence[Ranked], options: RankOptions) -> str:
    """The ranking in the format asked for."""
    return _RENDERERS[options.format_](found, options)


def _table(found: Sequence[Ranked], options: RankOptions) -> tuple[list[str], list[list[str]]]:
    devices = distinct([load_profile(name).name for name in options.hardware])
    metric = find_metric(options.metric)
    extra = metric.name not in (*PER_MODEL, "latency_seconds")
    headers = ["", "model", *map(printable, devices), *[METRICS[name].title for name in PER_MODEL]]
    if extra:
        is_first_device = len(devices) > 1 and (metric.per_device or metric.per_runtime)
        whose = f" on {printable(devices[0])}" if is_first_device else ""
        headers.insert(2, metric.title + whose)
    rows: list[list[str]] = []
    known = [item for item in found if not item.problem]
    for place, item in enumerate(known[: options.top or None], 1):
        row = [
            str(place), printable(item.path),
            *[_bounded(units.duration(seconds), item) for seconds in item.latencies],
            *[
                _bounded(METRICS[name].shown(value), item, name)
                for name, value in zip(PER_MODEL, item.figures, strict=True)
            ],
        ]  # fmt: skip
        if extra:
            row.insert(2, _bounded(metric.shown(item.key), item))
        rows.append(row)
    return headers, rows


def _bounded(text: str, item: Ranked, name: str = "") -> str:
    """The figure with what is known of it; of a loop that runs nobody knows how often one trip."""
    if name == "parameters":  # needs neither sizes nor formulas
        return text
    if item.exactness == "per trip":
        return text if name == "peak_memory_bytes" else f"{text} per trip"
    return units.bounded(
        text, at_least=item.exactness == "at least", at_most=item.exactness == "at most"
    )


def _failures(found: Sequence[Ranked]) -> list[str]:
    return [
        printable(f"not ranked: {item.path}: {item.problem.removeprefix(f'{item.path}: ')}")
        for item in found
        if item.problem
    ]


def _text(found: Sequence[Ranked], options: RankOptions) -> str:
    headers, rows = _table(found, options)
    first = len(headers) - len(PER_MODEL)
    spare = [first + at for at, name in enumerate(PER_MODEL) if name != options.metric]
    lines = fit(
        headers, rows, width=options.width, names=1, spare=spare,
        right=(0, *range(2, len(headers))),
    )  # fmt: skip
    failures = _failures(found)
    return "\n".join([*lines, *([""] if failures else []), *failures]) + "\n"


def _markdown(found: Sequence[Ranked], options: RankOptions) -> str:
    from onnxroof.units import escaped

    headers, rows = _table(found, options)
    grid = markdown_grid(headers, rows, right=(0, *range(2, len(headers))))
    failures = [f"- {escaped(line)}" for line in _failures(found)]
    blocks = [grid, *(["\n".join(failures)] if failures else []), f"onnxroof {__version__}"]
    return "\n\n".join(blocks) + "\n"


def _records(found: Sequence[Ranked], options: RankOptions) -> list[dict[str, object]]:
    return [
        {
            "model": item.path,
            options.metric: item.key,
            **{
                f"latency_seconds:{device}": seconds
                for device, seconds in zip(distinct(options.hardware), item.latencies, strict=False)
            },
            **dict(zip(PER_MODEL, item.figures, strict=False)),
            "is_lower_bound": item.is_lower_bound,
            "exactness": item.exactness,
            "problem": item.problem or None,
        }
        for item in found
    ]


def _json(found: Sequence[Ranked], options: RankOptions) -> str:
    document = {
        "schema_version": 1,
        "tool": {"name": "onnxroof", "version": __version__},
        "by": options.metric,
        "hardware": distinct(options.hardware),
        "models": _records(found, options),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _csv(found: Sequence[Ranked], options: RankOptions) -> str:
    records = _records(found, options)
    names = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        [
            {
                name: safe_cell(cell) if isinstance(cell, str) else _plain(cell)
                for name, cell in record.items()
            }
            for record in records
        ]
    )
    return text.getvalue()


def _plain(cell: object) -> object:
    """A number that is only bounded as its upper end."""
    return upper(cell) if isinstance(cell, int) and not isinstance(cell, bool) else cell


_RENDERERS: Mapping[RankFormat, Callable[[Sequence[Ranked], RankOptions], str]] = {
    RankFormat.TEXT: _text,
    RankFormat.MARKDOWN: _markdown,
    RankFormat.JSON: _json,
    RankFormat.CSV: _csv,
}
