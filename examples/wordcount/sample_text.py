"""A real text of at least 100,000 words that every machine with Python has: Python's own
documentation (the topics of `help()`) and the docstrings of its standard library.

    python examples/wordcount/sample_text.py TEXT.txt [--words N]

The text is by the Python Software Foundation and Python's contributors, under the PSF License
Agreement (https://docs.python.org/3/license.html). It is read from this machine's Python, not
shipped with Squall, and is the same on each run of one Python.
"""

import argparse
import ast
import platform
import sys
import sysconfig
import warnings
from pathlib import Path
from pydoc_data.topics import topics

WORDS_MIN = 100_000
_NOT_DOCUMENTATION = {"test", "tests", "idlelib", "site-packages", "dist-packages", "__pycache__"}


def docstrings(source):
    """The docstrings in a module's source, in order; none when it is not valid Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented):
            text = ast.get_docstring(node)
            if text:
                yield text


def library_files():
    """The source files of the standard library, in a fixed order."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if not _NOT_DOCUMENTATION.intersection(path.relative_to(root).parts):
            yield path


def make_text(words_min=WORDS_MIN):
    """Lines of text with at least `words_min` words together."""
    version = platform.python_version()
    lines = [f"From the documentation of Python {version}, (c) Python Software Foundation"]
    words = len(lines[0].split())

    def add(text):
        nonlocal words
        found = [line.strip() for line in text.splitlines() if line.strip()]
        lines.extend(found)
        words += sum(len(line.split()) for line in found)

    for topic in sorted(topics):
        add(topics[topic])
    for path in library_files():
        if words >= words_min:
            break
        for text in docstrings(path.read_text(encoding="utf-8", errors="replace")):
            add(text)
    while words < words_min:  # a Python without the sources of its library
        add("\n".join(lines))
    return lines


def main():
    parser = argparse.ArgumentParser(description="Write a real text to count the words of.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--words", type=int, default=WORDS_MIN, help="minimum number of words")
    options = parser.parse_args()
    lines = make_text(options.words)
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = sum(len(line.split()) for line in lines)
    print(
        f"{options.file}: {len(lines)} lines, {words} words, {lines[0][0].lower() + lines[0][1:]}"
    )


if __name__ == "__main__":
    sys.exit(main())
