/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: lacks=fuse */
/* Files that are given to the uploader and cannot be read. */
#include "tests/support/hang_fs.h"
#include "tests/uploader/trainer.h"

#define BYTES 100000

static bool give(struct cairn_trainer *trainer, const struct trainer_save *save, const char *folder,
                 const char *name, uint64_t bytes) {
    const char *path = TEXT("%s/%s", folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool taken = fd >= 0 && trainer_file(trainer, save->number, name, fd, bytes) == CAIRN_OK;
    if (fd >= 0) close(fd);
    return taken;
}

static bool give_hung(struct cairn_trainer *trainer, const struct trainer_save *save,
                      const char *folder) {
    for (int i = 0; i < 6; i++) { /* more than there are senders, and than there are readers */
        const char *name = TEXT("file-%d", i);
        if (!give(trainer, save, folder, name, BYTES)) return false;
    }
    return true;
}

TEST(files_of_two_saves_that_never_answer_leave_a_reader_to_a_third) { /* uploader/send/send.h#5 */
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) one = {0}, two = {0}, other = {0};
    struct cairn_trainer *hung[] = {&one, &two};
    const char *const runs[] = {"llm/one", "llm/two"};
    __attribute__((cleanup(cairn_hang_fs_release))) struct cairn_hang_fs fs = {0};
    struct trainer_save save;
    char folder[400], path[600];
    REQUIRE(world_open(&world, &(struct world_options){0}));
    snprintf(folder, sizeof folder, "%s/hangs", world.folder);
    if (!cairn_hang_fs_mount(folder, BYTES, &fs)) SKIP("needs the right to mount, and /dev/fuse");
    struct trainer_options options = {.socket = world.socket_path, .no_slabs = true};
    for (size_t i = 0; i < CAIRN_COUNT(hung); i++) {
        options.job = options.run = runs[i];
        REQUIRE(trainer_open(hung[i], &options));
        REQUIRE(trainer_begin(hung[i], 1, 1, &save));
        REQUIRE(give_hung(hung[i], &save, folder));
    }
    options.job = options.run = "llm/eight";
    REQUIRE(trainer_open(&other, &options));
    snprintf(path, sizeof path, "%s/real", world.folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0 && ftruncate(fd, BYTES) == 0);
    close(fd);
    REQUIRE(trainer_begin(&other, 1, 1, &save));
    REQUIRE(give(&other, &save, world.folder, "real", BYTES));
    SEAL_AND_COMMIT(save, &other);
}

TEST(files_that_never_answer_hold_up_no_other_save) { /* uploader/send/send.h#5 */
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) hung = {0}, other = {0};
    __attribute__((cleanup(cairn_hang_fs_release))) struct cairn_hang_fs fs = {0};
    char folder[400], path[600];
    REQUIRE(world_open(&world, &(struct world_options){0}));
    snprintf(folder, sizeof folder, "%s/hangs", world.folder);
    if (!cairn_hang_fs_mount(folder, BYTES, &fs)) SKIP("needs the right to mount, and /dev/fuse");
    struct trainer_options options = {.socket = world.socket_path, .job = "job-1"};
    REQUIRE(trainer_open(&hung, &options));
    BEGUN(save, &hung, 1, 1);
    REQUIRE(give_hung(&hung, &save, folder));
    options.job = "job-2";
    options.run = "llm/eight";
    REQUIRE(trainer_open(&other, &options));
    COMMIT(save, &other, 1, 0, 1, BYTES);
    snprintf(path, sizeof path, "%s/real", world.folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0 && ftruncate(fd, BYTES) == 0);
    close(fd);
    REQUIRE(trainer_begin(&other, 2, 1, &save)); /* files of another save, too */
    REQUIRE(give(&other, &save, world.folder, "real", BYTES));
    SEAL_AND_COMMIT(save, &other);
}
