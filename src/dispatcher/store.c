/* The store's thread: takes all that was committed since it last looked, has it made durable as one transaction, and says so on the loop. */
#include "dispatcher/store.h"

#include <pthread.h>
#include <string.h>

#include "net/loop.h"

#define BEHIND_A_FAILED_ONE "what was committed before it could not be written"

struct queue { struct cw_store_commit *first, **last; };

struct cw_store {
    struct cw_loop *loop;
    struct cw_store_file *file; /* NULL: nothing is written */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    struct cw_post post;
    bool closed; /* loop thread only: freed by the post that is under way */
    /* guarded by mutex */
    struct queue waiting, done;
    bool failing;               /* one failed, and its owner does not know yet: those behind it fail too */
    bool stop;
};

static void queue_init(struct queue *q)
{
    q->first = NULL;
    q->last = &q->first;
}

static void queue_append(struct queue *q, struct cw_store_commit *list)
{
    *q->last = list;
    while (*q->last)
        q->last = &(*q->last)->next;
}

static struct cw_store_commit *queue_take(struct queue *q)
{
    struct cw_store_commit *list = q->first;
    queue_init(q);
    return list;
}

static void *store_main(void *arg)
{
    struct cw_store *s = arg;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        while (!s->waiting.first && !s->stop)
            pthread_cond_wait(&s->wake, &s->mutex);
        struct cw_store_commit *list = queue_take(&s->waiting);
        if (!list)
            break;
        bool failing = s->failing;
        pthread_mutex_unlock(&s->mutex);
        struct cw_error err = {0};
        if (failing)
            cw_error_set(&err, CW_E_IO, BEHIND_A_FAILED_ONE);
        bool failed = !failing && cw_store_file_apply(s->file, list, &err) < 0;
        for (struct cw_store_commit *c = list; c; c = c->next)
            c->error = err;
        pthread_mutex_lock(&s->mutex);
        s->failing |= failed;
        queue_append(&s->done, list);
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

/* On the loop's thread. */
static void on_done(void *arg)
{
    struct cw_store *s = arg;
    if (s->closed) {
        store_free(s);
        return;
    }
    pthread_mutex_lock(&s->mutex);
    struct cw_store_commit *list = queue_take(&s->done);
    if (s->failing) { /* from here on its owner knows: what is committed now is tried again */
        for (struct cw_store_commit *c = s->waiting.first; c; c = c->next)
            cw_error_set(&c->error, CW_E_IO, BEHIND_A_FAILED_ONE);
        struct cw_store_commit **end = &list;
        while (*end)
            end = &(*end)->next;
        *end = queue_take(&s->waiting);
        s->failing = false;
    }
    pthread_mutex_unlock(&s->mutex);
    for (struct cw_store_commit *c = list, *next; c && !s->closed; c = next) {
        next = c->next;
        c->done(c->arg, c->error.status < 0 ? &c->error : NULL);
    }
}

int cw_store_open(const char *dir, struct cw_loop *l, struct cw_store **ret, struct cw_error *err)
{
    struct cw_store *s = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "the store");
    s->loop = l;
    s->post.fn = on_done;
    s->post.arg = s;
    queue_init(&s->waiting);
    queue_init(&s->done);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->wake, NULL);
    int r = dir ? cw_store_file_open(dir, &s->file, err) : 0;
    int failed = r == 0 && dir ? pthread_create(&s->thread, NULL, store_main, s) : 0;
    if (failed != 0)
        r = cw_error_errno(err, CW_E_MEMORY, failed, "the store's thread can't be started");
    if (r < 0) {
        cw_store_file_close(s->file);
        store_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

int cw_store_read(struct cw_store *s, int (*row)(void *user, const void *key, size_t key_size, const void *value, size_t value_size, struct cw_error *err),
                  void *user, struct cw_error *err)
{
    return s->file ? cw_store_file_read(s->file, row, user, err) : 0;
}

void cw_store_commit(struct cw_store *s, struct cw_store_commit *c)
{
    c->next = NULL;
    c->error = (struct cw_error){0};
    pthread_mutex_lock(&s->mutex);
    queue_append(s->file ? &s->waiting : &s->done, c);
    if (s->file)
        pthread_cond_signal(&s->wake);
    else
        cw_loop_post(s->loop, &s->post);
    pthread_mutex_unlock(&s->mutex);
}

struct cw_store *cw_store_close(struct cw_store *s)
{
    if (!s)
        return NULL;
    if (s->file) {
        pthread_mutex_lock(&s->mutex);
        s->stop = true;
        pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->mutex);
        pthread_join(s->thread, NULL);
        cw_store_file_close(s->file);
    }
    s->closed = true;
    cw_loop_post(s->loop, &s->post); /* it may be posted already: its call is the last use of all this */
    return NULL;
}
