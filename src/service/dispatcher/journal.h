/*
 * The journal: the state that survives kill -9, stored as entries under keys. An entry can have an action,
 * which is run once the entry is durable. While one batch of entries is being made durable, new entries are
 * pending; they are the next batch. commit.c commits batches; recovery.c reads entries.
 *
 * A key is a letter, then the entry's subject. Letters are in the order in which entries must be read. Each
 * value is followed by a checksum of key and value (8 bytes).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "service/dispatcher/limits.h"
#include "service/dispatcher/store.h"
#include "service/dispatcher/types.h"

#define JOURNAL_SUM_SIZE 8 /* bytes of the checksum that follows each value */

/* The first letter of a key. The entries' values are the messages of journal.proto. */
enum journal_letter {
    JOURNAL_COUNTERS = 'a', /* no subject */
    JOURNAL_PIPELINE,       /* subject: the fingerprint */
    JOURNAL_STREAM,         /* the stream's id */
    JOURNAL_FLOOR,          /* the stream's id */
    JOURNAL_RANGE,          /* the stream's id, and the begin of the range (be64) */
    JOURNAL_JOB,            /* the name */
    JOURNAL_WORKER          /* the incarnation */
};

enum action_kind {
    ACTION_DONE,       /* answer request `re` of the peer with Done */
    ACTION_REGISTERED, /* answer request `re` of the peer with Registered */
    ACTION_REPORT,     /* the range's report is durable */
    ACTION_JOB,        /* the job runs */
    ACTION_LEASE       /* at-most-once: the range's lease may be sent */
};

/* What is done once an entry is durable. Until then it holds references to peer, stream and job. */
struct action {
    enum action_kind kind;
    struct cw_peer *peer;
    uint64_t re;

    struct {
        uint64_t begin, number;
    } range;
    struct stream *stream;
    struct job *job;
};

struct journal_entries {
    struct cw_store_batch batch;
    struct action *actions;
    size_t n, capacity; /* of actions */
};

struct journal {
    struct journal_entries pending, flight;
    bool in_flight;
    uint64_t retry_ns; /* when the failed batch is tried again; 0: the last commit did not fail */
    struct cw_error error;
    /* Damaged entries were left out, at this or an earlier start: until DP_LISTED after the start, an unknown
     * job may be one of them. */
    bool damaged;
    /* at this start, entries of ranges or floors were left out, and it is not known of which stream */
    bool ranges_lost;
    /* at this start, the entry with the last numbers of workers and streams was left out */
    bool numbers_lost;
    uint64_t commit_began_ns, commit_ns, n_commits, n_failures;
};

/* These functions add an entry to the batch that is committed next. then: the action that is run once the
 * entry is durable. < 0: nothing was added. */
int cw_dp_journal_counters(struct cw_dispatcher *d, struct cw_error *err) _must_check_;
int cw_dp_journal_worker(struct cw_dispatcher *d, const struct worker *w, const struct action *then,
                         struct cw_error *err) _must_check_;
/* Adds the stream and its pipeline, unless the journal has them. */
int cw_dp_journal_stream(struct cw_dispatcher *d, struct stream *s, struct cw_error *err) _must_check_;
/* Deletes the stream with its ranges; its pipeline stays. */
int cw_dp_journal_stream_gone(struct cw_dispatcher *d, struct stream *s, struct cw_error *err) _must_check_;
int cw_dp_journal_job(struct cw_dispatcher *d, const struct job *j, const struct action *then,
                      struct cw_error *err) _must_check_;
/* then: the kind of an action for this stream and range. */
int cw_dp_journal_range(struct cw_dispatcher *d, struct stream *s, const struct range *x,
                        enum action_kind then, struct cw_error *err) _must_check_;
int cw_dp_journal_range_gone(struct cw_dispatcher *d, const struct stream *s, uint64_t begin,
                             struct cw_error *err) _must_check_;
/* Deletes the entry of a subject. */
int cw_dp_journal_gone(struct cw_dispatcher *d, enum journal_letter letter, const void *subject, size_t size,
                       struct cw_error *err) _must_check_;
/* Deletes the entries of ranges that begin before `upto`. */
int cw_dp_journal_purge(struct cw_dispatcher *d, struct stream *s, uint64_t upto,
                        struct cw_error *err) _must_check_;
/* Runs the action `then` once all entries added so far are durable. */
int cw_dp_journal_then(struct cw_dispatcher *d, const struct action *then, struct cw_error *err) _must_check_;
/* result < 0: logs that an entry could not be added, for entries that a restart can do without. */
void cw_dp_journal_tried(struct cw_dispatcher *d, int result);

/* For recovery.c: the checksum of an entry; deletes an entry by its key. */
uint64_t cw_dp_journal_sum(const void *key, size_t key_size, const void *value, size_t value_size);
int cw_dp_journal_delete(struct cw_dispatcher *d, const void *key, size_t key_size,
                         struct cw_error *err) _must_check_;
