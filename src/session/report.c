/* Reports of a run as JSON: how its time was spent, and which records failed. cli/, api/ and explain/ call
 * it. */
#include "session/report.h"

#include <string.h>

#include "base/text.h"

/* Returns the size of the UTF-8 character at the begin of a text; 0: there is no valid character. */
static size_t utf8_character(const char *text)
{
    for (size_t n = 1; n <= 4 && text[n - 1]; n++)
        if (cw_text_utf8(text, n))
            return n;
    return 0;
}

json_t *cw_report_text(const char *text)
{
    struct cw_text t = {0};
    if (cw_text_utf8(text, strlen(text)))
        return json_string(text);
    while (*text) {
        size_t n = utf8_character(text);
        if (n)
            cw_text_add(&t, "%.*s", (int)n, text);
        else
            cw_text_add(&t, "\\x%02x", (unsigned char)*text);
        text += n ? n : 1;
    }
    json_t *s = t.failed ? NULL : json_string(t.data);
    cw_text_deinit(&t);
    return s;
}

struct share {
    const char *op;
    double seconds;
    uint64_t rows;
    unsigned fused_into;
};

static void shares_name(const struct cw_chain *chain, struct share *shares)
{
    for (size_t i = 0; i < chain->n; i++) {
        for (size_t k = 0; k < chain->nodes[i].n_inputs; k++)
            shares_name(&chain->nodes[i].inputs[k], shares);
        shares[chain->nodes[i].position].op = chain->nodes[i].desc->name;
    }
}

/* Divides the time of fused operators in proportion to their times in blocks that ran unfused. */
static void shares_divide(const struct cw_profile *p, const unsigned *into, struct share *shares)
{
    for (unsigned i = 0; i < p->n_ops; i++) {
        double sampled = 0, total = 0;
        unsigned n = 0;
        for (unsigned k = 0; k < p->n_ops; k++)
            if (into[k] == into[i]) {
                sampled += (double)p->ops[k].sampled_ns;
                total += (double)p->ops[k].ns;
                n++;
            }
        double part = n > 1 && sampled > 0 ? (double)p->ops[i].sampled_ns / sampled : into[i] == i;
        shares[i].seconds = total * part * 1e-9 + (double)p->ops[i].call_ns * 1e-9;
        shares[i].rows = p->ops[i].rows ? p->ops[i].rows : p->ops[into[i]].rows;
        shares[i].fused_into = into[i];
    }
}

/* Returns the operator whose calls on joined batches the consumer waits for most of the time; NULL: there is
 * none. */
static const char *profile_caller(const struct cw_profile *p, const struct share *shares)
{
    for (unsigned i = 0; i < p->n_ops; i++)
        if ((double)p->ops[i].call_ns > 0.5 * (double)p->run_ns / CW_MAX(p->threads, 1u))
            return shares[i].op;
    return NULL;
}

/* Returns what limits the rate: an operator or another part; or, if threads are mostly idle, the consumer or
 * reading. */
static const char *profile_bottleneck(const struct cw_profile *p, const struct share *shares)
{
    const char *name = profile_caller(p, shares);
    double most = 0;
    if (name)
        return name;
    if (!p->threads) /* a service computes */
        return (double)p->wait_ns < 0.5 * (double)p->run_ns ? "the consumer" : "the service";
    name = "unknown";
    if (p->run_ns && (double)p->idle_ns > 0.5 * (double)p->run_ns)
        return (double)p->wait_ns < 0.5 * (double)p->run_ns / CW_MAX(p->threads, 1u) ? "the consumer"
                                                                                     : "reading";
    for (unsigned i = 0; i < p->n_ops; i++)
        if (shares[i].seconds > most) {
            most = shares[i].seconds;
            name = shares[i].op;
        }
    return name;
}

static json_t *profile_json(const struct cw_profile *p, const struct share *shares)
{
    const struct {
        const char *name;
        uint64_t ns;
    } rest[] = {{"reading", p->read_ns},
                {"planning", p->plan_ns},
                {"copying into batches", p->emit_ns},
                {"reading the cache", p->fetch_ns}};

    const size_t n_rest = CW_COUNT_OF(rest) - (p->fetch_ns == 0);
    json_t *list = json_array();
    double busy = 0;
    for (unsigned i = 0; i < p->n_ops; i++)
        busy += shares[i].seconds;
    for (size_t i = 0; i < n_rest; i++)
        busy += (double)rest[i].ns * 1e-9;
    for (unsigned i = 0; i < p->n_ops; i++) {
        json_t *o = json_pack("{s:s, s:i, s:f, s:f, s:I}", "op", shares[i].op, "position", (int)i, "seconds",
                              shares[i].seconds, "share", busy > 0 ? shares[i].seconds / busy : 0.0,
                              "elements", (json_int_t)shares[i].rows);
        if (o && shares[i].fused_into != i)
            json_object_set_new(o, "fused_into", json_integer(shares[i].fused_into));
        json_array_append_new(list, o);
    }
    for (size_t i = 0; i < n_rest; i++)
        json_array_append_new(list, json_pack("{s:s, s:f, s:f}", "part", rest[i].name, "seconds",
                                              (double)rest[i].ns * 1e-9, "share",
                                              busy > 0 ? (double)rest[i].ns * 1e-9 / busy : 0.0));
    return json_pack("{s:f, s:i, s:f, s:f, s:f, s:I, s:I, s:s, s:o}", "seconds",
                     (double)p->run_ns / CW_MAX(p->threads, 1u) * 1e-9, "threads", (int)p->threads, "busy_s",
                     busy, "idle_s", (double)p->idle_ns * 1e-9, "wait_s", (double)p->wait_ns * 1e-9,
                     "read_bytes", (json_int_t)p->read_bytes, "memory_peak_bytes", (json_int_t)p->memory_peak,
                     "bottleneck", profile_bottleneck(p, shares), "operators", list);
}

json_t *cw_report_profile_of(const struct cw_local *l, const struct cw_profile *p)
{
    _cleanup_free_ struct share *shares = calloc(p->n_ops + 1, sizeof(*shares));
    _cleanup_free_ unsigned *into = calloc(p->n_ops + 1, sizeof(*into));
    if (!shares || !into)
        return NULL;
    shares_name(&l->pipeline->chain, shares);
    cw_iterator_fused(l->iterator, into);
    shares_divide(p, into, shares);
    return profile_json(p, shares);
}

json_t *cw_report_profile(const struct cw_local *l)
{
    unsigned n = l->pipeline->n_ops;
    _cleanup_free_ struct cw_op_profile *ops = calloc(n + 1, sizeof(*ops));
    struct cw_profile p = {.ops = ops, .n_ops = n};
    if (!ops)
        return NULL;
    cw_iterator_profile(l->iterator, &p);
    return cw_report_profile_of(l, &p);
}

json_t *cw_report_quarantined(const struct cw_compiled *c, const struct cw_quarantined *q)
{
    char id[128], by[128];
    cw_record_print(&c->programs[q->id.leaf], &q->id, id);
    json_t *o = json_pack("{s:s, s:s, s:s, s:o}", "record", id, "operator", q->op, "action",
                          q->note       ? "differs"
                          : q->replaced ? "replaced"
                                        : "skipped",
                          "reason", cw_report_text(q->message));
    if (o && q->file)
        json_object_set_new(o, "file", cw_report_text(q->file));
    if (o && q->replaced) {
        cw_record_print(&c->programs[q->by.leaf], &q->by, by);
        json_object_set_new(o, "by", json_string(by));
    }
    return o;
}
