/* Shared by operators on audio: float32 [n] (mono) or [n, channels], and the component with the sample rate.
 */
#pragma once
#include "pipeline/op.h"

#define CW_AUDIO_COMPONENT(text) {.name = "component", .kind = CW_ATTR_COMPONENT, .doc = (text)}
#define CW_AUDIO_RATE_MOST 16777216 /* Hz: 2^24 */

/* bind: reads the component that the attribute `component` names as port 0, which must be float32 with at
 * least min_ndim and at most max_ndim dimensions. */
int cw_audio_bind_read(struct cw_bind *b, const struct cw_op *op, int min_ndim, int max_ndim,
                       struct cw_type *ret, struct cw_error *err) _must_check_;
/* bind: fails if `library` is not NULL: the library that this build lacks. package: its Debian package. */
int cw_audio_bind_library(const struct cw_op *op, const char *library, const char *package,
                          struct cw_error *err) _must_check_;
/* Reads a range [low, high] from a list attribute of one or two numbers. CW_E_PIPELINE: low > high. */
int cw_audio_bind_range(const struct cw_op *op, const char *attribute, double ret[2],
                        struct cw_error *err) _must_check_;
