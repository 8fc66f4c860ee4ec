/* A fetch is one thing that this client wants from a worker, and that arrives in one message: a batch, the
 * rows of a batch from one range (a part), or the keys of a range. Fetches are in a list, in the order in
 * which they are requested. Courses make and free them; requests.c sends the requests; arrivals.c fills the
 * fetches in. The mutex must be held in all functions. */
#pragma once
#include "base/list.h"
#include "engine/part.h"
#include "proto/cachew.pb-c.h"

struct link;
struct remote;

enum fetch_state {
    FETCH_WANTED,    /* must be requested */
    FETCH_REQUESTED, /* a request was sent to a worker */
    FETCH_HERE,      /* it arrived, or its failure did */
};

struct fetch {
    struct cw_link in_list; /* of r->fetches */
    struct fetch *sibling;  /* the next one of the same batch, or of the same list of a course */
    /* begin of its range. WHAT_BATCHES: the first position of the batch, wherever ranges begin */
    uint64_t epoch, begin;
    Cachew__What what;
    unsigned key;
    /* WHAT_ROWS, WHAT_PART: n elements of the key, from number `first` of the range on. WHAT_KEYS: keys of
     * the elements from number `first` on. WHAT_BATCHES: `first` is the number of the batch in the epoch; in
     * a counted pipeline, n is its number of positions, from `begin` on */
    uint64_t first, n;
    /* WHAT_BATCHES: the batch lies in several ranges, and this fetch is for the part in one of them, which
     * comes as `rows` */
    bool is_part;
    enum fetch_state state;
    uint64_t requested_ns, received_ns; /* times of the first request and of the arrival; 0 without a trace */
    struct link *link;        /* the worker that has not answered the last request yet; NULL: none */
    uint64_t request;         /* id of that request */
    uint64_t requested_begin; /* begin of the range that the request names */
    uint64_t range_end;       /* FETCH_HERE: end of the range that it came from */
    bool lost;                /* its range is lost and will not be run again */
    /* FETCH_HERE: why it failed; WHAT_KEYS: the error in which the range ends. Owned; NULL: no error */
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
    bool changed; /* there are new fetches that the loop's thread has not handled */
};

/* Returns the fetch after f (f NULL: the first one); NULL: there is none. */
struct fetch *cw_fetch_next(const struct remote *r, const struct fetch *f);
/* Adds a copy of *what at the end of the list. NULL: out of memory. */
struct fetch *cw_fetch_new(struct remote *r, const struct fetch *what);
/* Cuts the fetch of a batch in two at position `end`, where a range ends. The second part becomes a new
 * fetch, the next sibling of f and the next in the list. False: out of memory. */
bool cw_fetch_cut(struct remote *r, struct fetch *f, uint64_t end);
/* Moves a fetch of which a part arrived to the end of the list, to request the rest. */
void cw_fetch_again(struct remote *r, struct fetch *f);
/* Removes the fetch *at from its list of siblings, and frees it. */
void cw_fetch_drop(struct remote *r, struct fetch **at);
/* Frees all fetches of a list of siblings. */
void cw_fetches_free(struct remote *r, struct fetch **list);
/* Returns the value of `first` in the request. Requests count batches from the begin of the range that they
 * name. */
uint64_t cw_fetch_first(const struct remote *r, const struct fetch *f);
/* Call when the connection to a worker is lost: its fetches are requested again. */
void cw_fetches_unrequest(struct remote *r, const struct link *l);
