"""The source of `squall_common.config.options.typed`, made from the declarations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from squall_common.config.options import OPTIONS
from squall_common.config.options.declaration import (
    CLIENT,
    COMMAND,
    COMPONENT,
    DAEMON,
    DRPC,
    LOGVIEWER,
    NIMBUS,
    SUPERVISOR,
    TOPOLOGY,
    UI,
    WORKER,
    Option,
    Reader,
    Scope,
)


@dataclass(frozen=True, slots=True)
class OptionsClass:
    """A class of typed options: those that one of `readers` reads and that may be set in one of
    `scopes`."""

    name: str
    sentence: str
    readers: Reader
    scopes: Scope

    def has(self, option: Option) -> bool:
        return bool(option.readers & self.readers) and bool(option.scope & self.scopes)


PROGRAMS = NIMBUS | SUPERVISOR | WORKER | DRPC | UI | COMMAND

CLASSES = (
    OptionsClass("NimbusOptions", "What Nimbus reads of its configuration.", NIMBUS, DAEMON),
    OptionsClass(
        "SupervisorOptions", "What a supervisor reads of its configuration.", SUPERVISOR, DAEMON
    ),
    OptionsClass(
        "WorkerOptions",
        "What a worker process reads of its node's configuration, which the supervisor passes on.",
        WORKER,
        DAEMON,
    ),
    OptionsClass("DrpcOptions", "What a DRPC server reads of its configuration.", DRPC, DAEMON),
    OptionsClass("UiOptions", "What the UI reads of its configuration.", UI, DAEMON),
    OptionsClass(
        "LogviewerOptions", "What a logviewer reads of its configuration.", LOGVIEWER, DAEMON
    ),
    OptionsClass(
        "ClientOptions",
        "What commands and clients of Nimbus and of DRPC servers read.",
        COMMAND,
        DAEMON | CLIENT,
    ),
    OptionsClass(
        "TopologyOptions",
        "What programs read of the configuration of a topology, or of one of its components.",
        PROGRAMS,
        TOPOLOGY | COMPONENT,
    ),
)

_HEAD = '''\
"""Typed options: one class for each program, and one for topologies.

Written by `python -m squall_common.config.options` from the declarations beside it: a change here
has no effect. A field is named after its key, and a comment names its unit.

    >>> NimbusOptions.read({"nimbus.thrift.port": 7000}).nimbus_thrift_port
    7000
    >>> TopologyOptions().topology_workers
    1
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from squall_common.config.options.reading import Options
'''


def typed_source() -> str:
    """The whole of `typed.py`."""
    return _HEAD + "".join(f"\n\n{''.join(map(_line, _class(one)))}" for one in CLASSES)


def _line(text: str) -> str:
    return f"    {text}\n" if text and not text.startswith("class ") else f"{text}\n"


def _class(one: OptionsClass) -> Iterator[str]:
    yield f"class {one.name}(Options, frozen=True, kw_only=True):"
    yield f'"""{one.sentence}"""'
    yield ""
    for option in OPTIONS.values():
        if one.has(option):
            yield _field(option)


def _field(option: Option) -> str:
    annotation = option.kind.annotation
    if option.default is None or option.null_is_a_value:
        annotation += " | None"
    unit = f"  # {option.unit}" if option.unit else ""
    return f"{option.field}: {annotation} = {_literal(option)}{unit}"


def _literal(option: Option) -> str:
    """The default as Python's source, in the form that typed options hold."""
    if option.default is None:
        return "None"
    value = option.kind.freeze(option.default)
    return json.dumps(value) if isinstance(value, str) else _SOURCE[type(value)](value)


_SOURCE: dict[type, Callable[[Any], str]] = {
    bool: repr,
    int: repr,
    float: repr,
    tuple: lambda items: f"({', '.join(map(json.dumps, items))}{',' * (len(items) == 1)})",
}
