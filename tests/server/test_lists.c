/* SPDX-License-Identifier: Apache-2.0 */
/* Where the lists of two ranks differ, asked by hand (Q10, server/intake/begin.c). */
#include "tests/server/world.h"

#define DIGEST "0123456789abcdef"
#define PARTS 32
#define ALL 1048576

static enum cairn_code begin(struct cairn_hand *hand, uint32_t rank, bool finer,
                             json_t **ret_reply) {
    char digest[65] = {0};
    memset(digest, rank == 0 ? 'a' : 'b', 64);
    json_t *body = hand_begin_body(hand, 5, 1, rank, "error");
    json_t *split = json_pack("{s:s, s:s}", "group", "dp", "digest", digest);
    if (finer) json_object_set_new(split, "finer", json_true());
    json_object_set_new(body, "splits", json_pack("[o]", split));
    return world_call(hand->world, "POST", WORLD_RUN "/checkpoints", body, ret_reply);
}

/* Parts from number `other` on are another list's. */
static json_t *digests(uint64_t from, uint64_t to, int other) {
    char text[PARTS * 16 + 1];
    for (int i = 0; i < PARTS; i++)
        memcpy(text + (size_t)16 * (size_t)i, i < other ? DIGEST : "fedcba9876543210", 16);
    text[PARTS * 16] = 0;
    return json_pack("{s:s, s:I, s:I, s:s}", "group", "dp", "from", (json_int_t)from, "to",
                     (json_int_t)to, "digests", text);
}

struct dispute {
    struct cairn_hand hand;
    char path[256];
};

static enum cairn_code look(struct dispute *dispute, uint32_t rank, json_t *take_look,
                            json_t **ret_reply) {
    json_t *body = json_pack("{s:s, s:s, s:i, s:o?}", "grant", dispute->hand.grant, "node", "n0",
                             "rank", (int)rank, "look", take_look);
    if (!take_look) json_object_del(body, "look");
    return world_call(dispute->hand.world, "POST", dispute->path, body, ret_reply);
}

static bool differ(struct cairn_world *world, bool finer, struct dispute *ret) {
    CAIRN_AUTO_JSON json_t *begun = NULL;
    if (hand_open(world, &ret->hand, "j1", 0, "latest", 3) || begin(&ret->hand, 0, finer, &begun) ||
        begin(&ret->hand, 2, finer, NULL) != CAIRN_BEGIN_DIFFERS)
        return false;
    snprintf(ret->path, sizeof ret->path, WORLD_RUN "/checkpoints/%s/lists",
             world_text(begun, "version"));
    return true;
}

static uint64_t number(const json_t *reply, const char *name) {
    return (uint64_t)json_integer_value(json_object_get(reply, name));
}

#define err world.err /* of the macros */

TEST(two_ranks_look_until_one_tensor_is_left_and_the_reason_names_it) { /* intake.h#3 */
    WORLD();
    static struct dispute dispute;
    REQUIRE(differ(&world, true, &dispute));
    uint64_t from = 0, to = ALL;
    for (int round = 0; round < 4; round++) {
        CAIRN_AUTO_JSON json_t *asked = NULL, *one = NULL, *both = NULL;
        REQUIRE_OK(look(&dispute, 1, NULL, &asked)); /* who is no party sees it, too */
        EXPECT_ALL_U64(number(asked, "from"), from, number(asked, "to"), to, number(asked, "first"),
                       0, number(asked, "second"), 2);
        REQUIRE_OK(look(&dispute, 2, digests(from, to, 7), &one));
        EXPECT_EQ_U64(number(one, "to"), to); /* the other one has not looked */
        REQUIRE_OK(look(&dispute, 0, digests(from, to, PARTS), &both));
        uint64_t part = (to - from) / PARTS;
        from += 7 * part;
        to = from + part;
        EXPECT_ALL_U64(number(both, "from"), from, number(both, "to"), to);
    }
    EXPECT_EQ_U64(to - from, 1);
    CAIRN_AUTO_JSON json_t *named = NULL, *later = NULL;
    json_t *place = json_pack("{s:s, s:I, s:I, s:s}", "group", "dp", "from", (json_int_t)from, "to",
                              (json_int_t)to, "tensor", "layers.8.w");
    REQUIRE_OK(look(&dispute, 0, json_deep_copy(place), NULL));
    json_object_set_new(place, "tensor", json_string("layers.7.w"));
    REQUIRE_OK(look(&dispute, 2, place, &named));
    EXPECT_SHOWS(named, "settled", "true", "reason",
                 "rank 0 and rank 2 differ in the tensors of the replica group \"dp\", first in "
                 "\"layers.7.w\"");
    EXPECT_CODE(begin(&dispute.hand, 0, true, NULL), CAIRN_BEGIN_DIFFERS); /* as every rank hears */
    EXPECT(strstr(err.message, "first in \"layers.7.w\""));
    REQUIRE_OK(look(&dispute, 0, digests(0, ALL, 3), &later)); /* a late one changes nothing */
    EXPECT_EQ_TEXT(world_text(later, "reason"), world_text(named, "reason"));
}

TEST(looks_that_tell_nothing_leave_the_reason_as_it_was) { /* intake.h#4 */
    WORLD();
    static struct dispute dispute;
    CAIRN_AUTO_JSON json_t *open = NULL, *reply = NULL;
    REQUIRE(differ(&world, true, &dispute));
    REQUIRE_OK(look(&dispute, 0, digests(0, ALL, 1), NULL));
    REQUIRE_OK(look(&dispute, 2, digests(0, ALL / 2, 2), &open)); /* was not asked for */
    EXPECT(json_is_false(json_object_get(open, "settled")));
    json_t *none = json_pack("{s:s, s:i, s:i}", "group", "dp", "from", 0, "to", ALL);
    REQUIRE_OK(look(&dispute, 2, none, &reply)); /* its list is gone */
    EXPECT_SHOWS(reply, "settled", "true", "reason",
                 "rank 0 and rank 2 differ in the tensors of the replica group \"dp\"");
}

TEST(ranks_of_a_release_before_are_not_asked) { /* Q10 */
    WORLD();
    static struct dispute dispute;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    REQUIRE(differ(&world, false, &dispute));
    REQUIRE_OK(look(&dispute, 0, NULL, &reply));
    EXPECT_SHOWS(reply, "settled", "true", "group", "null");
}
