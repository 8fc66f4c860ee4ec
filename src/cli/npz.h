/* --dump of `run`: writes a batch as an .npz file, an uncompressed zip archive of .npy files. */
#pragma once
#include "session/local.h"

/* Writes GGGGGGGG.npz (E<epoch>-GGGGGGGG.npz after the first epoch) into the existing directory dir. GGGGGGGG
 * is the number of the batch in its epoch. docs/cli.md lists the arrays. */
int cli_npz_write(const char *dir, const struct cw_compiled *c, const struct cw_batch *b,
                  struct cw_error *err) _must_check_;
