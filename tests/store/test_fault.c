/* SPDX-License-Identifier: Apache-2.0 */
/* The fault store around a folder. */
#include "common/clock.h"
#include "store/open.h"
#include "tests/harness.h"
#include "tests/support/fault/fault.h"

struct cairn_place {
    struct cairn_store *store;
    struct cairn_store_worker *worker;
};
static void cairn_place_release(struct cairn_place *place) {
    cairn_store_worker_free(place->worker);
    cairn_store_free(place->store);
}
static enum cairn_code open_with(struct cairn_place *place, const char *script,
                                 struct cairn_error *err) {
    struct cairn_store_options options = {.url = cairn_test_folder()};
    struct cairn_store *inner = NULL;
    CAIRN_TRY(cairn_store_open(&options, &inner, err));
    struct cairn_store_fault_options fault = {.script = script, .seed = 42};
    CAIRN_TRY(cairn_store_fault_wrap(inner, &fault, &place->store, err));
    return cairn_store_worker_new(place->store, &place->worker, err);
}
static enum cairn_code put(struct cairn_place *place, const char *key, struct cairn_error *err) {
    struct cairn_store_request request = {
        .op = CAIRN_STORE_PUT, .key = key, .create = true, .body = CAIRN_VIEW("0123456789")};
    return cairn_store_perform(place->worker, &request, err);
}
static enum cairn_code get(struct cairn_place *place, const char *key, char into[11],
                           struct cairn_error *err) {
    struct cairn_store_request request = {
        .op = CAIRN_STORE_GET, .key = key, .length = 10, .into = into};
    into[10] = '\0';
    return cairn_store_perform(place->worker, &request, err);
}

TEST(scripts_that_make_no_sense_are_refused_with_the_rule) {
    const char *bad[] = {"put",           "put:*:1",         "jump:*:1:busy",  "put::1:busy",
                         "put:*:0:busy",  "put:*:x:busy",    "put:*:1:bogus",  "put:*:1:flip",
                         "put:*:1:ok",    "put:*:101%:busy", "put:*:5-2:busy", "put:*:1:hang@3",
                         "put:*:1:flip@x"};
    for (size_t i = 0; i < CAIRN_COUNT(bad); i++) {
        CAIRN_AUTO(place) place = {0};
        struct cairn_error err = {0};
        EXPECT_CODE(open_with(&place, bad[i], &err), CAIRN_INVALID);
        EXPECT(strstr(err.message, bad[i]));
    }
}

TEST(a_rule_fails_its_nth_match_before_anything_is_applied) {
    CAIRN_AUTO(place) place = {0};
    struct cairn_error err = {0};
    REQUIRE_OK(open_with(&place, "put:*rank-0*:2:busy; put:b*:1-2:no_space", &err));
    EXPECT_CODE(put(&place, "rank-00", &err), CAIRN_OK);
    EXPECT_CODE(put(&place, "other", &err), CAIRN_OK);
    EXPECT_CODE(put(&place, "x/rank-01", &err), CAIRN_BUSY);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = "x/rank-01"};
    EXPECT_CODE(cairn_store_perform(place.worker, &head, &err), CAIRN_NOT_FOUND);
    EXPECT_CODE(put(&place, "x/rank-01", &err), CAIRN_OK);
    EXPECT_CODE(put(&place, "b", &err), CAIRN_NO_SPACE);
    EXPECT_CODE(put(&place, "b", &err), CAIRN_NO_SPACE);
    EXPECT_CODE(put(&place, "b", &err), CAIRN_OK);
    EXPECT_EQ_U64(cairn_store_fault_count(place.store, 0), 1);
    EXPECT_EQ_U64(cairn_store_fault_count(place.store, 1), 2);
}

TEST(a_lost_reply_is_applied_and_told_as_unknown) { /* fault.h#3, O6 */
    CAIRN_AUTO(place) place = {0};
    struct cairn_error err = {0};
    REQUIRE_OK(open_with(&place, "put:*:1:lose_reply", &err));
    struct cairn_store_request request = {
        .op = CAIRN_STORE_PUT, .key = "a", .create = true, .body = CAIRN_VIEW("0123456789")};
    EXPECT_CODE(cairn_store_perform(place.worker, &request, &err), CAIRN_UNAVAILABLE);
    EXPECT(request.ambiguous);
    char into[11];
    EXPECT_CODE(get(&place, "a", into, &err), CAIRN_OK);
    EXPECT_EQ_TEXT(into, "0123456789");
}

TEST(small_puts_survive_lost_replies) {
    CAIRN_AUTO(place) place = {0};
    struct cairn_error err = {0};
    REQUIRE_OK(open_with(&place, "put:[ab]:1:lose_reply; put:c:*:lose_reply", &err));
    EXPECT_CODE(cairn_store_put_small(place.worker, "a", CAIRN_VIEW("x"), true, &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_put_same(place.worker, "b", CAIRN_VIEW("x"), &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_put_same(place.worker, "c", CAIRN_VIEW("x"), &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_put_small(place.worker, "a", CAIRN_VIEW("y"), true, &err),
                CAIRN_PRECONDITION);
}

TEST(a_409_of_the_store_is_not_another_content) { /* Q22, Q36 */
    CAIRN_AUTO(place) place = {0};
    struct cairn_error err = {0};
    REQUIRE_OK(open_with(&place, "put:a:1:conflict; put:b:*:conflict", &err));
    EXPECT_CODE(cairn_store_put_same(place.worker, "a", CAIRN_VIEW("x"), &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_put_same(place.worker, "b", CAIRN_VIEW("x"), &err), CAIRN_BUSY);
    EXPECT_CODE(cairn_store_put_same(place.worker, "a", CAIRN_VIEW("y"), &err), CAIRN_CONFLICT);
}

TEST(gets_can_flip_a_bit_or_lose_their_tail) {
    CAIRN_AUTO(place) place = {0};
    struct cairn_error err = {0};
    REQUIRE_OK(open_with(&place, "get:a:1:flip@3; get:a:2+:short@4; head:*:*:short@1", &err));
    REQUIRE_OK(put(&place, "a", &err));
    char into[11];
    EXPECT_CODE(get(&place, "a", into, &err), CAIRN_OK);
    EXPECT_EQ_TEXT(into, "012#456789");
    EXPECT_CODE(get(&place, "a", into, &err), CAIRN_OK);
    EXPECT_EQ_TEXT(into, "012345");
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = "a"};
    EXPECT_CODE(cairn_store_perform(place.worker, &head, &err), CAIRN_OK);
    EXPECT_EQ_U64(head.object_bytes, 9);
}

TEST(a_delayed_request_does_not_hold_up_the_others) {
    CAIRN_AUTO(place) place = {0};
    struct cairn_error err = {0};
    REQUIRE_OK(open_with(&place, "put:slow:*:delay@80", &err));
    uint64_t start = cairn_mono_ms();
    EXPECT_CODE(put(&place, "fast", &err), CAIRN_OK);
    EXPECT(cairn_mono_ms() - start < 80);
    EXPECT_CODE(put(&place, "slow", &err), CAIRN_OK);
    EXPECT(cairn_mono_ms() - start >= 80);
}

static void note_done(struct cairn_store_request *request) {
    *(bool *)request->owner = true;
}

TEST(a_hanging_request_ends_by_deadline_cancel_or_with_its_worker) { /* O4 */
    CAIRN_AUTO(place) place = {0};
    struct cairn_error err = {0};
    REQUIRE_OK(open_with(&place, "head:*:*:hang", &err));
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = "a"};
    head.deadline_ms = cairn_mono_ms() + 20;
    EXPECT_CODE(cairn_store_perform(place.worker, &head, &err), CAIRN_TIMEOUT);
    bool first = false, second = false;
    struct cairn_store_request one = {.op = CAIRN_STORE_HEAD, .key = "a", .done = note_done};
    struct cairn_store_request two = one;
    one.owner = &first;
    two.owner = &second;
    cairn_store_submit(place.worker, &one);
    cairn_store_submit(place.worker, &two);
    EXPECT(cairn_store_poll(place.worker, 5, &err) == CAIRN_OK && !first && !second);
    cairn_store_cancel(place.worker, &one);
    EXPECT(first && one.code == CAIRN_CANCELLED && one.owner == &first);
    cairn_store_worker_free(CAIRN_TAKE(place.worker));
    EXPECT(second && two.code == CAIRN_CANCELLED);
}

TEST(chance_follows_the_seed) { /* fault.h#2 */
    uint64_t counts[2] = {0};
    for (int i = 0; i < 2; i++) {
        CAIRN_AUTO(place) place = {0};
        struct cairn_error err = {0};
        REQUIRE_OK(open_with(&place, "head:*:20%:busy", &err));
        for (int j = 0; j < 300; j++) {
            struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = "none"};
            enum cairn_code code = cairn_store_perform(place.worker, &head, &err);
            EXPECT(code == CAIRN_BUSY || code == CAIRN_NOT_FOUND);
        }
        counts[i] = cairn_store_fault_count(place.store, 0);
    }
    EXPECT_EQ_U64(counts[0], counts[1]);
    EXPECT(counts[0] > 30 && counts[0] < 90);
}
