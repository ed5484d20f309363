/* SPDX-License-Identifier: Apache-2.0 */
/* .cairn/store.json in a folder store: what is a record, what is damage, what is not there. */
#include "api/documents/records.h"
#include "tests/store/place.h"

#define UUID "01234567-89ab-4def-8123-456789abcdef"

static enum cairn_code get_of(struct cairn_place *place, struct cairn_view text,
                              struct cairn_store_record *ret, struct cairn_error *err) {
    struct cairn_key key;
    cairn_key_store_json(&key);
    CAIRN_TRY(cairn_store_put_small(place->worker, key.text, text, false, err));
    return cairn_store_record_get(place->worker, 0, ret, err);
}

TEST(a_record_that_was_put_comes_back_and_create_replaces_none, err) {
    struct cairn_store_record mine = {UUID, "me@here", 1, 9, ""}, back = {0};
    PLACE(NULL);
    EXPECT_CODE(cairn_store_record_get(place.worker, 0, &back, &err), CAIRN_NOT_FOUND);
    REQUIRE_OK(cairn_store_record_put(place.worker, &mine, true, &err));
    REQUIRE_OK(cairn_store_record_get(place.worker, 0, &back, &err));
    EXPECT_ALL_TEXT(back.uuid, UUID, back.owner, "me@here");
    EXPECT_EQ_U64(back.generation, 9);
    mine.generation = 10;
    EXPECT_CODE(cairn_store_record_put(place.worker, &mine, true, &err), CAIRN_PRECONDITION);
    REQUIRE_OK(cairn_store_record_put(place.worker, &mine, false, &err));
    REQUIRE_OK(cairn_store_record_get(place.worker, 0, &back, &err));
    EXPECT_EQ_U64(back.generation, 10);
}

TEST(an_object_that_is_no_record_is_corrupt_and_a_later_format_is_unsupported, err) {
    struct cairn_store_record back = {.uuid = "untouched"};
    PLACE(NULL);
    EXPECT_CODE(get_of(&place, CAIRN_VIEW(""), &back, &err), CAIRN_CORRUPT);
    EXPECT_CODE(get_of(&place, CAIRN_VIEW("{\"cairn_sto"), &back, &err), CAIRN_CORRUPT);
    EXPECT_CODE(get_of(&place, CAIRN_VIEW("{\"cairn_manifest\":1}"), &back, &err), CAIRN_CORRUPT);
    EXPECT_CODE(get_of(&place, CAIRN_VIEW("{\"cairn_store\":2}"), &back, &err), CAIRN_UNSUPPORTED);
    size_t size = CAIRN_MIB + 1;
    CAIRN_AUTO_HEAP char *large = calloc(1, size);
    REQUIRE(large);
    EXPECT_CODE(get_of(&place, (struct cairn_view){large, size}, &back, &err), CAIRN_CORRUPT);
    EXPECT(err.code == CAIRN_CORRUPT);
    EXPECT_EQ_TEXT(back.uuid, "untouched");
}

TEST(a_record_of_a_store_that_hangs_is_waited_for_until_the_deadline, err) {
    struct cairn_store_record mine = {UUID, "me@here", 1, 9, ""}, back = {0};
    PLACE("get:*:*:hang");
    REQUIRE_OK(cairn_store_record_put(place.worker, &mine, true, &err));
    uint64_t from_ms = cairn_mono_ms();
    EXPECT_CODE(cairn_store_record_get(place.worker, from_ms + 200, &back, &err), CAIRN_TIMEOUT);
    EXPECT(cairn_mono_ms() - from_ms < 60000); /* what hangs has no end of its own */
}
