/* Growing an array of any type. */
#include "base/array.h"

#include <stdlib.h>
#include <string.h>

int cw_array_room(void *array, size_t *capacity, size_t needed, size_t size, const char *what,
                  struct cw_error *err)
{
    void *items;
    if (needed <= *capacity)
        return 0;
    /* the new capacity, in elements of `size` bytes */
    size_t more = CW_MAX(CW_MAX(*capacity * 2, needed), 8);
    /* `array` is the address of the caller's pointer variable. The pointer's type is not known here, so
     * memcpy reads and writes the variable. */
    memcpy(&items, array, sizeof(items));
    items = realloc(items, more * size);
    if (!items)
        return cw_error_nomem(err, more * size, what);
    memcpy(array, &items, sizeof(items));
    *capacity = more;
    return 0;
}
