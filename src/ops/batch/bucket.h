/* What the engine needs to know of bucket_by_length beside its bucket numbers. */
#pragma once
#include <jansson.h>

#include "data/type.h"

/* The value of attribute `pad` for a component (0 where it names none) in a dtype, into the first bytes of
 * ret. */
void cw_bucket_pad(const json_t *pad, const char *component, enum cw_dtype dtype, uint8_t ret[8]);
