/* Attributes, arithmetic and ownership macros that every file may use. */
#pragma once
#include <stdint.h>
#include <stdlib.h>

#define _printf_(a, b) __attribute__((format(printf, a, b)))
#define _cleanup_(f) __attribute__((cleanup(f)))
#define _must_check_ __attribute__((warn_unused_result))
#define _pure_ __attribute__((pure))
#define CW_UNUSED __attribute__((unused))

#define CW_LIKELY(x) __builtin_expect(!!(x), 1)
#define CW_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define CW_MIN(a, b) ((a) < (b) ? (a) : (b))
#define CW_MAX(a, b) ((a) > (b) ? (a) : (b))
#define CW_COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))
#define CW_ALIGN_UP(x, a) (((x) + ((a) - 1)) / (a) * (a))

/* Returns the value of a pointer variable and sets the variable to NULL, to hand ownership out of a _cleanup_
 * variable. */
#define CW_STEAL(p) \
    __extension__({ \
        __typeof__(p) *p_ = &(p); \
        __typeof__(p) v_ = *p_; \
        *p_ = NULL; \
        v_; \
    })

/* Removes the first element from a list linked by `next`, which must not be empty, and returns it.
 * CW_POP(*at) removes an element from the middle. */
#define CW_POP(list) \
    __extension__({ \
        __typeof__(list) *p_ = &(list); \
        __typeof__(list) v_ = *p_; \
        *p_ = v_->next; \
        v_; \
    })

/* Removes an element from a list linked by `next`, which must contain it. */
#define CW_UNLINK(list, element) \
    __extension__({ \
        __typeof__(list) *at_ = &(list); \
        while (*at_ != (element)) \
            at_ = &(*at_)->next; \
        *at_ = (*at_)->next; \
    })

/* Returns the pointer at the end of a list linked by `next`, to which a new last element is assigned. */
#define CW_LIST_END(list) \
    __extension__({ \
        __typeof__(list) *at_ = &(list); \
        while (*at_) \
            at_ = &(*at_)->next; \
        at_; \
    })

/* Returns the first i in [from, upto) for which the condition `is` holds, or `upto`. The condition must hold
 * for all greater i too. */
#define CW_FIRST(i, from, upto, is) \
    __extension__({ \
        uint64_t low_ = (from), high_ = (upto); \
        while (low_ < high_) { \
            uint64_t i = low_ + (high_ - low_) / 2; \
            if (is) \
                high_ = i; \
            else \
                low_ = i + 1; \
        } \
        low_; \
    })

static inline void cw_freep(void *p)
{
    void **pp = p;
    free(*pp);
    *pp = NULL;
}

#define _cleanup_free_ _cleanup_(cw_freep)
