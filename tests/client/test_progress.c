/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* What the progress function of a save is told, by which thread, and what it may do. */
#include "tests/client/rank.h"

#define SEGMENT_BYTES (16 * CAIRN_MIB) /* of client/save/copy.c */
#define BYTES (2 * SEGMENT_BYTES + 12345)
#define HEARD_MAX 32

struct heard {
    struct cairn_rank *rank;
    struct cairn_save *save;
    struct cairn_save_status all[HEARD_MAX];
    size_t count;
    pthread_t thread;
    bool elsewhere, cancels;
};

static json_t *released(uint64_t offset, uint64_t bytes) {
    return json_pack("{s:s, s:i, s:i, s:I, s:I}", "t", "released", "save", 1, "shard", 0, "offset",
                     (json_int_t)offset, "bytes", (json_int_t)bytes);
}

/* What comes next happens once what is there was told. */
static json_t *next_of(const struct cairn_save_status *status) {
    if (status->reached == CAIRN_DURABLE) return rank_verdict(1, "committed", "");
    if (status->reached != CAIRN_STAGED) return NULL;
    if (!status->sent_bytes) return released(0, SEGMENT_BYTES);
    if (status->sent_bytes < BYTES) return released(SEGMENT_BYTES, BYTES - SEGMENT_BYTES);
    return json_pack("{s:s, s:i}", "t", "durable", "save", 1);
}

static void hear(void *owner, const struct cairn_save_status *status) {
    struct heard *heard = owner;
    struct cairn_save_status asked;
    struct cairn_error err = {0};
    heard->elsewhere = heard->elsewhere || !pthread_equal(pthread_self(), heard->thread);
    if (heard->count < HEARD_MAX) heard->all[heard->count] = *status;
    heard->count++;
    cairn_save_status(heard->save, &asked);
    EXPECT(asked.staged_bytes >= status->staged_bytes);
    if (heard->cancels) EXPECT_CODE(cairn_save_cancel(heard->save, "seen enough", &err), CAIRN_OK);
    json_t *next = heard->cancels ? NULL : next_of(status);
    if (next) cairn_fake_uploader_event(heard->rank->fake, next);
}

/* One raw shard of BYTES, described. */
static enum cairn_code begin(struct heard *heard, const void *source, struct cairn_error *err) {
    heard->thread = pthread_self();
    CAIRN_TRY(rank_uploader(heard->rank, 1, err));
    struct cairn_open_options options = rank_options(heard->rank);
    options.bytes = BYTES;
    options.copy_threads = 1;
    options.timeout_ms = HANG_MS;
    CAIRN_TRY(cairn_open(&options, &heard->rank->session, NULL, err));
    const struct cairn_save_options wanted = {
        .size = sizeof wanted, .progress = hear, .progress_owner = heard};
    CAIRN_TRY(cairn_save_begin(heard->rank->session, 1, &wanted, &heard->save, err));
    return cairn_save_raw(heard->save, "state", source, BYTES, err);
}

static void expect_growth(const struct heard *heard) {
    for (size_t i = 1; i < heard->count; i++) {
        const struct cairn_save_status *now = &heard->all[i], *before = &heard->all[i - 1];
        EXPECT(now->reached >= before->reached && now->staged_bytes >= before->staged_bytes);
        EXPECT(now->sent_bytes >= before->sent_bytes);
        EXPECT(now->reached + now->staged_bytes + now->sent_bytes >
               before->reached + before->staged_bytes + before->sent_bytes);
    }
}

TEST(progress_is_told_while_a_save_is_copied_and_while_it_is_waited_for, err) { /* save.h#6, #2 */
    static const struct cairn_save_status wanted[] = {
        {.staged_bytes = SEGMENT_BYTES},
        {.staged_bytes = 2 * SEGMENT_BYTES},
        {.staged_bytes = BYTES},
        {.staged_bytes = BYTES, .reached = CAIRN_STAGED},
        {.staged_bytes = BYTES, .reached = CAIRN_STAGED, .sent_bytes = SEGMENT_BYTES},
        {.staged_bytes = BYTES, .reached = CAIRN_STAGED, .sent_bytes = BYTES},
        {.staged_bytes = BYTES, .reached = CAIRN_DURABLE, .sent_bytes = BYTES},
        {.staged_bytes = BYTES, .reached = CAIRN_COMMITTED, .sent_bytes = BYTES}};
    CAIRN_AUTO(rank) rank = {0};
    struct heard heard = {.rank = &rank};
    CAIRN_AUTO_HEAP uint8_t *source = calloc(1, BYTES);
    REQUIRE(source != NULL);
    REQUIRE_OK(begin(&heard, source, &err));
    REQUIRE_OK(cairn_save_stage(heard.save, &err));
    EXPECT_EQ_U64(heard.count, 4); /* what follows comes to nobody before the wait */
    EXPECT_CODE(cairn_save_wait(heard.save, CAIRN_COMMITTED, 0, &err), CAIRN_OK);
    EXPECT(!heard.elsewhere);
    REQUIRE(heard.count == CAIRN_COUNT(wanted));
    for (size_t i = 0; i < heard.count; i++) {
        EXPECT_ALL_U64(heard.all[i].reached, wanted[i].reached, heard.all[i].staged_bytes,
                       wanted[i].staged_bytes, heard.all[i].sent_bytes, wanted[i].sent_bytes,
                       heard.all[i].total_bytes, BYTES);
    }
    expect_growth(&heard);
    EXPECT_CODE(cairn_save_wait(heard.save, CAIRN_COMMITTED, 0, &err), CAIRN_OK);
    EXPECT_EQ_U64(heard.count, CAIRN_COUNT(wanted)); /* nothing has changed */
    cairn_save_free(heard.save);
}

TEST(a_progress_function_may_give_its_save_up, err) {
    CAIRN_AUTO(rank) rank = {0};
    struct heard heard = {.rank = &rank, .cancels = true};
    CAIRN_AUTO_HEAP uint8_t *source = calloc(1, BYTES);
    REQUIRE(source != NULL);
    REQUIRE_OK(begin(&heard, source, &err));
    EXPECT_FAILS(cairn_save_stage(heard.save, &err), CAIRN_CANCELLED, "seen enough");
    EXPECT_ALL_U64(heard.count, 1, cairn_fake_uploader_count(rank.fake, "seal"), 0);
    cairn_save_free(heard.save);
}
