/* Arrays that grow by doubling. */
#pragma once
#include <stddef.h>

#include "base/error.h"
#include "base/macro.h"

/* Makes room for `needed` elements in an array, given as a pointer variable. capacity: a size_t variable, the
 * number of elements for which there is room; it is updated. The array may move. what: what the error calls
 * the array. CW_E_MEMORY: the array is unchanged. */
#define CW_ARRAY_ROOM(array, capacity, needed, what, err) \
    cw_array_room(&(array), &(capacity), (needed), sizeof(*(array)), what, err)
int cw_array_room(void *array, size_t *capacity, size_t needed, size_t size, const char *what,
                  struct cw_error *err) _must_check_;
