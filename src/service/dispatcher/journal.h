/*
 * The journal: what is written so that it is there after kill -9, under which keys, and what follows once it
 * is durable. Entries gather while a batch is being made durable, and are the next batch: so one batch is
 * under way at a time. commit.c commits batches; recovery.c reads entries.
 *
 * A key is a letter, in the order in which rows must be read, then the entry's subject.
 * Behind each value stands a checksum of its key and of the value (8 bytes).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "service/dispatcher/limits.h"
#include "service/dispatcher/store.h"
#include "service/dispatcher/types.h"

#define JOURNAL_SUM_SIZE 8 /* bytes of the checksum behind each value */

/* The first letter of a key. The values are the messages of journal.proto. */
enum journal_letter {
    JOURNAL_COUNTERS = 'a', /* without a subject */
    JOURNAL_PIPELINE,       /* subject: the fingerprint */
    JOURNAL_STREAM,         /* the stream's id */
    JOURNAL_FLOOR,          /* the stream's id */
    JOURNAL_RANGE,          /* the stream's id, and where the range begins (be64) */
    JOURNAL_JOB,            /* the name */
    JOURNAL_WORKER          /* the incarnation */
};

enum action_kind {
    ACTION_DONE,       /* answer request `re` of the peer with Done */
    ACTION_REGISTERED, /* answer it with Registered */
    ACTION_REPORT,     /* the range's report is durable */
    ACTION_JOB,        /* the job runs */
    ACTION_LEASE       /* at-most-once: the range's lease may be sent */
};

/* What follows once an entry is durable. References to peer, stream and job are held until then. */
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
    uint64_t retry_ns; /* when a batch that could not be written is tried again; 0: all is well */
    struct cw_error error;
    /* Entries were left out when the journal was read, in this or an earlier start: until DP_LISTED after the
     * start, a job that is not known may be one of them. */
    bool damaged;
    bool ranges_lost;  /* in this start, entries of ranges or floors of any stream */
    bool numbers_lost; /* in this start, the last numbers of workers and streams */
    uint64_t commit_began_ns, commit_ns, n_commits, n_failures;
};

/* Each adds to the batch that is committed next. `then` is run when the entry is durable. < 0: nothing was
 * added. */
int cw_dp_journal_counters(struct cw_dispatcher *d, struct cw_error *err) _must_check_;
int cw_dp_journal_worker(struct cw_dispatcher *d, const struct worker *w, const struct action *then,
                         struct cw_error *err) _must_check_;
/* The stream and its pipeline, unless they are there. */
int cw_dp_journal_stream(struct cw_dispatcher *d, struct stream *s, struct cw_error *err) _must_check_;
/* Deletes the stream with its ranges; its pipeline stays. */
int cw_dp_journal_stream_gone(struct cw_dispatcher *d, struct stream *s, struct cw_error *err) _must_check_;
int cw_dp_journal_job(struct cw_dispatcher *d, const struct job *j, const struct action *then,
                      struct cw_error *err) _must_check_;
/* The action gets the stream and the range. */
int cw_dp_journal_range(struct cw_dispatcher *d, struct stream *s, const struct range *x,
                        enum action_kind then, struct cw_error *err) _must_check_;
int cw_dp_journal_range_gone(struct cw_dispatcher *d, const struct stream *s, uint64_t begin,
                             struct cw_error *err) _must_check_;
/* Deletes the entry of a subject. */
int cw_dp_journal_gone(struct cw_dispatcher *d, enum journal_letter letter, const void *subject, size_t size,
                       struct cw_error *err) _must_check_;
/* Deletes rows of ranges that begin before `upto`. */
int cw_dp_journal_purge(struct cw_dispatcher *d, struct stream *s, uint64_t upto,
                        struct cw_error *err) _must_check_;
/* Runs `then` when all entries so far are durable. */
int cw_dp_journal_then(struct cw_dispatcher *d, const struct action *then, struct cw_error *err) _must_check_;
/* Logs that an entry could not be added whose absence does no harm: a restart finds out what it says. */
void cw_dp_journal_tried(struct cw_dispatcher *d, int result);

/* For recovery.c: the checksum of an entry; deletes an entry by its key. */
uint64_t cw_dp_journal_sum(const void *key, size_t key_size, const void *value, size_t value_size);
int cw_dp_journal_delete(struct cw_dispatcher *d, const void *key, size_t key_size,
                         struct cw_error *err) _must_check_;
