/*
 * Fetches: what this client wants from workers, in the order in which it requests them. A fetch is the
 * smallest thing that arrives at once: a batch, the rows of a batch in one range (a part), or the keys of a
 * range. Courses make and free them; requests.c sends them; arrivals.c fills them in. The mutex is held
 * throughout.
 */
#pragma once
#include "base/list.h"
#include "engine/part.h"
#include "proto/cachew.pb-c.h"

struct link;
struct remote;

enum fetch_state {
    FETCH_WANTED,    /* to be requested */
    FETCH_REQUESTED, /* a worker has the request */
    FETCH_HERE,      /* it arrived, or failed */
};

struct fetch {
    struct cw_link in_list; /* of r->fetches */
    struct fetch *sibling;  /* the next one of the same batch, or of the same list of a course */
    /* Where its range begins. WHAT_BATCHES: the first position of the batch, wherever ranges begin. */
    uint64_t epoch, begin;
    Cachew__What what;
    unsigned key;
    /* WHAT_ROWS, WHAT_PART: elements of the key. WHAT_KEYS: elements from `first` on. WHAT_BATCHES: `first`
     * is the number of the batch in the epoch; of a counted pipeline, n counts positions from `begin` on. */
    uint64_t first, n;
    /* WHAT_BATCHES: the batch lies in several ranges, and this is the part in one: `rows` come */
    bool is_part;
    enum fetch_state state;
    uint64_t requested_ns, received_ns; /* first request and arrival; set where there is a trace */
    struct link *link;                  /* the worker that has not answered the last request; NULL: none */
    uint64_t request;                   /* id of that request */
    uint64_t requested_begin;           /* begin of the range that it names */
    uint64_t range_end;                 /* FETCH_HERE: end of the range that it came from */
    bool lost;                          /* its range is lost and will not be run again */
    /* FETCH_HERE: why it can't be had. WHAT_KEYS: why the range ends there. Owned */
    struct cw_error *failure;
    struct cw_batch *batch; /* WHAT_BATCHES, WHAT_ROWS. Owned */
    struct cw_quarantined *quarantined;
    struct cw_part rows; /* WHAT_PART, or is_part */
    uint16_t *keys;      /* WHAT_KEYS: the keys before `first` that the placer does not have yet. Owned */
    size_t n_keys;
    bool over; /* WHAT_KEYS: the range has no more keys */
};

struct fetch_list {
    struct cw_link list;
    size_t n;
    bool changed; /* there are fetches that the loop's thread has not looked at */
};

/* Returns the fetch behind f (NULL: the first one); NULL: there is none. */
struct fetch *cw_fetch_next(const struct remote *r, const struct fetch *f);
/* Adds a copy of *what at the end. NULL: out of memory. */
struct fetch *cw_fetch_new(struct remote *r, const struct fetch *what);
/* Cuts a batch in two where a range ends: the second half becomes the fetch's next sibling, requested right
 * after it. False: out of memory. */
bool cw_fetch_cut(struct remote *r, struct fetch *f, uint64_t end);
/* Moves a fetch that arrived in part to the end, to request the rest. */
void cw_fetch_again(struct remote *r, struct fetch *f);
/* Takes *at out of its list of siblings, and frees it. */
void cw_fetch_drop(struct remote *r, struct fetch **at);
/* Frees a list of siblings. */
void cw_fetches_free(struct remote *r, struct fetch **list);
/* Returns `first` of the request: batches count from the begin of the range that the request names. */
uint64_t cw_fetch_first(const struct remote *r, const struct fetch *f);
/* The connection to a worker is gone: its fetches are requested again. */
void cw_fetches_unrequest(struct remote *r, const struct link *l);
