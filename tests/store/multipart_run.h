/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multipart_run: one shard of three blocks, whose answers a test writes by hand.
 *
 * Why:     several files ask the state machine what comes next after which answer.
 * Promise: 1   an action that next() gave is answered once, by one of the answers.
 * Limits:  SIZE bytes, PARTS blocks.
 * Threads: main thread only.
 * Next:    store/multipart.h.
 */
#pragma once

#include "common/crc.h"
#include "store/multipart.h"
#include "tests/harness.h"

#define TOKEN "6f0f1c1e-5a55-4c6b-9d4b-0b3f6a5f9f01"
#define PARTS 3
#define SIZE (PARTS * CAIRN_MIB - 7)

static const uint32_t blocks[PARTS] = {0x11111111, 0x22222222, 0x33333333};

/* A shard of three parts with all of its bytes ready, and the action under way. */
struct cairn_run {
    struct cairn_multipart mp;
    struct cairn_multipart_action action;
    struct cairn_store_request request; /* the answer to come */
    struct cairn_store_part listed[PARTS];
};
static inline void cairn_run_release(struct cairn_run *run) {
    cairn_multipart_release(&run->mp);
}

static inline uint32_t whole_crc32c(void) {
    uint32_t crc = cairn_crc32c_combine(blocks[0], blocks[1], CAIRN_MIB);
    return cairn_crc32c_combine(crc, blocks[2], CAIRN_MIB - 7);
}
static inline bool start(struct cairn_run *run, uint64_t part_bytes) {
    struct cairn_error err = {0};
    bool ok = cairn_multipart_init(&run->mp, SIZE, part_bytes, TOKEN, &err) == CAIRN_OK &&
              cairn_multipart_ready(&run->mp, SIZE, blocks, 0, PARTS, &err) == CAIRN_OK;
    return cairn_test_check(ok, __FILE__, __LINE__, "start: %s", err.message);
}
static inline bool recover(struct cairn_run *run, uint64_t part_bytes, const char *upload_id,
                           const uint32_t *known) {
    struct cairn_error err = {0};
    bool ok = cairn_multipart_init(&run->mp, SIZE, part_bytes, TOKEN, &err) == CAIRN_OK &&
              cairn_multipart_recover(&run->mp, upload_id, known, &err) == CAIRN_OK;
    return cairn_test_check(ok, __FILE__, __LINE__, "recover: %s", err.message);
}
static inline enum cairn_multipart_kind next(struct cairn_run *run) {
    run->request = (struct cairn_store_request){.parts = run->listed};
    cairn_multipart_next(&run->mp, &run->action);
    return run->action.kind;
}
static inline void answer(struct cairn_run *run, enum cairn_code code) {
    run->request.code = code;
    if (code != CAIRN_OK) cairn_fail(&run->request.error, code, "scripted");
    cairn_multipart_result(&run->mp, &run->action, &run->request);
}
static inline void answer_refused(struct cairn_run *run) {
    run->request.code = cairn_fail(&run->request.error, CAIRN_FORBIDDEN, "scripted");
    run->request.error.http_status = 403;
    cairn_multipart_result(&run->mp, &run->action, &run->request);
}
static inline void answer_ambiguous(struct cairn_run *run) {
    run->request.ambiguous = true;
    answer(run, CAIRN_UNAVAILABLE);
}
static inline void answer_head(struct cairn_run *run, const char *token, uint64_t size,
                               uint32_t crc) {
    snprintf(run->request.object_token, sizeof run->request.object_token, "%s", token);
    run->request.object_bytes = size;
    run->request.object_has_crc32c = true;
    run->request.object_crc32c = crc;
    answer(run, CAIRN_OK);
}
static inline void answer_head_plain(struct cairn_run *run, const char *token, uint64_t size) {
    snprintf(run->request.object_token, sizeof run->request.object_token, "%s", token);
    run->request.object_bytes = size;
    answer(run, CAIRN_OK);
}
static inline void answer_ours(struct cairn_run *run) {
    answer_head(run, TOKEN, SIZE, whole_crc32c());
}
static inline void answer_listed(struct cairn_run *run, uint32_t wrong_part) {
    for (uint32_t i = 0; i < PARTS; i++) {
        run->listed[i] = (struct cairn_store_part){.number = i + 1,
                                                   .size_bytes = CAIRN_MIB - (i == 2 ? 7 : 0),
                                                   .has_crc32c = true,
                                                   .crc32c = blocks[i] ^ (i + 1 == wrong_part)};
    }
    run->request.part_count = PARTS;
    answer(run, CAIRN_OK);
}
/* CREATE and all parts, up to COMPLETE being the next. */
static inline bool send_parts(struct cairn_run *run) {
    if (!EXPECT(next(run) == CAIRN_MULTIPART_CREATE)) return false;
    snprintf(run->request.upload_id, sizeof run->request.upload_id, "upload-1");
    answer(run, CAIRN_OK);
    for (uint32_t i = 1; i <= PARTS; i++) {
        if (!EXPECT(next(run) == CAIRN_MULTIPART_PART)) return false;
        if (!EXPECT(run->action.part_number == i)) return false;
        snprintf(run->request.etag, sizeof run->request.etag, "etag-%u", i);
        answer(run, CAIRN_OK);
    }
    return true;
}
#define EXPECT_NEXT(run, wanted) EXPECT_EQ_U64(next(run), CAIRN_MULTIPART_##wanted)
/* FAILED with this code, and nothing follows. */
#define EXPECT_FAILED(run, wanted)                                                                 \
    do {                                                                                           \
        EXPECT_NEXT(run, FAILED);                                                                  \
        EXPECT_EQ_U64((run)->mp.error.code, CAIRN_##wanted);                                       \
        EXPECT_NEXT(run, FAILED);                                                                  \
    } while (0)
