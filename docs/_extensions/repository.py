"""Links from pages to files of the repository that are not pages.

`[the life cycle](../nimbus/squall_nimbus/topologies/lifecycle.py)` works for readers of the
repository. On the site it leads to a copy of that file, or to the page that includes it. A link to
a file that does not exist is a warning, and so fails the build.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "_repository"
# Files outside docs/ that the site has as pages, and folders that have one.
PAGES = {
    "README.md": "index",
    "CONTRIBUTING.md": "project/contributing",
    "CHANGELOG.md": "project/changes",
    "examples/README.md": "examples/index",
    **{
        f"examples/{page.stem}/README.md": f"examples/{page.stem}"
        for page in (ROOT / "docs" / "examples").glob("*.md")
        if page.stem != "index"
    },
    "docs/decisions": "decisions/index",
}


def _resolve(app: Sphinx, document: nodes.document) -> None:
    """Replace the links of one page that lead out of docs/, before MyST looks for their pages."""
    here = app.env.docname
    folder = Path(app.env.doc2path(here)).parent
    for node in list(document.findall(pending_xref)):
        if node.get("reftype") != "myst":
            continue
        target = node["reftarget"].partition("#")[0]
        # The text of an included file is relative to the top of the repository.
        for base in (folder, ROOT, ROOT / "examples"):
            uri = _uri(app, here, base / target) if target else None
            if uri is not None:
                reference = nodes.reference("", "", *node.children, internal=True, refuri=uri)
                node.replace_self(reference)
                break


def _uri(app: Sphinx, here: str, path: Path) -> str | None:
    """The address of a file or folder of the repository, from a page; None: it has none."""
    path = path.resolve()
    if not path.exists() and path.with_suffix(".md").exists():
        path = path.with_suffix(".md")
    if not path.is_relative_to(ROOT) or not path.exists():
        return None
    name = path.relative_to(ROOT).as_posix()
    if name in PAGES:
        return app.builder.get_relative_uri(here, PAGES[name])
    if not path.is_file() or (path.is_relative_to(app.srcdir) and path.suffix == ".md"):
        return None
    _copied(app.env).add(name)
    return f"{'../' * here.count('/')}{FOLDER}/{name}.txt"


def _copied(env: BuildEnvironment) -> set[str]:
    if not hasattr(env, "squall_repository_files"):
        env.squall_repository_files = set()  # type: ignore[attr-defined]
    found: set[str] = env.squall_repository_files
    return found


def _copy(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    for name in sorted(_copied(app.env)):
        target = Path(app.outdir, FOLDER, f"{name}.txt")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", _resolve)
    app.connect("build-finished", _copy)
    return {"parallel_read_safe": False, "parallel_write_safe": False}
