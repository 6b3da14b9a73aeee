"""Writes docs/rules from the docstrings of the rules: `python -m onnxroof.lint.generate`."""

from __future__ import annotations

from pathlib import Path

from onnxroof.lint.documentation import pages

FOLDER = Path(__file__).parents[2] / "docs" / "rules"


def main() -> None:
    """Write every page; remove those of rules that are gone."""
    written = pages()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for stale in FOLDER.glob("*.md"):
        if stale.name not in written:
            stale.unlink()
    for name, text in written.items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
