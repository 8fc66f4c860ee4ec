/*
 * A cache point in use: finds which rows of an execution the cache has, reads them, and writes other rows to
 * the cache. The engine owns one for each program and cache point. Thread-safe; no lock is held during a wait
 * for storage.
 */
#pragma once
#include "exec/exec.h"

struct cw_cache;
struct cw_cache_set;

int cw_cached_new(const struct cw_exec_env *env, unsigned leaf, const struct cw_cache_point *point,
                  struct cw_cache *cache, struct cw_cached **ret, struct cw_error *err) _must_check_;
struct cw_cached *cw_cached_free(struct cw_cached *c);
const struct cw_op *cw_cached_cache_point(const struct cw_cached *c); /* Returns NULL if c is NULL */
/* Returns an error if the cache directory can't be used, so that this is known at the start. */
int cw_cached_check(struct cw_cached *c, struct cw_error *err) _must_check_;
/* Return the profile (JSON text) that earlier runs stored, which the caller frees; NULL: there is none. And
 * store a profile for later runs. */
char *cw_cached_profile(struct cw_cached *c);
void cw_cached_put_profile(struct cw_cached *c, const char *text);

/* Returns the cache set (entries of one cache point) of an epoch, with a reference that the caller drops;
 * NULL: it can't be opened. */
struct cw_cache_set *cw_cached_set(struct cw_cached *c, const struct cw_epoch *e, struct cw_error *err);
/* The most positions that cw_cached_look_up takes in one call: its keys are on the stack. */
#define CW_CACHED_LOOK_UP 256
/* Returns how many of n positions of the program's source the set has. found[i] (found may be NULL) is set to
 * whether it has position i. */
size_t cw_cached_look_up(const struct cw_cached *c, struct cw_cache_set *set, const struct cw_epoch *e,
                         const struct cw_ref *refs, size_t n, uint8_t *found);

/* Reads the rows at the cache point, if the cache has every row and gives them within the execution's
 * patience, and sets x->cache.hit. Otherwise x->cache.kept says which rows the cache has. 1: the read would
 * block. */
int cw_cached_fetch(struct cw_exec *x, struct cw_error *err) _must_check_;
/* Drops rows that were read and the result of the look-up; use and patience stay. */
void cw_cached_forget(struct cw_exec *x);
/* Puts the columns and statuses that were read in place of those that the source and the operators before the
 * cache point would make. */
void cw_cached_put_hits(struct cw_exec *x);
/* Writes to the cache the rows of c that were computed up to the cache point. Row i of c is row map[i] of x
 * (map NULL: row i). */
void cw_cached_keep(struct cw_exec *x, const struct cw_block *c, const uint32_t *map);
/* Writes to the cache that a filter before the cache point dropped rows. Does nothing without
 * x->cache.kept. */
void cw_cached_keep_dropped(struct cw_exec *x);
