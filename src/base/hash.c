/* Keys of several fields, and printing hashes. */
#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void cw_key_u64(struct cw_key *k, uint64_t v)
{
    if (k->size + 8 > sizeof(k->bytes))
        return;
    for (int i = 0; i < 8; i++)
        k->bytes[k->size++] = (uint8_t)(v >> (8 * i));
}

void cw_key_text(struct cw_key *k, const char *text)
{
    size_t n = strnlen(text, sizeof(k->bytes) - k->size);
    memcpy(k->bytes + k->size, text, n);
    k->size += n;
}

void cw_hash128_print(struct cw_hash128 h, char out[33])
{
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.hi, (unsigned long long)h.lo);
}

bool cw_hash128_parse(const char *text, struct cw_hash128 *ret)
{
    return text && strlen(text) == 32 && strspn(text, "0123456789abcdef") == 32 &&
           sscanf(text, "%16" SCNx64 "%16" SCNx64, &ret->hi, &ret->lo) == 2;
}
