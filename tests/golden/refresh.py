"""Exact totals of every model in models/, kept in totals.json so that a change shows as a diff.

    python tests/golden/refresh.py

rewrites the file from what onnxroof says now. A line that changes needs a reason in the changelog.
Published and PyTorch-counted figures are asserted apart, in tests/test_published_totals.py.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "models"
TOTALS = Path(__file__).parent / "totals.json"

EXAMPLE_DIMS: dict[str, dict[str, int]] = {
    "bert_base_dynamic": {"batch": 1, "sequence": 128},
    "minilm_l6_dynamo": {"batch": 1, "sequence": 128},
    "gpt2_dynamic": {"batch": 1, "sequence": 128},
    "gpt2_decode_dynamic": {"batch": 1, "past_sequence": 128},
    "lstm_2x512_dynamic": {"batch": 1, "sequence": 100},
}
"""Sizes of the free dimensions for which PyTorch counted; a free batch is 1 elsewhere."""


@cache
def golden_totals(name: str) -> dict[str, object]:
    """What onnxroof says about one model of the folder, in example size."""
    import onnxroof

    dims = EXAMPLE_DIMS.get(name, {})
    analysis = onnxroof.analyze(MODELS / f"{name}.onnx", dims=dims)
    totals = analysis.totals
    kernels = analysis.kernels.kernels
    return {
        "dims": dims,
        "nodes": len(analysis.nodes),
        "kernels": len(kernels),
        "macs": int(totals.macs),
        "macs_min": int(totals.macs_min),
        "flops": int(totals.flops),
        "transcendentals": int(totals.transcendentals),
        "macs_by_dtype": {label: int(macs) for label, macs in totals.macs_by_dtype.items()},
        "parameters": totals.parameters,
        "weight_bytes": totals.weight_bytes,
        "quantization_bytes": totals.quantization_bytes,
        "traffic_bytes": int(totals.traffic_bytes),
        "fused_traffic_bytes": int(sum(k.read_bytes + k.written_bytes for k in kernels)),
        "peak_activation_bytes": int(analysis.memory.peak_activation_bytes),
    }


def model_names() -> list[str]:
    """The models of the folder, sorted."""
    return sorted(file.stem for file in MODELS.glob("*.onnx"))


def main() -> None:
    """Rewrite totals.json."""
    content = {name: golden_totals(name) for name in model_names()}
    TOTALS.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
