/* SPDX-License-Identifier: Apache-2.0 */
/* The fault store around a folder. */
#include "tests/store/place.h"

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
    EACH_TEXT(text, "put", "put:*:1", "jump:*:1:busy", "put::1:busy", "put:*:0:busy",
              "put:*:x:busy", "put:*:1:bogus", "put:*:1:flip", "put:*:1:ok", "put:*:101%:busy",
              "put:*:5-2:busy", "put:*:1:hang@3", "put:*:1:flip@x") {
        CAIRN_AUTO(place) place = {0};
        struct cairn_error err = {0};
        EXPECT_FAILS(place_open(&place, cairn_test_folder(), text, &err), CAIRN_INVALID, text);
    }
}

TEST(a_rule_fails_its_nth_match_before_anything_is_applied, err) {
    PLACE("put:*rank-0*:2:busy; put:b*:1-2:no_space");
    EXPECT_CODE(put(&place, "rank-00", &err), CAIRN_OK);
    EXPECT_CODE(put(&place, "other", &err), CAIRN_OK);
    EXPECT_CODE(put(&place, "x/rank-01", &err), CAIRN_BUSY);
    EXPECT_PERFORMED(CAIRN_NOT_FOUND, head, place.worker,
                     {.op = CAIRN_STORE_HEAD, .key = "x/rank-01"});
    EXPECT_CODE(put(&place, "x/rank-01", &err), CAIRN_OK);
    EXPECT_CODE(put(&place, "b", &err), CAIRN_NO_SPACE);
    EXPECT_CODE(put(&place, "b", &err), CAIRN_NO_SPACE);
    EXPECT_CODE(put(&place, "b", &err), CAIRN_OK);
    EXPECT_EQ_U64(cairn_store_fault_count(place.store, 0), 1);
    EXPECT_EQ_U64(cairn_store_fault_count(place.store, 1), 2);
}

TEST(a_lost_reply_is_applied_and_told_as_unknown, err) { /* fault.h#3, O6 */
    PLACE("put:*:1:lose_reply");
    EXPECT_PERFORMED(
        CAIRN_UNAVAILABLE, request, place.worker,
        {.op = CAIRN_STORE_PUT, .key = "a", .create = true, .body = CAIRN_VIEW("0123456789")});
    EXPECT(request.ambiguous);
    char into[11];
    EXPECT_CODE(get(&place, "a", into, &err), CAIRN_OK);
    EXPECT_EQ_TEXT(into, "0123456789");
}

TEST(small_puts_survive_lost_replies, err) {
    PLACE("put:[ab]:1:lose_reply; put:c:*:lose_reply");
    EXPECT_CODE(cairn_store_put_small(place.worker, "a", CAIRN_VIEW("x"), true, &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_put_same(place.worker, "b", CAIRN_VIEW("x"), &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_put_same(place.worker, "c", CAIRN_VIEW("x"), &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_put_small(place.worker, "a", CAIRN_VIEW("y"), true, &err),
                CAIRN_PRECONDITION);
}

TEST(a_409_of_the_store_is_not_another_content, err) { /* Q22, Q36 */
    PLACE("put:a:1:conflict; put:b:*:conflict");
    EXPECT_CODE(cairn_store_put_same(place.worker, "a", CAIRN_VIEW("x"), &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_put_same(place.worker, "b", CAIRN_VIEW("x"), &err), CAIRN_BUSY);
    EXPECT_CODE(cairn_store_put_same(place.worker, "a", CAIRN_VIEW("y"), &err), CAIRN_CONFLICT);
}

TEST(gets_can_flip_a_bit_or_lose_their_tail, err) {
    PLACE("get:a:1:flip@3; get:a:2+:short@4; head:*:*:short@1");
    REQUIRE_OK(put(&place, "a", &err));
    char into[11];
    EXPECT_CODE(get(&place, "a", into, &err), CAIRN_OK);
    EXPECT_EQ_TEXT(into, "012#456789");
    EXPECT_CODE(get(&place, "a", into, &err), CAIRN_OK);
    EXPECT_EQ_TEXT(into, "012345");
    EXPECT_PERFORMED(CAIRN_OK, head, place.worker, {.op = CAIRN_STORE_HEAD, .key = "a"});
    EXPECT_EQ_U64(head.object_bytes, 9);
}

static void note_done(struct cairn_store_request *request) {
    *(bool *)request->owner = true;
}

TEST(a_delayed_request_does_not_hold_up_the_others, err) {
    PLACE("put:slow:*:delay@80; put:slower:*:delay@600000");
    bool done = false;
    struct cairn_store_request slower = {.op = CAIRN_STORE_PUT,
                                         .key = "slower",
                                         .create = true,
                                         .body = CAIRN_VIEW("0123456789"),
                                         .done = note_done,
                                         .owner = &done};
    cairn_store_submit(place.worker, &slower);
    EXPECT_CODE(put(&place, "fast", &err), CAIRN_OK);
    uint64_t start = cairn_mono_ms();
    EXPECT_CODE(put(&place, "slow", &err), CAIRN_OK);
    EXPECT(cairn_mono_ms() - start >= 80);
    EXPECT(!done);
    cairn_store_cancel(place.worker, &slower);
}

TEST(a_hanging_request_ends_by_deadline_cancel_or_with_its_worker, err) { /* O4 */
    PLACE("head:*:*:hang");
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
        struct cairn_error err = {0};
        PLACE("head:*:20%:busy");
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
