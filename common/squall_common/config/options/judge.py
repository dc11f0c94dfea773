"""Finds the keys of a configuration that Squall refuses, ignores, or knows by another name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall_common.config.options import OPTIONS
from squall_common.config.options.declaration import OPEN_CLUSTER
from squall_common.config.options.declared.storm import (
    MADE_UP_BY_CLIENTS,
    OF_DAEMONS,
    STORM_KEYS,
)
from squall_common.config.options.verdicts import Verdict, asks_for_something


def verdict_of(key: str) -> tuple[Verdict, str] | None:
    """The verdict and its reason; None for keys that neither Squall nor Storm has."""
    option = OPTIONS.get(key)
    if option is not None:
        if option.refused is not None:
            return Verdict.REFUSED, option.refused
        if option.ignored is not None:
            return Verdict.IGNORED, option.ignored
        return Verdict.SUPPORTED, ""
    storm = STORM_KEYS.get(key)
    return None if storm is None else (storm.verdict, storm.reason)


def refused_keys(conf: Mapping[str, Any], *, secured: bool = False) -> dict[str, str]:
    """The keys that ask for protection which Squall does not give, or gives only in a cluster that
    is `secured`, each with the reason."""
    found = _judged(conf, Verdict.REFUSED)
    if not secured:
        for key, value in conf.items():
            option = OPTIONS.get(key)
            if option is None or not option.secured:
                continue
            if asks_for_something(value, _storm_default(key)):
                found[key] = OPEN_CLUSTER
    return found


def ignored_keys(conf: Mapping[str, Any]) -> dict[str, str]:
    """The keys that have no effect and were set to something else than Storm's default, each with
    the reason."""
    return _judged(conf, Verdict.IGNORED)


def _judged(conf: Mapping[str, Any], wanted: Verdict) -> dict[str, str]:
    found = {}
    for key, value in conf.items():
        judged = verdict_of(key)
        if judged is None or judged[0] is not wanted:
            continue
        if wanted is Verdict.REFUSED:
            asks = asks_for_something(value, _storm_default(key))
        else:
            # `false` may be the very thing that is asked for: no backpressure, no sampling.
            asks = value is not None and value not in (_storm_default(key), _default(key))
        if asks:
            found[key] = judged[1]
    return found


def by_reason(keys: Mapping[str, str]) -> dict[str, list[str]]:
    """Keys that have a reason in common, for one line of a log each."""
    found: dict[str, list[str]] = {}
    for key, reason in keys.items():
        found.setdefault(reason, []).append(key)
    return found


def _storm_default(key: str) -> Any:
    option = OPTIONS.get(key)
    if option is not None:
        return option.storm_default if option.is_storms else option.default
    return STORM_KEYS[key].default


def _default(key: str) -> Any:
    option = OPTIONS.get(key)
    return None if option is None else option.default


def mapped(conf: Mapping[str, Any]) -> dict[str, Any]:
    """The options of Squall that get their value by a key of Storm's: not those that `conf` sets
    itself."""
    found = {}
    for key, value in conf.items():
        storm = STORM_KEYS.get(key)
        if storm is None or storm.ours is None or storm.convert is None or storm.ours in conf:
            continue
        converted = storm.convert(value)
        if converted is not None:
            found[storm.ours] = converted
    return found


def mapping_problems(conf: Mapping[str, Any]) -> list[str]:
    """Problems in values that another option would get, without the name of the place."""
    problems = []
    for key, value in conf.items():
        storm = STORM_KEYS.get(key)
        if storm is None or storm.ours is None or storm.convert is None or value is None:
            continue
        converted = storm.convert(value)
        kind = OPTIONS[storm.ours].kind
        if converted is not None and not kind.check(converted):
            problems.append(f"{key} counts as {storm.ours}; expected {kind.expected}")
    return problems


def without_made_up(conf: Mapping[str, Any]) -> dict[str, Any]:
    """A topology's configuration without the secrets that Storm's Java client makes up, and without
    those of the cluster's daemons."""
    return {
        key: value
        for key, value in conf.items()
        if key not in MADE_UP_BY_CLIENTS and key not in OF_DAEMONS
    }
