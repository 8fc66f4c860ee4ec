/* Tuning records (base/tuned.h) as JSON and for people, in the form that decisions of policies have. cli/,
 * api/ and the service call it. */
#include "session/tuning.h"

#include <stdio.h>
#include <string.h>

#include "base/machine.h"
#include "base/text.h"

/* Adds a decision about this process's part of the host. why: of a host with one rank. */
static void tuning_share(struct cw_local *l, struct cw_tuned t, const char *why)
{
    struct cw_rank_share s = cw_rank_share();
    t.why = s.ranks > 1 ? "an equal part for each rank on this host" : why;
    if (s.ranks > 1) {
        t.seen[1] = (struct cw_number){s.variable, s.ranks};
        t.others[1] = (struct cw_number){"equal_part", t.chosen};
    }
    cw_tuned_add(&l->tuned, &t);
}

void cw_tuning_threads(struct cw_local *l, unsigned threads)
{
    tuning_share(l,
                 (struct cw_tuned){.what = "threads",
                                   .seen = {{"cpus", cw_cpu_budget()}},
                                   .others = {{"cpus", cw_cpu_budget()}},
                                   .chosen = threads},
                 "one for each CPU that this process may use");
}

void cw_tuning_memory(struct cw_local *l, size_t memory)
{
    double total = (double)cw_memory_total();
    tuning_share(l,
                 (struct cw_tuned){.what = "memory_bytes",
                                   .seen = {{"memory_total_bytes", total}},
                                   .others = {{"half", total / 2}},
                                   .chosen = (double)memory},
                 "half of the memory that this process may use");
}

/* ---- as JSON ---- */

static json_t *tuned_numbers_json(const struct cw_number *numbers)
{
    json_t *o = json_object();
    for (int i = 0; i < CW_TUNED_NUMBERS && numbers[i].name; i++)
        json_object_set_new(o, numbers[i].name, json_real(numbers[i].value));
    return o;
}

static json_t *tuned_record_json(const struct cw_tuned *t)
{
    json_t *alternatives = json_array();
    for (int i = 0; i < CW_TUNED_NUMBERS && t->others[i].name; i++)
        json_array_append_new(alternatives,
                              json_pack("{s:f, s:s}", t->what, t->others[i].value, "by", t->others[i].name));
    return json_pack("{s:o, s:o, s:{s:f}, s:s}", "seen", tuned_numbers_json(t->seen), "alternatives",
                     alternatives, "chosen", t->what, t->chosen, "why", t->why);
}

json_t *cw_tuned_log_json(const struct cw_tuned_log *log, uint64_t began_ns)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < log->n && list; i++) {
        const struct cw_tuned *t = &log->last[i];
        json_t *o = json_pack("{s:f, s:s, s:I, s:o}", "t",
                              (double)(t->at_ns - CW_MIN(began_ns, t->at_ns)) * 1e-9, "what", t->what,
                              "times", (json_int_t)t->n, "record", tuned_record_json(t));
        if (o && t->of)
            json_object_set_new(o, "of", json_string(t->of));
        json_array_append_new(list, o);
    }
    return list;
}

json_t *cw_tuning_json(const struct cw_local *l)
{
    struct cw_tuned_log log = {0};
    if (!l->remote) /* else a service computes, not this process */
        cw_tuned_add_all(&log, &l->tuned);
    cw_iterator_tuned(l->iterator, &log);
    return cw_tuned_log_json(&log, log.n ? log.last[0].at_ns : 0);
}

/* ---- for people ---- */

/* Prints a number of a record, with so many digits; a name that ends in "bytes" is a size. Returns buf. */
static const char *tuning_number(const char *name, double value, int digits, char buf[32])
{
    size_t n = strlen(name);
    if (n >= 5 && strcmp(name + n - 5, "bytes") == 0)
        return cw_text_bytes(value, buf);
    snprintf(buf, 32, "%.*g", digits, value);
    return buf;
}

void cw_tuned_line(const struct cw_tuned *t, struct cw_text *to)
{
    char number[32];
    cw_text_add(to, "%s%s%s is %s: %s", t->what, t->of ? " of " : "", t->of ? t->of : "",
                tuning_number(t->what, t->chosen, 12, number), t->why);
    for (int i = 0; i < CW_TUNED_NUMBERS && t->seen[i].name; i++)
        cw_text_add(to, "%s%s %s", i ? ", " : " (", t->seen[i].name,
                    tuning_number(t->seen[i].name, t->seen[i].value, 4, number));
    if (t->seen[0].name)
        cw_text_add(to, ")");
}

static void text_add_numbers(struct cw_text *t, const json_t *numbers, const char *before)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)numbers, name, value)
    {
        char number[32];
        cw_text_add(t, "%s%s %s", before, name, tuning_number(name, json_number_value(value), 4, number));
        before = ", ";
    }
}

void cw_tuning_text(const json_t *list, struct cw_text *t)
{
    size_t i, k;
    const json_t *row, *alternative;
    if (json_array_size(list))
        cw_text_add(t, "\nset by itself:\n");
    json_array_foreach(list, i, row)
    {
        json_int_t times = json_integer_value(json_object_get(row, "times"));
        const json_t *record = json_object_get(row, "record");
        const char *what = json_string_value(json_object_get(row, "what")),
                   *of = json_string_value(json_object_get(row, "of"));
        char number[32];
        cw_text_add(t, "  %7.2f s  %s%s%s is %s: %s\n", json_number_value(json_object_get(row, "t")), what,
                    of ? " of " : "", of ? of : "",
                    tuning_number(what,
                                  json_number_value(json_object_get(json_object_get(record, "chosen"), what)),
                                  12, number),
                    json_string_value(json_object_get(record, "why")));
        text_add_numbers(t, json_object_get(record, "seen"), "             seen: ");
        json_array_foreach(json_object_get(record, "alternatives"), k, alternative) cw_text_add(
            t, "%sby %s %s", k ? ", " : "; ", json_string_value(json_object_get(alternative, "by")),
            tuning_number(what, json_number_value(json_object_get(alternative, what)), 4, number));
        if (times > 1)
            cw_text_add(t, "; so far %" JSON_INTEGER_FORMAT " times", times);
        cw_text_add(t, "\n");
    }
}
