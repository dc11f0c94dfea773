"""`python -m deploy.supply.sbom [FILE]` (`make sbom`): the bill of materials of a release, in
CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/).

It names what Squall needs at run time, with all of its run-time extras, in the locked versions:
each package with its version, licence and what it needs itself. Packages that only build, test or
measure Squall are left out.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from deploy.supply.locked import ROOT, locked
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# Extras of developers.
_NOT_SHIPPED = {"bench", "dev", "docs"}
_Node = tuple[str, frozenset[str]]  # a package, and the extras that are asked of it


class BillError(Exception):
    """A package cannot be named; the text says which, and what to do."""


def run_time_extras() -> frozenset[str]:
    """The extras of Squall that users install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return frozenset(project["optional-dependencies"]) - _NOT_SHIPPED


def _needs(name: str, extras: frozenset[str]) -> Iterator[_Node]:
    """What a package needs here, with these extras. Raises BillError."""
    try:
        requires = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        raise BillError(f"{name} is not installed: make setup installs what is locked") from None
    for text in requires:
        one = Requirement(text)
        if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in (*extras, "")):
            yield str(canonicalize_name(one.name)), frozenset(one.extras)


def graph() -> dict[str, set[str]]:
    """Package -> the packages that it needs, from squall on. Raises BillError."""
    found: dict[str, set[str]] = {}
    todo: list[_Node] = [("squall", run_time_extras())]
    seen: set[_Node] = set()
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        needs = found.setdefault(node[0], set())
        for below in _needs(*node):
            todo.append(below)
            if below[0] != node[0]:  # an extra that names another of the same package
                needs.add(below[0])
    return found


def bill() -> Bom:
    """The bill. Raises BillError for a package that is installed in another version than the locked
    one, or is not locked."""
    versions = locked()
    needs = graph()
    components: dict[str, Component] = {}
    for name in needs:
        here = metadata.version(name)
        if name != "squall" and versions.get(name) != here:
            raise BillError(f"{name} {here} is installed, and {versions.get(name)} is locked")
        components[name] = _component(name, here)
    made = Bom(components=[one for name, one in components.items() if name != "squall"])
    made.metadata.component = components["squall"]
    for name, below in needs.items():
        made.register_dependency(components[name], [components[one] for one in sorted(below)])
    return made


def _component(name: str, version: str) -> Component:
    about = metadata.metadata(name)
    # (Older packages have a text of any kind in place of an expression.)
    named = [about[key] for key in ("License-Expression", "License") if key in about]
    short = named[0].strip().partition("\n")[0] if named else ""
    purl = PackageURL("pypi", name=name, version=version)
    return Component(
        name=name,
        version=version,
        type=ComponentType.APPLICATION if name == "squall" else ComponentType.LIBRARY,
        purl=purl,
        bom_ref=purl.to_string(),
        licenses=[LicenseFactory().make_from_string(short)] if short else None,
    )


def main(arguments: list[str] | None = None) -> int:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m deploy.supply.sbom", description=summary, epilog=rest
    )
    default = ROOT / "dist" / f"squall-{metadata.version('squall')}.cdx.json"
    parser.add_argument("file", nargs="?", type=Path, default=default, help="(in dist)")
    options = parser.parse_args(arguments)
    try:
        made = bill()
        options.file.parent.mkdir(parents=True, exist_ok=True)
        JsonV1Dot6(made).output_to_file(str(options.file), allow_overwrite=True, indent=2)
    except (BillError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"written: {options.file}, {len(made.components)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
