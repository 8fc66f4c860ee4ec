/* Limits on what peers can make the dispatcher hold, and the times after which it acts. Constants only; every
 * file of the dispatcher may use them. */
#pragma once
#include "base/patience.h"

/* ---- limits ---- */

#define DP_PEERS 65536
#define DP_WORKERS 10000
#define DP_STREAMS 10000
#define DP_WARM_STREAMS 16 /* streams of jobs without a client that are kept ready */
#define DP_JOBS 10000
#define DP_JOBS_OVER 1000                    /* finished jobs that are listed */
#define DP_RANKS ((uint32_t)1 << 20)         /* of a job, and of all jobs together */
#define DP_ASSIGNMENTS ((size_t)1 << 22)     /* workers times streams */
#define DP_FINISHED 4096                     /* finished ranks in the journal's entry of a job */
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
#define DP_PENDING ((size_t)1 << 20)         /* entries that wait for the journal, and ... */
#define DP_PENDING_BYTES ((size_t)256 << 20) /* ... their bytes */
#define DP_WAITING ((size_t)64 << 20)        /* bytes of attachments that wait for a job's ranks to be gone */
#define DP_ENDLESS ((uint64_t)1 << 62)       /* positions: no plan has more */

/* ---- times, in ns ---- */

#define DP_S UINT64_C(1000000000)
#define DP_GRACE (2 * DP_S)        /* after a restart: workers have so long to report what they hold */
#define DP_ASK_MORE (10 * DP_S)    /* after so long without Prepared, the next worker gets Prepare too */
#define DP_DRAIN (10 * DP_S)       /* finished ranges stay with a draining worker for so long */
#define DP_SHUN (30 * DP_S)        /* a worker that a client can't reach gets no leases of that stream */
#define DP_WARM (30 * DP_S)        /* a stream without clients is kept ready */
#define DP_BACK (5 * DP_S)         /* a client that lost its connection reconnects within this time */
#define DP_ABANDONED (3600 * DP_S) /* a job without clients is collected after this time */
#define DP_LISTED (3600 * DP_S)    /* a job that is over stays listed */
#define DP_GONE (600 * DP_S)       /* a worker that is gone keeps its id, in case it returns */
/* An attached rank reports each second, and a lost one is noticed within the timeout of its connection. */
#define DP_SILENT (cw_patience_silence_ns() + DP_S)
/* A job that is older than this dispatcher may have ranks that finished before. The others wait so long for
 * ranks that did not attach. */
#define DP_MISSING (5 * DP_S)

/* ---- ranges ---- */

#define DP_LATE DP_S                 /* ns after its lease at which a range is late while no rate is known */
#define DP_LATE_MORE (3 * DP_S / 10) /* else: ns over the expected time, and ... */
#define DP_LATE_TIMES 2              /* ... multiple of the expected time */
#define DP_DEPTH 2      /* ranges that a worker has at first: one that it computes and the next one */
#define DP_DEPTH_S 0.05 /* short ranges are leased up to so many seconds of work at a time */
#define DP_MEASURED 16  /* last completions from which the rate of a stream is measured */
