/*
 * Limits on the messages and payloads of a peer, and on the bytes queued for it, for each kind of connection.
 * tools/make_limits.py makes the table in docs/protocol.md, "Limits", from this file.
 */
#pragma once

#define CW_MIB ((size_t)1 << 20)
/* Bytes of a pipeline's text, with its Python functions; and of a message that contains it (Attach, Prepare).
 */
#define CW_PIPELINE_BYTES (32 * CW_MIB)
#define CW_CONTROL_BYTES (CW_PIPELINE_BYTES + CW_MIB)
/* Bytes of a message before the handshake is done. */
#define CW_HANDSHAKE_BYTES (CW_MIB / 16)
/* Bytes that a worker may queue for a client besides the requested batches. These are answers to a bounded
 * number of requests, so the limit is only reached if a client sends requests and never reads. */
#define CW_BESIDE_BATCHES_BYTES (64 * CW_MIB)

/* Positions of an epoch whose end is not known. The end of the data, or a `take` that has all its elements,
 * ends the epoch long before: at 30 million positions per second, after a year. */
#define CW_EPOCH_POSITIONS ((size_t)1 << 50)

/* Initialisers of struct cw_conn_limits. */
#define CW_LIMITS_DISPATCHER \
    {.message = CW_CONTROL_BYTES, .payload = 0, .queued = 64 * CW_MIB} /* dispatcher, from any process */
#define CW_LIMITS_WORKER_CONTROL \
    {.message = CW_CONTROL_BYTES, .payload = 0, .queued = 0}            /* worker, from its dispatcher */
#define CW_LIMITS_WORKER {.message = CW_MIB, .payload = 0, .queued = 0} /* worker, from a client */
#define CW_LIMITS_CLIENT_CONTROL \
    {.message = CW_CONTROL_BYTES, .payload = 0, .queued = 64 * CW_MIB} /* client, from its dispatcher */
#define CW_LIMITS_CLIENT \
    {.message = 128 * CW_MIB, .payload = 4096 * CW_MIB, .queued = 4 * CW_MIB} /* client, from a worker */
#define CW_LIMITS_PROVISIONER \
    {.message = 4 * CW_MIB, .payload = 0, .queued = CW_MIB} /* provisioner, from the dispatcher */
#define CW_LIMITS_ADMIN_CLIENT \
    {.message = 64 * CW_MIB, .payload = 0, .queued = CW_MIB} \
    /* admin client (`cachew jobs`), from the dispatcher */
