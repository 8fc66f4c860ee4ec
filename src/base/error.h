/* Errors: the function that finds a fault fills a struct with facts, and its callers add facts that only they
 * know. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macro.h"

/* Functions return 0 or one of these, negative. A positive result is a condition that the function documents.
 */
enum cw_status {
    CW_OK = 0,
    CW_E_RECORD = -1,       /* a record's bytes can't be computed: on_error decides */
    CW_E_DATA = -2,         /* damaged or changed data that is not one record's (index, framing) */
    CW_E_IO = -3,           /* the system refused: open, read, write */
    CW_E_MEMORY = -4,       /* malloc, mmap or memfd_create failed */
    CW_E_BUDGET = -5,       /* the memory budget does not allow it (now, or at all) */
    CW_E_PIPELINE = -6,     /* the pipeline as written is wrong */
    CW_E_OPTION = -7,       /* an option or argument is wrong */
    CW_E_STATE = -8,        /* a state file does not fit */
    CW_E_SERVICE = -9,      /* the service can't be reached or refused */
    CW_E_DEADLINE = -10,    /* a wait took longer than allowed */
    CW_E_INTERRUPTED = -11, /* cancelled */
    CW_E_BUG = -12,         /* an invariant does not hold */
};

/* Bytes of a detail, with the NUL: room for a long traceback. Host processes know this number, too. */
#define CW_ERROR_DETAIL 8192
/* The process keeps the details of this many errors, the last ones, so that struct cw_error stays small. */
#define CW_ERROR_DETAILS 64

struct cw_error {
    int status;        /* enum cw_status; 0: nothing filled in */
    int errnum;        /* errno of the system call that failed; 0: none */
    char message[600]; /* as cw_text_show writes it */
    char op[64];       /* operator name */
    char attribute[64];
    char value[128];
    char expected[256];
    char file[512];
    char record[64]; /* printed record id */
    uint64_t detail; /* number of the detail (cw_error_get_detail); 0: none */
};

/* The end of a message about another process that broke the rules of the protocol. */
#define CW_OTHER_VERSION \
    "; both sides must run the same version of Cachew (if they do, please report this defect)"

/* Fills err (may be NULL) and returns status, so a function can end with "return cw_error_set(...)". file:
 * the file that the error is about, stored as a fact; NULL: none. errnum: strerror(errnum) is appended to the
 * message; 0: nothing is. */
int cw_error_at_file(struct cw_error *err, int status, const char *file, int errnum, const char *fmt, ...)
    _printf_(5, 6);
#define cw_error_errno(err, status, errnum, ...) cw_error_at_file(err, status, NULL, errnum, __VA_ARGS__)
#define cw_error_set(err, status, ...) cw_error_at_file(err, status, NULL, 0, __VA_ARGS__)
/* Fills err (may be NULL) with an error about a value that is not what was expected, with the facts of
 * cw_error_attribute, and returns status. */
int cw_error_value(struct cw_error *err, int status, const char *attribute, const char *value,
                   const char *expected, const char *fmt, ...) _printf_(6, 7);
/* Fills err with CW_E_MEMORY and returns it. bytes: the size requested; 0: not known. what: what the memory
 * was for. */
int cw_error_nomem(struct cw_error *err, size_t bytes, const char *what);
/* Copies `why` to err, and returns its status. */
int cw_error_copy(struct cw_error *err, const struct cw_error *why);
/* These add a fact, unless err has it already. err NULL: they do nothing. */
void cw_error_op(struct cw_error *err, const char *op);
void cw_error_attribute(struct cw_error *err, const char *attribute, const char *value, const char *expected);
void cw_error_file(struct cw_error *err, const char *file);
void cw_error_errnum(struct cw_error *err, int errnum);
/* json: about the element that can't be computed, a JSON object (docs/hosts.md, Failures); NULL: none. A text
 * of more than CW_ERROR_DETAIL bytes is left out. */
void cw_error_detail(struct cw_error *err, const char *json);
/* Copies the detail to buf and returns it. NULL: there is none, or those of newer errors have replaced it. */
const char *cw_error_get_detail(const struct cw_error *err, char buf[CW_ERROR_DETAIL]);
void cw_error_record(struct cw_error *err, const char *record);
/* Returns the name of a status: "record", "data", "io", "memory", "budget", "pipeline", "option", "state",
 * "service", "deadline", "interrupted" or "internal". */
const char *cw_status_name(int status);
/* Returns the exit code of the command line for a status: 0, 1, 2, 3, 4 or 130. */
int cw_status_exit(int status);
