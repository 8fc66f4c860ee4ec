/* --save of `run`: the images of the first batch as one picture. */
#pragma once
#include "session/local.h"

/* Writes the contact sheet of the nth batch (from 0; nothing after the first ones) into a directory that
 * exists. CW_E_OPTION: no component holds images. */
int cli_contact_sheet_write(const char *dir, const struct cw_batch *b, uint64_t nth,
                            struct cw_error *err) _must_check_;
