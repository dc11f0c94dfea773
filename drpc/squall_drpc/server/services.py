"""The two Thrift services of a DRPC server: callers on one port, workers on the other."""

from __future__ import annotations

from typing import Any

from squall_common.security.actions import action
from squall_drpc import batches
from squall_drpc.requests import Failure, Outcome, Reason
from squall_drpc.server.broker import BusyError, CallRefusedError, RequestBroker
from squall_thrift import storm
from squall_thrift.protocol.messages import ApplicationErrorType, ThriftApplicationError
from squall_thrift.serving.authorization import Call

_NOTHING = storm.DRPCRequest(func_args="", request_id="")
_FAILED = Failure(Reason.FAILED_REQUEST, "Request failed")  # Storm's own text


class CallerService:
    """Storm's DistributedRPC. Method names and arguments are Storm's."""

    def __init__(self, broker: RequestBroker) -> None:
        self._broker = broker

    @action("execute")
    async def execute(
        self,
        call: Call,
        functionName: str | None,
        funcArgs: str | None,
    ) -> str:
        try:
            return await self._broker.execute(functionName or "", funcArgs or "", call.address)
        except (BusyError, CallRefusedError) as error:
            raise storm.DRPCExecutionException(
                msg=str(error), type=storm.DRPCExceptionType.INTERNAL_ERROR
            ) from error


class WorkerService:
    """Storm's DistributedRPCInvocations, and our calls in batches."""

    def __init__(self, broker: RequestBroker) -> None:
        self._broker = broker

    @action("fetchRequest")
    async def fetchRequest(
        self,
        call: Call,
        functionName: str | None,
    ) -> storm.DRPCRequest:
        """One request, without waiting; its id is empty when there is none."""
        with _Refusals():
            batch = await self._broker.fetch(functionName or "")
        if not batch.requests:
            return _NOTHING
        [request] = batch.requests
        return storm.DRPCRequest(func_args=request.args, request_id=request.id)

    @action("result")
    async def result(self, call: Call, id: str | None, result: str | None) -> None:
        self._broker.settle(id or "", result or "")

    @action("failRequest")
    async def failRequest(self, call: Call, id: str | None) -> None:
        self._broker.settle(id or "", _FAILED)

    @action("failRequest")
    async def failRequestV2(
        self, call: Call, id: str | None, e: storm.DRPCExecutionException | None
    ) -> None:
        self._broker.settle(id or "", _FAILED if e is None else _failure(e.msg, e.type))

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
        with _Refusals():
            batch = await self._broker.fetch(
                functionName or "", most or 0, (waitMillis or 0) / 1000, taker or None, have or 0
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
        for settlement in settlements or ():
            outcome: Outcome
            if settlement.result is not None:
                outcome = settlement.result
            else:
                outcome = _failure(settlement.error, settlement.error_type)
            self._broker.settle(settlement.request_id, outcome)


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
