/* Filling in errors; the table of statuses. */
#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

static void error_fill_once(char *dst, size_t size, const char *text)
{
    if (dst[0] == '\0' && text)
        snprintf(dst, size, "%.*s", (int)cw_text_whole(text, size - 1), text);
}

/* Sets the status and cleans the message, which was printed before. */
static void error_finish(struct cw_error *err, int status)
{
    err->status = status;
    cw_text_clean(err->message, sizeof(err->message));
}

int cw_error_at_file(struct cw_error *err, int status, const char *file, int errnum, const char *fmt, ...)
{
    char text[128];
    cw_error_file(err, file);
    if (err) {
        CW_FORMAT(err->message, fmt);
        size_t n = strlen(err->message);
        if (errnum)
            snprintf(err->message + n, sizeof(err->message) - n, ": %s",
                     strerror_r(errnum, text, sizeof(text)));
        error_finish(err, status);
        cw_error_errnum(err, errnum);
    }
    return status;
}

int cw_error_value(struct cw_error *err, int status, const char *attribute, const char *value,
                   const char *expected, const char *fmt, ...)
{
    cw_error_attribute(err, attribute, value, expected);
    if (err) {
        CW_FORMAT(err->message, fmt);
        error_finish(err, status);
    }
    return status;
}

int cw_error_nomem(struct cw_error *err, size_t bytes, const char *what)
{
    if (!bytes)
        return cw_error_set(err, CW_E_MEMORY, "out of memory: the system gave no memory for %s", what);
    return cw_error_set(err, CW_E_MEMORY, "out of memory: the system did not give %zu bytes for %s", bytes,
                        what);
}

int cw_error_copy(struct cw_error *err, const struct cw_error *why)
{
    if (err)
        *err = *why;
    return why->status;
}

void cw_error_op(struct cw_error *err, const char *op)
{
    if (err)
        error_fill_once(err->op, sizeof(err->op), op);
}

void cw_error_attribute(struct cw_error *err, const char *attribute, const char *value, const char *expected)
{
    if (err) {
        error_fill_once(err->attribute, sizeof(err->attribute), attribute);
        error_fill_once(err->value, sizeof(err->value), value);
        error_fill_once(err->expected, sizeof(err->expected), expected);
    }
}

void cw_error_file(struct cw_error *err, const char *file)
{
    if (err)
        error_fill_once(err->file, sizeof(err->file), file);
}

void cw_error_errnum(struct cw_error *err, int errnum)
{
    if (err && !err->errnum)
        err->errnum = errnum;
}

static struct {
    uint64_t number;
    char text[CW_ERROR_DETAIL];
} details[CW_ERROR_DETAILS]; /* detail n is at n mod CW_ERROR_DETAILS */

static uint64_t n_details;
static pthread_mutex_t details_mutex = PTHREAD_MUTEX_INITIALIZER;

void cw_error_detail(struct cw_error *err, const char *json)
{
    size_t size = json ? strlen(json) + 1 : 0;
    if (!err || size <= 1 || size > CW_ERROR_DETAIL || err->detail)
        return;
    pthread_mutex_lock(&details_mutex);
    err->detail = ++n_details;
    details[err->detail % CW_ERROR_DETAILS].number = err->detail;
    memcpy(details[err->detail % CW_ERROR_DETAILS].text, json, size);
    pthread_mutex_unlock(&details_mutex);
}

const char *cw_error_get_detail(const struct cw_error *err, char buf[CW_ERROR_DETAIL])
{
    pthread_mutex_lock(&details_mutex);
    bool kept = err->detail && details[err->detail % CW_ERROR_DETAILS].number == err->detail;
    if (kept)
        memcpy(buf, details[err->detail % CW_ERROR_DETAILS].text, CW_ERROR_DETAIL);
    pthread_mutex_unlock(&details_mutex);
    return kept ? buf : NULL;
}

void cw_error_record(struct cw_error *err, const char *record)
{
    if (err)
        error_fill_once(err->record, sizeof(err->record), record);
}

/* By negated status: the name that --json prints as "kind", and the exit code. */
static const struct {
    const char *name;
    int exit_code;
} statuses[] = {
    [-CW_OK] = {"ok", 0},
    [-CW_E_RECORD] = {"record", 1},
    [-CW_E_DATA] = {"data", 1},
    [-CW_E_IO] = {"io", 1},
    [-CW_E_MEMORY] = {"memory", 1},
    [-CW_E_BUDGET] = {"budget", 2},
    [-CW_E_PIPELINE] = {"pipeline", 2},
    [-CW_E_OPTION] = {"option", 2},
    [-CW_E_STATE] = {"state", 2},
    [-CW_E_SERVICE] = {"service", 3},
    [-CW_E_DEADLINE] = {"deadline", 4},
    [-CW_E_INTERRUPTED] = {"interrupted", 130},
    [-CW_E_BUG] = {"internal", 1},
};

/* Returns the row of a status, which is that of CW_E_BUG for any other number. */
static size_t status_row(int status)
{
    return status <= 0 && status >= CW_E_BUG ? (size_t)-status : -CW_E_BUG;
}

const char *cw_status_name(int status)
{
    return statuses[status_row(status)].name;
}

int cw_status_exit(int status)
{
    return statuses[status_row(status)].exit_code;
}
