"""HWD005."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof import units
from onnxroof.lint.reading import timed
from onnxroof.lint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.lint.rule import Finding

_COPYING = frozenset({"Concat", "Split", "Slice", "Pad", "Tile", "Expand", "Transpose"})
_SMALLEST_SHARE = 0.001


class CopyingKernel(Rule):
    """A Concat, Split, Slice, Pad or Transpose copies its tensor and computes nothing.

    ## Why it costs
    Every byte is read and written once more, and a launch is added. DenseNet, U-Net and ShuffleNet
    blocks spend a good part of their time so, and so do networks that normalize channels last and
    convolve channels first, with a Transpose on each side.

    ## Flagged
        # onnxroof lint --hw mobile-arm
        agraph (float[1,64,56,56] x) => (float[1,64,56,56] y)
        <float[64,64,1,1] w, float[64,128,1,1] v>
        {
          c = Conv (x, w)
          r = Relu (c)
          j = Concat<axis = 1> (r, x)
          y = Conv (j, v)
        }

    ## Clean
        # onnxroof lint --hw mobile-arm
        agraph (float[1,64,56,56] x) => (float[1,64,56,56] y)
        <float[64,64,1,1] w, float[64,64,1,1] v>
        {
          c = Conv (x, w)
          r = Add (c, x)
          y = Conv (r, v)
        }

    ## What to do
    Add instead of concatenating; let the next convolution read the parts one by one and add up;
    choose a runtime that writes the parts in place (as TensorRT does) and takes slices as views.
    For a Transpose: keep one layout throughout.
    """

    code = "HWD005"
    name = "copying-kernel"
    severity = Severity.INFO
    since = "0.1"
    needs_device = True

    def check(self, analysis: Analysis) -> Iterator[Finding]:
        latency = analysis.rooflines[0].bound_seconds
        for kernel, time in timed(analysis):
            node = analysis.nodes[kernel.anchor]
            if node.kind not in _COPYING or len(kernel.nodes) > 1:
                continue
            if time.seconds < _SMALLEST_SHARE * latency or not kernel.traffic_bytes:
                continue
            yield self.found(
                f"{node.op_type} {node.name} copies {units.size(kernel.output_bytes)} in"
                f" {units.duration(time.seconds)}",
                nodes=[node.name],
                seconds=time.seconds,
                nbytes=kernel.traffic_bytes,
            )
