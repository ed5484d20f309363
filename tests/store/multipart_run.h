/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multipart_run: one shard of three blocks, whose answers a test writes by hand.
 *
 * Why:     several files ask the state machine what comes next after which answer.
 * Promise: 1   an action that next() gave is answered once, by one of the answers.
 *          2   PLAY stops at the first action that is not the one of its script.
 * Limits:  SIZE bytes, PARTS blocks.
 * Threads: main thread only.
 * Next:    store/multipart.h.
 */
#pragma once

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

/* ---- a script of actions and their answers: PLAY(&run, "PUT: lost, HEAD: ours, DURABLE") ---- */
#define RUN(name, part_bytes)                                                                      \
    CAIRN_AUTO(run) name = {0};                                                                    \
    REQUIRE(start(&name, part_bytes))
#define RECOVERED(name, part_bytes, upload_id, known)                                              \
    CAIRN_AUTO(run) name = {0};                                                                    \
    REQUIRE(recover(&name, part_bytes, upload_id, known))
#define PLAY(run, script) REQUIRE(play(run, __LINE__, script))

/* By the name of a code, or of what the store holds. */
static inline bool answer_named(struct cairn_run *run, const char *name) {
    enum cairn_code code = cairn_code_from_slug(name);
    if (!strcmp(name, "lost")) return answer_ambiguous(run), true;
    if (!strcmp(name, "refused")) return answer_refused(run), true;
    if (!strcmp(name, "ours")) return answer_ours(run), true;
    /* ours without a checksum; without a token, too; without a token only */
    if (!strcmp(name, "unsummed")) return answer_head_plain(run, TOKEN, SIZE), true;
    if (!strcmp(name, "nameless")) return answer_head_plain(run, "", SIZE), true;
    if (!strcmp(name, "untold")) return answer_head(run, "", SIZE, whole_crc32c()), true;
    if (!strncmp(name, "listed", 6)) /* listed-2: the second part is another one */
        return answer_listed(run, name[6] ? (uint32_t)strtoul(name + 7, NULL, 10) : 0), true;
    run->request.got_crc32c = run->action.crc32c ^ !strcmp(name, "other");
    if (!strcmp(name, "same") || !strcmp(name, "other")) return answer(run, CAIRN_OK), true;
    if (run->action.kind == CAIRN_MULTIPART_CREATE)
        snprintf(run->request.upload_id, sizeof run->request.upload_id, "upload-1");
    return !strcmp(cairn_code_info(code)->slug, name) ? answer(run, code), true : false;
}
/* SENT stands for CREATE and all parts, "PART 2" for the part of that number, "FAILED: code" for
 * the end with that code. An action without an answer stays under way. */
static inline bool play(struct cairn_run *run, int line, const char *script) {
    static const char *const kinds[] = {"WAIT",     "PUT",         "CREATE",     "PART",
                                        "COMPLETE", "HEAD",        "LIST_PARTS", "READ",
                                        "ABORT",    "NEED_SOURCE", "DURABLE",    "FAILED"};
    for (const char *at = script; *at; at += strspn(at, ", ")) {
        char step[64], name[16] = "", said[32] = "";
        unsigned part = 0, kind = 0;
        int size = (int)strcspn(at, ",");
        snprintf(step, sizeof step, "%.*s", size, at);
        at += size;
        char *colon = strchr(step, ':');
        if (colon) sscanf(colon, ": %31s", said);
        bool good = sscanf(step, "%15[A-Z_] %u", name, &part) >= 1;
        if (!strcmp(name, "SENT")) {
            if (!send_parts(run)) return false;
            continue;
        }
        while (kind < CAIRN_COUNT(kinds) && strcmp(kinds[kind], name)) kind++;
        good &= next(run) == kind && (!part || run->action.part_number == part);
        if (good && !strcmp(name, "FAILED"))
            good = !strcmp(cairn_code_info(run->mp.error.code)->slug, said) && next(run) == kind;
        else if (good && said[0])
            good = answer_named(run, said);
        if (!cairn_test_check(good, __FILE__, line, "%s: it is %s", step, kinds[run->action.kind]))
            return false;
    }
    return true;
}
