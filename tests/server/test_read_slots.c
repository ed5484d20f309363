/* SPDX-License-Identifier: Apache-2.0 */
/* Who may hold the memory of a read, and in which order slots come back. */
#include "server/reads/send.h"
#include "tests/harness.h"

struct owner {
    struct cairn_srv_read_slot slot; /* first */
    bool idle;
    bool idle_soon; /* from the next lend() on */
    int lent, got;
};

static bool lend(struct cairn_srv_read_slot *slot) {
    struct owner *owner = (struct owner *)slot;
    if (owner->idle_soon) {
        owner->idle_soon = false;
        owner->idle = true;
        return false;
    }
    owner->lent += owner->idle;
    return owner->idle;
}

static void got(struct cairn_srv_read_slot *slot) {
    ((struct owner *)slot)->got++;
}

static void make(struct owner *owners, size_t count) {
    for (size_t i = 0; i < count; i++)
        owners[i] = (struct owner){.slot = {.lend = lend, .got = got}};
}

TEST(no_more_slots_are_held_than_there_are) /* R6, server/reads/send.h#3 */
{
    struct cairn_error err = {0};
    struct cairn_srv_read_slots *slots = NULL;
    struct owner owners[4];
    make(owners, 4);
    REQUIRE(!cairn_srv_read_slots_new(2, &slots, &err));
    EXPECT(cairn_srv_read_slots_take(slots, &owners[0].slot));
    EXPECT(cairn_srv_read_slots_take(slots, &owners[1].slot));
    EXPECT(!cairn_srv_read_slots_take(slots, &owners[2].slot));
    cairn_srv_read_slots_leave(slots, &owners[0].slot);
    EXPECT(cairn_srv_read_slots_take(slots, &owners[2].slot));
    EXPECT(!cairn_srv_read_slots_take(slots, &owners[3].slot));
    cairn_srv_read_slots_leave(slots, &owners[1].slot);
    cairn_srv_read_slots_leave(slots, &owners[2].slot);
    cairn_srv_read_slots_free(slots);
}

/* server/reads/send.h#4, server/reads/send.h#5 */
TEST(who_has_lent_a_slot_gets_one_back_before_any_newcomer) {
    struct cairn_error err = {0};
    struct cairn_srv_read_slots *slots = NULL;
    struct owner owners[4];
    make(owners, 4);
    REQUIRE(!cairn_srv_read_slots_new(1, &slots, &err));
    owners[0].idle = true;
    EXPECT(cairn_srv_read_slots_take(slots, &owners[0].slot));
    EXPECT(cairn_srv_read_slots_take(slots, &owners[1].slot));
    EXPECT(owners[0].lent == 1);
    EXPECT(!cairn_srv_read_slots_want(slots, &owners[0].slot));
    EXPECT(owners[0].got == 0);
    EXPECT(!cairn_srv_read_slots_take(slots, &owners[2].slot));
    cairn_srv_read_slots_leave(slots, &owners[1].slot);
    EXPECT(owners[0].got == 1);
    owners[0].idle = false;
    EXPECT(!cairn_srv_read_slots_take(slots, &owners[2].slot));
    EXPECT(cairn_srv_read_slots_want(slots, &owners[0].slot)); /* it was not lent again */
    cairn_srv_read_slots_leave(slots, &owners[0].slot);
    EXPECT(cairn_srv_read_slots_take(slots, &owners[2].slot));
    cairn_srv_read_slots_leave(slots, &owners[2].slot);
    cairn_srv_read_slots_free(slots);
}

/* server/reads/send.h#4 */
TEST(a_newcomer_does_not_get_what_is_lent_a_moment_after_others_were_refused) {
    struct cairn_error err = {0};
    struct cairn_srv_read_slots *slots = NULL;
    struct owner owners[3];
    make(owners, 3);
    REQUIRE(!cairn_srv_read_slots_new(1, &slots, &err));
    owners[0].idle = true;
    EXPECT(cairn_srv_read_slots_take(slots, &owners[0].slot));
    EXPECT(cairn_srv_read_slots_take(slots, &owners[1].slot));
    EXPECT(!cairn_srv_read_slots_want(slots, &owners[0].slot));
    owners[1].idle_soon =
        true; /* lend() is called for the one that waits, and would be true the next time */
    EXPECT(!cairn_srv_read_slots_take(slots, &owners[2].slot));
    cairn_srv_read_slots_look(slots);
    EXPECT(owners[0].got == 1);
    cairn_srv_read_slots_leave(slots, &owners[0].slot);
    cairn_srv_read_slots_leave(slots, &owners[1].slot);
    cairn_srv_read_slots_free(slots);
}

TEST(a_slot_that_can_be_lent_after_a_while_is_found_by_looking) {
    struct cairn_error err = {0};
    struct cairn_srv_read_slots *slots = NULL;
    struct owner owners[2];
    make(owners, 2);
    REQUIRE(!cairn_srv_read_slots_new(1, &slots, &err));
    owners[0].idle = true;
    EXPECT(cairn_srv_read_slots_take(slots, &owners[0].slot));
    EXPECT(cairn_srv_read_slots_take(slots, &owners[1].slot));
    owners[0].idle = false;
    EXPECT(!cairn_srv_read_slots_want(slots, &owners[0].slot));
    cairn_srv_read_slots_look(slots);
    EXPECT(owners[0].got == 0);
    owners[1].idle = true; /* its reader has gone silent */
    cairn_srv_read_slots_look(slots);
    EXPECT(owners[0].got == 1);
    EXPECT(owners[1].lent == 1);
    cairn_srv_read_slots_leave(slots, &owners[0].slot);
    cairn_srv_read_slots_leave(slots, &owners[1].slot);
    cairn_srv_read_slots_free(slots);
}

TEST(who_leaves_while_it_waits_is_given_nothing) /* server/reads/send.h#5 */
{
    struct cairn_error err = {0};
    struct cairn_srv_read_slots *slots = NULL;
    struct owner owners[4];
    make(owners, 4);
    REQUIRE(!cairn_srv_read_slots_new(1, &slots, &err));
    for (size_t i = 0; i < 3; i++) {
        owners[i].idle = true;
        EXPECT(cairn_srv_read_slots_take(slots, &owners[i].slot));
    }
    EXPECT(cairn_srv_read_slots_take(slots, &owners[3].slot));
    for (size_t i = 0; i < 3; i++) EXPECT(!cairn_srv_read_slots_want(slots, &owners[i].slot));
    cairn_srv_read_slots_leave(slots, &owners[1].slot);
    owners[0].idle = owners[2].idle = false;
    cairn_srv_read_slots_leave(slots, &owners[3].slot);
    EXPECT(owners[0].got == 1);
    EXPECT(owners[2].got == 0);
    cairn_srv_read_slots_leave(slots, &owners[0].slot);
    EXPECT(owners[1].got == 0);
    EXPECT(owners[2].got == 1);
    cairn_srv_read_slots_leave(slots, &owners[2].slot);
    cairn_srv_read_slots_free(slots);
}
