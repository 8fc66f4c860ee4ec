/* Decides whether to compress payloads, from the rate at which the network takes them (pack.h). */
#include "net/pack.h"

#include "base/crash.h"

/* A window ends after this many bytes of payload, and this much time with frames in the queue: long enough to
 * tell a slow network from a pause of the peer. */
#define WINDOW_BYTES ((uint64_t)4 << 20)
#define WINDOW_NS UINT64_C(50000000)
#define BOTTLENECK 0.5 /* of that time the socket took nothing: then the network is the bottleneck */
#define WORTH 1.15 /* compression must be faster by this factor, because it costs CPU time on both sides */
/* The first and the longest pause after compression did not pay; each pause is twice the one before. */
#define PATIENCE_FIRST_NS UINT64_C(1000000000)
#define PATIENCE_MOST_NS UINT64_C(60000000000)
#define LOOK_AGAIN_NS UINT64_C(10000000000) /* how often a window is sent without compression, to compare */

/* Records a decision. packed: raw bytes per second that are sent with compression, measured or estimated. */
static void policy_record(struct cw_pack_policy *p, uint64_t now_ns, bool on, double packed, const char *why)
{
    p->told = (struct cw_tuned){
        .at_ns = now_ns,
        .what = "compress",
        .seen = {{"bytes_per_s", p->plain}},
        .others = {{"as_it_is", p->plain}, {"compressed", packed}},
        .chosen = on,
        .why = why,
    };
}

static void policy_give_up(struct cw_pack_policy *p, uint64_t now_ns)
{
    p->on = false;
    p->patience_ns = p->patience_ns ? CW_MIN(2 * p->patience_ns, PATIENCE_MOST_NS) : PATIENCE_FIRST_NS;
    p->not_before_ns = now_ns + p->patience_ns;
}

void cw_pack_state(struct cw_pack_policy *p, uint64_t now_ns, bool busy, bool blocked)
{
    uint64_t passed = now_ns - p->at_ns;
    if (p->busy)
        p->busy_ns += passed;
    if (p->blocked)
        p->blocked_ns += passed;
    p->busy = busy;
    p->blocked = blocked;
    p->at_ns = now_ns;
}

bool cw_pack_begin(struct cw_pack_policy *p, uint64_t now_ns)
{
    cw_pack_state(p, now_ns, p->busy, p->blocked);
    if (cw_mutated("packed"))
        return !p->on;
    if (p->raw < WINDOW_BYTES || p->busy_ns < WINDOW_NS)
        return false;
    double rate = (double)p->raw * 1e9 / (double)p->busy_ns;
    bool bottleneck = (double)p->blocked_ns > BOTTLENECK * (double)p->busy_ns;
    p->busy_ns = p->blocked_ns = p->raw = 0; /* a new window begins */
    if (p->on) {
        if (rate < WORTH * p->plain) {
            policy_record(p, now_ns, false, rate,
                          "compressed payloads did not arrive sooner than uncompressed ones");
            policy_give_up(p, now_ns);
        } else if (now_ns >= p->look_again_ns) {
            p->on = false; /* for one window */
        } else {
            p->patience_ns = 0;
        }
        return false;
    }
    p->plain = rate;
    return bottleneck && now_ns >= p->not_before_ns;
}

void cw_pack_sampled(struct cw_pack_policy *p, uint64_t now_ns, size_t raw, size_t packed, uint64_t took_ns)
{
    if (cw_mutated("packed")) {
        p->on = packed < raw;
        return;
    }
    /* all in ns per raw byte */
    double compressing = (double)took_ns / (double)raw,
           sending = (double)packed / (double)raw * 1e9 / p->plain, now = 1e9 / p->plain;
    double packed_ns = CW_MAX(compressing, sending);
    if (packed_ns * WORTH > now) {
        policy_record(p, now_ns, false, 1e9 / packed_ns,
                      "the network is the bottleneck, but a sample of the payloads would arrive no sooner if "
                      "compressed");
        policy_give_up(p, now_ns);
        return;
    }
    p->on = true;
    if (!(p->told.chosen > 0)) /* else compression was off for one window only */
        policy_record(p, now_ns, true, 1e9 / packed_ns,
                      "the network is the bottleneck, and compressed payloads arrive sooner");
    p->look_again_ns = now_ns + LOOK_AGAIN_NS;
}
