/* SPDX-License-Identifier: Apache-2.0 */
/* kill -9 at every step of a save: what was sealed is committed, everything else is failed by name,
 * and nothing is left over. */
#include "tests/uploader/trainer.h"
#include "uploader/journal/format.h"

#define HOUR_MS UINT64_C(3600000)

/* Nothing may be left when the trainer has said goodbye and the uploader has drained. */
static void expect_clean(struct cairn_up_world *world, struct cairn_trainer *trainer) {
    if (trainer) EXPECT(trainer_bye(trainer));
    world_expect_drained(world);
}

TEST(a_kill_after_the_seal_is_made_good_when_the_trainer_offers_its_slab) { /* Q15, Q17 */
    FAULTY_WORLD("part:*:2+:hang");
    TRAINER(trainer, .job = "job-1");
    SAVE(save, &trainer, 1, 0, 2, 2000000);
    REQUIRE(world_uploader_restart(&world));
    EXPECT_OFFER(&trainer, &save, true, "continues");
    EXPECT_VERDICT(&trainer, save.number, "committed");
    EXPECT_EVENT(&trainer, "free", UINT32_MAX);
    /* The same memory takes the next save. */
    COMMIT(save, &trainer, 2, 0, 1, 1000000);
    expect_clean(&world, &trainer);
}

TEST(an_uploader_that_is_suspended_right_after_its_start_still_waits_for_its_trainers) { /* Q17 */
    NEEDS_POINTS();
    CAIRN_AUTO(passing) passing = {0};
    CAIRN_AUTO(up_world) world = {0};
    REQUIRE(cairn_passing_open(&passing));
    REQUIRE(world_open(&world, &(struct world_options){.fault = "part:*:2+:hang",
                                                       .uploader_args = ARGS("--offer-wait=1h"),
                                                       .passing = &passing}));
    TRAINER(trainer, .job = "job-1");
    SAVE(save, &trainer, 1, 0, 2, 2000000);
    REQUIRE(world_uploader_restart(&world));
    kill(world.uploader.pid, SIGSTOP);
    cairn_passing_pass(&passing, 2 * HOUR_MS);
    kill(world.uploader.pid, SIGCONT);
    REQUIRE(cairn_passing_looked(&passing, world.uploader.pid)); /* at its saves */
    EXPECT_OFFER(&trainer, &save, true, "continues");
    EXPECT_VERDICT(&trainer, save.number, "committed");
    expect_clean(&world, &trainer);
}

TEST(what_the_store_holds_whole_needs_no_trainer_after_a_restart) { /* V18 */
    FAULTY_WORLD("complete:*:*:hang");
    TRAINER(trainer, .job = "job-1");
    SAVE(save, &trainer, 1, 0, 1, 3000000);
    for (int i = 0; i < 3; i++) {
        REQUIRE_EVENT(&trainer, "released", save.number);
    }
    world_uploader_kill(&world);
    trainer_drop(&trainer);
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT_STATE(&world, save.version, "committed");
    world.uploader_args = ARGS("--offer-wait=200ms");
    EXPECT_EQ_U64(world_uploader_stop(&world), 0);
    EXPECT(world_await_no_temporaries(&world));
}

TEST(bytes_that_nobody_brings_again_fail_the_save_and_name_node_and_rank) { /* Q17, P8b */
    FAULTY_WORLD("part:*:2+:hang", .uploader_args = ARGS("--offer-wait=300ms"));
    TRAINER(trainer, .job = "job-1");
    SAVE(save, &trainer, 1, 0, 1, 3000000);
    EXPECT_EVENT(&trainer, "released", save.number);
    world_uploader_kill(&world);
    trainer_drop(&trainer);
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT_STATE(&world, save.version, "aborting");
    const char *reason = world_reason(&world, save.version);
    EXPECT(strstr(reason, "node n1") && strstr(reason, "rank 0") && strstr(reason, "part-0.bin"));
    expect_clean(&world, NULL);
}

TEST(a_save_that_was_only_begun_goes_on_after_a_restart) {
    WORLD();
    TRAINER(trainer, .job = "job-1");
    BEGUN(save, &trainer, 1, 1);
    REQUIRE(world_uploader_restart(&world));
    EXPECT_OFFER(&trainer, &save, false, "continues");
    REQUIRE(trainer_stage(&trainer, &save, 1, 1, 500000));
    SEAL_AND_COMMIT(save, &trainer);
    expect_clean(&world, &trainer);
}

TEST(an_offer_of_other_memory_is_refused) { /* S3, U02 */
    FAULTY_WORLD("part:*:2+:hang");
    TRAINER(trainer, .job = "job-1");
    char states[1][32];
    SAVE(save, &trainer, 1, 0, 1, 3000000);
    REQUIRE(world_uploader_restart(&world));
    uint64_t inode = trainer.slabs[0].inode;
    trainer.slabs[0].inode = inode + 1;
    EXPECT(!trainer_offer(&trainer, &save, 1, true, states));
    EXPECT(trainer.err.code == CAIRN_PROTOCOL);
    trainer.slabs[0].inode = inode;
    REQUIRE(trainer_offer(&trainer, &save, 1, true, states));
    EXPECT_VERDICT(&trainer, save.number, "committed");
}

TEST(a_version_that_ended_just_before_the_death_is_told_by_the_server) {
    NEEDS_POINTS();
    JOB();
    COMMITTED(save, &trainer, 1, 0, 1, 1000);
    EXPECT_EQ_U64(world_uploader_stop(&world), 0); /* the journal's last word is on the disk */
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT_OFFER(&trainer, &save, true, "ended");
    EXPECT_VERDICT(&trainer, save.number, "committed");
    expect_clean(&world, &trainer);
}

TEST(a_commit_that_the_trainer_missed_is_told_once_the_server_is_back) { /* Q40, P9 */
    WORLD();
    char state[32];
    TRAINER(trainer, .job = "job-1");
    SAVE(save, &trainer, 1, 0, 1, 1000);
    /* This trainer hears it and behaves as one that did not. */
    EXPECT_VERDICT(&trainer, save.number, "committed");
    EXPECT_EQ_U64(world_uploader_stop(&world), 0);
    world_server_kill(&world);
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT_OFFER(&trainer, &save, true, "ended");
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 500, state), "none");
    REQUIRE(world_server_start(&world));
    EXPECT_VERDICT(&trainer, save.number, "committed");
    expect_clean(&world, &trainer);
}

TEST(a_sealed_save_whose_journal_is_lost_fails_by_name_for_all) { /* Q8, Q40 */
    WORLD();
    TRAINER(trainer, .job = "job-1", .world_size = 2); /* the other rank never comes */
    SAVE(save, &trainer, 1, 0, 1, 1000);
    REQUIRE_EVENT(&trainer, "durable", save.number);
    EXPECT_STATE(&world, save.version, "open"); /* a busy uploader tells the server later */
    world_uploader_kill(&world);
    REQUIRE(unlink(world.journal_path) == 0);
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT_OFFER(&trainer, &save, true, "ended");
    EXPECT_VERDICT(&trainer, save.number, "failed");
    EXPECT_STATE(&world, save.version, "aborting");
    const char *reason = world_reason(&world, save.version);
    EXPECT(strstr(reason, "without its journal") && strstr(reason, "node n1 now"));
    EXPECT(trainer_bye(&trainer));
    EXPECT_EQ_U64(world_uploader_stop(&world), 0);
    EXPECT_EQ_U64(world_open_entries(&world), 1); /* its process lives: it is watched on (Q56) */
}

static bool add_record(struct cairn_up_world *world, uint64_t entry, const json_t *message,
                       bool closes) {
    struct cairn_up_journal *journal = NULL;
    struct cairn_up_journal_options options = {.path = world->journal_path, .node = "n1"};
    struct cairn_up_record record = {.entry = entry, .closes = closes, .message = message};
    if (cairn_up_journal_open(&options, &journal, &world->err) != CAIRN_OK) return false;
    bool done = cairn_up_journal_append(journal, &record, 1, &world->err) == CAIRN_OK;
    cairn_up_journal_free(journal);
    return done;
}

/* A record that no build writes gets into the first save's entry. */
static bool spoil_entry(struct cairn_up_world *world, uint64_t entry) {
    CAIRN_AUTO_JSON json_t *message =
        json_pack("{s:s, s:i, s:s}", "t", "intent", "s", 99, "token", "none");
    return add_record(world, entry, message, false);
}

TEST(v29_one_bad_entry_fails_by_name_and_the_others_start) { /* Q45 */
    FAULTY_WORLD("put:*:*:hang");
    struct trainer_save saves[2];
    char states[2][32];
    TRAINER(trainer, .job = "job-1");
    REQUIRE(trainer_save(&trainer, 1, 0, 1, 1000, &saves[0]));
    REQUIRE(trainer_save(&trainer, 2, 1, 1, 1000, &saves[1]));
    world_uploader_kill(&world);
    REQUIRE(spoil_entry(&world, saves[0].owner));
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    REQUIRE(trainer_offer(&trainer, saves, 2, true, states));
    EXPECT_EQ_TEXT(states[1], "continues");
    EXPECT_VERDICT(&trainer, saves[1].number, "committed");
    EXPECT_STATE(&world, saves[0].version, "aborting");
    const char *reason = world_reason(&world, saves[0].version);
    EXPECT(strstr(reason, "journal") && strstr(reason, "shard 99"));
    expect_clean(&world, &trainer);
}

TEST(a_journal_with_a_record_of_a_newer_release_is_refused_and_harms_no_save) { /* P15 */
    FAULTY_WORLD("put:*:*:hang");
    CAIRN_AUTO_JSON json_t *later = json_pack("{s:s}", "t", "entangled");
    uint64_t stranger = 0;
    TRAINER(trainer, .job = "job-1");
    SAVE(save, &trainer, 1, 0, 1, 1000);
    world_uploader_kill(&world);
    stranger = save.owner + 1000;
    REQUIRE(add_record(&world, stranger, later, false));
    EXPECT(!world_uploader_start(&world, NULL, NULL));
    EXPECT(cairn_daemon_logged(&world.uploader, "written by a newer release"));
    EXPECT(cairn_daemon_logged(&world.uploader, "entangled"));
    REQUIRE(add_record(&world, stranger, later, true)); /* as the newer one ends it */
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT_OFFER(&trainer, &save, true, "continues");
    EXPECT_VERDICT(&trainer, save.number, "committed");
    expect_clean(&world, &trainer);
}

struct place {
    uint64_t entry, where; /* of its second record: what the save is begun with stays */
    size_t count;
};
static enum cairn_code find_second(void *owner, const struct cairn_up_record_found *found,
                                   struct cairn_error *err) {
    (void)err;
    struct place *place = owner;
    if (found->entry == place->entry && ++place->count == 2)
        place->where = found->span.offset + found->span.bytes / 2;
    return CAIRN_OK;
}

/* One bit in the middle of the journal, in a record of that entry. */
static bool damage_entry(struct cairn_up_world *world, uint64_t entry) {
    struct place place = {.entry = entry};
    const struct cairn_up_scan_sink sink = {.each = find_second, .owner = &place};
    struct cairn_up_scanned scanned = {0};
    CAIRN_AUTO(buf) bytes = {0};
    if (cairn_file_load(world->journal_path, &bytes, &world->err) != CAIRN_OK ||
        cairn_up_journal_scan(cairn_buf_view(&bytes), cairn_crc32c(0, "n1", 2), &sink, &scanned,
                              &world->err) != CAIRN_OK)
        return false;
    cairn_up_touches_release(&scanned.touches);
    if (!place.where || scanned.damaged) return false;
    bytes.data[place.where] ^= 1;
    return cairn_file_replace(world->journal_path, cairn_buf_view(&bytes), 0600, &world->err) ==
           CAIRN_OK;
}

TEST(v29_damage_inside_the_journal_fails_its_save_by_name_and_the_others_start) { /* Q43, Q45 */
    FAULTY_WORLD("put:*:*:hang");
    struct trainer_save saves[2];
    char states[2][32];
    TRAINER(trainer, .job = "job-1");
    REQUIRE(trainer_save(&trainer, 1, 0, 1, 1000, &saves[0]));
    REQUIRE(trainer_save(&trainer, 2, 1, 1, 1000, &saves[1]));
    world_uploader_kill(&world);
    REQUIRE(damage_entry(&world, saves[0].owner));
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    REQUIRE(trainer_offer(&trainer, saves, 2, true, states));
    if (strcmp(states[0], "failed") != 0) /* the server had taken the fail before the offer */
        EXPECT_VERDICT(&trainer, saves[0].number, "aborted");
    EXPECT_EQ_TEXT(states[1], "continues");
    EXPECT_VERDICT(&trainer, saves[1].number, "committed");
    EXPECT_STATE(&world, saves[0].version, "aborting");
    const char *reason = world_reason(&world, saves[0].version);
    EXPECT(strstr(reason, "journal is damaged"));
    expect_clean(&world, &trainer);
}

/* While the uploader is dead: what the server calls committed has all its bytes, and before all was
 * told nothing is. */
static void look_there(struct cairn_up_world *world, const struct trainer_save *save,
                       const char *point) {
    char state[32], path[900];
    bool told = strstr(point, "shards.told") || strstr(point, "over.before_close");
    bool committed =
        save->version[0] && !strcmp(world_state(world, save->version, state), "committed");
    CAIRN_AUTO_JSON json_t *latest = world_get(world, "/v1/runs/llm/seven/checkpoints/latest");
    EXPECT(!committed || told);
    EXPECT(!latest || told);
    for (size_t i = 0; committed && i < save->shard_count; i++) {
        struct stat status = {0};
        snprintf(path, sizeof(path), "%s/llm/seven/%012llu/%s/data/%s", world->store_path,
                 (unsigned long long)save->step, save->version, save->shards[i].name);
        EXPECT(!stat(path, &status));
        EXPECT_EQ_U64((uint64_t)status.st_size, save->shards[i].bytes);
    }
}

/* One life that ends at the point, one that repairs. A trainer that heard "sealed" must end with a
 * committed version; one that did not may end either way, but all parties agree. */
static void die_at(const char *point) {
    NEEDS_POINTS();
    WORLD_WITH(.crash_at = point);
    struct trainer_save save = {0};
    TRAINER(trainer, .job = "job-1");
    bool begun = trainer_begin(&trainer, 1, 1, &save);
    bool staged = begun && trainer_stage(&trainer, &save, 0, 2, 1500000);
    bool sealed = staged && trainer_seal(&trainer, &save);
    bool died = cairn_daemon_ended(&world.uploader, HANG_MS);
    printf("  %s: begun %d staged %d sealed %d died %d\n", point, begun, staged, sealed, died);
    EXPECT(died);
    world_uploader_kill(&world);
    look_there(&world, &save, point);
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    char states[1][32] = {"none"}, state[32] = "none";
    REQUIRE(trainer_offer(&trainer, &save, begun ? 1 : 0, sealed, states));
    printf("  offered: %s\n", states[0]);
    if (sealed && strcmp(states[0], "committed") != 0)
        EXPECT_VERDICT(&trainer, save.number, "committed");
    if (begun && !sealed && !strcmp(states[0], "continues")) {
        EXPECT(trainer_fail(&trainer, save.number, "not sealed") ||
               trainer.err.code == CAIRN_ALREADY_COMMITTED || trainer.err.code == CAIRN_NOT_FOUND);
        (void)trainer_verdict(&trainer, save.number, HANG_MS, state);
    }
    if (sealed) EXPECT_STATE(&world, save.version, "committed");
    if (begun && !sealed && strcmp(state, "committed") != 0)
        EXPECT_STATE(&world, save.version, "aborting");
    if (!begun) { /* the trainer counted it and says so (Q8) */
        CAIRN_AUTO_JSON json_t *ok =
            trainer_call(&trainer, json_pack("{s:s, s:i, s:i, s:s}", "t", "count", "step", 1, "n",
                                             1, "reason", "no answer"));
        EXPECT(ok != NULL);
        COMMIT(save, &trainer, 2, 0, 1, 1000);
    }
    expect_clean(&world, &trainer);
}

CASE(a_kill_at_the_begin_record_ends_the_save_alike_for_all, die_at("uploader.begin.journaled"));
CASE(a_kill_when_the_server_has_heard_the_begin_ends_the_save_alike_for_all,
     die_at("uploader.begin.told"));
CASE(a_kill_at_the_first_intent_ends_the_save_alike_for_all, die_at("uploader.send.journaled"));
CASE(a_kill_at_a_later_record_of_the_senders_ends_the_save_alike_for_all,
     die_at("uploader.send.journaled:3"));
CASE(a_kill_between_create_and_its_record_ends_the_save_alike_for_all,
     die_at("uploader.create.done"));
CASE(a_kill_after_the_record_of_create_ends_the_save_alike_for_all,
     die_at("uploader.upload.journaled"));
CASE(a_kill_after_the_first_part_ends_the_save_alike_for_all, die_at("uploader.part.done"));
CASE(a_kill_after_the_third_part_ends_the_save_alike_for_all, die_at("uploader.part.done:3"));
CASE(a_kill_at_the_seal_record_ends_the_save_alike_for_all, die_at("uploader.seal.journaled"));
CASE(a_kill_after_complete_ends_the_save_alike_for_all, die_at("uploader.complete.done"));
CASE(a_kill_before_the_registration_ends_the_save_alike_for_all,
     die_at("uploader.shards.before_told"));
CASE(a_kill_when_the_server_has_heard_the_registration_ends_the_save_alike_for_all,
     die_at("uploader.shards.told"));
CASE(a_kill_before_the_entry_is_closed_ends_the_save_alike_for_all,
     die_at("uploader.over.before_close"));
