"""The two Thrift services of a DRPC server: callers on one port, workers on the other.

In a secured cluster a caller needs the function's `client.users`, and a worker its
`invocation.user` (`functions`). A result counts only from a worker of the topology that has fetched
the request: its bolts may run in another worker than its spout. Any other result is dropped like a
late one, and noted in the audit log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from squall_common.security.access import Access, OpenAccess, caller_of
from squall_common.security.acl import Function
from squall_common.security.actions import action
from squall_drpc import batches
from squall_drpc.requests import Failure, Outcome, Reason
from squall_drpc.server.broker import BusyError, CallRefusedError, RequestBroker
from squall_thrift import storm
from squall_thrift.protocol.messages import ApplicationErrorType, ThriftApplicationError
from squall_thrift.serving.authorization import Call

_NOTHING = storm.DRPCRequest(func_args="", request_id="")
_FAILED = Failure(Reason.FAILED_REQUEST, "Request failed")  # Storm's own text


class Functions:
    """Asks the one authorizer about functions. Without arguments: of an open cluster."""

    def __init__(
        self, access: Access | None = None, of: Callable[[str], Function] = Function
    ) -> None:
        """`of` gives a function with its lists."""
        self.access = OpenAccess() if access is None else access
        self._of = of

    def require(self, call: Call, action_name: str, name: str | None) -> None:
        """Raises AuthorizationException unless the caller may do it to a function."""
        if self.access.secured:
            self.access.require(call, action_name, self._of(name or ""))

    def may_settle(
        self, call: Call, action_name: str, taken: tuple[str, str | None] | None
    ) -> bool:
        """Whether an answer of this caller counts; `taken` says for whom its request was taken
        (`Requests.taken_by`). What does not count is noted, but for late answers of workers. Raises
        AuthorizationException for a caller who answers nothing."""
        if not self.access.secured:
            return True
        worker = topology_of(call)
        if worker is None:
            self.access.require(call, action_name, Function(""))
        if taken is None:
            return False
        function, server = self._of(taken[0]), taken[1]
        if server != worker:
            reason = "the request was not fetched by a worker of the caller's topology"
            self.access.note_refusal(call, action_name, function, reason)
            return False
        if not self.access.may(call, action_name, function):
            reason = "the caller's owner no longer serves the function"
            self.access.note_refusal(call, action_name, function, reason)
            return False
        return True


def topology_of(call: Call) -> str | None:
    """The id of the topology whose worker calls; None for anyone else."""
    caller = caller_of(call)
    return None if caller is None else caller.topology_id


def limited_as(call: Call) -> str:
    """Whose limits a caller's requests count for: its user's, and in an open cluster its
    address's."""
    caller = caller_of(call)
    if caller is None:
        return call.address
    return caller.user or caller.owner or str(caller)


class CallerService:
    """Storm's DistributedRPC. Method names and arguments are Storm's."""

    def __init__(self, broker: RequestBroker, functions: Functions | None = None) -> None:
        self._broker = broker
        self._functions = functions or Functions()

    @action("execute")
    async def execute(
        self,
        call: Call,
        functionName: str | None,
        funcArgs: str | None,
    ) -> str:
        self._functions.require(call, "execute", functionName)
        try:
            return await self._broker.execute(functionName or "", funcArgs or "", limited_as(call))
        except (BusyError, CallRefusedError) as error:
            raise storm.DRPCExecutionException(
                msg=str(error), type=storm.DRPCExceptionType.INTERNAL_ERROR
            ) from error


class WorkerService:
    """Storm's DistributedRPCInvocations, and our calls in batches."""

    def __init__(self, broker: RequestBroker, functions: Functions | None = None) -> None:
        self._broker = broker
        self._functions = functions or Functions()

    @action("fetchRequest")
    async def fetchRequest(
        self,
        call: Call,
        functionName: str | None,
    ) -> storm.DRPCRequest:
        """One request, without waiting; its id is empty when there is none."""
        self._functions.require(call, "fetchRequest", functionName)
        with _Refusals():
            batch = await self._broker.fetch(functionName or "", server=topology_of(call))
        if not batch.requests:
            return _NOTHING
        [request] = batch.requests
        return storm.DRPCRequest(func_args=request.args, request_id=request.id)

    @action("result")
    async def result(self, call: Call, id: str | None, result: str | None) -> None:
        self._settle(call, "result", id, result or "")

    @action("failRequest")
    async def failRequest(self, call: Call, id: str | None) -> None:
        self._settle(call, "failRequest", id, _FAILED)

    @action("failRequest")
    async def failRequestV2(
        self, call: Call, id: str | None, e: storm.DRPCExecutionException | None
    ) -> None:
        outcome = _FAILED if e is None else _failure(e.msg, e.type)
        self._settle(call, "failRequest", id, outcome)

    @action("fetchRequest")
    async def fetchRequests(
        self,
        call: Call,
        functionName: str | None,
        most: int | None,
        waitMillis: int | None,
        taker: str | None,
        have: int | None,
    ) -> Any:
        """A batch (`batches.thrift`); with `most` 0, only a sign of life."""
        self._functions.require(call, "fetchRequest", functionName)
        server = topology_of(call)
        if server is not None:
            # Names that topologies choose for their takers are their own.
            taker = f"{server} {taker}" if taker else None
        with _Refusals():
            batch = await self._broker.fetch(
                functionName or "",
                most or 0,
                (waitMillis or 0) / 1000,
                taker or None,
                have or 0,
                server,
            )
        return batches.RequestBatch(
            number=batch.number,
            requests=[
                batches.TakenRequest(func_args=request.args, request_id=request.id)
                for request in batch.requests
            ],
        )

    @action("result")
    async def settleRequests(self, call: Call, settlements: Any) -> None:
        self._functions.may_settle(call, "result", None)  # also if there are none
        for settlement in settlements or ():
            outcome: Outcome
            if settlement.result is not None:
                outcome = settlement.result
            else:
                outcome = _failure(settlement.error, settlement.error_type)
            self._settle(call, "result", settlement.request_id, outcome)

    def _settle(
        self, call: Call, action_name: str, request_id: str | None, outcome: Outcome
    ) -> None:
        taken = self._broker.taken_by(request_id or "")
        if self._functions.may_settle(call, action_name, taken):
            self._broker.settle(request_id or "", outcome)


def _failure(message: str | None, kind: int | None) -> Failure:
    try:
        reason = Reason.FAILED_REQUEST if kind is None else Reason(kind)
    except ValueError:
        reason = Reason.INTERNAL_ERROR
    return Failure(reason, message or _FAILED.message)


class _Refusals:
    """Turns an invalid call into an error for its caller."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, CallRefusedError):
            raise ThriftApplicationError(ApplicationErrorType.PROTOCOL_ERROR, str(error)) from error
