/* SPDX-License-Identifier: Apache-2.0 */
/* state: the tables of a save, its shards, their uploads and a slab generation, by themselves. */
#include "tests/harness.h"
#include "uploader/state/save.h"

static uint64_t random_next(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static struct cairn_up_save_state begun(uint32_t shards) {
    struct cairn_up_save_state save;
    cairn_up_save_state_init(7, &save);
    (void)cairn_up_save_state_move(&save, CAIRN_UP_EVENT_WRITTEN);
    save.shard_count = shards;
    save.staging = CAIRN_UP_STAGING_DESCRIBED;
    save.holds_slab = true;
    return save;
}

TEST(a_phase_and_an_event_stand_in_one_row_at_most) {
    static const struct {
        enum cairn_up_phase from;
        enum cairn_up_event event;
    } rows[] = {
#define MOVE(from, event, to, due, why) {CAIRN_UP_PHASE_##from, CAIRN_UP_EVENT_##event},
#include "uploader/state/save.def"
#undef MOVE
    };
    uint32_t seen[CAIRN_UP_PHASES][CAIRN_UP_EVENTS] = {0};
    for (size_t i = 0; i < CAIRN_COUNT(rows); i++)
        EXPECT_EQ_U64(++seen[rows[i].from][rows[i].event], 1);
    for (size_t phase = 0; phase < CAIRN_UP_PHASES; phase++) {
        EXPECT(seen[phase][CAIRN_UP_EVENT_FAIL] && seen[phase][CAIRN_UP_EVENT_LEFT]);
        EXPECT(seen[phase][CAIRN_UP_EVENT_COMMITTED] && seen[phase][CAIRN_UP_EVENT_ENDED]);
        EXPECT(seen[phase][CAIRN_UP_EVENT_UNWRITTEN]);
    }
}

TEST(v28_a_fail_after_the_seal_loses_to_a_commit_alone) { /* Q44 */
    struct cairn_up_save_state save = begun(1);
    (void)cairn_up_save_state_move(&save, CAIRN_UP_EVENT_SEAL);
    EXPECT(cairn_up_save_state_move(&save, CAIRN_UP_EVENT_WRITTEN) & CAIRN_UP_DUE_ANSWER_SEAL);
    cairn_up_save_state_answered(&save, CAIRN_UP_REPORTED_BEGIN);
    cairn_up_save_state_answered(&save, CAIRN_UP_REPORTED_SEAL);
    uint32_t due = cairn_up_save_state_move(&save, CAIRN_UP_EVENT_FAIL);
    EXPECT(due & CAIRN_UP_DUE_RECORD_FAIL && due & CAIRN_UP_DUE_GIVE_UP_SHARDS);
    EXPECT(cairn_up_save_state_report_due(&save) == CAIRN_UP_REPORT_FAIL);
    struct cairn_up_save_past past = {.staged = true, .sealed = true, .failed = true, .sent = true};
    cairn_up_save_state_recover(7, &past, &save);
    EXPECT(save.phase == CAIRN_UP_PHASE_CANCELLED);
    EXPECT(cairn_up_save_state_join(&save, CAIRN_UP_OPEN) == CAIRN_UP_JOINED_CONTINUES);
    EXPECT(!cairn_up_save_state_needs_slab(&save));
    EXPECT(cairn_up_save_state_move(&save, CAIRN_UP_EVENT_COMMITTED) & CAIRN_UP_DUE_VERDICT);
}

TEST(v29_an_unwritten_record_is_never_followed_by_sealed) { /* Q45 */
    struct cairn_up_save_state save = begun(1);
    uint32_t due = cairn_up_save_state_move(&save, CAIRN_UP_EVENT_UNWRITTEN);
    EXPECT(!(due & CAIRN_UP_DUE_RECORD_FAIL) && due & CAIRN_UP_DUE_REPORT);
    EXPECT(!cairn_up_save_state_admits(&save, CAIRN_UP_EVENT_SEAL));
    save = begun(1);
    (void)cairn_up_save_state_move(&save, CAIRN_UP_EVENT_SEAL);
    due = cairn_up_save_state_move(&save, CAIRN_UP_EVENT_UNWRITTEN);
    EXPECT(due & CAIRN_UP_DUE_REFUSE_SEAL && !(due & CAIRN_UP_DUE_ANSWER_SEAL));
    EXPECT(save.phase == CAIRN_UP_PHASE_FAILING && save.broken);
}

TEST(v26_a_generation_is_joined_to_the_owner_alone) { /* Q41 */
    struct cairn_up_slab_state slab = {0};
    struct cairn_up_slab_claim claim = {.offered_owner = 9,
                                        .save_owner = 7,
                                        .journaled_owner = 7,
                                        .same_memory = true,
                                        .needed = true};
    EXPECT(cairn_up_slab_state_claim(&slab, &claim) == CAIRN_UP_CLAIM_NOT_OWNER);
    claim.save_owner = claim.journaled_owner = 9;
    EXPECT(cairn_up_slab_state_claim(&slab, &claim) == CAIRN_UP_CLAIM_JOINED);
    EXPECT(!cairn_up_slab_state_take(&slab, 7));
    cairn_up_slab_state_give(&slab, 9);
    EXPECT_EQ_U64(slab.owner, 0);
    claim.same_memory = false;
    EXPECT(cairn_up_slab_state_claim(&slab, &claim) == CAIRN_UP_CLAIM_NOT_THERE);
    claim.needed = false;
    EXPECT(cairn_up_slab_state_claim(&slab, &claim) == CAIRN_UP_CLAIM_NOT_NEEDED);
}

TEST(kept_bytes_are_nobodys_and_gone_with_the_next_owner) { /* Q41, save.h#5 */
    struct cairn_up_slab_state slab = {0};
    EXPECT(cairn_up_slab_state_take(&slab, 7));
    cairn_up_slab_state_keep(&slab, 7);
    EXPECT(!slab.owner && slab.kept == 7);
    EXPECT(cairn_up_slab_state_take(&slab, 9));
    EXPECT(slab.owner == 9 && !slab.kept);
    cairn_up_slab_state_keep(&slab, 9);
    cairn_up_slab_state_forget(&slab);
    EXPECT(!slab.owner && !slab.kept);
}

/* One save under random events; wire: requests that carry its bytes. */
static void walk(uint64_t seed) {
    struct cairn_up_save_state save = begun(2);
    enum cairn_up_shard_phase shards[2] = {CAIRN_UP_SHARD_SENDING, CAIRN_UP_SHARD_SENDING};
    uint32_t frees = 0, verdicts = 0, wire = 1;
    bool cancelled_after_seal = false;
    for (int i = 0; i < 40; i++) {
        enum cairn_up_event event = (enum cairn_up_event)(random_next(&seed) % CAIRN_UP_EVENTS);
        bool was_over = save.phase == CAIRN_UP_PHASE_OVER, broken = save.broken;
        uint32_t due = 0;
        if (cairn_up_save_state_admits(&save, event)) due = cairn_up_save_state_move(&save, event);
        cancelled_after_seal |= save.phase == CAIRN_UP_PHASE_CANCELLED;
        if (due & CAIRN_UP_DUE_GIVE_UP_SHARDS) wire = random_next(&seed) % 2;
        if (random_next(&seed) % 4 == 0 && save.durable_count < save.shard_count)
            (void)cairn_up_save_state_shard_move(&save, &shards[save.durable_count],
                                                 CAIRN_UP_SHARD_EVENT_STORED);
        if (save.durable_count == save.shard_count) wire = 0;
        due |= cairn_up_save_state_settle(&save, !wire, !wire);
        if (due & CAIRN_UP_DUE_FREE_SLAB) frees++;
        if (due & CAIRN_UP_DUE_VERDICT) verdicts++;
        EXPECT(!(due & CAIRN_UP_DUE_ANSWER_SEAL) || (!broken && !cancelled_after_seal));
        EXPECT(!(due & (CAIRN_UP_DUE_RECORD_FAIL | CAIRN_UP_DUE_RECORD_BEGIN)) || !broken);
        EXPECT(!(due & CAIRN_UP_DUE_SAY_DURABLE) || save.phase == CAIRN_UP_PHASE_SEALED);
        bool through = save.phase == CAIRN_UP_PHASE_OVER || cairn_up_save_state_is_failing(&save) ||
                       cairn_up_save_state_is_durable(&save);
        EXPECT(!(due & CAIRN_UP_DUE_FREE_SLAB) || (through && !wire)); /* Q20 */
        EXPECT(!was_over || save.phase == CAIRN_UP_PHASE_OVER);
        EXPECT(!save.holds_slab || !(due & CAIRN_UP_DUE_CLOSE));
    }
    EXPECT(frees <= 1 && verdicts <= 1);
}

TEST(random_events_never_free_twice_nor_speak_after_the_end) { /* save.h#2, save.h#3 */
    for (uint64_t seed = 1; seed <= 2000; seed++) walk(seed * 2654435761u);
}

TEST(a_shard_has_one_row_at_most_for_each_phase_and_event) {
    static const struct {
        enum cairn_up_shard_phase from;
        enum cairn_up_shard_event event;
    } rows[] = {
#define MOVE(from, event, to, due, why) {CAIRN_UP_SHARD_##from, CAIRN_UP_SHARD_EVENT_##event},
#include "uploader/state/shard.def"
#undef MOVE
    };
    uint32_t seen[CAIRN_UP_SHARD_PHASES][CAIRN_UP_SHARD_EVENTS] = {0};
    for (size_t i = 0; i < CAIRN_COUNT(rows); i++)
        EXPECT_EQ_U64(++seen[rows[i].from][rows[i].event], 1);
    for (size_t phase = 0; phase < CAIRN_UP_SHARD_PHASES; phase++)
        EXPECT(seen[phase][CAIRN_UP_SHARD_EVENT_REGISTERED] &&
               seen[phase][CAIRN_UP_SHARD_EVENT_UNKNOWN]);
}

/* May this event come? FAILED ends it for good; the senders speak of what they send. */
static bool comes(enum cairn_up_shard_phase phase, enum cairn_up_shard_event event) {
    if (event == CAIRN_UP_SHARD_EVENT_STORED || event == CAIRN_UP_SHARD_EVENT_FAILED)
        return phase == CAIRN_UP_SHARD_SENDING;
    return event != CAIRN_UP_SHARD_EVENT_LOOK || phase == CAIRN_UP_SHARD_DURABLE;
}

TEST(a_saves_counts_are_its_shards_phases_after_any_events) { /* save.h#1 */
    uint64_t seed = 88172645463325252u;
    for (int round = 0; round < 500; round++) {
        struct cairn_up_save_state save = begun(3);
        enum cairn_up_shard_phase shards[3] = {0};
        for (int i = 0; i < 60; i++) {
            enum cairn_up_shard_phase *shard = &shards[random_next(&seed) % 3], was = *shard;
            enum cairn_up_shard_event event =
                (enum cairn_up_shard_event)(random_next(&seed) % CAIRN_UP_SHARD_EVENTS);
            if (!comes(*shard, event)) continue;
            bool looks = cairn_up_save_state_shard_move(&save, shard, event);
            EXPECT(looks == (event == CAIRN_UP_SHARD_EVENT_UNKNOWN &&
                             (was == CAIRN_UP_SHARD_DURABLE || was == CAIRN_UP_SHARD_REGISTERED)));
            uint32_t durable = 0, registered = 0;
            for (size_t k = 0; k < 3; k++) {
                registered += shards[k] == CAIRN_UP_SHARD_REGISTERED;
                durable += shards[k] == CAIRN_UP_SHARD_DURABLE;
            }
            EXPECT_EQ_U64(save.registered_count, registered);
            EXPECT_EQ_U64(save.durable_count, durable + registered);
        }
    }
}

TEST(an_upload_joins_the_queue_leaves_it_once_and_is_aborted_once) { /* save.h#1, save.h#4 */
    uint64_t seed = 362436069362436069u;
    for (int round = 0; round < 500; round++) {
        enum cairn_up_upload_phase upload = CAIRN_UP_UPLOAD_MADE;
        unsigned aborts = 0;
        int queued = 0;
        for (int i = 0; i < 40; i++) {
            enum cairn_up_upload_event event =
                (enum cairn_up_upload_event)(random_next(&seed) % CAIRN_UP_UPLOAD_EVENTS);
            if (!cairn_up_upload_state_admits(upload, event)) continue;
            enum cairn_up_upload_due due = cairn_up_upload_state_move(&upload, event);
            queued += (due == CAIRN_UP_UPLOAD_DUE_JOIN) - (due == CAIRN_UP_UPLOAD_DUE_LEAVE);
            aborts += due == CAIRN_UP_UPLOAD_DUE_ABORT;
            if (due == CAIRN_UP_UPLOAD_DUE_JOIN) aborts = 0;
            EXPECT(aborts <= 1);
            EXPECT(queued == cairn_up_upload_state_is_queued(upload));
            EXPECT(upload != CAIRN_UP_UPLOAD_ENDING || aborts == 1);
        }
    }
    for (size_t phase = 0; phase < CAIRN_UP_UPLOAD_PHASES; phase++)
        EXPECT(cairn_up_upload_state_admits((enum cairn_up_upload_phase)phase,
                                            CAIRN_UP_UPLOAD_EVENT_GIVE_UP));
}
