"""What a sink writes of its tuples: fields, and the columns and keys of a table for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from squall_common.errors import InvalidTopologyError


def names_of(
    sink: str, argument: str, given: Sequence[str], *, optional: bool = False
) -> list[str]:
    """The names that a sink was given for an argument, which it may do without if it is `optional`.
    Raises InvalidTopologyError, which names both, for what is not a list of names: None, or one
    name without a list around it, whose letters would be taken for names."""
    if isinstance(given, str):
        raise InvalidTopologyError(
            f"{sink}: {argument} is the text {given!r}; expected a list of names",
            hint=f"write {argument}=[{given!r}]",
        )
    if not isinstance(given, Collection) or not all(isinstance(name, str) for name in given):
        raise InvalidTopologyError(
            f"{sink}: {argument} is {given!r}; expected a list of names",
            hint=f"write {argument}=['name', ...]" + (", or leave it out for none" * optional),
        )
    return list(given)


def columns_of(
    sink: str, fields: Sequence[str], columns: Sequence[str] | None, key: Sequence[str]
) -> list[str]:
    """The columns for these fields. Raises InvalidTopologyError, which names the `sink`, if one of
    the three is not a list of names, the numbers of fields and columns differ, or `key` names
    another column."""
    wanted = names_of(sink, "fields", fields)
    found = wanted if columns is None else names_of(sink, "columns", columns)
    if len(found) != len(wanted) or not found:
        raise InvalidTopologyError(f"{sink}: {len(wanted)} fields for {len(found)} columns")
    if unknown := sorted(set(names_of(sink, "key", key, optional=True)) - set(found)):
        raise InvalidTopologyError(f"{sink}: key columns {', '.join(unknown)} are not written")
    return found
