"""`storm new`: a project for a topology, with tests, packaging and a CI file."""

from __future__ import annotations

import keyword
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import click

from squall_cli.options import json_option
from squall_cli.output import print_json, say

_TEMPLATE = Path(__file__).resolve().parents[1] / "template"
_SUFFIX = ".tmpl"
# Without the dot, so that they do nothing where the template lies.
_HIDDEN = {"gitignore", "stormignore", "github"}
_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]{0,98}[A-Za-z0-9])?")


@click.command("new", no_args_is_help=True)
@click.argument("name", metavar="NAME", type=click.Path(path_type=Path))
@json_option
def command(name: Path, as_json: bool) -> None:
    """Make a project for a topology: code, tests, packaging and a CI file.

    NAME is the project's name, or a path that ends with it: a folder that is made. The project
    counts words, passes its own tests, and runs with `storm local` and `storm jar` as it is.
    """
    from squall_cli.version import squall_version

    target = Path(os.path.abspath(name))
    package = package_name(target.name)
    values = {"name": target.name, "package": package, "version": squall_version()}
    files = make_project(target, values)
    entry = f"{package}.topology"
    if as_json:
        print_json({"project": str(target), "entry": entry, "files": files})
        return
    for file in files:
        click.echo(file)
    say(f"Made {target.name}. To test it, and to run it in one process:")
    say(f"  cd {name} && python -m pytest && storm local . {entry}")


def package_name(project: str) -> str:
    """The Python package of a project. Raises SquallError for a name that cannot be one."""
    from squall_common.errors import SquallError

    if not _NAME.fullmatch(project):
        raise SquallError(
            f"{project!r} cannot be the name of a project",
            hint="use up to 100 letters, digits, '-' and '_', beginning with a letter",
        )
    package = project.replace("-", "_").lower()
    taken = package in sys.stdlib_module_names or package.startswith("squall")
    if taken or keyword.iskeyword(package) or package in ("tests", "topology"):
        raise SquallError(
            f"a package named {package!r} would hide another one", hint="choose another name"
        )
    return package


def make_project(target: Path, values: dict[str, str]) -> list[str]:
    """Write the template's files into a new folder; returns their names. There is either the whole
    project or none. Raises SquallError when the folder exists or cannot be written."""
    from squall_common.errors import SquallError

    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise SquallError(
            f"{target} exists already", hint="choose another name, or remove it first"
        )
    files = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            beside.chmod(0o777 & ~_umask())
            for source in sorted(_TEMPLATE.rglob(f"*{_SUFFIX}")):
                name = _project_name(source.relative_to(_TEMPLATE), values["package"])
                file = beside / name
                file.parent.mkdir(parents=True, exist_ok=True)
                text = source.read_text(encoding="utf-8")
                for key, value in values.items():
                    text = text.replace("{{" + key + "}}", value)
                file.write_text(text, encoding="utf-8")
                files.append(name)
            beside.rename(target)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
    except OSError as error:
        raise SquallError(f"cannot write {target}: {error.strerror or error}") from error
    return sorted(files)


def _project_name(path: Path, package: str) -> str:
    """A file's name in the project, from its name in the template."""
    parts = [package if part == "PACKAGE" else part for part in path.parts]
    parts[-1] = parts[-1].removesuffix(_SUFFIX)
    if parts[0] in _HIDDEN:
        parts[0] = f".{parts[0]}"
    return "/".join(parts)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
