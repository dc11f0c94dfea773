"""Every block of code in the pages runs, or says why not."""

from __future__ import annotations

import ast
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from tests.support.pages import DOCS, ROOT, Block, blocks, commands, pages
from tests.support.thirdparty import unavailable

PAGES = pages()
# Blocks that hold no code: output, diagrams, formats, and what Sphinx draws.
PLAIN = {"", "text", "ini", "html"}
DIRECTIVES = {
    "{toctree}",
    "{eval-rst}",
    "{include}",
    "{literalinclude}",
    "{image}",
    "{figure}",
    "{container}",
    "{note}",
    "{warning}",
    "{tip}",
}
CODE = {"python", "console", "sh", "json", "yaml", "toml", "ruby", "js"}


# Small pieces use the names of `squall`, and a builder, without saying so. What stands behind `if
# __name__ == "__main__":` is not run: it submits topologies.
RUN = """
import builtins, sys, types, squall
for name in squall.__all__:
    setattr(builtins, name, getattr(squall, name))
builtins.builder = squall.TopologyBuilder()
# Not by `import`: the threads of local mode would wait for it.
page = sys.modules["page"] = types.ModuleType("page")
with open("page.py") as file:
    code = compile(file.read(), "page.py", "exec")
exec(code, vars(page))
"""


def all_blocks(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page) if block.language in languages]


def _ids(found: list[Block]) -> list[str]:
    return [block.where for block in found]


def test_every_block_has_a_language_that_is_checked() -> None:
    known = PLAIN | DIRECTIVES | CODE
    wrong = [
        f"{block.where}: {block.language}"
        for page in PAGES
        for block in blocks(page)
        if block.language not in known and block.not_run is None
    ]
    assert wrong == []


def test_no_command_hides_in_a_plain_block() -> None:
    """A block of commands is `sh` or `console`: those are checked."""
    wrong = [
        block.where
        for block in all_blocks(*PLAIN)
        if block.text.startswith(("storm ", "$ ", "python ", "pip ")) and block.not_run is None
    ]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """All of a page's blocks in order, in one namespace."""
    lines: list[str] = []
    for block in blocks(page):
        if block.language == "python":
            compile(block.text, block.where, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if block.not_run is None:
                # On the lines that it has in the page, so that a traceback leads there.
                lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    if not lines:
        return
    (tmp_path / "page.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, f"{page.relative_to(ROOT)}:\n{done.stderr}"


@pytest.mark.parametrize("block", all_blocks("json", "yaml"), ids=lambda block: block.where)
def test_data_can_be_read(block: Block) -> None:
    if block.not_run is None:
        if block.language == "json":
            json.loads(block.text)
        else:
            list(yaml.safe_load_all(block.text))


def shell_lines() -> Iterator[tuple[str, str]]:
    """All command lines of all pages, with their places."""
    for block in all_blocks("sh", "console"):
        if block.language == "console":
            found = [command for command, _ in commands(block.text)]
        else:
            found = block.text.replace("\\\n", " ").splitlines()
        for line in found:
            yield block.where, line


def storm_calls(line: str) -> Iterator[list[str]]:
    """The arguments of each `storm` in a command line."""
    words = shlex.split(line.replace(";", " ; "), comments=True)
    call: list[str] | None = None
    for word in [*words, ";"]:
        if word in (";", "&&", "||", "|", "&") or word.startswith((">", "2>")):
            if call is not None:
                yield call
            call = None
        elif call is not None:
            call.append(word)
        elif word == "storm":
            call = []


STORM_LINES = [
    (where, call) for where, line in shell_lines() if "storm" in line for call in storm_calls(line)
]


@pytest.mark.parametrize(
    ("where", "call"), STORM_LINES, ids=[f"{w} storm {' '.join(c)}" for w, c in STORM_LINES]
)
def test_a_command_line_is_one_that_storm_takes(where: str, call: list[str]) -> None:
    """Commands and options exist and have the right values. Nothing is run."""
    from squall_cli.main import storm

    if any(word == "..." for word in call) or not call:
        return
    _parse(storm, "storm", call, None)


def _parse(
    command: click.Command, name: str, arguments: list[str], parent: click.Context | None
) -> None:
    # A file that a command reads need not be here.
    for parameter in command.params:
        if isinstance(parameter.type, click.Path):
            parameter.type.exists = False
    if {"-h", "--help", "--version"} & set(arguments):
        arguments = [word for word in arguments if word not in ("-h", "--help", "--version")]
        if not arguments or not isinstance(command, click.Group):
            return
    try:
        context = command.make_context(name, list(arguments), parent=parent)
    except click.exceptions.Exit:
        return
    if isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        if rest:
            found, inner, left = command.resolve_command(context, rest)
            assert inner is not None
            _parse(inner, str(found), left, context)


@pytest.mark.parametrize(
    ("language", "checker"),
    [("ruby", ("ruby", "-c", "-")), ("js", ("node", "--check", "-"))],
    ids=["ruby", "js"],
)
def test_every_block_of_other_languages_can_be_read(
    language: str, checker: tuple[str, ...]
) -> None:
    found = all_blocks(language)
    assert found
    if shutil.which(checker[0]) is None:
        unavailable(f"there is no {checker[0]}")
    for block in found:
        read = subprocess.run(checker, input=block.text, capture_output=True, text=True, timeout=60)
        assert read.returncode == 0, f"{block.where}: {read.stderr}"


def test_every_shell_block_is_run_or_says_why_not() -> None:
    wrong = [
        block.where
        for block in all_blocks("sh")
        if block.not_run is None and not (block.run_by and (ROOT / block.run_by).is_file())
    ]
    assert wrong == []


def test_every_shell_block_is_shell() -> None:
    for block in all_blocks("sh"):
        done = subprocess.run(
            ["bash", "-n"], input=block.text, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block.where}: {done.stderr}"


def test_included_code_has_tests_beside_it() -> None:
    """Code that a page includes is run: its folder has tests, or it is an example's."""
    wrong = []
    for block in all_blocks("{literalinclude}"):
        file = block.included
        assert file.is_file(), f"{block.where}: there is no {block.argument}"
        is_code = file.suffix == ".py"
        if (
            is_code
            and not any(file.parent.glob("test_*.py"))
            and not any(file.parent.glob("tests/test_*.py"))
        ):
            wrong.append(f"{block.where}: {file.relative_to(ROOT)}")
    assert wrong == []


FOLDERS = sorted(
    {
        path.parent
        for place in (DOCS / "code", ROOT / "examples")
        for path in place.rglob("test_*.py")
    }
)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_tests_of_included_code_pass(folder: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-W",
            "error",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:asyncio",
            "--rootdir",
            str(folder),
            "-c",
            "/dev/null",
            str(folder),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
