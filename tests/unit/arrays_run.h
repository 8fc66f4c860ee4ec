/* Running pipelines over data sets in memory, through the C interface. Include after cmocka.h. */
#pragma once
#include <cachew/cachew.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))
#define assert_contains(text, part) \
    do { \
        if (!strstr((text), (part))) \
            fail_msg("\"%s\" does not contain \"%s\"", (text), (part)); \
    } while (0)

/* ---- running ---- */

static inline struct cachew_iterator *open_id(const char *id, const char *more)
{
    char text[500];
    struct cachew_pipeline *p;
    struct cachew_iterator *it = NULL;
    struct cachew_error *err = NULL;
    snprintf(text, sizeof(text), "{\"cachew\": 1, \"pipeline\": [{\"op\": \"arrays\", \"data\": \"%s\"}%s]}",
             id, more);
    int r = cachew_pipeline_parse(text, NULL, &p, &err);
    if (r == 0)
        r = cachew_iterator_open(p, NULL, &it, &err);
    if (r < 0)
        fail_msg("%s", cachew_error_message(err));
    cachew_pipeline_free(p);
    return it;
}

static inline struct cachew_batch *one_batch(struct cachew_iterator *it)
{
    struct cachew_batch *b;
    struct cachew_error *err = NULL;
    if (cachew_iterator_next(it, -1, &b, &err) != 0)
        fail_msg("%s", err ? cachew_error_message(err) : "no batch");
    return b;
}

/* All elements in order, as one batch. */
static inline struct cachew_batch *all_of(const struct cachew_arrays *a)
{
    struct cachew_iterator *it = open_id(cachew_arrays_id(a), ", {\"op\": \"batch\", \"size\": 100000}");
    struct cachew_batch *b = one_batch(it);
    cachew_iterator_free(it);
    return b;
}

static inline void expect_values(const struct cachew_batch *b, const char *name, const void *data,
                                 size_t size)
{
    const struct cachew_component *c = cachew_batch_find(b, name);
    assert_non_null(c);
    assert_int_equal(c->size, size);
    assert_memory_equal(c->data, data, size);
}

static inline void expect_strings(const struct cachew_batch *b, const char *name, const char *const *strings,
                                  size_t n)
{
    const struct cachew_component *c = cachew_batch_find(b, name);
    assert_non_null(c);
    assert_int_equal(cachew_batch_records(b), n);
    size_t at = 0;
    for (size_t i = 0; i < n; at += strlen(strings[i++])) {
        assert_int_equal(c->lengths[i], strlen(strings[i]));
        assert_memory_equal((const char *)c->data + at, strings[i], strlen(strings[i]));
    }
    assert_int_equal(c->size, at);
}
