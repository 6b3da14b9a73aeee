"""A model's cost as a number, for search loops: `cost = CostFunction(...); cost(model)`."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from onnxroof.api import analyze, memo_for, profile_of
from onnxroof.batches import run_batches
from onnxroof.builder import GraphBuilder
from onnxroof.errors import OnnxroofError, UnsupportedOperatorError, UsageError
from onnxroof.fusion.runtimes import CSE, find_runtime
from onnxroof.garbage import collecting_later
from onnxroof.graph.load import load_model
from onnxroof.latency.runtime_read import load_runtime
from onnxroof.metrics import METRICS as _ALL_METRICS
from onnxroof.metrics import find_metric
from onnxroof.open_shapes import bound
from onnxroof.search.draft_line import DraftLine, draft_of, is_plain, peak_bytes
from onnxroof.search.pieces import BARS, Pricer
from onnxroof.shapes import infer_shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor
    from typing import Literal

    import onnx  # noqa: TID251 - the type of a result
    import torch

    from onnxroof.analysis import Analysis
    from onnxroof.api import Hardware
    from onnxroof.builder.draft import Draft
    from onnxroof.builder.recipes import Key, Recipe
    from onnxroof.graph.load import ModelSource
    from onnxroof.graph.types import Model
    from onnxroof.hardware.profile import PeakKind
    from onnxroof.metrics import Number
    from onnxroof.search.pieces import Price

    Cost = Number | tuple[Number, ...]
    Candidate = ModelSource | GraphBuilder

METRICS = tuple(_ALL_METRICS)
"""What a cost function can return; see `onnxroof.metrics`."""

_OF_KERNELS: Mapping[str, Callable[[Price, int], Number]] = {
    "latency_seconds": lambda price, _: price.latency_seconds,
    "bound_seconds": lambda price, _: sum(price.bound_seconds),
    "throughput": lambda price, batch: batch / price.latency_seconds,
    "traffic_bytes": lambda price, _: price.traffic_bytes,
    "kernels": lambda price, _: len(price.kernel_seconds),
}
"""Metrics that need the kernel plan, and how they follow from it and the batch size."""

_OF_NODES = ("macs", "flops", "parameters", "weight_bytes")


class CostFunction:
    """Prices candidates on one device: small is good (but for `throughput`).

    Deterministic, picklable (without what it remembers) and safe to share between threads.
    Operators and pieces of graphs seen once, in any candidate, are not computed again.

    Args:
        hardware: Name of a shipped profile, path of a YAML file, or a `HardwareProfile`.
        metric: One of `METRICS`, or several; with several a call returns a tuple.
        dims: Sizes of free dimensions, as for `analyze`.
        input_shapes: Whole input shapes, as for `analyze`.
        precision: As for `analyze`.
        runtime: As for `analyze`; None takes the profile's default.
        peak: "vendor" or "sustained" figures of the profile.
        strict: Raise where a cost would be a lower bound only, since a candidate with an
            uncounted operator would look cheap; False returns the lower bound.

    Raises:
        UsageError: A metric, runtime or precision that does not exist.
        ProfileError: The profile is unknown or invalid.
    """

    def __init__(
        self,
        hardware: Hardware,
        metric: str | Sequence[str] = "latency_seconds",
        *,
        dims: Mapping[str, int] | None = None,
        input_shapes: Mapping[str, Sequence[int | str]] | None = None,
        precision: str = "",
        runtime: str | None = None,
        peak: PeakKind = "vendor",
        strict: bool = True,
    ) -> None:
        self.hardware = profile_of(hardware)
        self.metrics = (metric,) if isinstance(metric, str) else tuple(metric)
        self._single = isinstance(metric, str)
        for name in self.metrics:
            find_metric(name)
        self.dims = dict(dims or {})
        self.input_shapes = dict(input_shapes or {})
        self.precision = precision
        self.runtime = runtime or self.hardware.runtime
        self.peak = peak
        self.strict = strict
        self._remember_nothing()

    def _remember_nothing(self) -> None:
        self._memo = memo_for(self.precision)
        self._recipes: dict[Key, Recipe] = {}
        self._alone: set[Recipe] = set()
        runtime = load_runtime(self.runtime)
        self._shares = CSE in find_runtime(runtime.fusion).folds
        self._pricer = Pricer(self.hardware, runtime, self.peak)

    def __call__(self, model: Candidate) -> Cost:
        """The metric of one candidate: a path, bytes, ModelProto or finished `GraphBuilder`.

        Raises:
            UnsupportedOperatorError: Under `strict`, when something could not be counted.
            ModelError, ShapeError: As `analyze`.
        """
        with collecting_later():
            return self._priced(model)

    def _priced(self, model: Candidate) -> Cost:
        source: Candidate | Model = model
        draft: Draft | None = None
        if isinstance(model, GraphBuilder) and not self._resizes:
            draft = model.draft
        elif "model_bytes" not in self.metrics:
            source = model.to_model() if isinstance(model, GraphBuilder) else load_model(model)
            draft = self._drafted(source)
        if draft is None or "model_bytes" in self.metrics or not is_plain(draft, self._alone):
            values = self._in_one(self.analyze(source))
        else:
            values = self._in_pieces(draft)
        return values[0] if self._single else values

    @property
    def _resizes(self) -> bool:
        """Whether types or sizes differ from what a candidate says itself."""
        return bool(self.precision or self.dims or self.input_shapes)

    def _drafted(self, model: Model) -> Draft | None:
        """The model as a draft; None when it must be looked at as a whole."""
        if any(node.kind in BARS for node in model.graph.nodes):
            return None
        model, bindings = bound(model, self.dims, self.input_shapes)
        shaped, findings = infer_shapes(model.graph, bindings, self._memo)
        if findings.problems or findings.unresolved:
            return None
        return draft_of(shaped, self._recipes)

    def analyze(self, model: Candidate | Model) -> Analysis:
        """The whole analysis of one candidate."""
        return analyze(
            model,
            self.hardware,
            dims=self.dims,
            input_shapes=self.input_shapes,
            precision=self.precision,
            runtime=self.runtime,
            peak=self.peak,
            memo=self._memo,
        )

    def many(
        self,
        models: Iterable[Candidate],
        executor: Executor | None = None,
        *,
        errors: Literal["raise", "return"] = "raise",
        chunk: int = 32,
    ) -> Iterator[Cost | OnnxroofError]:
        """The metric of many candidates, in their order, as they become known.

        Models are taken from the iterable only as fast as they are priced, so it may be endless.
        On a terminal a progress bar runs along.

        Args:
            models: Paths, bytes, ModelProtos or graphs.
            executor: Where to run: any `concurrent.futures.Executor` (Dask's
                `client.get_executor()`, Ray's, mpi4py's); None: a process for every core.
            errors: "raise" ends at the first candidate that cannot be priced; "return" gives
                its error in place of a number and goes on.
            chunk: Candidates sent to a worker at a time.
        """
        _check_several(models)
        setting = pickle.dumps((self, errors == "return"))
        return run_batches(_price_chunk, setting, map(_portable, models), executor, chunk)

    @staticmethod
    def from_torch(module: torch.nn.Module, example: object) -> onnx.ModelProto:
        """What to price for a PyTorch module: its exported graph, weights never written.

        Args:
            module: In the mode to price (`module.eval()`).
            example: Its argument, or a tuple of arguments; only shapes and types matter.

        Raises:
            UsageError: PyTorch (the extra `onnxroof[torch]`) is not installed, or it cannot
                export the module.
        """
        from onnxroof.search.from_torch import export

        return export(module, example)

    # -- the ways to a number --------------------------------------------------------------

    def _in_one(self, analysis: Analysis) -> tuple[Number, ...]:
        if self.strict:
            analysis.refuse_gaps()
        values: list[Number] = []
        for name in self.metrics:
            value = find_metric(name).of(analysis, 0)
            if value is None:
                raise UsageError(f"{name} is not known of a model that is in no file")
            values.append(value)
        return tuple(values)

    def _in_pieces(self, draft: Draft) -> tuple[Number, ...]:
        """The metrics of a draft whose nodes stand for themselves."""
        draft.check()
        if self.strict:
            gaps = list(dict.fromkeys([recipe.work.gap for recipe in draft.recipes]))
            if any(gaps):
                raise UnsupportedOperatorError((), [gap for gap in gaps if gap])
        price: Price | None = None
        values: list[Number] = []
        for name in self.metrics:
            if name in _OF_KERNELS:
                price = price or self._pricer.price(DraftLine(draft, shares=self._shares))
                values.append(_OF_KERNELS[name](price, draft.batch_size))
            elif name in _OF_NODES:
                values.append(sum([getattr(recipe.work, name) or 0 for recipe in draft.recipes]))
            else:
                weights = sum([recipe.work.held_weight_bytes for recipe in draft.recipes])
                peak = peak_bytes(draft)
                values.append(peak if name == "peak_activation_bytes" else peak + weights)
        return tuple(values)

    def __getstate__(self) -> dict[str, object]:
        own = ("_alone", "_memo", "_pricer", "_recipes", "_shares")
        return {name: value for name, value in vars(self).items() if name not in own}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._remember_nothing()


def _portable(model: Candidate) -> Candidate:
    """A candidate as it travels to another process."""
    return model.SerializeToString() if hasattr(model, "SerializeToString") else model


@lru_cache(maxsize=8)
def _revived(setting: bytes) -> tuple[CostFunction, bool]:
    """The cost function of this process, which remembers from chunk to chunk."""
    revived: tuple[CostFunction, bool] = pickle.loads(setting)
    return revived


def _price_chunk(setting: bytes, models: Sequence[Candidate]) -> list[Cost | OnnxroofError]:
    """The costs of some candidates, in a worker."""
    cost, returns_errors = _revived(setting)
    found: list[Cost | OnnxroofError] = []
    for model in models:
        try:
            found.append(cost(model))
        except OnnxroofError as error:
            if not returns_errors:
                raise
            found.append(error)
    return found


def _check_several(models: object) -> None:
    """Raise UsageError where one candidate, or none at all, stands for several."""
    if not isinstance(models, Iterable) or isinstance(models, str | bytes | os.PathLike):
        raise UsageError(f"models {models!r:.200}: several are meant; call it for one")
