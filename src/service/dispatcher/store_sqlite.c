/* The store as an SQLite file, journal.db: one table of keys and values, a write-ahead log, and an fsync per
 * transaction (synchronous=FULL). One process locks the file (locking_mode=EXCLUSIVE), so SQLite needs no
 * shared memory. All SQL of the project is in this file. store.c calls it, from one thread at a time. */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crash.h"
#include "base/fd.h"
#include "service/dispatcher/store.h"

#define APPLICATION 0x43575354 /* "CWST", in the header of the file */
#define VERSION 2
/* pages of the log (16 MiB) before a checkpoint copies it into the file; few transactions have to wait for
 * that */
#define CHECKPOINT_PAGES 4000

enum { SQL_BEGIN, SQL_COMMIT, SQL_ROLLBACK, SQL_PUT, SQL_DELETE, SQL_DELETE_RANGE, SQL_READ, SQL_COUNT };

static const char *const sql[SQL_COUNT] = {
    "BEGIN IMMEDIATE",
    "COMMIT",
    "ROLLBACK",
    "INSERT INTO entries (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    "DELETE FROM entries WHERE key = ?1",
    "DELETE FROM entries WHERE key >= ?1 AND key < ?2",
    "SELECT key, value FROM entries ORDER BY key",
};

struct cw_store_file {
    sqlite3 *db;
    char *path;
    sqlite3_stmt *statements[SQL_COUNT];
};

static int file_damaged(struct cw_store_file *f, const char *how, struct cw_error *err)
{
    cw_error_set(err, CW_E_DATA,
                 "%s: the dispatcher's journal is damaged (%s): restore the file from a copy; or move it and "
                 "%s-wal away: then the dispatcher starts without jobs, and jobs with exactly-once go on "
                 "from the positions of their clients",
                 f->path, how, f->path);
    cw_error_file(err, f->path);
    return CW_E_DATA;
}

static int file_error(struct cw_store_file *f, struct cw_error *err)
{
    int code = sqlite3_errcode(f->db) & 0xff, system = sqlite3_system_errno(f->db);
    int status = code == SQLITE_BUSY ? CW_E_SERVICE : code == SQLITE_NOMEM ? CW_E_MEMORY : CW_E_IO;
    if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT)
        return file_damaged(f, sqlite3_errmsg(f->db), err);
    if (code == SQLITE_FULL && system == 0) /* SQLite does not report the system's error here */
        system = ENOSPC;
    bool shows = system != 0 && (code == SQLITE_IOERR || code == SQLITE_CANTOPEN || code == SQLITE_FULL ||
                                 code == SQLITE_READONLY);
    cw_error_set(err, status, "%s: %s%s%s%s", f->path,
                 code == SQLITE_BUSY ? "another process uses the file" : sqlite3_errmsg(f->db),
                 shows ? " (" : "", shows ? strerror(system) : "", shows ? ")" : "");
    cw_error_file(err, f->path);
    return status;
}

static int file_run(struct cw_store_file *f, int which, const struct cw_store_op *op, struct cw_error *err)
{
    sqlite3_stmt *q = f->statements[which];
    if (op) {
        sqlite3_bind_blob64(q, 1, op->key, op->key_size, SQLITE_STATIC);
        if (which != SQL_DELETE)
            sqlite3_bind_blob64(q, 2, op->value_size > 0 ? op->value : (const uint8_t *)"", op->value_size,
                                SQLITE_STATIC);
    }
    int r = sqlite3_step(q) == SQLITE_DONE ? 0 : file_error(f, err);
    sqlite3_reset(q);
    return r;
}

struct cw_store_file *cw_store_file_close(struct cw_store_file *f)
{
    if (!f)
        return NULL;
    if (cw_mutated("sync") && f->db && !sqlite3_get_autocommit(f->db))
        (void)file_run(f, SQL_COMMIT, NULL, NULL);
    for (int i = 0; i < SQL_COUNT; i++)
        sqlite3_finalize(f->statements[i]);
    sqlite3_close(f->db); /* also copies the log into the file */
    free(f->path);
    free(f);
    return NULL;
}

/* Runs a query that returns one row. *q: the statement, at its row; the caller finalizes it, also after an
 * error. */
static int file_row(struct cw_store_file *f, const char *text, sqlite3_stmt **q, struct cw_error *err)
{
    return sqlite3_prepare_v2(f->db, text, -1, q, NULL) == SQLITE_OK && sqlite3_step(*q) == SQLITE_ROW
               ? 0
               : file_error(f, err);
}

static void file_finalizep(sqlite3_stmt **q)
{
    sqlite3_finalize(*q);
}

static int file_exec(struct cw_store_file *f, const char *text, struct cw_error *err)
{
    return sqlite3_exec(f->db, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : file_error(f, err);
}

/* Creates the table in an empty file, or checks that the file is a dispatcher's journal of this version. */
static int file_claim(struct cw_store_file *f, struct cw_error *err)
{
    _cleanup_(file_finalizep) sqlite3_stmt *q = NULL;
    char text[256];
    int r = file_row(f,
                     "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) FROM "
                     "pragma_application_id, pragma_user_version",
                     &q, err);
    if (r < 0)
        return r;
    int application = sqlite3_column_int(q, 0), version = sqlite3_column_int(q, 1);
    bool empty = sqlite3_column_int(q, 2) == 0;
    sqlite3_reset(q); /* otherwise it holds a lock */
    if (application == 0 && empty) {
        snprintf(text, sizeof(text),
                 "BEGIN; PRAGMA application_id=%d; PRAGMA user_version=%d; CREATE TABLE entries (key BLOB "
                 "PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID; COMMIT",
                 APPLICATION, VERSION);
        return file_exec(f, text, err);
    }
    if (application != APPLICATION || version != VERSION) {
        cw_error_set(err, CW_E_DATA,
                     "%s: this is not a dispatcher's journal, or one of another version (application %x, "
                     "version %d; expected %x, %d): move the file away, or choose another state directory",
                     f->path, (unsigned)application, version, APPLICATION, VERSION);
        cw_error_file(err, f->path);
        return CW_E_DATA;
    }
    return 0;
}

/* Makes the directory and the file, readable only by the owner, because pipelines may contain secrets. */
static int file_create(const char *dir, const char *path, struct cw_error *err)
{
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return cw_error_errno(err, CW_E_IO, errno, "%s: can't make the state directory", dir);
    _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return cw_error_errno(err, CW_E_IO, errno, "%s: can't open the file for writing", path);
    _cleanup_close_ int directory = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return directory < 0 || fsync(directory) < 0
               ? cw_error_errno(err, CW_E_IO, errno, "%s: can't sync the directory to disk", dir)
               : 0;
}

static int file_prepare(struct cw_store_file *f, struct cw_error *err)
{
    char text[256];
    /* EXCLUSIVE must come first: then the log's index is in this process's heap, not in shared memory. */
    snprintf(text, sizeof(text),
             "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA "
             "wal_autocheckpoint=%d",
             CHECKPOINT_PAGES);
    int r = file_exec(f, text, err);
    if (r == 0)
        r = file_claim(f, err);
    for (int i = 0; r == 0 && i < SQL_COUNT; i++)
        if (sqlite3_prepare_v3(f->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &f->statements[i], NULL) !=
            SQLITE_OK)
            r = file_error(f, err);
    return r;
}

int cw_store_file_open(const char *dir, struct cw_store_file **ret, struct cw_error *err)
{
    struct cw_store_file *f = calloc(1, sizeof(*f));
    if (!f || asprintf(&f->path, "%s/journal.db", dir) < 0) {
        free(f);
        return cw_error_nomem(err, sizeof(*f), "the journal");
    }
    int r = file_create(dir, f->path, err);
    if (r == 0 &&
        sqlite3_open_v2(f->path, &f->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        r = f->db ? file_error(f, err) : cw_error_nomem(err, 0, "the journal");
    if (r == 0)
        r = file_prepare(f, err);
    if (r < 0) {
        cw_store_file_close(f);
        return r;
    }
    *ret = f;
    return 0;
}

/* Checks the pages of the file, so that missing entries are noticed. */
static int file_check(struct cw_store_file *f, struct cw_error *err)
{
    _cleanup_(file_finalizep) sqlite3_stmt *q = NULL;
    int r = file_row(f, "PRAGMA quick_check(1)", &q, err);
    const char *found = r == 0 ? (const char *)sqlite3_column_text(q, 0) : "ok";
    return strcmp(found, "ok") != 0 ? file_damaged(f, found, err) : r;
}

int cw_store_file_read(struct cw_store_file *f,
                       int (*row)(void *user, const void *key, size_t key_size, const void *value,
                                  size_t value_size, struct cw_error *err),
                       void *user, struct cw_error *err)
{
    sqlite3_stmt *q = f->statements[SQL_READ];
    int r = file_check(f, err), step;
    while (r == 0 && (step = sqlite3_step(q)) != SQLITE_DONE) {
        if (step != SQLITE_ROW) {
            r = file_error(f, err);
            break;
        }
        const void *key = sqlite3_column_blob(q, 0), *value = sqlite3_column_blob(q, 1); /* NULL: empty */
        r = row(user, key ? key : "", (size_t)sqlite3_column_bytes(q, 0), value ? value : "",
                (size_t)sqlite3_column_bytes(q, 1), err);
    }
    sqlite3_reset(q);
    return r;
}

const char *cw_store_file_path(const struct cw_store_file *f)
{
    return f->path;
}

int cw_store_file_apply(struct cw_store_file *f, const struct cw_store_batch *b, struct cw_error *err)
{
    static const int statement[] = {
        [CW_STORE_PUT] = SQL_PUT, [CW_STORE_DELETE] = SQL_DELETE, [CW_STORE_DELETE_RANGE] = SQL_DELETE_RANGE};
    struct cw_store_op op;
    int r = sqlite3_get_autocommit(f->db) ? file_run(f, SQL_BEGIN, NULL, err) : 0;
    for (size_t at = 0; r == 0 && cw_store_batch_next(b, &at, &op);)
        r = file_run(f, statement[op.kind], &op, err);
    if (r == 0 && !cw_mutated("sync"))
        r = file_run(f, SQL_COMMIT, NULL, err);
    if (r < 0 && !sqlite3_get_autocommit(f->db)) /* some errors end the transaction by themselves */
        (void)file_run(f, SQL_ROLLBACK, NULL, NULL);
    return r;
}
