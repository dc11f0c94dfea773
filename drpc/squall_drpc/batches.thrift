// What Squall's workers ask of Squall's DRPC servers, beside the calls of Storm's service
// DistributedRPCInvocations and on the same port: the same work, many requests a call, and no
// polling. A worker that meets a server without them uses Storm's calls.

struct TakenRequest {
    1: required string func_args;
    2: required string request_id;
}

// `number` counts the batches that a taker was given. Asked again by one that never got it, the
// server sends the same batch once more.
struct RequestBatch {
    1: required i32 number;
    2: required list<TakenRequest> requests;
}

// `result`, or why there is none: `error`, with a DRPCExceptionType.
struct Settlement {
    1: required string request_id;
    2: optional string result;
    3: optional string error;
    4: optional i32 error_type;
}

service DistributedRPCBatches {
    RequestBatch fetchRequests(1: string functionName, 2: i32 most, 3: i32 waitMillis,
        4: string taker, 5: i32 have);
    void settleRequests(1: list<Settlement> settlements);
}
