/* Keeps the newest lines of the log. */
#include "service/worker/log_tail.h"

#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "base/text.h"

struct cw_log_tail *cw_log_tail_new(void)
{
    struct cw_log_tail *t = calloc(1, sizeof(*t));
    if (t)
        pthread_mutex_init(&t->mutex, NULL);
    return t;
}

struct cw_log_tail *cw_log_tail_free(struct cw_log_tail *t)
{
    if (t)
        pthread_mutex_destroy(&t->mutex);
    free(t);
    return NULL;
}

void cw_log_tail_add(struct cw_log_tail *t, const char *line)
{
    if (!t)
        return;
    size_t size = cw_text_whole(line, CW_LOG_BYTES - 1);
    pthread_mutex_lock(&t->mutex);
    char *to = t->text[t->n++ % CW_LOG_LINES];
    memcpy(to, line, size);
    to[size] = '\0';
    pthread_mutex_unlock(&t->mutex);
}

void cw_log_tail_take(struct cw_log_tail *t, struct cw_log_lines *ret)
{
    pthread_mutex_lock(&t->mutex);
    ret->n = CW_MIN(t->n, (size_t)CW_LOG_LINES);
    for (size_t i = 0; i < ret->n; i++)
        memcpy(ret->text[i], t->text[(t->n - ret->n + i) % CW_LOG_LINES], CW_LOG_BYTES);
    t->n = 0;
    pthread_mutex_unlock(&t->mutex);
}
