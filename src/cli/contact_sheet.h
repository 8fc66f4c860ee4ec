/* --save of `run`: writes the images of the first batch as one picture (a contact sheet). */
#pragma once
#include "session/local.h"

/* Writes batch-GGGGGGGG.png into the existing directory dir. nth: number of the batch in this run, from 0;
 * only batch 0 is written. CW_E_OPTION: no component holds images, or they are too large. */
int cli_contact_sheet_write(const char *dir, const struct cw_batch *b, uint64_t nth,
                            struct cw_error *err) _must_check_;
