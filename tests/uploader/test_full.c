/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as uploader/restage" */
/* A disk without room, for the journal or for the store, a store whose disk fails, and a process
 * without descriptors: who is told what. */
#include <dirent.h>
#include <spawn.h>

#include "tests/uploader/trainer.h"

/* The uploader can write no file longer than its journal is now; the save is through with files. */
static bool fill(struct cairn_up_world *world, struct cairn_trainer *trainer,
                 const struct trainer_save *save, struct rlimit *ret_before) {
    struct stat status;
    CAIRN_AUTO_JSON json_t *durable = trainer_event(trainer, "durable", save->number, HANG_MS);
    if (!durable) return false;
    if (stat(world->journal_path, &status)) return false;
    struct rlimit none = {(rlim_t)status.st_size + 16, RLIM_INFINITY};
    return !prlimit(world->uploader.pid, RLIMIT_FSIZE, &none, ret_before);
}

static bool drain(struct cairn_up_world *world, const struct rlimit *before) {
    return !prlimit(world->uploader.pid, RLIMIT_FSIZE, before, NULL);
}

static bool open_pair(struct cairn_up_world *world, struct cairn_trainer *one,
                      struct cairn_trainer *two) {
    struct trainer_options options = {
        .socket = world->socket_path, .job = "job-1", .world_size = 2, .local_world_size = 2};
    if (!trainer_open(one, &options)) return false;
    options.rank = 1;
    return trainer_open(two, &options);
}

TEST(a_begin_that_the_journal_has_no_room_for_fails_for_all_ranks_at_once) { /* Q8, P9 */
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) one = {0}, two = {0};
    struct trainer_save second;
    struct rlimit before;
    signal(SIGXFSZ, SIG_IGN); /* the daemons inherit it: a write fails instead */
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(open_pair(&world, &one, &two));
    SAVE(first, &one, 1, 0, 1, 5000);
    REQUIRE(fill(&world, &one, &first, &before));
    EXPECT(!trainer_begin(&two, 1, 1, &second));
    /* While the disk stays full. */
    EXPECT_VERDICT(&one, first.number, "aborted");
    EXPECT_STATE(&world, first.version, "aborting");
    REQUIRE(drain(&world, &before));
    REQUIRE(trainer_save(&one, 2, 1, 1, 5000, &first));
    REQUIRE(trainer_save(&two, 2, 0, 1, 5000, &second));
    EXPECT_VERDICT(&one, first.number, "committed");
    EXPECT_VERDICT(&two, second.number, "committed");
}

TEST(a_begin_that_never_came_and_finds_no_room_fails_for_all_ranks_at_once) { /* Q8 */
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) one = {0}, two = {0};
    struct rlimit before;
    signal(SIGXFSZ, SIG_IGN);
    REQUIRE(world_open(&world, &(struct world_options){0}));
    REQUIRE(open_pair(&world, &one, &two));
    SAVE(first, &one, 1, 0, 1, 5000);
    REQUIRE(fill(&world, &one, &first, &before));
    json_t *answer = trainer_call(
        &two, json_pack("{s:s, s:i, s:i, s:s}", "t", "count", "step", 1, "n", 1, "reason", "none"));
    EXPECT(answer == NULL); /* nothing of it would outlive the uploader */
    EXPECT_VERDICT(&one, first.number, "aborted");
    REQUIRE(drain(&world, &before));
}

TEST(a_limit_of_file_sizes_refuses_a_begin_and_ends_no_uploader) { /* P9 */
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_options options = {.job = "job-1"};
    struct trainer_save refused;
    struct rlimit before;
    signal(SIGXFSZ, SIG_DFL); /* as a shell leaves it */
    REQUIRE(world_open(&world, &(struct world_options){0}));
    options.socket = world.socket_path;
    REQUIRE(trainer_open(&trainer, &options));
    SAVE(save, &trainer, 1, 0, 1, 5000);
    REQUIRE(fill(&world, &trainer, &save, &before));
    EXPECT(!trainer_begin(&trainer, 2, 1, &refused));
    EXPECT(!cairn_daemon_ended(&world.uploader, 100));
    REQUIRE(drain(&world, &before));
    EXPECT_VERDICT(&trainer, save.number, "committed");
    COMMIT(save, &trainer, 3, 1, 1, 5000);
}

struct shown {
    struct cairn_up_world *world;
    bool wanted;
};

/* In the node's row and in readyz; no save is needed for either. */
static bool is_shown(void *owner) {
    const struct shown *shown = owner;
    CAIRN_AUTO_JSON json_t *nodes = world_get(shown->world, "/v1/nodes");
    CAIRN_AUTO_JSON json_t *ready = world_get(shown->world, "/readyz");
    const json_t *node = json_array_get(json_object_get(nodes, "items"), 0);
    const char *trouble = json_string_value(json_object_get(node, "trouble"));
    const char *checks =
        json_string_value(json_object_get(json_object_get(ready, "checks"), "nodes"));
    bool told = trouble && strstr(trouble, "the journal cannot be written");
    bool listed = checks && strstr(checks, "the journal cannot be written");
    return node && told == shown->wanted && listed == shown->wanted;
}

TEST(a_journal_without_room_is_shown_in_nodes_and_readyz_until_there_is_room) { /* P9 */
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_options options = {.job = "job-1"};
    struct trainer_save refused;
    struct shown shown = {.world = &world};
    struct rlimit before;
    signal(SIGXFSZ, SIG_IGN);
    REQUIRE(world_open(&world, &(struct world_options){0}));
    options.socket = world.socket_path;
    REQUIRE(trainer_open(&trainer, &options));
    COMMITTED(save, &trainer, 1, 0, 1, 5000);
    AWAIT(is_shown(&shown));
    REQUIRE(fill(&world, &trainer, &save, &before));
    EXPECT(!trainer_begin(&trainer, 2, 1, &refused));
    shown.wanted = true;
    AWAIT(is_shown(&shown));
    REQUIRE(drain(&world, &before));
    shown.wanted = false;
    AWAIT(is_shown(&shown)); /* no save has come meanwhile */
    COMMIT(save, &trainer, 3, 1, 1, 5000);
}

/* ---- the store ---- */

#define NO_PAUSE "uploader.send.pause:0:fail" /* more than a minute of pauses, left out */

static bool save_into_full(struct cairn_up_world *world, struct cairn_trainer *trainer,
                           const char *fault, struct trainer_save *ret) {
    struct world_options full = {.fault = fault, .crash_at = NO_PAUSE};
    if (!world_open(world, &full)) return false;
    struct trainer_options options = {.socket = world->socket_path, .job = "job-1"};
    return trainer_open(trainer, &options) && trainer_begin(trainer, 1, 1, ret) &&
           trainer_stage(trainer, ret, 0, 1, 1000);
}

TEST(a_put_that_a_full_store_refuses_twenty_times_is_put_off_and_committed) { /* P9, N04 */
    NEEDS_POINTS();
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save;
    REQUIRE(save_into_full(&world, &trainer, "put:*part-0*:1-20:no_space", &save));
    SEAL_AND_COMMIT(save, &trainer);
}

TEST(a_store_that_stays_full_fails_the_save_by_name_and_takes_the_next_one) { /* P9, N04 */
    NEEDS_POINTS();
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save;
    REQUIRE(save_into_full(&world, &trainer, "put:*part-0*:1-21:no_space", &save));
    (void)trainer_seal(&trainer, &save); /* it may have failed by then, since nothing pauses */
    CAIRN_AUTO_JSON json_t *verdict = trainer_event(&trainer, "verdict", save.number, HANG_MS);
    REQUIRE(verdict != NULL);
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "state")), "failed");
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "code")), "no-space");
    const char *text = json_string_value(json_object_get(verdict, "message"));
    EXPECT(text && strstr(text, "shard rank-00000/part-0"));
    EXPECT_STATE(&world, save.version, "aborting");
    COMMIT(save, &trainer, 2, 1, 1, 1000);
}

/* ---- K08: no descriptor for what the store opens ---- */

TEST(k08_a_save_waits_while_the_uploader_has_no_descriptors_and_is_committed_when_it_has) { /* P9 */
    WORLD();
    TRAINER(trainer, .job = "job-1");
    SAVE(save, &trainer, 1, 0, 1, 1500000); /* the server's connection is open */
    EXPECT_VERDICT(&trainer, save.number, "committed");
    REQUIRE(cairn_daemon_spare_files(&world.uploader, 0));
    REQUIRE(trainer_save(&trainer, 2, 1, 1, 1500000, &save));
    CAIRN_AUTO_JSON json_t *early = trainer_event(&trainer, "verdict", save.number, 3000);
    EXPECT(early == NULL);
    EXPECT(cairn_daemon_logged(&world.uploader, "RLIMIT_NOFILE"));
    REQUIRE(cairn_daemon_spare_files(&world.uploader, -1));
    EXPECT_VERDICT(&trainer, save.number, "committed");
}

/* ---- N04: the system calls of the store's own threads fail ---- */

extern char **environ;

#define TRACED_MAX 64

struct disk {
    pid_t tracer; /* 0: it is whole */
};

/* Of the uploader's threads those that write into the store; the journal has one of its own. */
static size_t senders_of(pid_t uploader, pid_t *ret, size_t capacity) {
    char path[300], name[32];
    size_t count = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)uploader);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && count < capacity && (entry = readdir(folder));) {
        snprintf(path, sizeof(path), "/proc/%d/task/%.20s/comm", (int)uploader, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        bool is_one = file && fgets(name, sizeof(name), file) && !strcmp(name, "sender\n");
        if (file) fclose(file);
        if (is_one) ret[count++] = (pid_t)strtol(entry->d_name, NULL, 10);
    }
    if (folder) closedir(folder);
    return count;
}

static bool is_traced(pid_t uploader, pid_t thread) {
    char path[80], line[120];
    bool traced = false;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)uploader, (int)thread);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file))
        if (!strncmp(line, "TracerPid:", 10)) traced = strtol(line + 10, NULL, 10) > 0;
    if (file) fclose(file);
    return traced;
}

static void cairn_disk_release(struct disk *disk) {
    if (disk->tracer <= 0) return;
    kill(disk->tracer, SIGTERM); /* it lets them go, and they run on */
    waitpid(disk->tracer, NULL, 0);
    disk->tracer = 0;
}

/* From now on those calls of those threads are not made and fail: "renameat,linkat:error=EXDEV".
 * False: this machine does not let us. */
static bool are_traced(pid_t process, const pid_t *threads, size_t count) {
    size_t held = 0;
    while (held < count && is_traced(process, threads[held])) held++;
    return held == count;
}

static bool disk_fails(pid_t uploader, const char *fault, struct disk *ret) {
    pid_t threads[TRACED_MAX];
    char numbers[TRACED_MAX][16], trace[64], inject[80];
    char *arguments[2 * TRACED_MAX + 10] = {"strace", "-qq", "-o", "/dev/null",
                                            "-e",     trace, "-e", inject};
    size_t count = senders_of(uploader, threads, TRACED_MAX), next = 8;
    snprintf(trace, sizeof(trace), "trace=%.*s", (int)strcspn(fault, ":"), fault);
    snprintf(inject, sizeof(inject), "inject=%s", fault);
    for (size_t i = 0; i < count; i++) {
        snprintf(numbers[i], sizeof(numbers[i]), "%d", (int)threads[i]);
        arguments[next++] = "-p";
        arguments[next++] = numbers[i];
    }
    if (!count || posix_spawnp(&ret->tracer, "strace", NULL, NULL, arguments, environ))
        return false;
    bool ended = false;
    AWAIT((ended = waitpid(ret->tracer, NULL, WNOHANG) != 0) ||
          are_traced(uploader, threads, count));
    if (ended) ret->tracer = 0; /* it may not trace */
    return !ended && are_traced(uploader, threads, count);
}

/* N04: the save is failed by name, nothing of it stays, and the next one is taken. */
static void expect_failed_by_name(const char *fault, const char *says) {
    CAIRN_AUTO(up_world) world = {0};
    __attribute__((cleanup(cairn_disk_release))) struct disk disk = {0};
    REQUIRE(world_open(&world, &(struct world_options){0}));
    TRAINER(trainer, .job = "job-1");
    if (!disk_fails(world.uploader.pid, fault, &disk)) SKIP("strace is not here, or may not trace");
    BEGUN(save, &trainer, 1, 1);
    REQUIRE(trainer_stage(&trainer, &save, 0, 1, 1500000));
    (void)trainer_seal(&trainer, &save); /* it may have failed by then */
    CAIRN_AUTO_JSON json_t *verdict = trainer_event(&trainer, "verdict", save.number, HANG_MS);
    cairn_disk_release(&disk);
    REQUIRE(verdict != NULL);
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "state")), "failed");
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "code")), "io-error");
    const char *text = json_string_value(json_object_get(verdict, "message"));
    EXPECT(text && strstr(text, "shard rank-00000/part-0"));
    EXPECT(text && strstr(text, says));
    EXPECT_STATE(&world, save.version, "aborting");
    EXPECT(world_await_no_temporaries(&world));
    COMMIT(save, &trainer, 2, 1, 1, 1500000);
}

CASE(n04_writes_that_fail_with_eio_fail_the_save_by_name_and_not_the_next,
     expect_failed_by_name("pwrite64:error=EIO", "Input/output error")); /* P9 */
CASE(n04_syncs_that_fail_with_eio_fail_the_save_by_name_and_not_the_next,
     expect_failed_by_name("fsync:error=EIO", "Input/output error")); /* R7 */

/* As where quotas are kept by folder, or a folder of the store is another mount. */
CASE(n04_renames_across_devices_fail_the_save_by_name_and_not_the_next,
     expect_failed_by_name("renameat,linkat:error=EXDEV", "Invalid cross-device link"));
