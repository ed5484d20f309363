/* SPDX-License-Identifier: Apache-2.0 */
/* A store with one worker, in a folder; and a put of bytes. */
#pragma once

#include "store/open.h"
#include "tests/harness.h"
#include "tests/support/fault/fault.h"

#define TOKEN "6f0f1c1e-5a55-4c6b-9d4b-0b3f6a5f9f01"

struct cairn_place {
    struct cairn_store *store;
    struct cairn_store_worker *worker;
    const char *folder;
};
static inline void cairn_place_release(struct cairn_place *place) {
    cairn_store_worker_free(place->worker);
    cairn_store_free(place->store);
}
/* faults: a script, or NULL. */
static inline enum cairn_code place_open(struct cairn_place *place, const char *folder,
                                         const char *faults, struct cairn_error *err) {
    struct cairn_store_options options = {.url = folder};
    struct cairn_store_fault_options fault = {.script = faults, .seed = 42};
    struct cairn_store *inner = NULL;
    place->folder = folder;
    CAIRN_TRY(cairn_store_open(&options, &inner, err));
    if (faults)
        CAIRN_TRY(cairn_store_fault_wrap(inner, &fault, &place->store, err));
    else
        place->store = inner;
    return cairn_store_worker_new(place->store, &place->worker, err);
}
/* `place`, in the folder of the test: PLACE(NULL), or PLACE("put:*:1:lose_reply"). */
#define PLACE(faults) WITH_OK(place, place, place_open(&place, cairn_test_folder(), faults, &err))

static inline struct cairn_store_request put_of(const char *key, const void *data, size_t size) {
    return (struct cairn_store_request){.op = CAIRN_STORE_PUT,
                                        .key = key,
                                        .create = true,
                                        .token = TOKEN,
                                        .body = {data, size},
                                        .has_crc32c = true,
                                        .crc32c = cairn_crc32c(0, data, size)};
}
