"""The site: Sphinx with MyST (Markdown) and the theme furo. `make docs` builds it.

Everything that the pages need is in this checkout: no font, script or image comes from elsewhere,
and search works without a server.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
sys.path[:0] = [str(HERE / "_extensions"), str(ROOT)]

project = "Squall"
author = "The Squall developers"
copyright = f"the Squall developers, {PROJECT['project']['license']}"
version = release = PROJECT["project"]["version"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "docstrings",
    "reference",
    "repository",
]
root_doc = "index"
exclude_patterns = ["code"]
suppress_warnings = ["myst.header"]  # a page may start below an included heading

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

# Docstrings write `code` as Markdown does.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"Squall {version}"
html_static_path = ["_static"]
html_css_files = ["squall.css"]
html_js_files = ["squall.js"]
html_show_sphinx = False
html_copy_source = False
pygments_style = "default"
pygments_dark_style = "github-dark"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5f8a", "color-brand-content": "#0b5f8a"},
    "dark_css_variables": {"color-brand-primary": "#6cc4ee", "color-brand-content": "#6cc4ee"},
}
# `$ ` before a command is not copied, and neither is its output.
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"
