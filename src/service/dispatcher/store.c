/* The store's thread: makes committed batches durable, and posts the result to the loop. */
#include "service/dispatcher/store.h"

#include <pthread.h>

#include "base/thread.h"
#include "net/loop.h"

struct cw_store {
    struct cw_loop *loop;
    struct cw_store_file *file; /* NULL: nothing is written */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    struct cw_post post;                                 /* posted when a commit is done */
    void (*done)(void *arg, const struct cw_error *why); /* loop thread only */
    void *arg;
    /* guarded by mutex */
    const struct cw_store_batch *batch; /* the batch to be written; NULL: none */
    struct cw_error result;             /* result of the last commit */
    bool stop;
};

static void *store_main(void *arg)
{
    struct cw_store *s = arg;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        while (!s->batch && !s->stop)
            pthread_cond_wait(&s->wake, &s->mutex);
        const struct cw_store_batch *batch = CW_STEAL(s->batch);
        if (!batch)
            break;
        pthread_mutex_unlock(&s->mutex);
        struct cw_error err = {0};
        int r = cw_store_file_apply(s->file, batch, &err);
        pthread_mutex_lock(&s->mutex);
        s->result = r < 0 ? err : (struct cw_error){0};
        cw_loop_post(s->loop, &s->post);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

static void store_free(struct cw_store *s)
{
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

/* Reports the result of a commit. Loop thread. */
static void store_on_post(void *arg)
{
    struct cw_store *s = arg;
    struct cw_error why = CW_LOCKED(&s->mutex, s->result);
    s->done(s->arg, why.status < 0 ? &why : NULL);
}

int cw_store_open(const char *dir, struct cw_loop *l, struct cw_store **ret, struct cw_error *err)
{
    struct cw_store *s = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "the store");
    *s = (struct cw_store){.loop = l, .post = {.fn = store_on_post, .arg = s}};
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->wake, NULL);
    int r = dir ? cw_store_file_open(dir, &s->file, err) : 0;
    if (r == 0 && dir)
        r = cw_thread_start(&s->thread, store_main, s, err);
    if (r < 0) {
        cw_store_file_close(s->file);
        store_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

int cw_store_read(struct cw_store *s,
                  int (*row)(void *user, const void *key, size_t key_size, const void *value,
                             size_t value_size, struct cw_error *err),
                  void *user, struct cw_error *err)
{
    return s->file ? cw_store_file_read(s->file, row, user, err) : 0;
}

const char *cw_store_path(const struct cw_store *s)
{
    return s->file ? cw_store_file_path(s->file) : "";
}

void cw_store_commit(struct cw_store *s, const struct cw_store_batch *b,
                     void (*done)(void *arg, const struct cw_error *why), void *arg)
{
    s->done = done;
    s->arg = arg;
    if (!s->file) {
        cw_loop_post(s->loop, &s->post);
        return;
    }
    CW_GUARD(&s->mutex);
    s->batch = b;
    pthread_cond_signal(&s->wake);
}

struct cw_store *cw_store_close(struct cw_store *s)
{
    if (!s)
        return NULL;
    if (s->file) {
        CW_WITH (&s->mutex) {
            s->stop = true;
            pthread_cond_signal(&s->wake);
        }
        pthread_join(s->thread, NULL);
        cw_store_file_close(s->file);
    }
    cw_loop_unpost(s->loop, &s->post);
    store_free(s);
    return NULL;
}
