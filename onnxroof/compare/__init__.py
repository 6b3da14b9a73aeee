"""Two versions of a model side by side, or one model on several devices."""

from __future__ import annotations
