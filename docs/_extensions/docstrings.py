"""Docstrings as this project writes them, made into reStructuredText.

They hold paragraphs, `code`, lists, and examples: an indented block after a blank line. The latter
becomes a code block here, so that a docstring reads well in an editor and on the site.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def with_code_blocks(lines: list[str]) -> list[str]:
    """The lines, with `.. code-block:: python` before each indented block."""
    found: list[str] = []
    inside = False
    for number, line in enumerate(lines):
        indented = line.startswith("    ")
        after_blank = number == 0 or not lines[number - 1].strip()
        if indented and after_blank and not inside:
            found += [".. code-block:: python", ""]
            inside = True
        elif line.strip() and not indented:
            if inside:
                found.append("")
            inside = False
        found.append(line)
    return found


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = with_code_blocks(lines)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
