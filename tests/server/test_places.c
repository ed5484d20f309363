/* SPDX-License-Identifier: Apache-2.0 */
/* Who may hold the memory of a read, and in which order places come back; see server/places.h. */
#include "server/places.h"
#include "tests/harness.h"

struct owner {
    struct cairn_srv_place place; /* first */
    bool idle;
    bool idle_soon; /* from the next lend() on */
    int lent, got;
};

static bool lend(struct cairn_srv_place *place) {
    struct owner *owner = (struct owner *)place;
    if (owner->idle_soon) {
        owner->idle_soon = false;
        owner->idle = true;
        return false;
    }
    owner->lent += owner->idle;
    return owner->idle;
}

static void got(struct cairn_srv_place *place) {
    ((struct owner *)place)->got++;
}

static void make(struct owner *owners, size_t count) {
    for (size_t i = 0; i < count; i++)
        owners[i] = (struct owner){.place = {.lend = lend, .got = got}};
}

TEST(no_more_places_are_held_than_there_are) /* R6, places.h#1 */
{
    struct cairn_error err = {0};
    struct cairn_srv_places *places = NULL;
    struct owner owners[4];
    make(owners, 4);
    REQUIRE(!cairn_srv_places_new(2, &places, &err));
    EXPECT(cairn_srv_places_take(places, &owners[0].place));
    EXPECT(cairn_srv_places_take(places, &owners[1].place));
    EXPECT(!cairn_srv_places_take(places, &owners[2].place));
    cairn_srv_places_leave(places, &owners[0].place);
    EXPECT(cairn_srv_places_take(places, &owners[2].place));
    EXPECT(!cairn_srv_places_take(places, &owners[3].place));
    cairn_srv_places_leave(places, &owners[1].place);
    cairn_srv_places_leave(places, &owners[2].place);
    cairn_srv_places_free(places);
}

TEST(who_has_lent_a_place_gets_one_back_before_any_newcomer) /* places.h#2, places.h#3 */
{
    struct cairn_error err = {0};
    struct cairn_srv_places *places = NULL;
    struct owner owners[4];
    make(owners, 4);
    REQUIRE(!cairn_srv_places_new(1, &places, &err));
    owners[0].idle = true;
    EXPECT(cairn_srv_places_take(places, &owners[0].place));
    EXPECT(cairn_srv_places_take(places, &owners[1].place));
    EXPECT(owners[0].lent == 1);
    EXPECT(!cairn_srv_places_want(places, &owners[0].place));
    EXPECT(owners[0].got == 0);
    EXPECT(!cairn_srv_places_take(places, &owners[2].place));
    cairn_srv_places_leave(places, &owners[1].place);
    EXPECT(owners[0].got == 1);
    owners[0].idle = false;
    EXPECT(!cairn_srv_places_take(places, &owners[2].place));
    EXPECT(cairn_srv_places_want(places, &owners[0].place)); /* it was not lent again */
    cairn_srv_places_leave(places, &owners[0].place);
    EXPECT(cairn_srv_places_take(places, &owners[2].place));
    cairn_srv_places_leave(places, &owners[2].place);
    cairn_srv_places_free(places);
}

TEST(a_newcomer_does_not_get_what_is_lent_a_moment_after_others_were_refused) /* places.h#2 */
{
    struct cairn_error err = {0};
    struct cairn_srv_places *places = NULL;
    struct owner owners[3];
    make(owners, 3);
    REQUIRE(!cairn_srv_places_new(1, &places, &err));
    owners[0].idle = true;
    EXPECT(cairn_srv_places_take(places, &owners[0].place));
    EXPECT(cairn_srv_places_take(places, &owners[1].place));
    EXPECT(!cairn_srv_places_want(places, &owners[0].place));
    owners[1].idle_soon =
        true; /* lend() is called for the one that waits, and would be true the next time */
    EXPECT(!cairn_srv_places_take(places, &owners[2].place));
    cairn_srv_places_look(places);
    EXPECT(owners[0].got == 1);
    cairn_srv_places_leave(places, &owners[0].place);
    cairn_srv_places_leave(places, &owners[1].place);
    cairn_srv_places_free(places);
}

TEST(a_place_that_can_be_lent_after_a_while_is_found_by_looking) {
    struct cairn_error err = {0};
    struct cairn_srv_places *places = NULL;
    struct owner owners[2];
    make(owners, 2);
    REQUIRE(!cairn_srv_places_new(1, &places, &err));
    owners[0].idle = true;
    EXPECT(cairn_srv_places_take(places, &owners[0].place));
    EXPECT(cairn_srv_places_take(places, &owners[1].place));
    owners[0].idle = false;
    EXPECT(!cairn_srv_places_want(places, &owners[0].place));
    cairn_srv_places_look(places);
    EXPECT(owners[0].got == 0);
    owners[1].idle = true; /* its reader has gone silent */
    cairn_srv_places_look(places);
    EXPECT(owners[0].got == 1);
    EXPECT(owners[1].lent == 1);
    cairn_srv_places_leave(places, &owners[0].place);
    cairn_srv_places_leave(places, &owners[1].place);
    cairn_srv_places_free(places);
}

TEST(who_leaves_while_it_waits_is_given_nothing) /* places.h#3 */
{
    struct cairn_error err = {0};
    struct cairn_srv_places *places = NULL;
    struct owner owners[4];
    make(owners, 4);
    REQUIRE(!cairn_srv_places_new(1, &places, &err));
    for (size_t i = 0; i < 3; i++) {
        owners[i].idle = true;
        EXPECT(cairn_srv_places_take(places, &owners[i].place));
    }
    EXPECT(cairn_srv_places_take(places, &owners[3].place));
    for (size_t i = 0; i < 3; i++) EXPECT(!cairn_srv_places_want(places, &owners[i].place));
    cairn_srv_places_leave(places, &owners[1].place);
    owners[0].idle = owners[2].idle = false;
    cairn_srv_places_leave(places, &owners[3].place);
    EXPECT(owners[0].got == 1);
    EXPECT(owners[2].got == 0);
    cairn_srv_places_leave(places, &owners[0].place);
    EXPECT(owners[1].got == 0);
    EXPECT(owners[2].got == 1);
    cairn_srv_places_leave(places, &owners[2].place);
    cairn_srv_places_free(places);
}
