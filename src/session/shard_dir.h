/*
 * The directory of a materialised data set while a run writes it. The journal (DIR/journal.jsonl) lists the
 * shards that are finished, so that a run that was killed goes on after the last one. A shard is written
 * under the temporary name NAME.tmp, synced, renamed, and only then listed; the manifest is published at the
 * end, and the journal removed. One process at a time writes a directory: it holds a lock on the journal.
 *
 * The journal's first line describes the run: {format, components, lineage}. Each further line is
 * {shard, state, skip}: the shard's entry in the manifest, and the position after it. The position is a state
 * of the iterator and the number of elements of the batch after it that finished shards hold (with a service:
 * the number of shards of the range after it). With a service, a line also has the `data` of the lineage.
 *
 * With a service, workers write the temporary files, also while no command runs. So files that are not listed
 * are removed only once the manifest is published, which workers notice.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"

struct cw_shard_dir {
    char *path;
    int journal;    /* descriptor, locked; -1: none is open */
    json_t *run;    /* the description of the run */
    json_t *shards; /* entries of the finished shards */
    bool shared;    /* workers of a service write the files: the run has a name (lineage.run) */
    json_t *state;  /* after the last one; NULL: the beginning */
    uint64_t skip;
    json_t *manifest; /* set if the data set is complete */
};

/* Opens the directory for a run, and makes it if it does not exist. Removes what a killed run has left beside
 * the finished shards. Takes over the reference `run`, in whose lineage the member `run` is replaced by that
 * of the run which has begun the directory. CW_E_OPTION: the directory can't be used: it holds other files or
 * the data of another run, or another process writes it. The caller closes *d, also after an error. */
int cw_shard_dir_open(struct cw_shard_dir *d, const char *path, json_t *run,
                      struct cw_error *err) _must_check_;
/* Renames the temporary file of a shard, which is synced, and adds the shard to the journal. temporary: the
 * file's name; an earlier process of the same run may have renamed it. Takes over the references `shard` and
 * `state`. */
int cw_shard_dir_add(struct cw_shard_dir *d, const char *temporary, json_t *shard, json_t *state,
                     uint64_t skip, struct cw_error *err) _must_check_;
/* Writes the manifest: the description, {elements, bytes, set_digest} of `totals`, and the shards. Then
 * removes the journal. Takes over the reference `totals`. */
int cw_shard_dir_publish(struct cw_shard_dir *d, json_t *totals, struct cw_error *err) _must_check_;
void cw_shard_dir_close(struct cw_shard_dir *d);
/* Returns the name of the run, for which the directory is open; NULL: it has none. */
const char *cw_shard_dir_run(const struct cw_shard_dir *d);
/* For a worker: checks that the path leads to the directory of the run with this name. CW_E_IO: it does not.
 */
int cw_shard_dir_check_member(const char *path, const char *run, struct cw_error *err) _must_check_;

/* The extension of a shard's temporary file. */
#define CW_SHARD_TEMPORARY ".tmp"
#define CW_SHARD_NAME 64 /* bytes of a shard's name */
/* Writes the name of shard number n: "shard-000012.tar". */
void cw_shard_name(char out[CW_SHARD_NAME], uint64_t n, const char *format);
/* Writes the name of shard k of a range: "shard-000012-00.tar". */
void cw_shard_range_name(char out[CW_SHARD_NAME], uint64_t range, uint64_t k, const char *format);
/* Sets *ret to the first name in the directory, in byte order, that is neither a shard of the list (entries
 * of a manifest) nor the manifest; NULL: there is none. The caller frees it. */
int cw_shard_dir_stranger(const char *path, const json_t *shards, char **ret,
                          struct cw_error *err) _must_check_;
