"""Transposes next to each other."""

from __future__ import annotations

from onnxroof.fusion.chain import Chain, Step

RULES = (
    Chain(
        name="transpose-chain",
        anchors=frozenset({"Transpose"}),
        then=(Step("another transpose", frozenset({"Transpose"}), repeats=True),),
        why="Two permutations are one: the elements move once.",
    ),
)
