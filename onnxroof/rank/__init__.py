"""Folders of models, ranked on devices."""

from __future__ import annotations
