"""`python -m squall_common.config.options` in a checkout writes what is made from the declarations:
`defaults.yaml`, `options/typed.py` and the tables of docs/configuration.md. With `--check` it
writes nothing and exits with 1 when one of them is out of date."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from squall_common.config.options.classes import typed_source
from squall_common.config.options.pages import defaults_yaml, with_tables

_PACKAGE = Path(__file__).parent.parent


def written(root: Path) -> dict[Path, str]:
    """Every file that is made from the declarations, with its text."""
    page = root / "docs" / "configuration.md"
    return {
        _PACKAGE / "defaults.yaml": defaults_yaml(),
        _PACKAGE / "options" / "typed.py": typed_source(),
        page: with_tables(page.read_text(encoding="utf-8")),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m squall_common.config.options", description=__doc__
    )
    parser.add_argument("--check", action="store_true", help="write nothing; 1: out of date")
    check = parser.parse_args().check
    stale = 0
    for path, text in written(Path.cwd()).items():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"{'out of date' if check else 'written'}: {path}", file=sys.stderr)
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
