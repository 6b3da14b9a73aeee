"""Renderers: pure functions from `Analysis` to text, one a format."""
