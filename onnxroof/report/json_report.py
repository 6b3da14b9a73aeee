"""`Analysis` → the JSON report: the dictionary of `onnxroof.document`, indented."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from onnxroof.document import as_dict

if TYPE_CHECKING:
    from onnxroof.analysis import Analysis


def render_json(analysis: Analysis, *, with_tensors: bool = False) -> str:
    """Everything the run found, in base units; documented in docs/json.md.

    ASCII only, so that no name from a file can be mangled or break a terminal.
    """
    document = as_dict(analysis, with_tensors=with_tensors)
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
