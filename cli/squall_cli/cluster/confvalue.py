"""How `localconfvalue` and `remoteconfvalue` print a value."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from squall_cli.output import print_json
from squall_common.errors import ConfigError


def print_value(conf: Mapping[str, Any], name: str, *, as_json: bool) -> None:
    """Print `NAME: VALUE` as Storm does, or the value alone as JSON. Raises ConfigError, with the
    nearest keys, when the key does not exist."""
    if name not in conf:
        import difflib

        near = difflib.get_close_matches(name, list(conf), n=3, cutoff=0.75)
        raise ConfigError(
            f"the configuration has no key {name!r}",
            hint=f"Did you mean {' or '.join(near)}?" if near else None,
        )
    if as_json:
        print_json(conf[name])
    else:
        value = conf[name]
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        sys.stdout.write(f"{name}: {text}\n")
