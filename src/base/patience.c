/* The limits of waits, from the environment. */
#include "base/patience.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/macro.h"

#define SILENCE "CACHEW_SILENCE_S"
#define START "CACHEW_START_S"
#define RANGE "CACHEW_RANGE_S"
#define STORAGE "CACHEW_STORAGE_S"
#define SILENCE_S 3.0 /* docs/protocol.md, "Handshake" */
#define START_S 15.0  /* a dispatcher that starts together with the training is ready by then */
#define RANGE_S 1.0   /* ranges usually take half a second (service/dispatcher/cut.c) */
#define STORAGE_S \
    120.0 /* object storage that is overloaded, or a network that fails over, is back by then \
           */
#define LEAST_S 0.001
#define MOST_S 1e6

static bool patience_parse(const char *text, double *ret)
{
    char *end;
    *ret = strtod(text, &end);
    return end != text && !*end && *ret >= LEAST_S && *ret <= MOST_S;
}

/* Returns the value of the variable in ns, or the default if it is unset, no number, or out of range. */
static uint64_t patience_ns(const char *variable, double otherwise)
{
    const char *text = getenv(variable);
    double s;
    if (!text || !patience_parse(text, &s))
        s = otherwise;
    return (uint64_t)(s * 1e9);
}

uint64_t cw_patience_silence_ns(void)
{
    return patience_ns(SILENCE, SILENCE_S);
}

uint64_t cw_patience_start_ns(void)
{
    return patience_ns(START, START_S);
}

uint64_t cw_patience_range_ns(void)
{
    return patience_ns(RANGE, RANGE_S);
}

uint64_t cw_patience_storage_ns(void)
{
    return patience_ns(STORAGE, STORAGE_S);
}

int cw_patience_check(struct cw_error *err)
{
    static const char *const names[] = {SILENCE, START, RANGE, STORAGE};
    for (size_t i = 0; i < CW_COUNT_OF(names); i++) {
        const char *text = getenv(names[i]);
        double s;
        if (!text || !*text || patience_parse(text, &s))
            continue;
        char expected[64];
        snprintf(expected, sizeof(expected), "a number of seconds from %g to %g", LEAST_S, MOST_S);
        return cw_error_value(err, CW_E_OPTION, names[i], text, expected,
                              "the environment variable %s is \"%.40s\": expected %s", names[i], text,
                              expected);
    }
    return 0;
}
