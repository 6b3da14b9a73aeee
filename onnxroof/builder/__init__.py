"""Graphs written in Python, sized as they are written: `g.conv(x, 64, 3)`.

`graph_builder` is what users call, `draft` what it writes down, `recipes` the sized nodes that
equal graphs share.
"""

from onnxroof.builder.graph_builder import GraphBuilder, Tensor

__all__ = ["GraphBuilder", "Tensor"]
