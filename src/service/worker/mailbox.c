/* A mailbox: two queues between the loop's thread and a stream's thread. The stream owns its mailbox
 * (stream.c) and takes commands; its leases (lease.c) and its origin (origin.c) send answers. control.c takes
 * the answers on the loop's thread. */
#include "service/worker/mailbox.h"

#include <stdio.h>
#include <string.h>

#include "base/thread.h"

void cw_request_free(struct cw_request *r)
{
    if (!r)
        return;
    atomic_fetch_sub(&r->peer->n_requests, 1);
    cw_peer_unref(r->peer);
    free(r);
}

void cw_command_free(struct cw_command *c)
{
    cw_request_free(c->request);
    cw_peer_unref(c->peer);
    free(c);
}

struct cw_answer *cw_answer_new(const struct cw_request *r, const struct cw_answer *x)
{
    struct cw_answer *a = malloc(sizeof(*a));
    if (!a)
        return NULL;
    *a = *x;
    if (r)
        cw_answer_set_request(a, r);
    return a;
}

void cw_answer_set_request(struct cw_answer *a, const struct cw_request *r)
{
    a->peer = cw_peer_ref(r->peer);
    a->re = r->id;
    a->epoch = r->epoch;
    a->begin = r->begin;
    a->at = r->at;
}

void cw_answer_free(struct cw_answer *a)
{
    if (!a)
        return;
    cw_peer_unref(a->peer);
    cw_quarantined_free(a->quarantined);
    cw_part_deinit(&a->rows);
    free(a->data);
    free(a->report.elements);
    free(a->why);
    free(a);
}

struct cw_error *cw_answer_why(const struct cw_error *why)
{
    struct cw_error *e = malloc(sizeof(*e));
    if (!e)
        return NULL;
    *e = *why;
    size_t n = strlen(e->message);
    if (e->status == CW_E_MEMORY)
        snprintf(e->message + n, sizeof(e->message) - n, "%s",
                 "; give the worker's machine or container more memory, or start the worker with a smaller "
                 "--memory");
    return e;
}

void cw_mailbox_init(struct cw_mailbox *m, struct cw_loop *loop, void (*on_answers)(void *arg), void *arg)
{
    *m = (struct cw_mailbox){.loop = loop,
                             .post = {.fn = on_answers, .arg = arg},
                             .commands_tail = &m->commands,
                             .answers_tail = &m->answers};
    pthread_mutex_init(&m->mutex, NULL);
    pthread_cond_init(&m->wake, NULL);
}

void cw_mailbox_deinit(struct cw_mailbox *m)
{
    /* the last answer may have been taken before its post was handled */
    cw_loop_unpost(m->loop, &m->post);
    while (m->answers)
        cw_answer_free(CW_POP(m->answers));
    while (m->commands)
        cw_command_free(CW_POP(m->commands));
    pthread_mutex_destroy(&m->mutex);
    pthread_cond_destroy(&m->wake);
}

void cw_mailbox_command(struct cw_mailbox *m, struct cw_command *c)
{
    c->next = NULL;
    CW_GUARD(&m->mutex);
    *m->commands_tail = c;
    m->commands_tail = &c->next;
    pthread_cond_signal(&m->wake);
}

struct cw_answer *cw_mailbox_answers(struct cw_mailbox *m)
{
    CW_GUARD(&m->mutex);
    m->answers_tail = &m->answers;
    return CW_STEAL(m->answers);
}

void cw_mailbox_batch_back(struct cw_mailbox *m)
{
    CW_GUARD(&m->mutex);
    if (--m->n_batches == 0)
        pthread_cond_signal(&m->wake);
}

struct cw_command *cw_mailbox_wait(struct cw_mailbox *m)
{
    CW_GUARD(&m->mutex);
    while (!m->commands && !m->woken)
        pthread_cond_wait(&m->wake, &m->mutex);
    m->commands_tail = &m->commands;
    m->woken = false;
    return CW_STEAL(m->commands);
}

void cw_mailbox_wait_batches(struct cw_mailbox *m)
{
    CW_GUARD(&m->mutex);
    while (m->n_batches)
        pthread_cond_wait(&m->wake, &m->mutex);
}

void cw_mailbox_wake(struct cw_mailbox *m)
{
    CW_GUARD(&m->mutex);
    m->woken = true;
    pthread_cond_signal(&m->wake);
}

void cw_mailbox_answer(struct cw_mailbox *m, struct cw_answer *a)
{
    a->next = NULL;
    CW_WITH (&m->mutex) {
        m->n_batches += a->batch != NULL;
        *m->answers_tail = a;
        m->answers_tail = &a->next;
    }
    cw_loop_post(m->loop, &m->post);
}
