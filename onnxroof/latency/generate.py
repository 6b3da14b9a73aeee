"""Writes what is generated beside the runtimes: `runtime.schema.json` and `checked.json`.

Run `python -m onnxroof.latency.generate` after changing a shipped runtime or the form of runtimes.
"""

from __future__ import annotations

import json

from onnxroof.latency.runtime_read import CHECKSUM_FILE, runtime_checksums, runtime_directory
from onnxroof.latency.runtime_schema import Runtime

SCHEMA_FILE = "runtime.schema.json"


def generated_files() -> dict[str, str]:
    """Name → text of every generated file.

    Raises:
        InvalidProfileError: A shipped runtime has problems.
    """
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Runtime.model_json_schema(),
        "title": "onnxroof runtime",
    }
    return {
        SCHEMA_FILE: json.dumps(schema, indent=2, ensure_ascii=False) + "\n",
        CHECKSUM_FILE: runtime_checksums(runtime_directory()),
    }


def main() -> None:
    """Write the generated files into the folder of the shipped runtimes."""
    for name, text in generated_files().items():
        (runtime_directory() / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
