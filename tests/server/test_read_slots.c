/* SPDX-License-Identifier: Apache-2.0 */
/* Who may hold the memory of a read, and in which order slots come back. */
#include "server/reads/send.h"
#include "tests/harness.h"

struct owner {
    struct srv_read_slot slot; /* first */
    bool idle;
    bool idle_soon; /* from the next lend() on */
    int lent, got;
};

static bool lend(struct srv_read_slot *slot) {
    struct owner *owner = (struct owner *)slot;
    if (owner->idle_soon) {
        owner->idle_soon = false;
        owner->idle = true;
        return false;
    }
    owner->lent += owner->idle;
    return owner->idle;
}

static void got(struct srv_read_slot *slot) {
    ((struct owner *)slot)->got++;
}

struct table {
    struct srv_read_slots *slots;
    struct owner owners[4];
};

#define SLOTS(count)                                                                               \
    struct table table = {0};                                                                      \
    struct owner *owners = table.owners;                                                           \
    for (size_t i = 0; i < 4; i++) owners[i] = (struct owner){.slot = {.lend = lend, .got = got}}; \
    REQUIRE(!srv_read_slots_new(count, &table.slots, &err))
#define PLAY(script) REQUIRE(play(&table, script))

static bool step(struct table *table, const char *verb, struct owner *owner, bool is) {
    struct srv_read_slots *slots = table->slots;
    if (!strcmp(verb, "take")) return srv_read_slots_take(slots, &owner->slot) == is;
    if (!strcmp(verb, "want")) return srv_read_slots_want(slots, &owner->slot) == is;
    if (!strcmp(verb, "got")) return owner->got == is;
    if (!strcmp(verb, "lent")) return owner->lent == is;
    if (!strcmp(verb, "leave")) return srv_read_slots_leave(slots, &owner->slot), true;
    if (!strcmp(verb, "look")) return srv_read_slots_look(slots), true;
    owner->idle = is;
    return !strcmp(verb, "idle");
}

/* "take 0, !take 1": owner 0 gets a slot, owner 1 none; "idle 0": from now on it could lend its. */
static bool play(struct table *table, const char *script) {
    for (const char *at = script; *at; at += strcspn(at, ","), at += strspn(at, ", ")) {
        char verb[16] = "";
        unsigned owner = 0;
        bool is = *at != '!';
        (void)sscanf(at + !is, "%15[a-z] %u", verb, &owner);
        if (!cairn_test_check(step(table, verb, &table->owners[owner], is), __FILE__, __LINE__,
                              "at \"%s\"", at))
            return false;
    }
    return true;
}

TEST(no_more_slots_are_held_than_there_are, err) { /* R6, server/reads/send.h#3 */
    SLOTS(2);
    PLAY("take 0, take 1, !take 2, leave 0, take 2, !take 3, leave 1, leave 2");
    srv_read_slots_free(table.slots);
}

/* server/reads/send.h#4, server/reads/send.h#5 */
TEST(who_has_lent_a_slot_gets_one_back_before_any_newcomer, err) {
    SLOTS(1);
    PLAY("idle 0, take 0, take 1, lent 0, !want 0, !got 0, !take 2, leave 1, got 0, !idle 0, !take "
         "2, want 0"); /* it was not lent again */
    PLAY("leave 0, take 2, leave 2");
    srv_read_slots_free(table.slots);
}

/* server/reads/send.h#4 */
TEST(a_newcomer_does_not_get_what_is_lent_a_moment_after_others_were_refused, err) {
    SLOTS(1);
    PLAY("idle 0, take 0, take 1, !want 0");
    owners[1].idle_soon =
        true; /* lend() is called for the one that waits, and would be true the next time */
    PLAY("!take 2, look, got 0, leave 0, leave 1");
    srv_read_slots_free(table.slots);
}

TEST(a_slot_that_can_be_lent_after_a_while_is_found_by_looking, err) {
    SLOTS(1);
    PLAY("idle 0, take 0, take 1, !idle 0, !want 0, look, !got 0");
    PLAY("idle 1, look, got 0, lent 1, leave 0, leave 1"); /* 1: its reader has gone silent */
    srv_read_slots_free(table.slots);
}

TEST(who_leaves_while_it_waits_is_given_nothing, err) { /* server/reads/send.h#5 */
    SLOTS(1);
    PLAY("idle 0, take 0, idle 1, take 1, idle 2, take 2, take 3, !want 0, !want 1, !want 2");
    PLAY("leave 1, !idle 0, !idle 2");
    PLAY("leave 3, got 0, !got 2, leave 0, !got 1, got 2, leave 2");
    srv_read_slots_free(table.slots);
}

/* ---- chunks: what is kept for the next read, and what is not ---- */

#define BYTES (2 * CAIRN_MIB)

TEST(a_chunk_that_was_given_back_is_taken_again, err) {
    struct srv_chunks *chunks = NULL;
    REQUIRE(!srv_chunks_new(BYTES, 4, &chunks, &err));
    uint8_t *first = srv_chunks_take(chunks), *second = srv_chunks_take(chunks);
    REQUIRE(first && second && first != second);
    memset(first, 1, BYTES);
    srv_chunks_give(chunks, first);
    EXPECT_EQ_U64(srv_chunks_idle(chunks), 1);
    EXPECT(srv_chunks_take(chunks) == first);
    EXPECT_EQ_U64(first[BYTES - 1], 1); /* nobody cleared it */
    srv_chunks_give(chunks, first);
    srv_chunks_give(chunks, second);
    srv_chunks_free(chunks);
}

TEST(idle_chunks_and_used_ones_are_no_more_than_the_capacity, err) { /* server/reads/send.h#6 */
    struct srv_chunks *chunks = NULL;
    void *taken[6];
    REQUIRE(!srv_chunks_new(BYTES, 4, &chunks, &err));
    for (size_t i = 0; i < 6; i++) REQUIRE((taken[i] = srv_chunks_take(chunks)));
    for (size_t i = 0; i < 3; i++) {
        srv_chunks_give(chunks, taken[i]);
        EXPECT(srv_chunks_idle(chunks) + (5 - i) <= 4 || !srv_chunks_idle(chunks));
    }
    for (size_t i = 3; i < 6; i++) srv_chunks_give(chunks, taken[i]);
    EXPECT_EQ_U64(srv_chunks_idle(chunks), 4);
    srv_chunks_free(chunks);
}

/* server/reads/send.h#7 */
TEST(a_chunk_that_nobody_needed_between_two_looks_is_given_to_the_system, err) {
    struct srv_chunks *chunks = NULL;
    REQUIRE(!srv_chunks_new(BYTES, 8, &chunks, &err));
    void *first = srv_chunks_take(chunks), *second = srv_chunks_take(chunks);
    srv_chunks_give(chunks, first);
    srv_chunks_give(chunks, second);
    srv_chunks_look(chunks);
    EXPECT_EQ_U64(srv_chunks_idle(chunks), 2); /* they were in use since the last look */
    void *again = srv_chunks_take(chunks);
    srv_chunks_give(chunks, again);
    srv_chunks_look(chunks);
    EXPECT_EQ_U64(srv_chunks_idle(chunks), 1); /* one was enough */
    srv_chunks_look(chunks);
    EXPECT_EQ_U64(srv_chunks_idle(chunks), 0);
    srv_chunks_look(chunks);
    srv_chunks_free(chunks);
}
