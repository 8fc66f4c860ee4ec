/*
 * Fuzzes state files. The first byte chooses the pipeline, and whether the state gets the fingerprint and the
 * snapshot of that pipeline. An accepted state must be resumed without a crash, and the new state must have
 * at most 1 KiB.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "session/local.h"

static const char *const texts[] = {
    "{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 100}, {\"op\": \"shuffle\"}, {\"op\": "
    "\"batch\", \"size\": 4}]}",
    "{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 100}, {\"op\": \"filter\", \"where\": "
    "\"value % 3 != 0\"}, {\"op\": \"batch\", \"size\": 4}]}",
    "{\"cachew\": 1, \"pipeline\": [{\"op\": \"range\", \"stop\": 100}, {\"op\": \"bucket_by_length\", "
    "\"length\": \"value\", \"boundaries\": [30, 60], \"sizes\": [3, 4, 5]}]}",
};
#define N_TEXTS (sizeof(texts) / sizeof(texts[0]))
static struct cw_local pipelines[N_TEXTS];

static void open_pipelines(void)
{
    struct cw_error err;
    for (size_t i = 0; i < N_TEXTS; i++)
        if (cw_local_parse(&pipelines[i], texts[i], strlen(texts[i]), "/", &err) < 0 ||
            cw_local_open(&pipelines[i], "/nonexistent", 1, 0, &err) < 0)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!pipelines[0].pipeline)
        open_pipelines();
    if (size < 1)
        return 0;
    struct cw_local *l = &pipelines[data[0] % N_TEXTS];
    json_t *state = json_loadb((const char *)data + 1, size - 1, JSON_REJECT_DUPLICATES, NULL);
    if (!state)
        return 0;
    if (json_is_object(state) && data[0] & 0x40) {
        char fingerprint[33], snapshot[17];
        cw_hash128_print(l->pipeline->fingerprint, fingerprint);
        snprintf(snapshot, sizeof(snapshot), "%016" PRIx64, l->sequence->snapshot);
        json_object_set_new(state, "pipeline", json_string(fingerprint));
        json_object_set_new(state, "snapshot", json_string(snapshot));
        json_object_set_new(state, "seed", json_integer(0));
    }
    struct cw_iterator_options o = {
        .epochs = 2, .world_size = 1, .runner = {.threads = 1, .memory = (size_t)16 << 20, .optimize = true}};
    struct cw_iterator *it = NULL;
    struct cw_error err = {0};
    int r = cw_iterator_new(l->sequence, &o, state, &it, &err);
    if (r < 0 && (r != CW_E_STATE || !err.message[0]))
        abort();
    if (r >= 0) {
        json_t *again = cw_iterator_state(it);
        char *text = again ? json_dumps(again, 0) : NULL;
        if (!text || strlen(text) > 1024)
            abort();
        free(text);
        json_decref(again);
        struct cw_batch *b;
        for (int i = 0; i < 60 && r == 0; i++) {
            r = cw_iterator_next(it, UINT64_C(5000000000), &b, &err);
            if (r == 0)
                cw_iterator_release(it, b);
            if (r == CW_E_DEADLINE)
                abort();
        }
        cw_iterator_free(it);
    }
    json_decref(state);
    return 0;
}
