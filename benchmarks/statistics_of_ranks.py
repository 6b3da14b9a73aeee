"""Rank correlations and errors, as the published tables use them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def spearman(predicted: Floats, measured: Floats) -> float:
    """Spearman's rho, ties at their mean rank."""
    return float(np.corrcoef(_ranks(predicted), _ranks(measured))[0, 1])


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts + 1) / 2)[inverse], np.float64)


def kendall(predicted: Floats, measured: Floats) -> float:
    """Kendall's tau-b."""
    above = np.triu_indices(len(predicted), 1)
    x = np.sign(predicted[:, None] - predicted[None])[above]
    y = np.sign(measured[:, None] - measured[None])[above]
    return float((x * y).sum() / np.sqrt((x != 0).sum() * (y != 0).sum()))


def mape(predicted: Floats, measured: Floats) -> float:
    """Mean absolute error over the measured value."""
    return float(np.mean(np.abs(predicted - measured) / measured))


def scaled_mape(predicted: Floats, measured: Floats) -> float:
    """The least such error that one factor on all predictions leaves (a weighted median)."""
    ratios, weights = measured / predicted, predicted / measured
    order = np.argsort(ratios)
    sums = np.cumsum(weights[order])
    factor = ratios[order][np.searchsorted(sums, sums[-1] / 2)]
    return mape(predicted * factor, measured)
