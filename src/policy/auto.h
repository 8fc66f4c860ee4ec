/* auto's memory and the parts that it is made of: what is measured and whether that says that conditions
 * changed (auto_watch.c), what is believed (auto_belief.c), how that is told (auto_record.c), when what is
 * done (auto.c). */
#pragma once
#include "policy/plan.h"
#include "policy/policies.h"

#define CW_AUTO_WAITING 0.01 /* part of the interval below which the client counts as served */
#define CW_AUTO_SURE 2.0     /* standard errors that a gain must exceed */
#define CW_AUTO_EXACT 0.005  /* the standard error with which it rests */
#define CW_AUTO_GREW 0.02    /* of what was not cached, more or less of it: that matters */

struct cw_auto_pool { /* of facts, in their order; auto_pools.c */
    double id;        /* its name, hashed; 0: there is none here */
    double target;    /* workers that were decided on, ... */
    double asked_s;   /* ... when */
    double maximum;   /* workers that there might be, at the last report */
    double speed;     /* of a worker, of one of the first pool that there was */
    /* of a worker per batch, as far as it was measured beside others; n 0: cpu_share says what its speed is
     */
    struct cw_mean compute;
};

/* Workers are counted by what they are worth: `target`, `running` and `maximum` are capacities (supply.h).
 * With one pool that is their number. */
struct cw_auto {
    double target, cache_point, decisions, resting, maximum;
    double tried; /* fewer than so many, which do, are tried out; -1: that was tried under these conditions */
    /* at the last report; of what is cached the part that was decided with, and that there was then */
    double running, cached, cached_seen;
    struct cw_auto_pool pools[CW_POLICY_POOLS];
    double cache_points;      /* that facts told of: who measures them may need a while, or be new */
    double since_s, looked_n; /* measuring at this number of workers since; batches at the last look */
    double objective, client_price_per_h; /* at the last report */
    double last_s, past_s, past_cost; /* the last report; what the job took since conditions were others */
    double promises;                  /* by the last record the client does not wait */
    /* though it does: what was measured says so, however it scatters */
    double waits;
    /* reports that are watched together, and those that showed waiting, one after the other; one without a
     * whole batch counts as that part */
    double watched, waited;

    /* of these */
    struct cw_auto_seen {
        struct cw_mean step, interval, compute;
        double busy;
    } watched_together, waited_together;

    double busiest, source_bytes_per_s, floor_s;
    /* the cache's, as a decision was made with; what changed since is looked at once */
    double read_bytes_per_s, write_bytes_per_s;
    double saved_s; /* of a batch by all cache points together, likewise */
    /* with these workers under these conditions (step: under these conditions) */
    struct cw_mean step, interval, compute;
    double busy;
    /* not absorbed yet: conditions may have changed */
    struct cw_mean recent_step, recent_interval, recent_compute;
    double recent_busy;
    double n_points;
    struct cw_point points[CW_CURVE_POINTS];
};

_Static_assert(sizeof(struct cw_auto) <= sizeof(struct cw_policy_memory),
               "the memory of a policy is too small");

/* Pools come and go, and their order in facts may change: what is known of each stays with it. Returns what
 * was decided on of those that are gone. */
double cw_auto_fit_pools(struct cw_auto *m, const struct cw_facts *f);
/* What workers of each pool are worth beside one another, from what they measured in the same report. */
void cw_auto_learn_speeds(struct cw_auto *m, const struct cw_facts *f);
void cw_auto_supply(const struct cw_auto *m, const struct cw_facts *f, struct cw_supply *ret);

/* of a worker of the first pool, as if all were such */
struct cw_auto_work {
    struct cw_mean compute;
    double busy;
};
struct cw_auto_work cw_auto_work(const struct cw_auto *m, const struct cw_facts *f);
double cw_auto_running(const struct cw_auto *m, const struct cw_facts *f);
/* Of all workers that run or start, per hour; and of those that were decided on. */
double cw_auto_price(const struct cw_auto *m, const struct cw_facts *f, bool decided);
/* Until workers of every pool have started. */
double cw_auto_start_delay(const struct cw_facts *f);
void cw_auto_target(const struct cw_auto *m, int *ret);
bool cw_auto_is_target(const struct cw_auto *m, const int *workers);
void cw_auto_set_target(struct cw_auto *m, const int *workers);
/* the same, and they come a start delay later */
void cw_auto_ask(struct cw_auto *m, const int *workers, double now_s);

/* With these workers nothing was measured yet. */
void cw_auto_measure_anew(struct cw_auto *m, double now_s);
/* Conditions are others: of what was decided before no more than `decisions` count. Whether fewer do
 * (`tried`) may be known all the same, or being tried. */
void cw_auto_begin_anew(struct cw_auto *m, double decisions);
/* The cache is as a decision is made with now. */
void cw_auto_note_cache(struct cw_auto *m, const struct cw_facts *f);
/*
 * Takes in what was measured. True if conditions changed: all begins anew with what is seen now. What comes
 * in counts once a change would have shown in it: at once as long as nothing much is known.
 */
bool cw_auto_changed(struct cw_auto *m, const struct cw_facts *f, const struct cw_demand *now, double now_s);
/* Takes note of whether the client waits. True, within CW_AUTO_REPORTS of them: it does, and by the last
 * record it would not. */
#define CW_AUTO_REPORTS 10
bool cw_auto_broken(struct cw_auto *m, const struct cw_facts *f, const struct cw_demand *now);
/* There is another plan: whether the client waits with that is to be seen. */
void cw_auto_forget_waiting(struct cw_auto *m);
/* What was seen of waiting is what is known of these workers, however it scatters; of what was decided
 * before no more than `decisions` count. */
void cw_auto_believe_waiting(struct cw_auto *m, double decisions, double now_s);
/* The epoch turned, and workers come to know one after the other what is cached of it: it is waited for until
 * they agree about. */
bool cw_auto_cache_grows(struct cw_auto *m, const struct cw_facts *f);
/* More is cached, or less: what that changes is known, so it need not be measured first. */
bool cw_auto_cache_grew(struct cw_auto *m, const struct cw_facts *f, double now_s);

/* What a batch's prefix takes at a cache point; -1: nothing. */
double cw_auto_prefix_s(const struct cw_facts *f, int cache_point);
/* What a worker computes for a batch, nothing cached: at least what any prefix takes, since few batches may
 * say less. */
double cw_auto_all_s(const struct cw_auto *m, const struct cw_facts *f);
/* The interval with all the workers that there may be, if they are alike: a step much shorter than that makes
 * no difference. */
double cw_auto_fastest(const struct cw_auto *m);
/* The relative standard error of what was measured with these workers. */
double cw_auto_error(const struct cw_auto *m);
/* The same for a first guess, to be corrected: of workers that are all busy it is known by what they compute,
 * though batches come a range at a time. */
double cw_auto_rough_error(const struct cw_auto *m, const struct cw_facts *f);
/* What a batch scatters, relative: about the same with any number of workers, so all points tell it. 0: not
 * known. */
double cw_auto_scatter(const struct cw_auto *m);
/* The standard error of what is known of the input side, at the number of workers for which most is known. */
double cw_auto_supply_error(const struct cw_auto *m);
/* What was seen with these workers becomes a point of the curve, or a limit. */
void cw_auto_learn(struct cw_auto *m, const struct cw_facts *f);
/* All that is believed. There must be a point. */
void cw_auto_outlook(const struct cw_auto *m, const struct cw_facts *f, struct cw_outlook *o);
/* The standard error with which a decision may be made now, if the rest of the job can be done so. */
double cw_auto_tolerated_error(const struct cw_auto *m, const struct cw_facts *f,
                               const struct cw_alternative *rest, double now_s);
/* How much of best's capacity to try at once: more than were ever seen are a guess. */
double cw_auto_restrain(const struct cw_auto *m, const struct cw_facts *f, const struct cw_alternative *best);
/* A capacity to try because what was seen leaves open what the curve is like; 0: none. */
double cw_auto_explore(const struct cw_auto *m, const struct cw_outlook *believed,
                       const struct cw_alternative *stay, double error);
/* The same, one worker fewer than do, which may do, too. */
double cw_auto_fewer(const struct cw_auto *m, const struct cw_outlook *o, const struct cw_alternative *stay,
                     double error);

/* What a record tells beside what is chosen. */
struct cw_auto_reason {
    const char *why; /* it is decided now */
    /* what seems better, as far as is known; NULL, or what is chosen: nothing does */
    const struct cw_alternative *better;
    const char *but; /* why it is not chosen */
    bool told;       /* that nothing else is done is a record, too */
};

/* Fills in the record of a decision. */
void cw_auto_record(const struct cw_auto *m, const struct cw_outlook *o, const struct cw_alternative *chosen,
                    const struct cw_auto_reason *reason, struct cw_decision *d);
