/*
 * A cache point that is used: which rows of an execution the cache has, and moving rows from the cache and to
 * it. The engine owns one per program and cache point. Thread-safe; no lock is held while storage is waited
 * for.
 */
#pragma once
#include "exec/exec.h"

struct cw_cache;
struct cw_cache_set;

int cw_cached_new(const struct cw_exec_env *env, unsigned leaf, const struct cw_cache_point *point,
                  struct cw_cache *cache, struct cw_cached **ret, struct cw_error *err) _must_check_;
struct cw_cached *cw_cached_free(struct cw_cached *c);
const struct cw_op *cw_cached_cache_point(const struct cw_cached *c); /* NULL: c is NULL */
/* Fails for an unusable directory, so that this is known at the start. */
int cw_cached_check(struct cw_cached *c, struct cw_error *err) _must_check_;
/* The profile that earlier runs stored, as JSON, which the caller frees; NULL: there is none. And the one for
 * later runs. */
char *cw_cached_profile(struct cw_cached *c);
void cw_cached_put_profile(struct cw_cached *c, const char *text);

/* The set of an epoch, with a reference that the caller drops; NULL: it can't be opened. */
struct cw_cache_set *cw_cached_set(struct cw_cached *c, const struct cw_epoch *e, struct cw_error *err);
/* Positions that cw_cached_look_up takes at most: its keys are on the stack. */
#define CW_CACHED_LOOK_UP 256
/* Returns how many of n positions of the program's source the set has; found[i] (found may be NULL): whether
 * it has position i. */
size_t cw_cached_look_up(const struct cw_cached *c, struct cw_cache_set *set, const struct cw_epoch *e,
                         const struct cw_ref *refs, size_t n, uint8_t *found);

/* Reads the rows at the cache point, if the cache has every row and gives them within the execution's
 * patience: then x->cache.hit. Else x->cache.kept says which rows are there. 1: would block. */
int cw_cached_fetch(struct cw_exec *x, struct cw_error *err) _must_check_;
/* Drops what was fetched or looked up; use and patience stay. */
void cw_cached_forget(struct cw_exec *x);
/* Columns and statuses that were fetched take the place of what the source and the operators before the cache
 * point make. */
void cw_cached_put_hits(struct cw_exec *x);
/* Keeps the rows of c that were computed up to the cache point. Row i of c is row map[i] of x (map NULL: i).
 */
void cw_cached_keep(struct cw_exec *x, const struct cw_block *c, const uint32_t *map);
/* Keeps that a filter before the cache point dropped rows. Nothing without x->cache.kept. */
void cw_cached_keep_dropped(struct cw_exec *x);
