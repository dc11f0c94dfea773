"""Takes the bytes of a call, dispatches it to a handler, returns the reply's bytes. No network.

Large calls and replies are decoded and encoded off the loop (`off_loop`). `read` and `answer` are
two steps, so that a call's bytes are freed while its handler works: a handler may take minutes.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from squall_thrift import codec, idl, storm, wire
from squall_thrift.logs import EventLogger
from squall_thrift.protocol import messages
from squall_thrift.protocol.messages import (
    ApplicationErrorType,
    Message,
    MessageType,
    ThriftApplicationError,
)
from squall_thrift.serving.authentication import Identity
from squall_thrift.serving.authorization import Authorizer, Call, permission_of
from squall_thrift.serving.off_loop import LARGE_BYTES, off_loop
from squall_thrift.serving.throttle import Throttle
from squall_thrift.wire import EncodeError, ProtocolError, TooManyPartsError

log = EventLogger(__name__)

_throttle = Throttle()

# (method, status, seconds): a call was answered; called on the loop.
Observe = Callable[[str, str, float], None]

# The call that is being served, for logs.
OPERATION: ContextVar[str] = ContextVar("squall_operation", default="")

# The head of a result's field 0, if it is a struct.
_SUCCESS_HEAD: Final = bytes((wire.STRUCT, 0, 0))

# An answer of more values than this is encoded off the loop: it takes some 5 ms.
_PARTS_ON_LOOP_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class _Operation:
    method: idl.Method
    handle: Callable[..., Awaitable[Any]]
    permission: str
    arguments: tuple[str, ...]


@dataclass(slots=True)
class Request:
    """A call that was read: the method and its arguments, or why it cannot be carried out."""

    message: Message
    call: Call
    operation: _Operation | None = None
    arguments: tuple[Any, ...] = ()
    error: ThriftApplicationError | None = None
    status: str = "ok"  # how it ended: ok, the declared exception's class, error, cancelled

    def take_arguments(self) -> tuple[Any, ...]:
        """Return the arguments, which only the handler holds from now on."""
        arguments, self.arguments = self.arguments, ()
        return arguments


class Processor:
    """Calls the methods of `handler` for the messages of one service.

    Construction raises TypeError, which lists all faults, unless each method of the service has an
    `async def` of its name that takes (call, *arguments) and declares its permission.
    """

    def __init__(
        self,
        service: idl.Service,
        handler: object,
        authorizer: Authorizer,
        reply_bytes_max: int,
        observe: Observe | None = None,
    ) -> None:
        self._observe = observe
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

    async def read(self, data: bytes, peer: str, identity: Identity | None = None) -> Request:
        """Return the call in `data`. Raises ProtocolError if the bytes are not a call that could be
        replied to; the request holds any other fault."""
        message = messages.parse(data)
        if message.type is not MessageType.CALL:
            raise ProtocolError(f"expected a call, not a {message.type.name}", 0)
        OPERATION.set(message.name)
        principal = None if identity is None else identity.principal
        request = Request(message, Call(message.name, peer, principal, identity))
        request.operation = operation = self._operations.get(message.name)
        if operation is None:
            request.error = ThriftApplicationError(
                ApplicationErrorType.UNKNOWN_METHOD,
                f"{self._service.name} has no method {message.name!r}",
            )
            return request
        try:
            if len(data) < LARGE_BYTES:
                request.arguments = _arguments(operation, data, message.body)
            else:
                request.arguments = await off_loop(_arguments, operation, data, message.body)
        except ProtocolError as error:
            request.error = ThriftApplicationError(ApplicationErrorType.PROTOCOL_ERROR, str(error))
            request.error.__cause__ = error
        return request

    async def answer(self, request: Request) -> list[bytes]:
        """Return the reply, in parts; it includes any failure."""
        if self._observe is None:
            return await self._answer(request)
        began = time.monotonic()
        try:
            return await self._answer(request)
        except BaseException:
            request.status = "cancelled"
            raise
        finally:
            operation = request.operation
            method = "unknown" if operation is None else operation.method.name
            self._observe(method, request.status, time.monotonic() - began)

    async def _answer(self, request: Request) -> list[bytes]:
        message = request.message
        try:
            body = await self._call(request)
            size = sum(map(len, body))
            if size > self._reply_bytes_max:
                raise _internal(
                    f"the result has {size} bytes; the limit is {self._reply_bytes_max}"
                )
        except ThriftApplicationError as error:
            request.status = "error"
            return [refusal(request.call, message, error)]
        head = messages.serialize(MessageType.REPLY, message.name, message.sequence_id, b"")
        if size < LARGE_BYTES:
            return [b"".join((head, *body))]
        return [head, *body]

    async def _call(self, request: Request) -> list[bytes]:
        operation, call = request.operation, request.call
        if request.error is not None:
            raise request.error
        assert operation is not None
        method = operation.method
        result, value = method.result.cls(), None
        try:
            self._authorizer.authorize(call, operation.permission)
            value = await operation.handle(call, *request.take_arguments())
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            # We were cancelled: the server stops, or the caller has hung up.
            if task is not None and task.cancelling():
                raise
            log.error("call_failed", operation=method.name, exc_info=error)
            raise _internal(f"{method.name} was cancelled") from error
        except Exception as error:
            _set_exception(result, method, error)
            request.status = type(error).__name__
        else:
            if method.returns is not None:
                if value is None:
                    raise _internal(f"{method.name} returned nothing")
                if isinstance(value, codec.Encoded):
                    return [_SUCCESS_HEAD, *value.parts, b"\x00"]
                result.success = value
        try:
            try:
                return [codec.to_bytes(result, _PARTS_ON_LOOP_MAX)]
            except TooManyPartsError:
                large = [result]
                del result, value
                return (await off_loop(_encode, large)).parts
        except EncodeError as error:
            log.error("result_cannot_be_sent", operation=method.name, error=error)
            raise _internal("the result cannot be sent") from error


def refusal(call: Call, message: Message, error: ThriftApplicationError) -> bytes:
    """Return the reply that says why a call was not carried out."""
    left_out = _throttle.left_out((call.address, call.operation))
    if left_out is not None:
        log.warning(
            "call_refused",
            operation=call.operation,
            peer=call.peer,
            error=error.message,
            left_out=left_out,
        )
    body = messages.serialize_application_error(error)
    return messages.serialize(MessageType.EXCEPTION, message.name, message.sequence_id, body)


def _arguments(operation: _Operation, data: bytes, at: int) -> tuple[Any, ...]:
    """Raises ProtocolError."""
    args, end = codec.read_struct(operation.method.args.cls, data, at)
    if end != len(data):
        raise ProtocolError(f"{len(data) - end} bytes follow the arguments", end)
    return tuple(getattr(args, name) for name in operation.arguments)


def _encode(result: list[Any]) -> codec.Encoded:
    """Takes the result out of the list, so that its objects are freed here, on the thread."""
    return codec.encoded(result.pop())


def _fault(handle: object, arguments: tuple[str, ...]) -> str | None:
    if handle is None:
        return "is missing"
    if not inspect.iscoroutinefunction(handle):
        return "is not an async method"
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
    if isinstance(error, storm.NotAliveException):  # of a method that does not declare it
        raise _internal(str(error.msg)) from error
    log.error("call_failed", operation=method.name, exc_info=error)
    raise _internal(f"internal error in {method.name}: {type(error).__name__}") from error


def _internal(message: str) -> ThriftApplicationError:
    return ThriftApplicationError(ApplicationErrorType.INTERNAL_ERROR, message)
