"""The texts made from the declarations: `defaults.yaml`, the tables of docs/configuration.md."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from squall_common.config.options import OPTIONS, SECTIONS
from squall_common.config.options.declaration import Option, Reader, Scope
from squall_common.config.options.declared.storm import STORM_KEYS
from squall_common.config.options.judge import verdict_of
from squall_common.config.options.verdicts import StormKey, Verdict

_COLUMNS = 100
_HEAD = """\
# Every option of Squall with its default. Names are Apache Storm's where Storm has one; Storm's
# default is named where it is another. A site file (--config FILE, or $STORM_CONF_DIR/storm.yaml)
# overrides them, the conf of a topology overrides that for the topology, and `-c key=value`
# overrides all. `null` means "not set". Written by `python -m squall_common.config.options` from
# the declarations in `config/options`: a change here has no effect.
"""

BEGIN = (
    "<!-- Written by `python -m squall_common.config.options`: "
    "change the declarations, not this. -->"
)
END = "<!-- End of what `python -m squall_common.config.options` writes. -->"

_SCOPES = {
    Scope.DAEMON: "node",
    Scope.CLIENT: "command",
    Scope.TOPOLOGY: "topology",
    Scope.COMPONENT: "component",
}
_READERS = {
    Reader.NIMBUS: "Nimbus",
    Reader.SUPERVISOR: "supervisors",
    Reader.WORKER: "workers",
    Reader.DRPC: "DRPC servers",
    Reader.UI: "the UI",
    Reader.LOGVIEWER: "logviewers",
    Reader.COMMAND: "commands",
    Reader.COMPONENTS: "components",
}


def defaults_yaml() -> str:
    """The whole of `defaults.yaml`."""
    parts = [_HEAD]
    for title, options in SECTIONS:
        parts.append(f"\n# ---- {title} ".ljust(_COLUMNS, "-") + "\n\n")
        for option in options:
            parts += [f"# {line}\n" for line in textwrap.wrap(_sentence(option), _COLUMNS - 2)]
            parts.append(f"{option.key}: {json.dumps(option.default)}\n")
    return "".join(parts)


def _sentence(option: Option) -> str:
    text = option.sentence
    if option.refused is not None:
        text += f" Refused unless empty: {option.refused}."
    if option.ignored is not None:
        text += f" No effect: {option.ignored}."
    return text


def tables() -> str:
    """The part of docs/configuration.md between BEGIN and END."""
    lines = [
        "## Options",
        "",
        '"Set in" says where a value has an effect: in a node\'s site file, or in the '
        "configuration of a command, of a topology, or of one component.",
    ]
    for title, options in SECTIONS:
        lines += ["", f"### {title}", ""]
        lines += _table(("Key", "Default", "Value", "Meaning", "Set in", "Read by"), _rows(options))
    lines += [
        "",
        "## Keys of Apache Storm",
        "",
        f"All {len(storms_keys())} keys of Storm 2.8.8 and of its main branch, by what Squall does "
        "with them. A default of - means that Storm has none.",
    ]
    for verdict, sentence in _VERDICTS.items():
        found = [key for key in storms_keys() if _verdict(key) is verdict]
        lines += ["", f"### {verdict.value.capitalize()} ({len(found)})", "", sentence, ""]
        if verdict is Verdict.SUPPORTED:
            rows = [
                (f"`{key}`", _code(OPTIONS[key].storm_default), _code(OPTIONS[key].default))
                for key in found
            ]
            lines += _table(("Key", "Storm's default", "Squall's default"), rows)
        else:
            lines += _table(("Key", "Storm's default", "Why"), map(_storm_row, found))
    return "\n".join(lines) + "\n"


_VERDICTS = {
    Verdict.SUPPORTED: "Options of Squall with the same name and meaning.",
    Verdict.MAPPED: "Squall has a different option for it, which gets the value unless it is set "
    "itself.",
    Verdict.REFUSED: "A configuration that sets one of these is refused: it asks for protection "
    "that Squall does not give in that way. Storm's default, null, false and empty values pass.",
    Verdict.IGNORED: "These have no effect. A value other than Storm's default causes one warning "
    "in the output of the command and one in the log of the daemon.",
}


def storms_keys() -> list[str]:
    """Every key of Storm's, in order."""
    return sorted({key for key, option in OPTIONS.items() if option.is_storms} | set(STORM_KEYS))


def _verdict(key: str) -> Verdict:
    judged = verdict_of(key)
    assert judged is not None
    return judged[0]


def _storm_row(key: str) -> tuple[str, str, str]:
    option, storm = OPTIONS.get(key), STORM_KEYS.get(key)
    default: Any = option.storm_default if option is not None else _of(storm).default
    judged = verdict_of(key)
    why = "" if judged is None else judged[1]
    if storm is not None and storm.ours is not None:
        why = f"`{storm.ours}`: {why}"
    return f"`{key}`", _code(default), _cell(why)


def _of(storm: StormKey | None) -> StormKey:
    assert storm is not None
    return storm


def _rows(options: tuple[Option, ...]) -> list[tuple[str, ...]]:
    return [
        (
            f"`{option.key}`",
            _code(option.default),
            _cell(option.kind.expected + (f" ({option.unit})" if option.unit else "")),
            _cell(_sentence(option)),
            ", ".join(name for scope, name in _SCOPES.items() if option.scope & scope),
            ", ".join(name for reader, name in _READERS.items() if option.readers & reader) or "-",
        )
        for option in options
    ]


def _table(head: tuple[str, ...], rows: Any) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def _code(value: Any) -> str:
    return "-" if value is None else f"`{_cell(json.dumps(value))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def with_tables(page: str) -> str:
    """docs/configuration.md with the part between BEGIN and END replaced."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN!r} and {END!r}")
    return f"{head}{BEGIN}\n\n{tables()}\n{END}{tail}"
