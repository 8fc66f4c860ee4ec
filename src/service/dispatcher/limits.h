/* Constants of the dispatcher: limits on what peers can make it store, and times after which it acts. */
#pragma once
#include "base/patience.h"

/* ---- limits ---- */

#define DP_PEERS 65536
#define DP_WORKERS 10000
#define DP_STREAMS 10000
#define DP_WARM_STREAMS 16 /* most streams without a client that are kept ready */
#define DP_JOBS 10000
#define DP_JOBS_OVER 1000                    /* jobs that are over and still listed */
#define DP_RANKS ((uint32_t)1 << 20)         /* ranks of a job, and of all jobs together */
#define DP_ASSIGNMENTS ((size_t)1 << 22)     /* workers times streams */
#define DP_FINISHED 4096                     /* most finished ranks in a job's journal entry */
#define DP_NAME 255                          /* bytes of a job's name */
#define DP_PATH 4096                         /* bytes of a base directory, or of a socket's path */
#define DP_REGISTERED ((size_t)64 << 10)     /* bytes of a message Register or Pool */
#define DP_ADDRESSES 16                      /* addresses of a worker */
#define DP_ADDRESS 300                       /* bytes of an address */
#define DP_PIPELINES ((size_t)1 << 30)       /* bytes of all pipelines; of one: CW_PIPELINE_BYTES */
#define DP_FILES 4096                        /* files named in Prepared */
#define DP_KEYS 65536                        /* keys of a report */
#define DP_CAPACITY 1024                     /* ranges leased to a worker at a time */
#define DP_HELD 16384                        /* ranges of a stream in Holdings */
#define DP_RANGES ((size_t)1 << 20)          /* ranges of a stream in its table */
#define DP_PENDING ((size_t)1 << 20)         /* pending entries of the journal, and ... */
#define DP_PENDING_BYTES ((size_t)256 << 20) /* ... their bytes */
#define DP_WAITING ((size_t)64 << 20)  /* bytes of Attach requests that wait until a job's ranks are gone */
#define DP_ENDLESS ((uint64_t)1 << 62) /* more positions than any job has */

/* ---- times, in ns ---- */

#define DP_S UINT64_C(1000000000)
#define DP_GRACE (2 * DP_S) /* after a restart, workers have this time to report which ranges they hold */
/* if a worker does not answer Prepare for this time, the next worker gets Prepare too */
#define DP_ASK_MORE (10 * DP_S)
#define DP_DRAIN (10 * DP_S) /* finished ranges stay with a draining worker for this time */
/* a worker that a client can't reach gets no leases of the stream for this time */
#define DP_SHUN (30 * DP_S)
#define DP_WARM (30 * DP_S)        /* a stream without clients is kept ready for this time */
#define DP_BACK (5 * DP_S)         /* a client that lost its connection reconnects within this time */
#define DP_ABANDONED (3600 * DP_S) /* a job without clients is removed after this time */
#define DP_LISTED (3600 * DP_S)    /* a job that is over stays listed for this time */
#define DP_GONE (600 * DP_S)       /* a worker that is gone keeps its id for this time */
/* After this time without a message the client of an attached rank is gone: it reports every second, and its
 * connection's timeout has passed. */
#define DP_SILENT (cw_patience_silence_ns() + DP_S)
/* A job that is older than this process may have ranks that finished before the restart. Its other ranks wait
 * this long for ranks that have not attached. */
#define DP_MISSING (5 * DP_S)

/* ---- ranges ---- */

#define DP_LATE DP_S                 /* ns after its lease at which a range is late, while no rate is known */
#define DP_LATE_MORE (3 * DP_S / 10) /* with a rate: ns after the expected time, and at least ... */
#define DP_LATE_TIMES 2              /* ... this multiple of the expected time */
#define DP_DEPTH 2      /* unfinished ranges of a worker: one that it computes, and the next one */
#define DP_DEPTH_S 0.05 /* seconds of work that a worker has, at least, if ranges are short */
#define DP_MEASURED 16  /* number of last completions from which the rate of a stream is measured */
