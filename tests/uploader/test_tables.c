/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's table is sent and journaled once, and every save that names it has it, whatever dies
 * (uploader/saves/save.h). */
#include "tests/uploader/trainer.h"

#define ELEMENTS 1000
#define TENSORS 500

/* Many tensors over the one shard of a trainer's save. */
static bool make_table(const struct trainer_save *save, struct cairn_buf *ret) {
    struct cairn_error err = {0};
    CAIRN_AUTO_PTR(table_builder) builder = NULL;
    const struct cairn_table_shard row = {cairn_view_of(save->shards[0].name),
                                          save->shards[0].bytes, false};
    uint32_t shard = 0;
    ret->limit = CAIRN_TABLE_BYTES_MAX;
    if (cairn_table_builder_new(0, &builder, &err) ||
        cairn_table_add_shard(builder, &row, &shard, &err))
        return false;
    for (unsigned i = 0; i < TENSORS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "layers.%03u.weight", i);
        struct cairn_tensor tensor = {.name = cairn_view_of(name),
                                      .dimension_count = 1,
                                      .shape = {ELEMENTS},
                                      .kind = CAIRN_TENSOR_SHARDED};
        const struct cairn_fragment fragment = {.form = CAIRN_FRAGMENT_FLAT,
                                                .count = {ELEMENTS},
                                                .shard = shard,
                                                .offset_bytes = i * ELEMENTS,
                                                .size_bytes = ELEMENTS};
        if (!cairn_dtype_parse(cairn_view_of("U8"), &tensor.dtype) ||
            cairn_table_add_tensor(builder, &tensor, &fragment, 1, &err))
            return false;
    }
    return cairn_table_finish(builder, ret, &err) == CAIRN_OK;
}

/* table: bytes; named: instead of them, or NULL. The name that the answer gives, or "". */
static enum cairn_code seal(struct cairn_trainer *trainer, const struct trainer_save *save,
                            struct cairn_view table, const char *named, char ret[65]) {
    CAIRN_AUTO(frame) answer = {0};
    enum cairn_code code =
        trainer_ask(trainer,
                    json_pack("{s:s, s:I, s:[], s:s*}", "t", "seal", "save",
                              (json_int_t)save->number, "replicated", "table", named),
                    table, NULL, 0, &answer);
    const char *name = json_string_value(json_object_get(answer.message, "table"));
    snprintf(ret, 65, "%s", !code && name ? name : "");
    return code;
}

static bool stage_one(struct cairn_trainer *trainer, uint64_t step, uint32_t slab,
                      struct trainer_save *ret) {
    return trainer_begin(trainer, step, 1, ret) &&
           trainer_stage(trainer, ret, slab, 1, TENSORS * ELEMENTS);
}

static uint64_t journal_bytes(const struct cairn_up_world *world) {
    struct stat status;
    return stat(world->journal_path, &status) ? 0 : (uint64_t)status.st_size;
}

static uint64_t tensors_of(struct cairn_up_world *world, const char *version) {
    const char *path = TEXT("/v1/runs/llm/seven/checkpoints/%s/tensors?limit=1000", version);
    CAIRN_AUTO_JSON json_t *list = world_get(world, path);
    return json_array_size(json_object_get(list, "items"));
}

static void expect_clean(struct cairn_up_world *world, struct cairn_trainer *trainer) {
    EXPECT(trainer_bye(trainer));
    world_expect_drained(world);
}

TEST(a_table_that_a_later_seal_names_is_committed_and_is_journaled_once) { /* save.h#5 */
    WORLD();
    CAIRN_AUTO(buf) table = {0};
    struct trainer_save save;
    char name[65], again[65];
    TRAINER(trainer, .job = "job-1");
    REQUIRE(stage_one(&trainer, 1, 0, &save));
    REQUIRE(make_table(&save, &table));
    EXPECT_EQ_U64(seal(&trainer, &save, cairn_buf_view(&table), NULL, name), CAIRN_OK);
    EXPECT_EQ_U64(strlen(name), 64);
    EXPECT_VERDICT(&trainer, save.number, "committed");
    for (uint64_t step = 2; step < 5; step++) {
        uint64_t before = journal_bytes(&world);
        REQUIRE(stage_one(&trainer, step, 0, &save));
        EXPECT_EQ_U64(seal(&trainer, &save, (struct cairn_view){0}, name, again), CAIRN_OK);
        EXPECT_EQ_TEXT(again, name);
        EXPECT_VERDICT(&trainer, save.number, "committed");
        EXPECT(journal_bytes(&world) < before + table.size / 4);
        EXPECT_EQ_U64(tensors_of(&world, save.version), TENSORS);
    }
    expect_clean(&world, &trainer);
}

TEST(a_seal_that_names_what_its_session_has_not_brought_is_not_found) {
    WORLD();
    CAIRN_AUTO(buf) table = {0};
    struct trainer_save save, theirs;
    char name[65], unused[65], made_up[65];
    TRAINER(trainer, RANK_OF_TWO(0));
    TRAINER(other, RANK_OF_TWO(1));
    memset(made_up, 'a', 64);
    made_up[64] = '\0';
    REQUIRE(stage_one(&trainer, 1, 0, &save));
    REQUIRE(stage_one(&other, 1, 0, &theirs));
    EXPECT_EQ_U64(seal(&trainer, &save, (struct cairn_view){0}, made_up, unused), CAIRN_NOT_FOUND);
    REQUIRE(make_table(&save, &table));
    EXPECT_EQ_U64(seal(&trainer, &save, cairn_buf_view(&table), NULL, name), CAIRN_OK);
    EXPECT_EQ_U64(seal(&other, &theirs, (struct cairn_view){0}, name, unused), CAIRN_NOT_FOUND);
    /* The save waits for its seal all the same. */
    EXPECT_EQ_U64(seal(&other, &theirs, (struct cairn_view){0}, NULL, unused), CAIRN_OK);
    EXPECT_EQ_TEXT(unused, "");
    EXPECT_VERDICT(&trainer, save.number, "committed");
    EXPECT_VERDICT(&other, theirs.number, "committed");
    EXPECT_EQ_U64(tensors_of(&world, save.version), TENSORS);
}

/* More dead bytes than live ones: with the next record the live entries are written anew. */
static bool rewrite(struct cairn_up_world *world) {
    static char dead[4 * CAIRN_MIB];
    struct cairn_error err = {0};
    struct cairn_up_journal *journal = NULL;
    const struct cairn_up_journal_options options = {
        .path = world->journal_path, .node = "n1", .rewrite_bytes = CAIRN_MIB};
    if (cairn_up_journal_open(&options, &journal, &err)) return false;
    CAIRN_AUTO_JSON json_t *message = json_pack("{s:s}", "t", "over");
    uint64_t entry = cairn_up_journal_entry_new(journal);
    const struct cairn_up_record record = {entry, true, message, {dead, sizeof(dead)}};
    bool done = !cairn_up_journal_append(journal, &record, 1, &err);
    cairn_up_journal_free(journal); /* when it has written itself anew */
    return done && journal_bytes(world) < sizeof(dead);
}

TEST(a_named_table_outlives_the_save_that_brought_it_a_kill_and_a_rewrite) { /* save.h#5, Q16 */
    FAULTY_WORLD("put:*:*:hang");
    CAIRN_AUTO(buf) table = {0};
    struct trainer_save first, second;
    char name[65], again[65], states[1][32], state[32];
    TRAINER(trainer, .job = "job-1");
    world_server_kill(&world); /* it never has the table from the first save */
    REQUIRE(stage_one(&trainer, 1, 0, &first));
    REQUIRE(make_table(&first, &table));
    EXPECT_EQ_U64(seal(&trainer, &first, cairn_buf_view(&table), NULL, name), CAIRN_OK);
    REQUIRE(stage_one(&trainer, 2, 1, &second));
    EXPECT_EQ_U64(seal(&trainer, &second, (struct cairn_view){0}, name, again), CAIRN_OK);
    uint64_t before = journal_bytes(&world);
    (void)trainer_send(&trainer,
                       json_pack("{s:s, s:I, s:s, s:i}", "t", "fail", "save",
                                 (json_int_t)first.number, "reason", "not wanted", "id", 9999),
                       (struct cairn_view){0}, NULL, 0);
    REQUIRE_AWAIT(journal_bytes(&world) > before);
    world_uploader_kill(&world);
    REQUIRE(rewrite(&world));
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    REQUIRE(trainer_offer(&trainer, &second, 1, true, states));
    REQUIRE(world_server_start(&world));
    EXPECT_VERDICT(&trainer, second.number, "committed");
    EXPECT_EQ_U64(tensors_of(&world, second.version), TENSORS);
    EXPECT(strcmp(world_state(&world, first.version, state), "committed") != 0);
    /* Over this connection nothing was sealed yet. */
    REQUIRE(stage_one(&trainer, 3, 1, &second));
    EXPECT_EQ_U64(seal(&trainer, &second, (struct cairn_view){0}, name, again), CAIRN_NOT_FOUND);
    EXPECT_EQ_U64(seal(&trainer, &second, cairn_buf_view(&table), NULL, name), CAIRN_OK);
    EXPECT_VERDICT(&trainer, second.number, "committed");
    expect_clean(&world, &trainer);
}

/* ---- a journal as programs before wrote it ---- */

struct older {
    struct cairn_up_journal *journal; /* the new one */
    struct cairn_buf table;
    bool sealed;
};

static enum cairn_code keep_table(void *owner, const struct cairn_up_replayed *record,
                                  struct cairn_error *err) {
    struct older *older = owner;
    if (strcmp(record->name, "table") != 0) return CAIRN_OK;
    older->table.limit = CAIRN_TABLE_BYTES_MAX;
    return cairn_buf_append(&older->table, record->blob.data, record->blob.size, err);
}

static enum cairn_code write_older(void *owner, const struct cairn_up_replayed *record,
                                   struct cairn_error *err) {
    struct older *older = owner;
    struct cairn_up_record copy = {
        .entry = record->entry, .message = record->message, .blob = record->blob};
    if (!strcmp(record->name, "table")) return CAIRN_OK;
    if (!strcmp(record->name, "seal")) {
        older->sealed = !json_object_del(record->message, "table");
        copy.blob = cairn_buf_view(&older->table);
    }
    return cairn_up_journal_append(older->journal, &copy, 1, err);
}

static bool make_older(struct cairn_up_world *world) {
    struct cairn_error err = {0};
    struct older older = {0};
    char path[500];
    struct cairn_up_journal *found = NULL;
    struct cairn_up_journal_options read = {
        .path = world->journal_path, .node = "n1", .replay = keep_table, .owner = &older};
    snprintf(path, sizeof(path), "%s.older", world->journal_path);
    const struct cairn_up_journal_options write = {.path = path, .node = "n1"};
    bool done = !cairn_up_journal_open(&read, &found, &err);
    cairn_up_journal_free(found);
    read.replay = write_older;
    done = done && !cairn_up_journal_open(&write, &older.journal, &err) &&
           !cairn_up_journal_open(&read, &found, &err);
    if (done) cairn_up_journal_free(found);
    cairn_up_journal_free(older.journal);
    done = done && older.sealed && older.table.size && !rename(path, world->journal_path);
    cairn_buf_release(&older.table);
    return done;
}

TEST(a_seal_that_bears_its_table_as_in_earlier_journals_is_finished_with_it) { /* P15 */
    FAULTY_WORLD("put:*:*:hang");
    CAIRN_AUTO(buf) table = {0};
    struct trainer_save save;
    char name[65], states[1][32];
    TRAINER(trainer, .job = "job-1");
    REQUIRE(stage_one(&trainer, 1, 0, &save));
    REQUIRE(make_table(&save, &table));
    EXPECT_EQ_U64(seal(&trainer, &save, cairn_buf_view(&table), NULL, name), CAIRN_OK);
    world_uploader_kill(&world);
    REQUIRE(make_older(&world));
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    REQUIRE(trainer_offer(&trainer, &save, 1, true, states));
    EXPECT_VERDICT(&trainer, save.number, "committed");
    EXPECT_EQ_U64(tensors_of(&world, save.version), TENSORS);
    expect_clean(&world, &trainer);
}

static bool damage_name(struct cairn_up_world *world, const char *wanted) {
    static char bytes[CAIRN_MIB];
    int fd = open(world->journal_path, O_RDWR | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : pread(fd, bytes, sizeof(bytes), 0);
    char *found = size > 0 ? memmem(bytes, (size_t)size, wanted, strlen(wanted)) : NULL;
    bool done = found && pwrite(fd, "!", 1, (off_t)(found - bytes) + 1) == 1;
    if (fd >= 0) close(fd);
    return done;
}

TEST(a_save_whose_table_the_journal_has_lost_fails_by_name) { /* Q45 */
    FAULTY_WORLD("put:*:*:hang");
    CAIRN_AUTO(buf) table = {0};
    struct trainer_save saves[2];
    char name[65], again[65], states[2][32];
    TRAINER(trainer, .job = "job-1");
    REQUIRE(stage_one(&trainer, 1, 0, &saves[0]));
    REQUIRE(make_table(&saves[0], &table));
    EXPECT_EQ_U64(seal(&trainer, &saves[0], cairn_buf_view(&table), NULL, name), CAIRN_OK);
    REQUIRE(stage_one(&trainer, 2, 1, &saves[1]));
    EXPECT_EQ_U64(seal(&trainer, &saves[1], (struct cairn_view){0}, name, again), CAIRN_OK);
    world_uploader_kill(&world);
    REQUIRE(damage_name(&world, "layers.007.weight")); /* in the group of the first seal */
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    REQUIRE(trainer_offer(&trainer, saves, 2, true, states));
    EXPECT_STATE(&world, saves[0].version, "aborting");
    EXPECT_STATE(&world, saves[1].version, "aborting");
    expect_clean(&world, &trainer);
}
