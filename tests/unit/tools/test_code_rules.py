"""What no code of the product does, whoever wrote it: run or import what it was given, or change
how the whole process talks TLS. Each exception is listed with its reason.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = sorted(path.parent for path in ROOT.glob("*/squall*/__init__.py"))

# Modules whose data run code when they are read.
_LOADERS = {"dill", "cloudpickle", "jsonpickle", "marshal", "pickle", "shelve"}
# Calls by which data become code, a program, or a file that others can foresee.
_RUNS = {
    "__import__", "compile", "eval", "exec", "os.popen", "os.system", "pty.spawn",
    "subprocess.getoutput", "subprocess.getstatusoutput", "tempfile.mktemp",
    "xml.etree.ElementTree.parse", "yaml.full_load", "yaml.unsafe_load",
}  # fmt: skip
_IMPORTS = {"importlib.import_module"}
_UNPACKS = {"extractall", "unpack_archive"}

# file -> what it may, because:
ALLOWED = {
    # the topology has turned topology.fall.back.on.pickle on
    "engine/squall_engine/core/codec.py": {"pickle"},
    # pickles classes of this package only, and reads no others
    "api/squall/windows/snapshot.py": {"pickle"},
    # writes pickles and reads none: they are hashed
    "engine/squall_engine/tasks/in_hand.py": {"pickle"},
    # how PySpark sends functions to its own workers
    "pipeline/squall_spark/python.py": {"cloudpickle"},
    # names of our own modules
    "api/squall/__init__.py": {"importlib.import_module"},
    "drpc/squall_drpc/__init__.py": {"importlib.import_module"},
    "engine/squall_engine/core/__init__.py": {"importlib.import_module"},
    "cli/squall_cli/main.py": {"importlib.import_module"},
    # in the user's own process, for the user's own program
    "api/squall/_entry.py": {"importlib.import_module"},
    "api/squall/_import_check.py": {"importlib.import_module"},
    "api/squall/local.py": {"importlib.import_module"},
    "flux/squall_flux/user_code.py": {"importlib.import_module"},
    # classes that the site's configuration, or a topology in its own worker, names
    "common/squall_common/reporters/entries.py": {"importlib.import_module"},
    "common/squall_common/topology/import_paths.py": {"importlib.import_module"},
}


# Each thing that is looked for has one of these words in it. Files without any are not parsed.
_WORDS = re.compile(
    r"\b({})\b".format(
        "|".join(
            {
                *(name.rpartition(".")[2] for name in _RUNS | _IMPORTS), *_LOADERS, *_UNPACKS,
                "CERT_NONE", "_create_default_https_context", "_create_unverified_context",
                "check_hostname", "create_subprocess_shell", "disable_warnings", "load", "shell",
                "ssl", "verify", "verify_ssl", "wrap_socket",
            }
        )
    )
)  # fmt: skip


@functools.cache
def _files() -> list[tuple[str, list[ast.AST]]]:
    """The nodes of each file."""
    found = []
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            text = path.read_text("utf-8")
            if _WORDS.search(text):
                found.append((str(path.relative_to(ROOT)), [*ast.walk(ast.parse(text))]))
    return found


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return ""


def _imported(node: ast.AST) -> set[str]:
    """The modules that a statement imports."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module is not None:
        return {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return set()


def _runs(node: ast.AST) -> set[str]:
    """By what a node runs, or may run, what it is given."""
    found = {name for name in _imported(node) if not _LOADERS.isdisjoint(name.split("."))}
    found = {next(part for part in name.split(".") if part in _LOADERS) for name in found}
    if isinstance(node, ast.ImportFrom) and f"{node.module}" in ("os", "subprocess", "importlib"):
        found |= _imported(node) & (_RUNS | _IMPORTS)
    if not isinstance(node, ast.Call):
        return found
    name = _dotted(node.func)
    if name in _RUNS | _IMPORTS:
        found.add(name)
    if name.rpartition(".")[2] in _UNPACKS and name.rpartition(".")[0]:
        found.add(name.rpartition(".")[2])
    if name == "yaml.load" and not any("Safe" in ast.unparse(one.value) for one in node.keywords):
        found.add(name)
    for keyword in node.keywords:
        shell = keyword.arg == "shell" and ast.unparse(keyword.value) != "False"
        # Of our own options and components, too, `shell` is a word.
        if shell and name.startswith(("subprocess.", "asyncio.")):
            found.add("shell=True")
    if name.endswith("create_subprocess_shell"):
        found.add("shell=True")
    return found


def _switches(node: ast.AST) -> set[str]:
    """By what a node changes TLS for more than its own connection, or turns it off for one."""
    if isinstance(node, ast.Attribute):
        name = _dotted(node)
        if name in ("ssl._create_default_https_context", "ssl._create_unverified_context"):
            return {name}
        if name.endswith(("CERT_NONE", "disable_warnings", "SSLContext.wrap_socket")):
            return {name.rpartition(".")[2]}
    targets = node.targets if isinstance(node, ast.Assign) else ()
    for target in targets:
        for one in target.elts if isinstance(target, ast.Tuple) else (target,):
            if _dotted(one).endswith("check_hostname") and isinstance(node, ast.Assign):
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                if any(isinstance(v, ast.Constant) and v.value is False for v in values):
                    return {"check_hostname"}
    if isinstance(node, ast.keyword) and node.arg in ("verify", "ssl", "verify_ssl"):
        value = node.value
        if isinstance(value, ast.Constant) and value.value is False:
            return {f"{node.arg}=False"}
    return set()


def test_no_code_runs_what_it_was_given() -> None:
    wrong = []
    for path, nodes in _files():
        for node in nodes:
            for what in sorted(_runs(node) - ALLOWED.get(path, set())):
                wrong.append(f"{path}:{getattr(node, 'lineno', 0)}: {what}")
    assert not wrong, "\n".join(wrong)


def test_each_exception_is_needed() -> None:
    used: dict[str, set[str]] = {}
    for path, nodes in _files():
        for node in nodes:
            used.setdefault(path, set()).update(_runs(node))
    unused = {path: allowed - used.get(path, set()) for path, allowed in ALLOWED.items()}
    assert {path: names for path, names in unused.items() if names} == {}


# `storm doctor` looks at a listener whose certificate is wrong, and sends it nothing.
_UNVERIFIED = {"cli/squall_cli/doctor/node.py": {"CERT_NONE", "check_hostname"}}


def test_tls_is_switched_for_one_connection_at_a_time() -> None:
    wrong = []
    for path, nodes in _files():
        for node in nodes:
            for what in sorted(_switches(node) - _UNVERIFIED.get(path, set())):
                wrong.append(f"{path}:{getattr(node, 'lineno', 0)}: {what}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "line",
    [
        "import pickle", "from pyspark import cloudpickle", "eval(x)", "os.system(x)",
        "subprocess.run(x, shell=True)", "yaml.load(x)", "tar.extractall(x)", "tempfile.mktemp()",
        "asyncio.create_subprocess_shell(x)", "importlib.import_module(x)", "from os import system",
        "yaml.load(x, Loader=loader)",
    ],
)  # fmt: skip
def test_the_rule_sees_what_it_is_for(line: str) -> None:
    assert _WORDS.search(line)
    assert any(_runs(node) for node in ast.walk(ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        "ssl._create_default_https_context = f", "c.verify_mode = ssl.CERT_NONE",
        "c.check_hostname = False", "get(url, ssl=False)", "a.check_hostname, b = False, 1",
    ],
)  # fmt: skip
def test_the_rule_on_tls_sees_what_it_is_for(line: str) -> None:
    assert _WORDS.search(line)
    assert any(_switches(node) for node in ast.walk(ast.parse(line)))
