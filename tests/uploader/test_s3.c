/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: seconds=50 */
/* The same promises over S3: an S3 server that checks every signature and checksum, and fails on
 * request. */

#include "tests/uploader/trainer.h"

#define SHARD_BYTES (11 * CAIRN_MIB + 333) /* three parts of 5 MiB at most */

static struct trainer_options rank_of(const struct cairn_up_world *world) {
    return (struct trainer_options){
        .socket = world->socket_path, .job = "job-1", .bytes = 24 * CAIRN_MIB};
}

static void expect_committed(const char *rules) {
    WORLD_WITH(.s3_rules = rules);
    TRAINER_AS(trainer, rank_of(&world));
    COMMITTED(save, &trainer, 1, 0, 2, SHARD_BYTES);
}

CASE(a_save_in_parts_is_committed_over_s3, expect_committed(""));
CASE(a_lost_reply_to_complete_is_no_failure, expect_committed("op=complete nth=1 : lose-reply"));
CASE(a_lost_reply_to_a_part_is_no_failure, expect_committed("op=part nth=2 : lose-reply"));
CASE(a_store_that_is_slow_down_for_a_while_is_waited_for,
     expect_committed("op=part nth=1-3 : status=503/SlowDown"));

TEST(a_kill_in_mid_upload_goes_on_where_the_parts_stopped) { /* Q17 */
    WORLD_WITH(.s3_rules = "op=part nth=3+ : stall@0/60000");
    TRAINER_AS(trainer, rank_of(&world));
    char states[1][32];
    SAVE(save, &trainer, 1, 0, 1, SHARD_BYTES);
    EXPECT_EVENT(&trainer, "released", save.number);
    world_uploader_kill(&world);
    REQUIRE(world_s3_rules(&world, "op=create : status=500/InternalError"));
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    REQUIRE(trainer_offer(&trainer, &save, 1, true, states));
    EXPECT_VERDICT(&trainer, save.number, "committed");
}

TEST(what_s3_holds_whole_needs_no_trainer_after_a_restart) { /* V18 */
    WORLD_WITH(.s3_rules = "op=complete : stall@0/60000");
    TRAINER_AS(trainer, rank_of(&world));
    SAVE(save, &trainer, 1, 0, 1, SHARD_BYTES);
    for (int i = 0; i < 3; i++) {
        REQUIRE_EVENT(&trainer, "released", save.number);
    }
    world_uploader_kill(&world);
    trainer_drop(&trainer);
    REQUIRE(world_s3_rules(&world, ""));
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT_STATE(&world, save.version, "committed");
}

/* The slab holds other bytes before its part goes out; nobody but the uploader compares them with
 * what was staged. */
static void expect_source_changed(const char *checksum, uint64_t bytes) {
    const char *const args[] = {checksum, NULL};
    WORLD_WITH(.s3_rules = "op=create nth=1 : delay=500; "
                           "op=put key=*rank-* nth=1 : "
                           "status=503/SlowDown, delay=500",
               .uploader_args = args);
    TRAINER_AS(trainer, rank_of(&world));
    SAVE(save, &trainer, 1, 0, 1, bytes);
    trainer.slabs[0].data[bytes - 1] ^= 1;
    CAIRN_AUTO_JSON json_t *verdict = trainer_event(&trainer, "verdict", save.number, HANG_MS);
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "state")), "failed");
    EXPECT_EQ_TEXT(json_string_value(json_object_get(verdict, "code")), "source-changed");
    EXPECT_STATE(&world, save.version, "aborting");
}

CASE(v26_a_slab_that_is_overwritten_fails_the_save_where_the_store_checks_crc32c,
     expect_source_changed("--checksum=crc32c", SHARD_BYTES));
CASE(v26_a_slab_that_is_overwritten_fails_the_save_where_the_store_checks_md5,
     expect_source_changed("--checksum=md5", SHARD_BYTES)); /* Q42 */
CASE(v26_a_slab_that_is_overwritten_fails_the_save_where_the_store_checks_nothing,
     expect_source_changed("--checksum=none", SHARD_BYTES)); /* Q42 */
CASE(v26_a_slab_that_is_overwritten_fails_a_shard_of_one_put_where_md5_is_checked,
     expect_source_changed("--checksum=md5", 300000)); /* Q42 */
CASE(v26_a_slab_that_is_overwritten_fails_a_shard_of_one_put_where_nothing_is_checked,
     expect_source_changed("--checksum=none", 300000)); /* Q42 */

static bool copy_is_there(void *owner) {
    return cairn_daemon_logged(&((struct cairn_up_world *)owner)->server, "attempt.copy_there");
}

TEST(a_copy_of_an_attempts_record_that_is_not_taken_holds_its_call_for_moments) { /* Q5 */
    CAIRN_AUTO(up_world) world = {0};
    struct world_options full = {.s3_rules = "op=put key=*.copy.json : status=503/SlowDown"};
    REQUIRE(world_open(&world, &full));
    TRAINER(trainer, .job = "job-1");
    EXPECT(cairn_daemon_logged(&world.server, "attempt.copy_late"));
    EXPECT(!copy_is_there(&world));
    REQUIRE(world_s3_rules(&world, ""));
    AWAIT(copy_is_there(&world));
}

TEST(a_refused_part_does_not_wait_for_the_other_parts_of_its_shard) { /* uploader/send/send.h#4 */
    CAIRN_AUTO(up_world) world = {0};
    struct world_options slow = {.s3_rules = "op=part part=1 : held\n"
                                             "op=part part=2 : status=403/AccessDenied"};
    REQUIRE(world_open(&world, &slow));
    TRAINER_AS(trainer, rank_of(&world));
    SAVE(save, &trainer, 1, 0, 1, SHARD_BYTES);
    EXPECT_VERDICT(&trainer, save.number, "failed");
}

TEST(an_attempt_that_is_answered_while_the_uploader_stops_ends_nothing_else) { /* U09 */
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct world_options late = {.s3_rules = "op=put key=*.copy.json : status=503/SlowDown"};
    REQUIRE(world_open(&world, &late));
    struct trainer_options options = {.socket = world.socket_path, .job = "job-1"};
    REQUIRE(trainer_hello(&trainer, &options));
    REQUIRE(trainer_send(&trainer,
                         json_pack("{s:s, s:i, s:s}", "t", "attempt", "id", 77, "job", "job-1"),
                         (struct cairn_view){NULL, 0}, NULL, 0));
    CAIRN_AUTO_JSON json_t *early = trainer_event(&trainer, "attempted", UINT32_MAX, 700);
    EXPECT(early == NULL); /* two seconds are for the copy of the attempt's record (Q5) */
    EXPECT_EQ_U64((uint64_t)world_uploader_stop(&world), 0);
    REQUIRE(world_s3_rules(&world, ""));
    REQUIRE(world_uploader_start(&world, NULL, NULL)); /* and its journal is whole */
    EXPECT(!cairn_daemon_logged(&world.uploader, "journal.torn_tail"));
}

/* ---- where the time of a part goes ---- */

static int64_t figure(const json_t *event, const char *name) {
    return json_integer_value(json_object_get(event, name));
}

/* The first part of a save of one shard. */
static json_t *first_part(struct cairn_up_world *world, struct cairn_trainer *trainer,
                          const char *rules) {
    struct trainer_save save;
    struct trainer_options options = rank_of(world);
    bool ok = EXPECT(world_open(world, &(struct world_options){.s3_rules = rules})) &&
              EXPECT(trainer_open(trainer, &options)) &&
              EXPECT(trainer_save(trainer, 1, 0, 1, SHARD_BYTES, &save));
    return ok ? trainer_event(trainer, "released", save.number, HANG_MS) : NULL;
}

TEST(a_store_that_answers_late_has_the_greater_part_of_a_parts_time) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    CAIRN_AUTO_JSON json_t *part = first_part(&world, &trainer, "op=part : delay=2000");
    REQUIRE(part);
    EXPECT(figure(part, "store_us") >= 1900000);
    EXPECT(figure(part, "link_us") < figure(part, "store_us"));
}

TEST(a_store_that_takes_little_at_a_time_has_the_greater_part_of_a_parts_time) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    CAIRN_AUTO_JSON json_t *part = first_part(&world, &trainer, "op=part : req-slow=1000000");
    REQUIRE(part);
    EXPECT(figure(part, "store_us") >= 500000);
    EXPECT(figure(part, "link_us") < figure(part, "store_us"));
}

TEST(in_a_folder_all_of_a_parts_time_is_the_stores) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    CAIRN_AUTO_JSON json_t *part = first_part(&world, &trainer, NULL);
    REQUIRE(part);
    EXPECT(figure(part, "store_us") > 0);
    EXPECT(figure(part, "link_us") == 0);
}

static bool runs(const char *const *argv) {
    int status = -1;
    pid_t pid = fork();
    if (!pid) {
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* Bbr fills the receiver's window while its bytes queue before a slow link; the kernel counts that
 * time as the receiver's lack of room. */
static bool choose_cubic(void) {
    FILE *file = fopen("/proc/sys/net/ipv4/tcp_congestion_control", "we");
    bool ok = file && fputs("cubic", file) >= 0;
    return (!file || fclose(file) == 0) && ok;
}

/* A network of this process and those that it starts, of 1 MB/s. What it could not do is in ret. */
static bool slow_network(char ret[200]) {
    static const char *const up[] = {"ip", "link", "set", "lo", "up", NULL};
    static const char *const slow[] = {"tc",   "qdisc", "add",   "dev",   "lo",      "root", "tbf",
                                       "rate", "8mbit", "burst", "256kb", "latency", "20s",  NULL};
    bool ok = unshare(geteuid() ? CLONE_NEWUSER | CLONE_NEWNET : CLONE_NEWNET) == 0;
    snprintf(ret, 200, "a network namespace cannot be had here: %s", strerror(errno));
    if (ok) snprintf(ret, 200, "ip and tc (iproute2) make no slow network here");
    return ok && choose_cubic() && runs(up) && runs(slow);
}

/* The last one here: there is no way back out of its network. */
TEST(a_slow_link_has_the_greater_part_of_a_parts_time) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    char why[200];
    if (!slow_network(why)) SKIP(why);
    CAIRN_AUTO_JSON json_t *part = first_part(&world, &trainer, "");
    REQUIRE(part);
    EXPECT(figure(part, "link_us") >= 300000);
    EXPECT(figure(part, "store_us") < figure(part, "link_us"));
}
