/* Doubly linked lists whose links are members of the listed structs. A list is a ring through its head; a
 * link of zeros is in no list. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct cw_link {
    struct cw_link *prev, *next;
};

#define CW_CONTAINER(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))
/* Visits all links of a list. The current one may be taken out. */
#define CW_LIST_EACH(at, head) \
    for (struct cw_link *at = (head)->next, *at##_next = at->next; at != (head); \
         at = at##_next, at##_next = at->next)

/* Visits the structs of a list; the current one may be taken out. Example: CW_LIST_EACH_OF(w, struct worker,
 * link, &d->workers). */
#define CW_LIST_EACH_OF(var, type, member, head) \
    for (type *var = CW_CONTAINER((head)->next, type, member), \
              *var##_next = CW_CONTAINER(var->member.next, type, member); \
         &var->member != (head); \
         var = var##_next, var##_next = CW_CONTAINER(var->member.next, type, member))

static inline void cw_list_init(struct cw_link *head)
{
    head->prev = head->next = head;
}

static inline bool cw_list_empty(const struct cw_link *head)
{
    return head->next == head;
}

static inline bool cw_link_in(const struct cw_link *l)
{
    return l->next != NULL;
}

static inline void cw_list_add(struct cw_link *head, struct cw_link *l)
{
    l->prev = head->prev;
    l->next = head;
    head->prev->next = l;
    head->prev = l;
}

static inline void cw_link_out(struct cw_link *l)
{
    if (!l->next)
        return;
    l->prev->next = l->next;
    l->next->prev = l->prev;
    l->prev = l->next = NULL;
}
