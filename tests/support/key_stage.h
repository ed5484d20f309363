/* SPDX-License-Identifier: Apache-2.0 */
/*
 * key_stage: an empty environment, a home of this test alone, and a responder that has keys.
 *
 * Why:     where keys come from depends on two dozen variables and files; a test that forgets one
 *          of them passes on one machine and asks the network on another.
 * Promise: 1   after _clear none of the variables is set, HOME is the test's folder, and instance
 *              metadata are off; release does the same again.
 * Limits:  one stage at a time.
 * Threads: main thread only.
 * Next:    tests/s3/test_credentials.c.
 */
#pragma once

#include "store/keys/credentials.h"
#include "tests/harness.h"
#include "tests/support/http_responder.h"

struct cairn_stage {
    struct cairn_credentials_provider *provider;
    struct cairn_credentials keys;
    struct cairn_responder *server;
    struct cairn_error error;
};
void cairn_stage_clear(void);
/* Pairs of variables and values; NULL: it is taken away. FRESH clears before. */
#define SET(...)                                                                                   \
    cairn_stage_set((const char *const[]){__VA_ARGS__},                                            \
                    CAIRN_COUNT(((const char *const[]){__VA_ARGS__})))
#define FRESH(...)                                                                                 \
    do {                                                                                           \
        cairn_stage_clear();                                                                       \
        SET(__VA_ARGS__);                                                                          \
    } while (0)
void cairn_stage_set(const char *const *pairs, size_t count);
void cairn_stage_release(struct cairn_stage *stage);
bool cairn_stage_serve(struct cairn_stage *stage, void (*answer)(struct cairn_responder_request *),
                       void *owner);
/* A new provider and its first keys, into stage->keys. */
enum cairn_code cairn_stage_get(struct cairn_stage *stage,
                                const struct cairn_credentials_options *options) CAIRN_MUST_USE;
/* A file below the test's folder; its path. */
const char *cairn_stage_file(const char *name, const char *text);
/* The same, to be run. */
const char *cairn_stage_program(const char *name, const char *text);
static inline const char *cairn_stage_secret(const struct cairn_stage *stage) {
    return cairn_secret_view(&stage->keys.secret).data;
}
static inline const char *cairn_stage_token(const struct cairn_stage *stage) {
    return cairn_secret_view(&stage->keys.token).data;
}

/* A moment before every end of keys in these tests: 2030-01-01T12:00:00Z. */
#define CAIRN_STAGE_NOON INT64_C(1893499200000)
