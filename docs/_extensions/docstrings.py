"""Docstrings as this project writes them, made into reStructuredText.

They hold paragraphs, `code`, lists, and examples: an indented block after a blank line. The latter
becomes a code block here, so that a docstring reads well in an editor and on the site.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def with_code_blocks(lines: list[str], language: str) -> list[str]:
    """The lines, with `.. code-block::` before each indented block."""
    found: list[str] = []
    inside = False
    for number, line in enumerate(lines):
        indented = line.startswith("    ")
        after_blank = number == 0 or not lines[number - 1].strip()
        if indented and after_blank and not inside:
            found += [f".. code-block:: {language}", ""]
            inside = True
        elif line.strip() and not indented:
            if inside:
                found.append("")
            inside = False
        found.append(line)
    return found


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    # A module's docstring draws formats; a class' or a function's shows how to use it.
    lines[:] = with_code_blocks(lines, "text" if what == "module" else "python")


def _signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str, returns: str
) -> tuple[str, str] | None:
    """Components take what their users' constructors take."""
    return ("", returns) if signature == "(*args: Any, **kwargs: Any)" else None


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
