"""Both cores have the interface that `compiled.pyi` declares, and no other."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.support.cores import both

from squall_common.component.metrics import instruments
from squall_engine import core as chosen
from squall_engine.core import pure

FOLDER = Path(chosen.__file__).parent
STUB = ast.parse((FOLDER / "compiled.pyi").read_text())
PARTS = "\n".join(path.read_text() for path in sorted(FOLDER.glob("cython/*.pxi")))
# (name, kind, has a default)
Parameters = list[tuple[str, str, bool]]


def classes() -> dict[str, ast.ClassDef]:
    return {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}


def functions() -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}


def declared(function: ast.FunctionDef) -> Parameters:
    """The parameters of a function of the stub, without `self` and `cls`."""
    arguments = function.args
    required = len(arguments.args) - len(arguments.defaults)
    found: Parameters = [(arg.arg, "either", i >= required) for i, arg in enumerate(arguments.args)]
    found += [
        (arg.arg, "keyword", default is not None)
        for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return [parameter for parameter in found if parameter[0] not in ("self", "cls")]


def actual(function: object) -> Parameters:
    """The parameters of a function. Private ones are the core's own."""
    kinds = {inspect.Parameter.KEYWORD_ONLY: "keyword"}
    return [
        (p.name, kinds.get(p.kind, "either"), p.default is not inspect.Parameter.empty)
        for p in inspect.signature(function).parameters.values()  # type: ignore[arg-type]
        if p.name not in ("self", "cls") and not p.name.startswith("_")
    ]


def constructor(name: str) -> Parameters:
    """The parameters of the `__init__` of a class of the compiled core, which Python cannot tell:
    from its source, without the C types."""
    found = re.search(
        rf"^cdef class {name}\b.*?^    def (__init__\(.*?\)):$", PARTS, re.DOTALL | re.MULTILINE
    )
    assert found is not None, f"{name} has no __init__"
    plain = re.sub(r"\b[A-Z]\w+ (?=\w)", "", found[1])
    return declared(ast.parse(f"def {plain}: ...").body[0])  # type: ignore[arg-type]


def methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and not is_property(item):
            yield item


def is_property(function: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "property" for d in function.decorator_list)


def public(cls: type) -> set[str]:
    """The public names of a class, also of attributes that only its objects have."""
    names = {*dir(cls), *(name for base in cls.__mro__ for name in getattr(base, "__slots__", ()))}
    for base in cls.__mro__:
        if not base.__module__.startswith("squall_engine"):
            continue
        source = inspect.getsource(base) if base.__module__.startswith(pure.__name__) else ""
        names |= set(re.findall(r"^        self\.(\w+)(?:: [^=\n]+)? = ", source, re.MULTILINE))
    return {name for name in names if not name.startswith("_")}


@both
@pytest.mark.parametrize("name", sorted(classes()))
def test_a_class_is_as_declared(core: ModuleType, name: str) -> None:
    stub, cls = classes()[name], getattr(core, name)
    for method in methods(stub):
        if method.name == "__init__":
            found = actual(cls) if core is pure else constructor(name)
        elif method.name.startswith("__"):
            assert hasattr(cls, method.name), method.name
            continue
        else:
            found = actual(getattr(cls, method.name))
        assert found == declared(method), f"{core.__name__}.{name}.{method.name}"
    bases = [classes()[b.id] for b in stub.bases if isinstance(b, ast.Name) and b.id in classes()]
    names = {
        item.name if isinstance(item, ast.FunctionDef) else item.target.id  # type: ignore[union-attr]
        for node in (stub, *bases)
        for item in node.body
        if isinstance(item, ast.FunctionDef | ast.AnnAssign)
    }
    assert public(cls) == {n for n in names if not n.startswith("_")}, f"{core.__name__}.{name}"


@both
@pytest.mark.parametrize("name", sorted(functions()))
def test_a_function_is_as_declared(core: ModuleType, name: str) -> None:
    assert actual(getattr(core, name)) == declared(functions()[name])


@both
def test_a_core_exports_all_that_is_declared(core: ModuleType) -> None:
    assert set(core.__all__) == {*classes(), *functions()}
    assert set(core.__all__) <= set(dir(chosen))


def annotations(node: ast.FunctionDef) -> list[str]:
    """The types of the parameters and of the result, as written."""
    arguments = (*node.args.args, *node.args.kwonlyargs)
    return [ast.unparse(a.annotation) for a in arguments if a.annotation is not None] + [
        ast.unparse(node.returns) if node.returns is not None else "None"
    ]


def test_the_reference_has_the_types_that_are_declared() -> None:
    """mypy checks the engine against the stub, and the reference against its own annotations: they
    are the same."""
    alias = {"_Anchors": "Anchors", "_Item": "Item", "_Interceptor": "Interceptor"}
    written: dict[str, ast.AST] = {}
    for file in (*(FOLDER / "pure").glob("*.py"), Path(instruments.__file__)):
        written |= {
            node.name: node
            for node in ast.parse(file.read_text()).body
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
        }

    def compare(stub: ast.FunctionDef, code: ast.AST, where: str) -> None:
        assert isinstance(code, ast.FunctionDef), where
        wanted = [alias.get(name, name) for name in annotations(stub)]
        wanted = [re.sub(r"\b_(Anchors|Item|Interceptor)\b", r"\1", name) for name in wanted]
        assert annotations(code) == wanted, where

    def lineage(name: str) -> list[str]:
        """A class of the reference, and those that it derives from."""
        bases = [base.id for base in written[name].bases if isinstance(base, ast.Name)]  # type: ignore[attr-defined]
        return [name, *(one for base in bases if base in written for one in lineage(base))]

    for name, function in functions().items():
        compare(function, written[name], name)
    for name, cls in classes().items():
        code = {
            item.name: item
            for parent in reversed(lineage(name))
            for item in written[parent].body  # type: ignore[attr-defined]
            if isinstance(item, ast.FunctionDef)
        }
        for method in methods(cls):
            if method.name != "__init__" or name != "Tuple":  # msgspec makes that one
                compare(method, code[method.name], f"{name}.{method.name}")
