"""Configuration: merged and checked once, at the start. Programs read typed options of it
(`squall_common.config.options.typed`).

From lowest to highest: the defaults; the site file (`--config FILE`; else, for a client,
`~/.storm/storm.yaml`; else `$STORM_CONF_DIR/storm.yaml`); for a topology, the conf passed to
`submit_topology`; `-c key=value`. Nimbus puts its own defaults under a topology's conf. Environment
variables choose files and folders only.
"""

from __future__ import annotations

import copy
import difflib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from squall_common.config.for_workers import stored_conf
from squall_common.config.options import OPTIONS
from squall_common.config.options.judge import (
    by_reason,
    ignored_keys,
    mapped,
    mapping_problems,
    refused_keys,
    verdict_of,
    without_made_up,
)
from squall_common.config.schema import COMPONENT_KEYS, SCHEMA, show_value
from squall_common.daemon.logs import get_logger
from squall_common.errors import ConfigError
from squall_common.names import METRICS_COMPONENT_KEY

log = get_logger(__name__)

_SITE_FILE = "storm.yaml"


_SECURITY_FILES = (
    "drpc.authorizer.acl.filename",
    "storm.oidc.ca",
    "storm.security.ca",
    "storm.security.certificate",
    "storm.security.key",
    "storm.security.revoked",
    "storm.security.token.file",
)


def default_conf() -> dict[str, Any]:
    """The defaults."""
    return {key: copy.copy(option.default) for key, option in OPTIONS.items()}


def _log_warning(text: str) -> None:
    log.warning("config_warning", text=text)


def load_conf(
    *,
    config_file: str | Path | None = None,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    env: Mapping[str, str] = os.environ,
    client: bool = False,
    warn: Callable[[str], None] = _log_warning,
) -> dict[str, Any]:
    """The configuration of a daemon or a client: defaults < site file < overrides.

    `overrides` are `key=value` texts, or already parsed. The folders of the node
    (`storm.local.dir`, `storm.log.dir`, `storm.history.dir`) become absolute. Raises ConfigError
    that lists all that is wrong. `warn` gets a sentence about each unknown key, about keys without
    effect, and about a site file that is not read.
    """
    conf = default_conf()
    site, where = site_conf(config_file, env=env, client=client, warn=warn)
    given = (
        dict(overrides) if isinstance(overrides, Mapping) else dict(map(parse_override, overrides))
    )
    secured = bool({**site, **given}.get("storm.security.ca"))
    for values, source in ((site, where), (given, "-c")):
        validate_conf(values, where=source, secured=secured)
        for text in warnings_about(values, where=source):
            warn(text)
        conf.update(read_conf(values))
    # A daemon's children run elsewhere: what is relative is so to where the command was given.
    for key in ("storm.local.dir", "storm.log.dir", *_SECURITY_FILES):
        if conf[key] is not None:
            conf[key] = os.path.abspath(os.path.expanduser(conf[key]))
    history = conf["storm.history.dir"]
    if history is not None and "://" not in history:
        conf["storm.history.dir"] = os.path.abspath(os.path.expanduser(history))
    return conf


def site_conf(
    config_file: str | Path | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    client: bool = False,
    warn: Callable[[str], None] = _log_warning,
) -> tuple[dict[str, Any], str]:
    """The site file's values, and its name for messages. Raises ConfigError when a file that was
    named does not exist, or is not a YAML map.

    One file is read, as by Storm's commands: a client's `~/.storm/storm.yaml` is read in place of
    the cluster's `$STORM_CONF_DIR/storm.yaml`, not beneath it.
    """
    folder = env.get("STORM_CONF_DIR")
    of_cluster = Path(folder) / _SITE_FILE if folder else None
    of_user = Path(env["HOME"]) / ".storm" / _SITE_FILE if client and env.get("HOME") else None
    if config_file is not None:
        path = Path(config_file)
    elif of_user is not None and of_user.is_file():
        path = of_user
        if of_cluster is not None and of_cluster.is_file() and not of_cluster.samefile(of_user):
            warn(
                f"{of_cluster} is not read, since a command reads your own {of_user} where there "
                "is one; --config FILE chooses another"
            )
    elif of_cluster is not None and of_cluster.exists():
        path = of_cluster
    else:
        return {}, str(of_cluster or _SITE_FILE)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from error
    return _parse_yaml(text, str(path)), str(path)


def _parse_yaml(text: str, where: str) -> dict[str, Any]:
    # Imported here: a worker gets its configuration as JSON and never needs YAML.
    import yaml

    try:
        values = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{where}: is not valid YAML ({reason})") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: expected a map of options, found {show_value(values)}")
    for key in values:
        if not isinstance(key, str):
            raise ConfigError(f"{where}: the key {key!r} is not text")
    return values


def parse_override(text: str) -> tuple[str, Any]:
    """`key=value` of `-c`, the value as YAML (and so as JSON): `topology.workers=2`,
    `nimbus.seeds=[a, b]`, `topology.acker.executors=null`. Raises ConfigError."""
    key, separator, value = text.partition("=")
    key = key.strip()
    if not separator or not key:
        raise ConfigError(
            f"-c {text!r}: expected key=value", hint="for example: -c topology.workers=2"
        )
    import yaml

    try:
        parsed = yaml.safe_load(value)
    except (yaml.YAMLError, ValueError, RecursionError):
        parsed = value  # such as a text with a colon in it
    kind = SCHEMA.get(key)
    if kind is not None and not kind.check(parsed) and kind.check(value):
        parsed = value  # text that looks like something else: topology.version=1.0
    return key, parsed


def validate_conf(
    conf: Mapping[str, Any], *, where: str = "configuration", secured: bool = False
) -> None:
    """Check the type and range of every known key; unknown keys may be anything. Raises ConfigError
    that lists all that is wrong: key, value, and what is expected. `where` begins each line.

    A key of Storm's that asks for protection which Squall does not give, or not in this cluster
    (which is `secured` or not), is wrong as well.
    """
    # Their values may be secrets: they are not shown.
    refused = [
        f"{where}: {key} is refused: {reason}"
        for key, reason in refused_keys(conf, secured=secured).items()
    ]
    problems = refused + [f"{where}: {problem}" for problem in mapping_problems(conf)]
    for key, value in conf.items():
        kind = SCHEMA.get(key)
        if kind is not None and value is not None and not kind.check(value):
            problems.append(f"{where}: {key} is {show_value(value)}; expected {kind.expected}")
    if problems:
        raise ConfigError("\n".join(problems), hint=_REFUSED_HINT if refused else None)


_REFUSED_HINT = (
    "Remove the refused keys: with them the cluster would look protected, and be open. "
    "docs/configuration.md lists every key of Storm's with what Squall does with it."
)


def read_conf(conf: Mapping[str, Any]) -> dict[str, Any]:
    """A valid configuration with each value spelled one way (2.0 becomes 2 where whole numbers are
    expected), null replaced by the default where the key has one, and the values of Storm's keys
    under the names that they have here."""
    read: dict[str, Any] = mapped(conf)
    for key, value in conf.items():
        kind = SCHEMA.get(key)
        if kind is None:
            read[key] = value
        elif value is None:
            # Where null is not a value of its own, it means "as if not given".
            option = OPTIONS[key]
            read[key] = None if option.null_is_a_value else copy.copy(option.default)
        else:
            read[key] = kind.read(value)
    return read


_NO_COMPONENTS: Mapping[str, Mapping[str, Any]] = {}


def normalize_topology_conf(
    user_conf: Mapping[str, Any],
    nimbus_conf: Mapping[str, Any],
    *,
    name: str | None = None,
    components: Mapping[str, Mapping[str, Any]] = _NO_COMPONENTS,
) -> dict[str, Any]:
    """The configuration of a topology as Nimbus stores it and every task gets it: what workers need
    of Nimbus' own, the submitter's keys (unknown ones too) on top, and what later must not depend
    on anything else fixed: ackers, event loggers, which metrics consumers have a component, name.
    `components` is the configuration of each
    component: the serializers that it registers are everybody's.

    Raises ConfigError when a value is of the wrong type, or components contradict each other.
    """
    secured = bool(nimbus_conf.get("storm.security.ca"))
    validate_conf(user_conf, where="topology conf", secured=secured)
    check_json(user_conf, where="topology conf")
    conf = stored_conf(nimbus_conf)
    conf.update(read_conf(without_made_up(user_conf)))
    if name is not None:
        conf["topology.name"] = name
    # Their number is part of every message's id: a rebalance to more workers must not change it.
    for key in ("topology.acker.executors", "topology.eventlogger.executors"):
        if conf.get(key) is None:
            conf[key] = conf["topology.workers"]
    if consumers := conf.get("topology.metrics.consumer.register"):
        conf["topology.metrics.consumer.register"] = [*map(_with_component_fixed, consumers)]
    if any("topology.kryo.register" in own for own in components.values()):
        conf["topology.kryo.register"] = gather_registrations(
            conf.get("topology.kryo.register"), components
        )
    _check_together(conf)
    return conf


def _with_component_fixed(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of `topology.metrics.consumer.register` that says whether it has a component of the
    topology, as those with a `parallelism.hint` have. Releases before components ignored the hint:
    the tasks of topologies that were submitted to them keep their numbers."""
    own = {key: value for key, value in entry.items() if key != METRICS_COMPONENT_KEY}
    return {**own, METRICS_COMPONENT_KEY: True} if "parallelism.hint" in own else own


def gather_registrations(
    own: Any, components: Mapping[str, Mapping[str, Any]]
) -> list[str | dict[str, str | None]]:
    """`topology.kryo.register` of a topology with that of its components, as Storm's Nimbus does.
    The topology's own entry for a class counts before a component's. Raises ConfigError when two
    components register a class with different serializers."""
    topology = dict(_registrations(own))
    found: dict[str, tuple[str | None, str]] = {}
    for id, conf in components.items():
        for path, serializer in _registrations(conf.get("topology.kryo.register")):
            if path in topology:
                continue
            before, other = found.setdefault(path, (serializer, id))
            if before != serializer:
                raise ConfigError(
                    f"topology.kryo.register: component {other!r} registers {path!r} with "
                    f"{before!r}, component {id!r} with {serializer!r}",
                    hint="register it in the topology's configuration, which counts for all",
                )
    merged = topology | {path: serializer for path, (serializer, _) in found.items()}
    return [
        path if serializer is None else {path: serializer} for path, serializer in merged.items()
    ]


def _registrations(entries: Any) -> Iterator[tuple[str, str | None]]:
    """(class path, serializer's path); what is of the wrong type is refused elsewhere."""
    if isinstance(entries, Mapping):
        yield from entries.items()
    elif isinstance(entries, list):
        for entry in entries:
            if isinstance(entry, str):
                yield entry, None
            elif isinstance(entry, Mapping):
                yield from entry.items()


def _check_together(conf: Mapping[str, Any]) -> None:
    timeout, limit = conf.get("topology.worker.timeout.secs"), conf.get("worker.max.timeout.secs")
    if timeout is not None and limit is not None and timeout > limit:
        raise ConfigError(
            f"topology conf: topology.worker.timeout.secs is {timeout}; expected at most "
            f"worker.max.timeout.secs ({limit})"
        )


def check_json(conf: Mapping[str, Any], *, where: str) -> None:
    """Raise ConfigError, naming the key, for a value that JSON cannot carry."""
    problems = []
    for key, value in conf.items():
        if not isinstance(key, str):
            problems.append(f"{where}: the key {key!r} is not text")
            continue
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            problems.append(
                f"{where}: {key} is {show_value(value)}; expected a JSON value ({error})"
            )
    if problems:
        raise ConfigError("\n".join(problems))


def component_conf(
    topology_conf: Mapping[str, Any], component_conf: Mapping[str, Any]
) -> dict[str, Any]:
    """The configuration that one component sees: its own conf on top of the topology's, except for
    the keys that only a whole topology can have (`COMPONENT_KEYS` says which it may override).
    Keys that are not options belong to the user and pass."""
    own = {
        key: value
        for key, value in component_conf.items()
        if key not in SCHEMA or key in COMPONENT_KEYS
    }
    return {**topology_conf, **own}


def local_dir(conf: Mapping[str, Any]) -> Path:
    """`storm.local.dir`, absolute."""
    return Path(conf["storm.local.dir"]).absolute()


def log_dir(conf: Mapping[str, Any]) -> Path:
    """`storm.log.dir`, absolute; `logs` in `storm.local.dir` when null."""
    configured = conf.get("storm.log.dir")
    return local_dir(conf) / "logs" if configured is None else Path(configured).absolute()


def unknown_keys(conf: Mapping[str, Any]) -> dict[str, str | None]:
    """Keys that are not options, each with the option that it may be a misspelling of. A topology
    may have keys of its own, so a key is reported only if it looks misspelled or
    begins like a daemon's."""
    found = {}
    for key in conf:
        if verdict_of(key) is not None:
            continue
        near = difflib.get_close_matches(key, SCHEMA, n=1, cutoff=0.87)
        if near or key.startswith(_DAEMON_PREFIXES):
            found[key] = near[0] if near else None
    return found


_DAEMON_PREFIXES = ("storm.", "nimbus.", "supervisor.", "worker.", "task.", "ui.", "drpc.")


def warnings_about(conf: Mapping[str, Any], *, where: str) -> list[str]:
    """Sentences about keys that are unknown or have no effect; `where` begins each."""
    found = [
        f"{where}: unknown option {key}" + (f" (did you mean {near}?)" if near else "")
        for key, near in unknown_keys(conf).items()
    ]
    for reason, keys in by_reason(ignored_keys(conf)).items():
        which = "this key has" if len(keys) == 1 else "these keys have"
        found.append(f"{where}: {which} no effect: {', '.join(keys)} ({reason})")
    return found


def warn_of_ignored(conf: Mapping[str, Any], **about: object) -> None:
    """Log for a daemon which keys have no effect and why, a line a reason; `about` ends it."""
    for reason, keys in by_reason(ignored_keys(conf)).items():
        log.warning("config_keys_ignored", keys=", ".join(keys), reason=reason, **about)
