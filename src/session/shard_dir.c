/* The directory of a materialised data set while a run writes it: its journal, its lock, and its cleaning. */
#include "session/shard_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crash.h"
#include "base/text.h"
#include "dataset/manifest.h"
#include "storage/file.h"

#define PREFIX "shard-"

void cw_shard_name(char out[CW_SHARD_NAME], uint64_t n, const char *format)
{
    snprintf(out, CW_SHARD_NAME, PREFIX "%06" PRIu64 ".%s", n, format);
}

void cw_shard_range_name(char out[CW_SHARD_NAME], uint64_t range, uint64_t k, const char *format)
{
    snprintf(out, CW_SHARD_NAME, PREFIX "%06" PRIu64 "-%02" PRIu64 ".%s", range, k, format);
}

static int shard_dir_fail(const char *path, const char *name, int errnum, struct cw_error *err)
{
    _cleanup_free_ char *file = cw_manifest_path(path, name);
    return file ? cw_error_at_file(err, CW_E_IO, file, errnum, "%s: can't be written", file)
                : cw_error_nomem(err, 0, "a path");
}

static int shard_dir_refuse(const char *path, struct cw_error *err, const char *fmt, ...) _printf_(3, 4);

/* Reports that the directory can't be used. */
static int shard_dir_refuse(const char *path, struct cw_error *err, const char *fmt, ...)
{
    static const char expected[] = "an empty directory, or one that the same run has begun";
    char why[400];
    CW_FORMAT(why, fmt);
    cw_error_file(err, path);
    return cw_error_value(err, CW_E_OPTION, "out", path, expected, "%s %s: expected %s", path, why, expected);
}

/* ---- what the directory holds ---- */

/* Returns whether a run leaves files of this name if it is killed. */
static bool shard_dir_is_left(const char *name)
{
    static const char manifest[] = CW_MANIFEST_NAME CW_PUT_TEMPORARY;
    return strncmp(name, PREFIX, strlen(PREFIX)) == 0 || strncmp(name, manifest, strlen(manifest)) == 0;
}

/* Looks for files that are neither the manifest nor a shard of the list nor `own` (may be NULL). clean:
 * removes those that a killed run has left. *ret: the first of the others, new; NULL: there is none. */
static int shard_dir_scan(const char *path, const json_t *shards, const char *own, bool clean, char **ret,
                          struct cw_error *err)
{
    _cleanup_(cw_paths_deinit) struct cw_paths names = {0};
    json_auto_t *listed = json_object();
    const json_t *shard;
    size_t i;
    *ret = NULL;
    json_array_foreach(shards, i, shard)
        json_object_set_new(listed, json_string_value(json_object_get(shard, "name")), json_true());
    int r = listed ? cw_list(path, &names, err) : cw_error_nomem(err, 0, "the names of shards");
    for (i = 0; r == 0 && i < names.n; i++) {
        const char *name = names.paths[i];
        if (strcmp(name, CW_MANIFEST_NAME) == 0 || json_object_get(listed, name) ||
            (own && strcmp(name, own) == 0))
            continue;
        _cleanup_free_ char *file = cw_manifest_path(path, name);
        if (clean && shard_dir_is_left(name)) {
            if (file && unlink(file) < 0)
                r = cw_error_at_file(err, CW_E_IO, file, errno, "%s: can't be removed", file);
        } else if (!*ret && !(*ret = strdup(name))) {
            r = cw_error_nomem(err, 0, "a name");
        }
    }
    return r;
}

int cw_shard_dir_stranger(const char *path, const json_t *shards, char **ret, struct cw_error *err)
{
    return shard_dir_scan(path, shards, NULL, false, ret, err);
}

/* Removes what a killed run has left beside the finished shards. */
static int shard_dir_clean(const struct cw_shard_dir *d, struct cw_error *err)
{
    _cleanup_free_ char *other = NULL;
    return shard_dir_scan(d->path, d->manifest ? json_object_get(d->manifest, "shards") : d->shards,
                          CW_JOURNAL_NAME, true, &other, err);
}

/* Checks that the finished shards are there with their sizes. */
static int shard_dir_check_shards(const struct cw_shard_dir *d, struct cw_error *err)
{
    const json_t *shard;
    size_t i;
    json_array_foreach(d->shards, i, shard)
    {
        const char *name = json_string_value(json_object_get(shard, "name"));
        json_int_t bytes = json_integer_value(json_object_get(shard, "bytes"));
        _cleanup_free_ char *file = cw_manifest_path(d->path, name ? name : "");
        struct stat st;
        if (!file)
            return cw_error_nomem(err, 0, "a path");
        if (stat(file, &st) < 0)
            return cw_error_at_file(err, CW_E_DATA, file, errno,
                                    "%s: a finished shard is missing; remove the directory to begin again",
                                    file);
        if (st.st_size != bytes)
            return cw_error_at_file(
                err, CW_E_DATA, file, 0,
                "%s has %lld bytes, expected %lld: a finished shard was changed; remove the "
                "directory to begin again",
                file, (long long)st.st_size, (long long)bytes);
    }
    return 0;
}

/* ---- the run ---- */

/* Returns whether the run that this describes is one of a service. */
static bool shard_dir_is_shared(const json_t *run)
{
    return json_object_get(json_object_get(run, "lineage"), "run") != NULL;
}

/* Checks that the directory belongs to this run. had: the description of the run that has begun it. */
static int shard_dir_check_run(const struct cw_shard_dir *d, const json_t *had, struct cw_error *err)
{
    static const struct {
        const char *key, *noun;
        bool lineage;
    } facts[] = {{"fingerprint", "pipeline", true},
                 {"data", "input data", true},
                 {"seed", "seed", true},
                 {"format", "format", false},
                 {"shard_bytes", "shard_bytes", true},
                 {"components", "components", false}};

    if (shard_dir_is_shared(had) != d->shared)
        return shard_dir_refuse(d->path, err, "holds data of another run, which was made %s a service",
                                d->shared ? "without" : "with");
    for (size_t i = 0; i < CW_COUNT_OF(facts); i++) {
        const json_t *x = facts[i].lineage ? json_object_get(had, "lineage") : had;
        const json_t *y = facts[i].lineage ? json_object_get(d->run, "lineage") : d->run;
        x = json_object_get(x, facts[i].key);
        y = json_object_get(y, facts[i].key);
        if (json_equal(x, y) || json_is_null(x) || json_is_null(y)) /* null: not known */
            continue;
        if (!json_is_integer(x) || !json_is_integer(y))
            return shard_dir_refuse(d->path, err, "holds data of another run, with another %s",
                                    facts[i].noun);
        return shard_dir_refuse(d->path, err, "holds data of another run: its %s is %lld, not %lld",
                                facts[i].noun, json_integer_value(x), json_integer_value(y));
    }
    return 0;
}

/* Sets d->manifest if the data set is complete. */
static int shard_dir_read_manifest(struct cw_shard_dir *d, struct cw_error *err)
{
    struct cw_manifest m;
    _cleanup_free_ char *file = cw_manifest_path(d->path, CW_MANIFEST_NAME);
    if (!file)
        return cw_error_nomem(err, 0, "a path");
    if (d->manifest || (access(file, F_OK) < 0 && errno == ENOENT))
        return 0;
    int r = cw_manifest_read(d->path, &m, err);
    if (r == 0)
        r = shard_dir_check_run(d, m.root, err);
    if (r == 0)
        d->manifest = json_incref(m.root);
    cw_manifest_deinit(&m);
    return r;
}

/* ---- the journal ---- */

static int journal_append(const struct cw_shard_dir *d, const json_t *line, struct cw_error *err)
{
    _cleanup_free_ char *text = json_dumps(line, JSON_COMPACT);
    size_t size = text ? strlen(text) : 0;
    if (!text)
        return cw_error_nomem(err, 0, "the journal");
    text[size] = '\n'; /* in place of the NUL */
    if (cw_write_all(d->journal, text, size + 1) < 0 || fdatasync(d->journal) < 0)
        return shard_dir_fail(d->path, CW_JOURNAL_NAME, errno, err);
    return 0;
}

/* Takes over the content of a line. False: the line is not one of a journal. */
static bool journal_take(struct cw_shard_dir *d, const json_t *line)
{
    json_t *shard = json_object_get(line, "shard"), *state = json_object_get(line, "state");
    if (!json_is_object(shard) || !json_is_integer(json_object_get(line, "skip")) ||
        json_array_append(d->shards, shard) < 0)
        return false;
    json_decref(d->state);
    d->state = json_is_object(state) ? json_incref(state) : NULL;
    d->skip = (uint64_t)json_integer_value(json_object_get(line, "skip"));
    json_t *data = json_object_get(line, "data"), *lineage = json_object_get(d->run, "lineage");
    return !data || json_object_set(lineage, "data", data) == 0;
}

/* Checks that the journal, which begins with this line, is one of this run, and takes over the run's name. */
static int journal_take_run(struct cw_shard_dir *d, const json_t *line, struct cw_error *err)
{
    json_t *name = json_object_get(json_object_get(line, "lineage"), "run");
    int r = shard_dir_check_run(d, line, err);
    if (r == 0 && name && json_object_set(json_object_get(d->run, "lineage"), "run", name) < 0)
        r = cw_error_nomem(err, 0, "the name of a run");
    return r;
}

/* Reads the lines of the journal; a last line that is not complete is removed. *ret_begun: it has a first
 * line. */
static int journal_read(struct cw_shard_dir *d, bool *ret_begun, struct cw_error *err)
{
    _cleanup_free_ char *file = cw_manifest_path(d->path, CW_JOURNAL_NAME), *text = NULL;
    size_t size, at = 0;
    *ret_begun = false;
    int r = file ? cw_read_file(file, CW_JOURNAL_BYTES, &text, &size, err) : cw_error_nomem(err, 0, "a path");
    for (char *end; r == 0 && at < size && (end = memchr(text + at, '\n', size - at));
         at = (size_t)(end - text) + 1) {
        json_auto_t *line = json_loadb(text + at, (size_t)(end - text) - at, JSON_REJECT_DUPLICATES, NULL);
        if (*ret_begun ? !journal_take(d, line) : !json_object_get(line, "lineage"))
            r = cw_error_at_file(err, CW_E_DATA, file, 0,
                                 "%s is damaged at byte %zu; remove the directory to begin again", file, at);
        else if (!*ret_begun)
            r = journal_take_run(d, line, err);
        *ret_begun = true;
    }
    if (r == 0 && at < size && ftruncate(d->journal, (off_t)at) < 0)
        r = shard_dir_fail(d->path, CW_JOURNAL_NAME, errno, err);
    return r;
}

/* Opens the journal, or makes it, and locks it. */
static int journal_lock(struct cw_shard_dir *d, struct cw_error *err)
{
    _cleanup_free_ char *file = cw_manifest_path(d->path, CW_JOURNAL_NAME), *other = NULL;
    struct stat st;
    if (!file)
        return cw_error_nomem(err, 0, "a path");
    if (access(file, F_OK) < 0) {
        int r = shard_dir_scan(d->path, NULL, NULL, false, &other, err);
        if (r < 0 || other)
            return r < 0 ? r : shard_dir_refuse(d->path, err, "holds other files (%.80s)", other);
    }
    d->journal = open(file, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (d->journal < 0)
        return cw_error_at_file(err, errno == ENOSPC || errno == EDQUOT ? CW_E_IO : CW_E_OPTION, file, errno,
                                "%s: can't be written", file);
    int e = flock(d->journal, LOCK_EX | LOCK_NB) < 0 ? errno : 0;
    if (e && e != EWOULDBLOCK)
        return cw_error_at_file(err, CW_E_IO, file, e, "%s: can't be locked", file);
    if (e || fstat(d->journal, &st) < 0 || st.st_nlink == 0) /* not linked: a run has just finished */
        return shard_dir_refuse(d->path, err, "is being written by another process");
    return 0;
}

static int journal_remove(struct cw_shard_dir *d, struct cw_error *err)
{
    _cleanup_free_ char *file = cw_manifest_path(d->path, CW_JOURNAL_NAME);
    if (!file)
        return cw_error_nomem(err, 0, "a path");
    if (unlink(file) < 0)
        return cw_error_at_file(err, CW_E_IO, file, errno, "%s: can't be removed", file);
    cw_sync_directory(d->path);
    return 0;
}

/* Goes on where the journal ends, or begins it. */
static int journal_resume(struct cw_shard_dir *d, struct cw_error *err)
{
    bool begun;
    int r = journal_read(d, &begun, err);
    if (r < 0)
        return r;
    if (!begun && !d->manifest) {
        r = journal_append(d, d->run, err);
        cw_sync_directory(d->path);
        return r;
    }
    r = d->shared && !d->manifest ? 0 : shard_dir_clean(d, err);
    if (r == 0)
        r = shard_dir_check_shards(d, err);
    return r == 0 && d->manifest ? journal_remove(d, err) : r;
}

/* ---- the interface ---- */

int cw_shard_dir_open(struct cw_shard_dir *d, const char *path, json_t *run, struct cw_error *err)
{
    *d = (struct cw_shard_dir){.path = strdup(path), .journal = -1, .run = run, .shards = json_array()};
    if (!d->path || !d->run || !d->shards)
        return cw_error_nomem(err, 0, "a directory of shards");
    d->shared = shard_dir_is_shared(run);
    int r = cw_make_dirs(path, err);
    if (r == CW_E_IO) /* an option names it */
        r = err ? (err->status = CW_E_OPTION) : CW_E_OPTION;
    if (r == 0)
        r = shard_dir_read_manifest(d, err);
    _cleanup_free_ char *journal = r == 0 ? cw_manifest_path(path, CW_JOURNAL_NAME) : NULL;
    if (r < 0 || (d->manifest && journal && access(journal, F_OK) < 0))
        return r;
    r = journal_lock(d, err);
    if (r == 0)
        r = shard_dir_read_manifest(d, err); /* another process may have finished since */
    return r == 0 ? journal_resume(d, err) : r;
}

/* Gives the temporary file of a shard its name, unless an earlier process of the run has done so. */
static int shard_dir_rename(const char *temporary, const char *file, json_int_t bytes, struct cw_error *err)
{
    struct stat st;
    if (rename(temporary, file) == 0)
        return 0;
    int e = errno;
    return e == ENOENT && stat(file, &st) == 0 && st.st_size == bytes
               ? 0
               : cw_error_at_file(err, CW_E_IO, file, e, "%s: can't be written", file);
}

int cw_shard_dir_add(struct cw_shard_dir *d, const char *temporary, json_t *shard, json_t *state,
                     uint64_t skip, struct cw_error *err)
{
    json_t *data = d->shared ? json_object_get(json_object_get(d->run, "lineage"), "data") : NULL;
    json_auto_t *line = json_pack("{s:o, s:o, s:I, s:O*}", "shard", shard, "state", state, "skip",
                                  (json_int_t)skip, "data", data);
    const char *name = json_string_value(json_object_get(shard, "name"));
    _cleanup_free_ char *file = line ? cw_manifest_path(d->path, name) : NULL,
                        *from = line ? cw_manifest_path(d->path, temporary) : NULL;
    if (!file || !from)
        return cw_error_nomem(err, 0, "the journal");
    cw_crash_point("materialize-rename");
    int r = shard_dir_rename(from, file, json_integer_value(json_object_get(shard, "bytes")), err);
    if (r < 0)
        return r;
    cw_sync_directory(d->path);
    cw_crash_point("materialize-renamed");
    r = journal_append(d, line, err);
    cw_crash_point("materialize-journal");
    if (r == 0 && json_array_append(d->shards, shard) < 0)
        r = cw_error_nomem(err, 0, "the list of shards");
    return r;
}

int cw_shard_dir_publish(struct cw_shard_dir *d, json_t *totals, struct cw_error *err)
{
    json_auto_t *own = totals;
    json_auto_t *root = json_pack("{s:i}", "materialized", CW_MANIFEST_VERSION);
    bool made = own && root && json_object_update(root, d->run) == 0 && json_object_update(root, own) == 0 &&
                json_object_set(root, "shards", d->shards) == 0;
    _cleanup_free_ char *text = made ? json_dumps(root, JSON_INDENT(1)) : NULL;
    _cleanup_free_ char *file = cw_manifest_path(d->path, CW_MANIFEST_NAME);
    int r = text && file ? cw_put(file, text, strlen(text), err) : cw_error_nomem(err, 0, "the manifest");
    if (r < 0)
        return r;
    cw_crash_point("materialize-published");
    d->manifest = json_incref(root);
    r = d->shared ? shard_dir_clean(d, err) : 0;
    return r < 0 ? r : journal_remove(d, err);
}

const char *cw_shard_dir_run(const struct cw_shard_dir *d)
{
    return json_string_value(json_object_get(json_object_get(d->run, "lineage"), "run"));
}

int cw_shard_dir_check_member(const char *path, const char *run, struct cw_error *err)
{
    _cleanup_free_ char *file = cw_manifest_path(path, CW_JOURNAL_NAME), *line = NULL;
    size_t room = 0;
    if (!file)
        return cw_error_nomem(err, 0, "a path");
    FILE *journal = fopen(file, "re");
    if (!journal)
        return cw_error_at_file(err, CW_E_IO, file, errno,
                                "%s: can't be read on this worker: expected the directory of the command, "
                                "shared among its host and those of all workers",
                                file);
    ssize_t size = getline(&line, &room, journal);
    fclose(journal);
    json_auto_t *had = size > 0 ? json_loadb(line, (size_t)size, 0, NULL) : NULL;
    const char *name = json_string_value(json_object_get(json_object_get(had, "lineage"), "run"));
    if (!name || strcmp(name, run) != 0)
        return cw_error_at_file(err, CW_E_IO, file, 0,
                                "%s is of another run on this worker: expected the directory of the command, "
                                "shared among its host and those of all workers",
                                file);
    return 0;
}

void cw_shard_dir_close(struct cw_shard_dir *d)
{
    if (d->journal >= 0)
        close(d->journal);
    json_decref(d->run);
    json_decref(d->shards);
    json_decref(d->state);
    json_decref(d->manifest);
    free(d->path);
    *d = (struct cw_shard_dir){.journal = -1};
}
