"""How typed options (`squall_common.config.options.typed`) get their values."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import msgspec

from squall_common.config.options import OPTIONS
from squall_common.config.options.kinds import Kind, show_value
from squall_common.errors import ConfigError


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options that one program reads, each a field with its type and its default.

    Lists are tuples and maps are read-only: options never change. `msgspec.structs.replace` makes
    a copy with other values.
    """

    @classmethod
    def read(cls, conf: Mapping[str, Any], *, where: str = "configuration") -> Self:
        """The values of a configuration. A key that is missing or null has its default, unless
        null is a value of its own; keys of other programs are passed over.

        Raises ConfigError that lists all values of the wrong type or range, as `validate_conf`
        does; `where` begins each line.
        """
        values, problems = _values(cls, conf, where)
        if problems:
            raise ConfigError("\n".join(problems))
        return cls(**values)

    @classmethod
    def read_valid(cls, conf: Mapping[str, Any], *, over: Self | None = None) -> Self:
        """The values of a configuration that may be damaged. A key that is missing, null or
        invalid has the value of `over`; without it, its default."""
        if over is None:
            return cls(**_values(cls, conf)[0])
        return msgspec.structs.replace(over, **_values(cls, conf, defaults_count=True)[0])


def _values(
    cls: type[Options], conf: Mapping[str, Any], where: str = "", *, defaults_count: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """By field, the values that a configuration sets (those that are the default only if
    `defaults_count`), and a line for each that is invalid."""
    values: dict[str, Any] = {}
    problems = []
    for field, key, default, kind, null_is_a_value in _reads(cls):
        value = conf.get(key)
        # What Nimbus stores with a topology are mostly defaults: they need no check.
        if value is default and not defaults_count:
            continue
        if value is None:
            if null_is_a_value and key in conf:
                values[field] = None
        elif value == default and type(value) is type(default) and not defaults_count:
            continue
        elif kind.check(value):
            values[field] = kind.freeze(kind.read(value))
        else:
            problems.append(f"{where}: {key} is {show_value(value)}; expected {kind.expected}")
    return values, problems


class _Read(NamedTuple):
    field: str
    key: str
    default: Any  # as configurations have it
    kind: Kind
    null_is_a_value: bool


@functools.cache
def _reads(cls: type[Options]) -> tuple[_Read, ...]:
    by_field = {option.field: option for option in OPTIONS.values()}
    return tuple(
        _Read(field, option.key, option.default, option.kind, option.null_is_a_value)
        for field in cls.__struct_fields__
        for option in (by_field[field],)
    )
