/* SPDX-License-Identifier: Apache-2.0 */
/* The multipart state machine over a real folder: with injected faults, and with processes that die
 * at every named point and are followed by another one. */
#include "common/hooks.h"
#include "store/multipart.h"
#include "store/open.h"
#include "tests/harness.h"
#include "tests/support/fault/fault.h"

#define TOKEN "6f0f1c1e-5a55-4c6b-9d4b-0b3f6a5f9f01"
#define KEY "proj/run/000000000001/ckpt/data/rank-00000"
#define PART_COUNT 3
#define SIZE (PART_COUNT * CAIRN_MIB - 777)

/* One shard and the way to its store. */
struct cairn_shard {
    struct cairn_store *store;
    struct cairn_store_worker *worker;
    struct cairn_multipart mp;
    uint8_t *bytes;
    uint32_t blocks[PART_COUNT];
    bool source_there;
    unsigned parts_sent;
};
static void cairn_shard_release(struct cairn_shard *shard) {
    cairn_multipart_release(&shard->mp);
    cairn_store_worker_free(shard->worker);
    cairn_store_free(shard->store);
    free(shard->bytes);
}

static bool shard_open(struct cairn_shard *shard, const char *folder, const char *script,
                       uint64_t seed) {
    struct cairn_error err = {0};
    struct cairn_store_options options = {.url = folder};
    struct cairn_store_fault_options fault = {.script = script, .seed = seed};
    uint64_t state = 4711;
    shard->bytes = aligned_alloc(4096, PART_COUNT * CAIRN_MIB);
    for (size_t i = 0; i < PART_COUNT * CAIRN_MIB; i += 8) {
        uint64_t word = cairn_test_random(&state);
        memcpy(shard->bytes + i, &word, 8);
    }
    for (size_t i = 0; i < PART_COUNT; i++) {
        uint64_t offset = i * CAIRN_MIB;
        shard->blocks[i] =
            cairn_crc32c(0, shard->bytes + offset, cairn_min_u64(CAIRN_MIB, SIZE - offset));
    }
    struct cairn_store *inner = NULL;
    bool ok = cairn_store_open(&options, &inner, &err) == CAIRN_OK &&
              cairn_store_fault_wrap(inner, &fault, &shard->store, &err) == CAIRN_OK &&
              cairn_store_worker_new(shard->store, &shard->worker, &err) == CAIRN_OK &&
              cairn_multipart_init(&shard->mp, SIZE, CAIRN_MIB, TOKEN, &err) == CAIRN_OK;
    return cairn_test_check(ok, __FILE__, __LINE__, "open: %s", err.message);
}

static enum cairn_store_op op_of(enum cairn_multipart_kind kind) {
    switch (kind) {
    case CAIRN_MULTIPART_PUT:
        return CAIRN_STORE_PUT;
    case CAIRN_MULTIPART_CREATE:
        return CAIRN_STORE_UPLOAD_CREATE;
    case CAIRN_MULTIPART_PART:
        return CAIRN_STORE_UPLOAD_PART;
    case CAIRN_MULTIPART_COMPLETE:
        return CAIRN_STORE_UPLOAD_COMPLETE;
    case CAIRN_MULTIPART_HEAD:
        return CAIRN_STORE_HEAD;
    case CAIRN_MULTIPART_LIST_PARTS:
        return CAIRN_STORE_UPLOAD_PARTS;
    case CAIRN_MULTIPART_READ:
        return CAIRN_STORE_GET;
    default:
        return CAIRN_STORE_UPLOAD_ABORT;
    }
}

static void perform(struct cairn_shard *shard, const struct cairn_multipart_action *action) {
    struct cairn_store_part parts[PART_COUNT] = {0};
    struct cairn_error err = {0};
    struct cairn_store_request request = {.op = op_of(action->kind),
                                          .key = KEY,
                                          .token = TOKEN,
                                          .create = true,
                                          .upload_id_in = shard->mp.upload_id,
                                          .part_number = action->part_number,
                                          .offset = action->offset,
                                          .length = action->length,
                                          .has_crc32c = true,
                                          .crc32c = action->crc32c,
                                          .parts = parts,
                                          .part_count = PART_COUNT};
    if (action->kind == CAIRN_MULTIPART_PART) {
        request.body = (struct cairn_view){shard->bytes + action->offset, action->length};
        shard->parts_sent++;
    }
    for (int i = 0; action->kind == CAIRN_MULTIPART_COMPLETE && i < PART_COUNT; i++) {
        parts[i] = shard->mp.parts[i].sent;
    }
    CAIRN_AUTO_HEAP uint8_t *into = NULL;
    if (action->kind == CAIRN_MULTIPART_READ) {
        request.into = into = malloc(action->length);
        request.wants_crc32c = true;
    }
    if (cairn_store_perform(shard->worker, &request, &err) != CAIRN_OK) request.error = err;
    cairn_multipart_result(&shard->mp, action, &request);
}

static enum cairn_multipart_kind drive(struct cairn_shard *shard) {
    for (int i = 0; i < 500; i++) {
        struct cairn_multipart_action action;
        struct cairn_error why = {0};
        cairn_multipart_next(&shard->mp, &action);
        switch (action.kind) {
        case CAIRN_MULTIPART_DURABLE:
        case CAIRN_MULTIPART_FAILED:
            return action.kind;
        case CAIRN_MULTIPART_NEED_SOURCE:
            if (shard->source_there) {
                cairn_multipart_source(&shard->mp);
                break;
            }
            cairn_fail(&why, CAIRN_SOURCE_GONE, "nobody offered the slab again");
            cairn_multipart_give_up(&shard->mp, &why);
            break;
        case CAIRN_MULTIPART_WAIT:
            return action.kind; /* nothing is under way here */
        default:
            perform(shard, &action);
        }
    }
    return CAIRN_MULTIPART_WAIT;
}

static enum cairn_multipart_kind send_one(struct cairn_shard *shard) {
    struct cairn_error err = {0};
    if (cairn_multipart_ready(&shard->mp, SIZE, shard->blocks, 0, PART_COUNT, &err) != CAIRN_OK) {
        return CAIRN_MULTIPART_WAIT;
    }
    return drive(shard);
}

static bool object_is_whole(struct cairn_shard *shard) {
    CAIRN_AUTO(buf) there = {0};
    struct cairn_error err = {0};
    return cairn_store_get_small(shard->worker, KEY, &there, &err) == CAIRN_OK &&
           there.size == SIZE && memcmp(there.data, shard->bytes, SIZE) == 0;
}

TEST(a_shard_reaches_a_folder_whatever_replies_are_lost) { /* R3 */
    EACH_TEXT(text, "", "complete:*:1:lose_reply", "create:*:1:lose_reply; part:*:2-4:lose_reply",
              "complete:*:1:lose_reply; head:*:1-3:busy; parts:*:1:timeout",
              "complete:*:1:unavailable; complete:*:2:lose_reply; head:*:1:timeout",
              "part:*:2:not_found", /* the upload seems to vanish: begun anew */
              "part:*:*:delay@1; *:*:15%:busy", "*:*:10%:lose_reply") {
        WITH(shard, shard,
             shard_open(&shard, TEXT("%s/%zu", cairn_test_folder(), AT_OF(text)), text, 7));
        EXPECT_EQ_U64(send_one(&shard), CAIRN_MULTIPART_DURABLE);
        if (shard.mp.error.code != CAIRN_OK) EXPECT_EQ_TEXT(shard.mp.error.message, text);
        EXPECT(object_is_whole(&shard));
    }
}

TEST(a_shard_that_cannot_be_sent_leaves_nothing_in_the_folder) {
    EACH(one, FIELDS(const char *script; enum cairn_code code),
         {"part:*:2+:no_space", CAIRN_NO_SPACE}, {"complete:*:*:forbidden", CAIRN_FORBIDDEN},
         {"part:*:3+:store_corrupt; abort:*:1-2:busy", CAIRN_CORRUPT}) {
        const char *folder = TEXT("%s/%zu", cairn_test_folder(), AT(one));
        WITH(shard, shard, shard_open(&shard, folder, one->script, 7));
        EXPECT_EQ_U64(send_one(&shard), CAIRN_MULTIPART_FAILED);
        EXPECT_EQ_U64(shard.mp.error.code, one->code);
        EXPECT(rmdir(folder) == 0); /* no object, no temporary, no folder */
    }
}

TEST(a_foreign_object_stays_and_the_shard_fails_by_name, err) { /* multipart.h#5 */
    WITH(shard, shard, shard_open(&shard, cairn_test_folder(), "", 7));
    REQUIRE_OK(cairn_store_put_small(shard.worker, KEY, CAIRN_VIEW("foreign"), true, &err));
    EXPECT_EQ_U64(send_one(&shard), CAIRN_MULTIPART_FAILED);
    EXPECT_EQ_U64(shard.mp.error.code, CAIRN_CONFLICT);
    WITH_OK(buf, there, cairn_store_get_small(shard.worker, KEY, &there, &err));
    EXPECT_EQ_TEXT(there.data, "foreign");
}

#ifdef CAIRN_CRASHPOINTS
/* A process that dies at the point while it sends the shard. */
static int status_of_dying(const char *folder, const char *point) {
    pid_t child = fork();
    if (child == 0) {
        struct cairn_shard shard = {0};
        cairn_crashpoint_arm(point);
        if (shard_open(&shard, folder, "", 7)) send_one(&shard);
        _exit(1);
    }
    int status = -1;
    if (child > 0) waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(k01_after_a_death_at_any_point_a_new_process_finishes_or_cleans_up) { /* K01, Q17 */
    static const struct {
        const char *point;
        bool knows_upload, knows_blocks; /* from its journal */
        enum cairn_multipart_kind without_source;
        unsigned sent_again; /* parts, with a source */
    } cases[] = {
        {"store.dir.created:1:exit", false, false, CAIRN_MULTIPART_FAILED, 3},
        {"store.dir.part:2:exit", true, false, CAIRN_MULTIPART_FAILED, 3},
        {"store.dir.synced:1:exit", true, true, CAIRN_MULTIPART_DURABLE, 0},
        {"store.dir.published:1:exit", true, true, CAIRN_MULTIPART_DURABLE, 0},
    };
    for (size_t i = 0; i < CAIRN_COUNT(cases) * 2; i++) {
        CAIRN_AUTO(shard) shard = {.source_there = i % 2};
        struct cairn_error err = {0};
        const char *folder = TEXT("%s/%zu", cairn_test_folder(), i);
        EXPECT_EQ_U64(status_of_dying(folder, cases[i / 2].point), 70);
        REQUIRE(shard_open(&shard, folder, "", 7));
        const char *upload = cases[i / 2].knows_upload ? TOKEN : NULL;
        REQUIRE_OK(cairn_multipart_recover(&shard.mp, upload, shard.blocks, &err));
        if (!cases[i / 2].knows_blocks) { /* the journal holds them only from before Complete */
            cairn_multipart_release(&shard.mp);
            REQUIRE_OK(cairn_multipart_init(&shard.mp, SIZE, CAIRN_MIB, TOKEN, &err));
            REQUIRE_OK(cairn_multipart_recover(&shard.mp, upload, NULL, &err));
            if (shard.source_there) {
                cairn_multipart_source(&shard.mp);
                REQUIRE_OK(
                    cairn_multipart_ready(&shard.mp, SIZE, shard.blocks, 0, PART_COUNT, &err));
            }
        }
        enum cairn_multipart_kind wanted =
            shard.source_there ? CAIRN_MULTIPART_DURABLE : cases[i / 2].without_source;
        EXPECT_EQ_U64(drive(&shard), wanted);
        EXPECT_EQ_U64(object_is_whole(&shard), wanted == CAIRN_MULTIPART_DURABLE);
        bool sends = shard.source_there && cases[i / 2].sent_again;
        if (!sends)
            EXPECT_EQ_U64(shard.parts_sent, 0);
        else
            EXPECT(shard.parts_sent >= 1 && shard.parts_sent <= cases[i / 2].sent_again);
        struct cairn_store_listing left = {0};
        PERFORMED(list, shard.worker, {.op = CAIRN_STORE_UPLOADS, .key = "", .listing = &left});
        /* Without a known id the upload stays for the sweep of the version (Q21). */
        EXPECT_EQ_U64(left.count, !cases[i / 2].knows_upload && !shard.source_there);
        cairn_store_listing_release(&left);
    }
}
#endif
