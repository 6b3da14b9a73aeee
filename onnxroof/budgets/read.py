"""A budget file (strict YAML) → budgets; every problem is reported at once, with its line."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from onnxroof.budgets.limits import KINDS
from onnxroof.budgets.records import Budget
from onnxroof.errors import UsageError, quoted
from onnxroof.files import read_small
from onnxroof.hardware.strict_yaml import MAX_BYTES, Document, parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnxroof.budgets.records import Limit
    from onnxroof.hardware.strict_yaml import Value

_DEPLOYMENT = ("name", "hardware", "dims", "inputs", "precision", "runtime", "peak", "threads")
_KEYS = (*_DEPLOYMENT, *(kind.key for kind in KINDS))
_BY_KEY = {kind.key: kind for kind in KINDS}


def read_budgets(path: str) -> tuple[Budget, ...]:
    """The budgets of a file.

    Raises:
        UsageError: The file cannot be read; lists every problem with its line.
    """
    try:
        data = read_small(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"budget file {path} cannot be read: {reason}") from error
    document = parse(data, what="budget file")
    reader = _Reader(document)
    budgets = reader.budgets()
    problems = [str(problem) for problem in document.problems] + reader.problems
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
        raise UsageError(f"{path}: {count}{listed}")
    return budgets


class _Reader:
    """Collects budgets and problems from a document."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[str] = []

    def budgets(self) -> tuple[Budget, ...]:
        root = self.document.root
        if root is None:
            return ()
        self._unknown(root, ("schema_version", "budgets"), "")
        if root.get("schema_version") != 1:
            self._say("schema_version", "must be 1, the version this program reads")
        listed = root.get("budgets")
        if not isinstance(listed, list) or not listed:
            self._say("budgets", "a list of budgets is meant, each with its limits")
            return ()
        found = [self._budget(entry, f"budgets.{at}") for at, entry in enumerate(listed)]
        budgets = tuple([budget for budget in found if budget is not None])
        names = [budget.name for budget in budgets]
        for at, name in enumerate(names):
            if name in names[:at]:
                self._say(f"budgets.{at}", f"a second budget named {quoted(name)}; give it a name")
        return budgets

    def _budget(self, entry: Value, where: str) -> Budget | None:
        if not isinstance(entry, dict):
            self._say(where, "a mapping of keys to values is meant")
            return None
        self._unknown(entry, _KEYS, where)
        limits = self._limits(entry, where)
        hardware = self._text(entry, "hardware", where)
        if not limits:
            self._say(where, f"it sets no limit ({', '.join(_BY_KEY)})")
        if not hardware and any(limit.metric.per_device for limit in limits):
            self._say(where, "latency and throughput need `hardware`")
        peak = self._text(entry, "peak", where) or "vendor"
        if peak not in {"vendor", "sustained"}:
            self._say(f"{where}.peak", "is vendor or sustained")
        threads = entry.get("threads")
        if threads is not None and (not isinstance(threads, int) or threads < 1):
            self._say(f"{where}.threads", "a whole number from 1 on is meant")
            threads = None
        return Budget(
            name=self._text(entry, "name", where) or hardware or "model",
            hardware=hardware,
            limits=limits,
            dims=self._dims(entry, where),
            input_shapes=self._inputs(entry, where),
            precision=self._text(entry, "precision", where),
            runtime=self._text(entry, "runtime", where) or None,
            peak=peak,
            threads=threads,
        )

    def _limits(self, entry: dict[str, Value], where: str) -> tuple[Limit, ...]:
        limits: list[Limit] = []
        for key, kind in _BY_KEY.items():
            value = entry.get(key)
            if value is None:
                continue
            if not isinstance(value, str | int | float) or isinstance(value, bool):
                self._say(f"{where}.{key}", "an amount is meant")
                continue
            try:
                limits.append(kind.limit(str(value), ""))
            except UsageError as error:
                self._say(f"{where}.{key}", str(error).strip())
        return tuple(limits)

    def _dims(self, entry: dict[str, Value], where: str) -> dict[str, int]:
        value = entry.get("dims") or {}
        if not isinstance(value, dict) or not all(map(_is_size, value.values())):
            self._say(f"{where}.dims", "sizes by name are meant: {batch: 1}")
            return {}
        return {name: size for name, size in value.items() if isinstance(size, int)}

    def _inputs(self, entry: dict[str, Value], where: str) -> dict[str, tuple[int | str, ...]]:
        value = entry.get("inputs") or {}
        shapes: dict[str, tuple[int | str, ...]] = {}
        for name, shape in value.items() if isinstance(value, dict) else ():
            if isinstance(shape, list) and all(_is_size(d) or isinstance(d, str) for d in shape):
                shapes[name] = tuple([dim for dim in shape if isinstance(dim, int | str)])
        if not isinstance(value, dict) or len(shapes) < len(value):
            self._say(
                f"{where}.inputs",
                "shapes by name are meant: {x: [1, 3, 224, 224]}, or {x: [batch, 3, 224, 224]}",
            )
        return shapes

    def _text(self, entry: dict[str, Value], key: str, where: str) -> str:
        value = entry.get(key)
        if value is None:
            return ""
        if not isinstance(value, str | int) or isinstance(value, bool):
            self._say(f"{where}.{key}", "text is meant")
            return ""
        return str(value)

    def _unknown(self, mapping: dict[str, Value], known: Iterable[str], where: str) -> None:
        for key in mapping.keys() - set(known):
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            self._say(f"{where}.{key}".lstrip("."), f"no such key{hint}")

    def _say(self, path: str, message: str) -> None:
        line = self.document.lines.get(path) or self.document.lines.get(path.rpartition(".")[0])
        self.problems.append(f"{path}: {message}" + (f" (line {line})" if line else ""))


def _is_size(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
