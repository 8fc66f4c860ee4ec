/* Makes the message Prepared for a stream that is ready: its plan, and its data files with the keys of their
 * contents. The loop's thread; called by control.c. */
#include "service/worker/prepared.h"

#include "net/envelope.h"

#define MAX_FILES 4096 /* if a stream has more files, Prepared names none of them */

struct prepared_files {
    Cachew__FileFact facts[MAX_FILES], *list[MAX_FILES];
    size_t n; /* more than MAX_FILES: too many */
};

/* Returns the first row after those of the file that contains row `at`. The rows of a file are consecutive.
 */
static uint64_t files_next(const struct cw_source *s, uint64_t at)
{
    const char *path = s->ops->path(s, at);
    uint64_t in = at, step = 1;
    while (step <= s->n_records - 1 - in && s->ops->path(s, in + step) == path) {
        in += step;
        step *= 2;
    }
    uint64_t out = step <= s->n_records - 1 - in ? in + step : s->n_records;
    return CW_FIRST(i, in + 1, out, s->ops->path(s, i) != path);
}

static void files_list(struct prepared_files *f, const struct cw_source *s)
{
    if (!s->ops->path || s->ops->pull)
        return;
    for (uint64_t row = 0; row < s->n_records && f->n <= MAX_FILES; row = files_next(s, row)) {
        struct cw_record_id id = {0};
        const char *path = s->ops->path(s, row);
        if (!path || f->n++ == MAX_FILES)
            return;
        s->ops->ids(s, &row, 1, &id);
        Cachew__FileFact *fact = f->list[f->n - 1] = &f->facts[f->n - 1];
        *fact = (Cachew__FileFact){CW_MESSAGE(file_fact), .path = (char *)(uintptr_t)path,
                                   .key = id.file_key};
    }
}

void *cw_prepared_message(const struct cw_worker_stream *s, Cachew__Prepared *m, Cachew__Plan *plan)
{
    const struct cw_sequence *q = s->stream->local.sequence;
    struct prepared_files *files = malloc(sizeof(*files));
    *plan = (Cachew__Plan){CW_MESSAGE(plan),
                           .n_positions = q->n_positions,
                           .snapshot = q->snapshot,
                           .window = q->by_chunk || q->stream_draw.salt ? q->window : 0,
                           .align = s->stream->leases.kind == CW_RANGES_COUNTED
                                        ? q->compiled->batch_size
                                        : CW_MAX(q->compiled->group, 1u),
                           .sequential = s->stream->leases.kind == CW_RANGES_SEQUENTIAL,
                           .n_keys = s->stream->leases.n_keys,
                           .origin = q->stream != NULL};
    *m = (Cachew__Prepared){CW_MESSAGE(prepared), .stream = cw_streams_name(s), .plan = plan,
                            .capacity = cw_streams_capacity(s),
                            .most_positions = atomic_load(&s->stream->most_positions)};
    if (!files)
        return NULL;
    files->n = 0;
    for (unsigned i = 0; i < q->compiled->n_programs; i++)
        files_list(files, q->sources[i]);
    m->files = files->list;
    m->n_files = files->n > MAX_FILES ? 0 : files->n;
    return files;
}
