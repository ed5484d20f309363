/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* Shards in memory that the trainer made: what is taken, and what a restart keeps of them. */

#include "tests/uploader/trainer.h"

#define BYTES (3 * CAIRN_MIB + 77)
#define ALL_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

static int memory_of(uint64_t seed, uint64_t bytes, uint8_t *ret_crcs, int seals) {
    int fd = memfd_create("stream", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CAIRN_AUTO_HEAP uint8_t *data = malloc(bytes);
    for (uint64_t i = 0; i < bytes; i++) data[i] = trainer_byte(seed, i);
    if (fd < 0 || pwrite(fd, data, bytes, 0) != (ssize_t)bytes || fcntl(fd, F_ADD_SEALS, seals))
        abort();
    for (uint64_t i = 0; i < cairn_block_count(bytes); i++) {
        uint64_t size = cairn_min_u64(CAIRN_MIB, bytes - i * CAIRN_MIB);
        cairn_store_u32le(ret_crcs + 4 * i, cairn_crc32c(0, data + i * CAIRN_MIB, size));
    }
    return fd;
}

static enum cairn_code send_stream(struct cairn_trainer *trainer, uint32_t save, const char *name,
                                   uint64_t bytes, struct cairn_view crcs, int fd) {
    CAIRN_AUTO(frame) frame = {0};
    return trainer_ask(trainer,
                       json_pack("{s:s, s:I, s:s, s:I}", "t", "stream", "save", (json_int_t)save,
                                 "name", name, "bytes", (json_int_t)bytes),
                       crcs, &fd, fd >= 0, &frame);
}

/* A whole stream of that content. */
static enum cairn_code stream(struct cairn_trainer *trainer, uint32_t save, const char *name,
                              uint64_t seed, int seals) {
    uint8_t crcs[16];
    CAIRN_AUTO_FD fd = memory_of(seed, BYTES, crcs, seals);
    return send_stream(trainer, save, name, BYTES, (struct cairn_view){crcs, sizeof crcs}, fd);
}

static bool stored_is(const struct cairn_up_world *world, const struct trainer_save *save,
                      const char *name, uint64_t seed) {
    const char *path = TEXT("%s/llm/seven/%012" PRIu64 "/%s/data/%s", world->store_path, save->step,
                            save->version, name);
    CAIRN_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    CAIRN_AUTO_HEAP uint8_t *data = malloc(BYTES + 1);
    bool same = fd >= 0 && read(fd, data, BYTES + 1) == (ssize_t)BYTES;
    for (uint64_t i = 0; i < BYTES && same; i++) same = data[i] == trainer_byte(seed, i);
    return same;
}

/* What is wrong with a stream, and what is said of it. */
static const struct {
    const char *says;
    int seals;
    uint64_t bytes; /* as told */
    size_t crc_bytes;
    bool holes, no_descriptor;
} wrong[] = {
    {"not sealed against writing", F_SEAL_SHRINK | F_SEAL_GROW, BYTES, 16, false, false},
    {"not sealed against shrinking", F_SEAL_WRITE, BYTES, 16, false, false},
    {"has pages for 0 of its", ALL_SEALS, BYTES, 16, true, false},
    {"bytes, promised", ALL_SEALS, BYTES - 1, 16, false, false},
    {"12 bytes of checksums", ALL_SEALS, BYTES, 12, false, false},
    {"0 descriptors came", ALL_SEALS, BYTES, 16, false, true},
};

static int wrong_memory(size_t index, uint8_t *ret_crcs) {
    if (!wrong[index].holes) return memory_of(1, BYTES, ret_crcs, wrong[index].seals);
    int fd = memfd_create("holes", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, BYTES) || fcntl(fd, F_ADD_SEALS, wrong[index].seals)) abort();
    return fd;
}

TEST(memory_that_may_still_change_is_no_stream) { /* common/memory.h#6 */
    WORLD();
    for (size_t i = 0; i < CAIRN_COUNT(wrong); i++) {
        TRAINER(trainer, .job = TEXT("job-%zu", i), .no_slabs = true);
        uint8_t crcs[16] = {0};
        CAIRN_AUTO_FD fd = wrong_memory(i, crcs);
        BEGUN(save, &trainer, 1 + i, 1);
        EXPECT(send_stream(&trainer, save.number, "a", wrong[i].bytes,
                           (struct cairn_view){crcs, wrong[i].crc_bytes},
                           wrong[i].no_descriptor ? -1 : fd) == CAIRN_PROTOCOL);
        EXPECT_HAS(trainer.err.message, wrong[i].says);
    }
}

TEST(a_stream_is_sent_from_the_memory_that_was_given) {
    WORLD();
    TRAINER(trainer, .job = "job-1", .no_slabs = true);
    uint8_t crcs[16];
    BEGUN(save, &trainer, 1, 1);
    CAIRN_AUTO_FD good = memory_of(1, BYTES, crcs, ALL_SEALS);
    const struct cairn_view all = {crcs, sizeof crcs};
    EXPECT(send_stream(&trainer, save.number, "../f", BYTES, all, good) == CAIRN_INVALID);
    EXPECT(send_stream(&trainer, save.number + 1, "g", BYTES, all, good) == CAIRN_NOT_FOUND);
    EXPECT(send_stream(&trainer, save.number, "h", BYTES, all, good) == CAIRN_OK);
    SEAL_AND_COMMIT(save, &trainer);
    EXPECT(stored_is(&world, &save, "h", 1));
}

TEST(a_stream_whose_bytes_are_not_those_of_its_checksums_fails_its_save) { /* Q42 */
    WORLD();
    TRAINER(trainer, .job = "job-1", .no_slabs = true);
    uint8_t crcs[16];
    BEGUN(save, &trainer, 1, 1);
    CAIRN_AUTO_FD fd = memory_of(1, BYTES, crcs, ALL_SEALS);
    crcs[5] ^= 1;
    EXPECT(send_stream(&trainer, save.number, "a", BYTES, (struct cairn_view){crcs, 16}, fd) ==
           CAIRN_OK);
    REQUIRE(trainer_seal(&trainer, &save));
    CAIRN_AUTO_JSON json_t *verdict = trainer_event(&trainer, "verdict", save.number, HANG_MS);
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "code")), "source-changed");
}

/* The store takes nothing before the uploader is killed. */
#define NOTHING_IS_SENT "put:*data*:1+:hang; create:*data*:1+:hang"

TEST(k01_streams_of_an_unsealed_save_come_again_after_a_restart) { /* UR6 */
    NEEDS_POINTS();
    JOB_WITH(.fault = NOTHING_IS_SENT);
    BEGUN(save, &trainer, 1, 1);
    EXPECT(stream(&trainer, save.number, "a", 1, ALL_SEALS) == CAIRN_OK);
    EXPECT(stream(&trainer, save.number, "b", 2, ALL_SEALS) == CAIRN_OK);
    REQUIRE(trainer_stage(&trainer, &save, 0, 1, 100000));
    REQUIRE(world_uploader_restart(&world));
    EXPECT_OFFER(&trainer, &save, false, "continues");
    EXPECT(stream(&trainer, save.number, "a", 9, ALL_SEALS) == CAIRN_SOURCE_CHANGED);
    EXPECT_HAS(trainer.err.message, "stream a");
    EXPECT(stream(&trainer, save.number, "a", 1, ALL_SEALS) == CAIRN_OK);
    REQUIRE(trainer_stage(&trainer, &save, 0, 1, 100000));
    EXPECT(stream(&trainer, save.number, "b", 2, ALL_SEALS) == CAIRN_OK);
    EXPECT(stream(&trainer, save.number, "c", 3, ALL_SEALS) == CAIRN_OK); /* nobody had it yet */
    SEAL_AND_COMMIT(save, &trainer);
    EXPECT(stored_is(&world, &save, "a", 1) && stored_is(&world, &save, "b", 2) &&
           stored_is(&world, &save, "c", 3));
}

TEST(a_seal_without_the_streams_of_before_the_restart_is_refused) { /* Q15 */
    NEEDS_POINTS();
    JOB_WITH(.fault = NOTHING_IS_SENT);
    BEGUN(save, &trainer, 1, 1);
    EXPECT(stream(&trainer, save.number, "a", 1, ALL_SEALS) == CAIRN_OK);
    REQUIRE(trainer_stage(&trainer, &save, 0, 1, 100000));
    BEGUN(next, &trainer, 2, 2); /* answered by the journal, behind the stream */
    REQUIRE(world_uploader_restart(&world));
    EXPECT_OFFER(&trainer, &save, false, "continues");
    REQUIRE(trainer_stage(&trainer, &save, 0, 1, 100000));
    EXPECT(!trainer_seal(&trainer, &save));
    EXPECT_HAS(trainer.err.message, "shard a: 0 of");
}

TEST(k01_streams_of_a_sealed_save_come_again_after_a_restart) { /* UR6 */
    NEEDS_POINTS();
    JOB_WITH(.fault = NOTHING_IS_SENT);
    BEGUN(save, &trainer, 1, 1);
    EXPECT(stream(&trainer, save.number, "a", 1, ALL_SEALS) == CAIRN_OK);
    EXPECT(stream(&trainer, save.number, "b", 2, ALL_SEALS) == CAIRN_OK);
    REQUIRE(trainer_stage(&trainer, &save, 0, 1, 100000) && trainer_seal(&trainer, &save));
    for (int again = 0; again < 2; again++) {
        world_uploader_kill(&world);
        REQUIRE(world_uploader_start(&world, NULL, again ? NULL : NOTHING_IS_SENT));
        EXPECT_OFFER(&trainer, &save, true, "continues");
        EXPECT(stream(&trainer, save.number, "b", 2, ALL_SEALS) == CAIRN_OK);
        EXPECT(stream(&trainer, save.number, "a", 1, ALL_SEALS) == CAIRN_OK);
        if (again) break; /* everything is sent now: the save may be over */
        EXPECT(stream(&trainer, save.number, "a", 1, ALL_SEALS) == CAIRN_OK); /* once more */
        EXPECT(stream(&trainer, save.number, "c", 3, ALL_SEALS) == CAIRN_CONFLICT);
    }
    EXPECT_VERDICT(&trainer, save.number, "committed");
    EXPECT(stored_is(&world, &save, "a", 1) && stored_is(&world, &save, "b", 2));
}

TEST(a_trainer_that_leaves_without_its_streams_ends_the_sealed_save_by_name) { /* UR6 */
    NEEDS_POINTS();
    JOB_WITH(.fault = NOTHING_IS_SENT, .uploader_args = ARGS("--offer-wait=100ms"));
    BEGUN(save, &trainer, 1, 1);
    EXPECT(stream(&trainer, save.number, "a", 1, ALL_SEALS) == CAIRN_OK);
    REQUIRE(trainer_stage(&trainer, &save, 0, 1, 100000) && trainer_seal(&trainer, &save));
    world_uploader_kill(&world);
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT_OFFER(&trainer, &save, true, "continues");
    trainer_drop(&trainer);
    EXPECT_STATE(&world, save.version, "aborting");
    EXPECT_HAS(world_reason(&world, save.version), "shard a", "nobody brought its bytes");
}
