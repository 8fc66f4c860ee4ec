/* Failure messages, which carry an error (struct cw_error) to the other side. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "net/conn.h"

void cw_failure_init(Cachew__Failure *ret, const struct cw_error *err)
{
    static _Thread_local char detail[CW_ERROR_DETAIL];
    if (!cw_error_get_detail(err, detail))
        *detail = '\0';
    /* protobuf-c's fields are char *, but packing only reads them. */
    *ret = (Cachew__Failure){CW_MESSAGE(failure),
                             .kind = (char *)(uintptr_t)cw_status_name(err->status),
                             .message = (char *)(uintptr_t)err->message,
                             .op = (char *)(uintptr_t)err->op,
                             .attribute = (char *)(uintptr_t)err->attribute,
                             .value = (char *)(uintptr_t)err->value,
                             .expected = (char *)(uintptr_t)err->expected,
                             .file = (char *)(uintptr_t)err->file,
                             .record = (char *)(uintptr_t)err->record,
                             .errnum = (uint32_t)err->errnum,
                             .detail = detail};
}

void cw_failure_envelope(Cachew__Envelope *ret, Cachew__Failure *failure, uint64_t re,
                         const struct cw_error *err)
{
    cw_failure_init(failure, err);
    *ret = (Cachew__Envelope){CW_MESSAGE(envelope), .re = re, .of_case = CACHEW__ENVELOPE__OF_FAILURE,
                              .failure = failure};
}

bool cw_failure_is_final(const struct cw_error *err)
{
    return strcmp(err->attribute, "token") == 0 || strcmp(err->attribute, "version") == 0 ||
           strcmp(err->attribute, "tls") == 0;
}

#define REFUSALS 10 /* logged in REFUSALS_NS, at most */
#define REFUSALS_NS UINT64_C(10000000000)

bool cw_refusal_said(struct cw_refusals *r, uint64_t now_ns, unsigned *ret_unsaid)
{
    if (now_ns - r->since_ns >= REFUSALS_NS) {
        r->since_ns = now_ns;
        r->n = 0;
    }
    if (r->n >= REFUSALS) {
        r->unsaid++;
        return false;
    }
    r->n++;
    *ret_unsaid = r->unsaid;
    r->unsaid = 0;
    return true;
}

static int failure_status(const char *kind)
{
    for (int status = CW_E_RECORD; status >= CW_E_BUG; status--)
        if (strcmp(kind, cw_status_name(status)) == 0)
            return status;
    return CW_E_SERVICE; /* a kind from a later version */
}

/* Escapes control characters, so that a peer can't write lines of its own into logs and terminals. */
#define COPY(fact) cw_text_show(err->fact, sizeof(err->fact), f->fact)

int cw_failure_error(const Cachew__Failure *f, struct cw_error *err)
{
    int status = failure_status(f->kind);
    if (!err)
        return status;
    *err = (struct cw_error){.status = status, .errnum = (int)CW_MIN(f->errnum, 4095u)};
    COPY(message);
    COPY(op);
    COPY(attribute);
    COPY(value);
    COPY(expected);
    COPY(file);
    COPY(record);
    cw_error_detail(err, f->detail);
    if (!err->message[0])
        snprintf(err->message, sizeof(err->message), "no reason was given");
    return status;
}
