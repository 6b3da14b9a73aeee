"""Lint: rules that read a finished `Analysis` and say what to change, and what it would save."""
