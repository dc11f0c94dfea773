"""A call's bytes in, its reply's bytes out: dispatch to a handler, without any network."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from squall_thrift import codec, idl, messages, storm
from squall_thrift.authorization import Authorizer, Call, permission_of
from squall_thrift.messages import (
    ApplicationErrorType,
    Message,
    MessageType,
    ThriftApplicationError,
)
from squall_thrift.wire import EncodeError, ProtocolError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Operation:
    method: idl.Method
    handle: Callable[..., Awaitable[Any]]
    permission: str
    arguments: tuple[str, ...]


class Processor:
    """Calls the methods of `handler` for the messages of one service.

    Construction raises TypeError, with everything that is wrong, unless each method of the service
    has an `async def` of its name that takes (call, *arguments) and declares its permission.
    """

    def __init__(
        self, service: idl.Service, handler: object, authorizer: Authorizer, reply_bytes_max: int
    ) -> None:
        self._service = service
        self._authorizer = authorizer
        self._reply_bytes_max = reply_bytes_max
        self._operations: dict[str, _Operation] = {}
        faults = []
        for method in service.methods.values():
            arguments = tuple(field.name for field in method.args.fields)
            handle = getattr(handler, method.name, None)
            needed = permission_of(handle)
            fault = _fault(handle, arguments)
            if fault is None and needed is None:
                fault = "declares no permission"
            if fault is not None:
                faults.append(f"{method.name} {fault}")
                continue
            assert needed is not None
            assert handle is not None
            self._operations[method.name] = _Operation(method, handle, needed, arguments)
        if faults:
            raise TypeError(
                f"{type(handler).__name__} does not serve {service.name}: " + "; ".join(faults)
            )

    async def process(self, data: bytes, peer: str, principal: str | None = None) -> bytes:
        """The reply to the message in `data`. Raises ProtocolError when the bytes are no call that
        could be replied to; any other failure is in the reply."""
        message = messages.parse(data)
        if message.type is not MessageType.CALL:
            raise ProtocolError(f"a {message.type.name} came where a call should", 0)
        call = Call(message.name, peer, principal)
        try:
            body = await self._call(message, call, data)
            if len(body) > self._reply_bytes_max:
                raise _internal(
                    f"the result has {len(body)} bytes; the limit is {self._reply_bytes_max}"
                )
        except ThriftApplicationError as error:
            log.warning(
                "call_refused operation=%r peer=%s error=%r", call.operation, peer, error.message
            )
            body = messages.serialize_application_error(error)
            reply = MessageType.EXCEPTION
        else:
            reply = MessageType.REPLY
        return messages.serialize(reply, message.name, message.sequence_id, body)

    async def _call(self, message: Message, call: Call, data: bytes) -> bytes:
        operation = self._operations.get(message.name)
        if operation is None:
            raise ThriftApplicationError(
                ApplicationErrorType.UNKNOWN_METHOD,
                f"{self._service.name} has no method {message.name!r}",
            )
        method = operation.method
        try:
            args, end = codec.read_struct(method.args.cls, data, message.body)
            if end != len(data):
                raise ProtocolError(f"{len(data) - end} bytes follow the arguments", end)
        except ProtocolError as error:
            raise ThriftApplicationError(ApplicationErrorType.PROTOCOL_ERROR, str(error)) from error
        result = method.result.cls()
        try:
            self._authorizer.authorize(call, operation.permission)
            value = await operation.handle(
                call, *(getattr(args, name) for name in operation.arguments)
            )
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # we are: the server stops
                raise
            log.error("call_failed operation=%s", method.name, exc_info=error)
            raise _internal(f"{method.name} was given up") from error
        except Exception as error:
            _set_exception(result, method, error)
        else:
            if method.returns is not None:
                if value is None:
                    raise _internal(f"{method.name} returned nothing")
                result.success = value
        try:
            return codec.to_bytes(result)
        except EncodeError as error:
            log.error("result_cannot_be_sent operation=%s error=%s", method.name, error)
            raise _internal("the result cannot be sent") from error


def _fault(handle: object, arguments: tuple[str, ...]) -> str | None:
    if handle is None:
        return "is missing"
    if not inspect.iscoroutinefunction(handle):
        return "is no async method"
    try:
        inspect.signature(handle).bind(None, *arguments)
    except TypeError:
        return f"does not take (call, {', '.join(arguments)})"
    return None


def _set_exception(result: Any, method: idl.Method, error: Exception) -> None:
    """Put an exception that the method declares into its result; raise for any other."""
    for field, cls in method.throws.items():
        if isinstance(error, cls):
            setattr(result, field, error)
            return
    if isinstance(error, ThriftApplicationError):
        raise error
    if isinstance(error, storm.AuthorizationException):
        raise _internal(f"not authorized: {error.msg}") from error
    log.error("call_failed operation=%s", method.name, exc_info=error)
    raise _internal(f"internal error in {method.name}: {type(error).__name__}") from error


def _internal(message: str) -> ThriftApplicationError:
    return ThriftApplicationError(ApplicationErrorType.INTERNAL_ERROR, message)
