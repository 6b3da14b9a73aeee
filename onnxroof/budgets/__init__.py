"""Budgets: what a model may cost on a device, and whether it does."""

from __future__ import annotations
