"""The base of classes whose objects remember the arguments that they were made from."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from typing import Any, TypeVar

from squall_common.errors import InvalidTopologyError
from squall_common.topology.arguments import encode_arguments
from squall_common.topology.construction import Constructed, Construction, attributes_of, travels
from squall_common.topology.signatures import signature_of

_Made = TypeVar("_Made")


class _ConstructionRecorder(ABCMeta):
    """A metaclass, because neither `__new__` nor a base `__init__` sees the end of the constructor.
    From ABCMeta, so that users' classes may be ABCs."""

    @property
    def __signature__(cls) -> inspect.Signature:
        """The constructor's, for `help()` and notebooks: they would show that of `__call__`."""
        made_by = cls.__init__ if cls.__init__ is not object.__init__ else cls.__new__  # type: ignore[misc]
        if made_by is object.__new__:
            return inspect.Signature()
        try:
            # Names that mean something elsewhere too: two of ours are called Bolt.
            whole = inspect.signature(made_by, eval_str=True)
        except Exception:  # of names that are imported for type checkers only
            whole = signature_of(made_by)
        return whole.replace(
            parameters=list(whole.parameters.values())[1:], return_annotation=whole.empty
        )

    def __call__(cls: type[_Made], *args: Any, **kwargs: Any) -> _Made:
        if not travels.get():
            arrived: _Made = type.__call__(cls, *args, **kwargs)
            return arrived
        arguments: bytes | InvalidTopologyError
        try:
            # Before the constructor runs, not at build(): an argument that is changed in between
            # would otherwise arrive changed.
            arguments = encode_arguments(args, kwargs)
        except InvalidTopologyError as error:
            arguments = error
        made: _Made = type.__call__(cls, *args, **kwargs)
        if isinstance(made, Constructed):
            made.__dict__["_construction"] = Construction(arguments, attributes_of(made))
        return made


class RecordsConstruction(Constructed, metaclass=_ConstructionRecorder):
    """Base of components and custom groupings."""
