#include "base/patience.h"

#include <stdlib.h>

#define SILENCE_S 3.0 /* docs/protocol.md, "Handshake" */
#define START_S 15.0  /* a dispatcher that is started together with the training is ready by then */
#define LEAST_S 0.001
#define MOST_S 1e6

/* Returns the default where the variable is unset, is no number, or is out of range. */
static uint64_t seconds_of(const char *variable, double otherwise)
{
    const char *text = getenv(variable);
    char *end;
    double s = text ? strtod(text, &end) : 0;
    if (!text || end == text || *end || !(s >= LEAST_S && s <= MOST_S))
        s = otherwise;
    return (uint64_t)(s * 1e9);
}

uint64_t cw_patience_silence_ns(void) { return seconds_of("CACHEW_SILENCE_S", SILENCE_S); }
uint64_t cw_patience_start_ns(void) { return seconds_of("CACHEW_START_S", START_S); }
