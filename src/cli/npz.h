/* --dump of `run`: a batch as an .npz file, that is a zip archive of .npy files without compression. */
#pragma once
#include "session/local.h"

/* Writes GGGGGGGG.npz (E<epoch>-GGGGGGGG.npz after the first epoch) into a directory that exists. docs/cli.md
 * lists the arrays. */
int cli_npz_write(const char *dir, const struct cw_compiled *c, const struct cw_batch *b,
                  struct cw_error *err) _must_check_;
