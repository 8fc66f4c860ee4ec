/*
 * Pulls all batches of a pipeline and prints what `cachew run --digest` prints: the sum of their hashes.
 *
 *     pull PIPELINE.json [THREADS]    a pipeline file
 *     pull                            a pipeline that this program builds, operator by operator
 *
 * The environment variable CACHEW_PLUGIN, if set, names a plug-in to load first.
 */
#include <cachew/cachew.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int build(struct cachew_pipeline **ret, struct cachew_error **err)
{
    struct cachew_pipeline *p = cachew_pipeline_new(NULL);
    if (!p)
        return CACHEW_E_MEMORY;
    int r = cachew_pipeline_add(p, "range", "{\"stop\": 1000}", err);
    if (r == 0)
        r = cachew_pipeline_add(p, "assign", "{\"set\": {\"half\": \"value * 0.5\"}}", err);
    if (r == 0)
        r = cachew_pipeline_add(p, "shuffle", NULL, err);
    if (r == 0)
        r = cachew_pipeline_add(p, "batch", "{\"size\": 32}", err);
    if (r == 0)
        *ret = p;
    else
        cachew_pipeline_free(p);
    return r;
}

/* Prints the types of the components, which are known before any data are read. */
static int print_schema(const struct cachew_pipeline *p, struct cachew_error **err)
{
    struct cachew_schema *s;
    int r = cachew_pipeline_schema(p, &s, err);
    if (r < 0)
        return r;
    printf("batches of %" PRIu64 ":\n", cachew_schema_batch_size(s));
    for (size_t i = 0; i < cachew_schema_count(s); i++) {
        printf("  %s: %s[", cachew_schema_name(s, i), cachew_dtype_name(cachew_schema_dtype(s, i)));
        for (int k = 0; k < cachew_schema_ndim(s, i); k++)
            printf("%s%" PRId64, k ? "," : "", cachew_schema_dim(s, i, k));
        printf("]\n");
    }
    cachew_schema_free(s);
    return 0;
}

static int pull(const struct cachew_pipeline *p, unsigned threads, struct cachew_error **err)
{
    struct cachew_options options = CACHEW_OPTIONS_INIT;
    struct cachew_iterator *it;
    struct cachew_batch *b;
    struct cachew_hash sum = {0, 0};
    uint64_t batches = 0, records = 0;
    char digest[33];
    options.threads = threads;
    int r = cachew_iterator_open(p, &options, &it, err);
    if (r < 0)
        return r;
    while ((r = cachew_iterator_next(it, 60, &b, err)) == 0) {
        /* A training step would find its input in cachew_batch_find(b, "half")->data. */
        sum = cachew_hash_add(sum, cachew_batch_hash(b));
        records += cachew_batch_records(b);
        batches++;
        cachew_batch_release(b);
    }
    cachew_iterator_free(it);
    if (r < 0)
        return r;
    cachew_hash_print(sum, digest);
    printf("%" PRIu64 " batches, %" PRIu64 " records\ndigest %s\n", batches, records, digest);
    return 0;
}

int main(int argc, char **argv)
{
    struct cachew_error *err = NULL;
    struct cachew_pipeline *p = NULL;
    const char *plugin = getenv("CACHEW_PLUGIN");
    int r = plugin ? cachew_load_plugin(plugin, &err) : 0;
    if (r == 0)
        r = argc > 1 ? cachew_pipeline_load(argv[1], &p, &err) : build(&p, &err);
    if (r == 0)
        r = print_schema(p, &err);
    if (r == 0)
        r = pull(p, argc > 2 ? (unsigned)atoi(argv[2]) : 0, &err);
    if (r < 0)
        fprintf(stderr, "pull: %s\n", err ? cachew_error_message(err) : "out of memory");
    cachew_error_free(err);
    cachew_pipeline_free(p);
    return r < 0;
}
