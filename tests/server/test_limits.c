/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan engines=again */
/* What the server must not let through: too many at once, files that are damaged or in the wrong
 * place, shards that nobody sealed, and what a dead version leaves behind. */
#include <dirent.h>
#include <sys/syscall.h>

#include "tests/server/world.h"

#define SHARD_BYTES (40 * CAIRN_MIB)      /* more than the buffers of a connection hold */
#define TURN_SHARD_BYTES (10 * CAIRN_MIB) /* three chunks: a place is held while others wait */
#define PLACE_WAIT_MS 20000               /* what server/README.md, B4 says */
#define READ_MS_MAX 240000
#define NFS_MAGIC 0x6969
#define SLOTS_ALONE "--ready-streams-max=0" /* whatever memory holds of the folder */

/* What the kernel says of a file system, in this process; 0: the truth. */
static __typeof__(((struct statfs *)0)->f_type) pretended;
__attribute__((visibility("default"))) int fstatfs(int fd, struct statfs *ret) {
    int result = (int)syscall(SYS_fstatfs, fd, ret);
    if (!result && pretended) ret->f_type = pretended;
    return result;
}

#define err world.err /* of the macros */

/* ---- too many at once ---- */

static unsigned kept_of(struct cairn_raw *raws, size_t count) {
    unsigned kept = 0;
    for (size_t i = 0; i < count; i++) kept += !cairn_raw_closed(&raws[i], 0);
    return kept;
}

/* So many connections that stay open, each of which had an answer. */
static void keep_open(const struct cairn_world *world, struct cairn_raw *raws, size_t from,
                      size_t to) {
    for (size_t i = from; i < to; i++) {
        CAIRN_AUTO(buf) reply = {0};
        raws[i] = (struct cairn_raw){.fd = -1};
        EXPECT(cairn_raw_open(&raws[i], world->server.port) &&
               cairn_raw_text(&raws[i], "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n") &&
               cairn_raw_reply(&raws[i], HANG_MS, &reply) == 200);
    }
}

static bool is_served(uint16_t port) {
    static const char request[] =
        "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    CAIRN_AUTO(buf) reply = {0};
    return cairn_raw_exchange(port, request, sizeof(request) - 1, &reply) == 200;
}

TEST(one_address_has_no_more_connections_than_it_may) { /* B05, R6 */
    WORLD("--connections-per-address=6");
    struct cairn_raw raws[16];
    keep_open(&world, raws, 0, CAIRN_COUNT(raws));
    AWAIT(kept_of(raws, CAIRN_COUNT(raws)) <= 6); /* who was reset hears it a moment later */
    EXPECT(kept_of(raws, CAIRN_COUNT(raws)) >= 4);
    for (size_t i = 0; i < CAIRN_COUNT(raws); i++) cairn_raw_release(&raws[i]);
    AWAIT(is_served(world.server.port));
}

TEST(b05_idle_connections_leave_an_eighth_of_the_places_to_who_comes_next) {
    WITH(passing, passing, cairn_passing_open(&passing));
    WITH(world, world, world_start(&world, WORLD_ARGS("--http-connections-max=64"), passing.env));
    struct cairn_raw raws[100];
    keep_open(&world, raws, 0, 60);
    cairn_passing_pass(&passing, 1000); /* the first ones are idle by now */
    keep_open(&world, raws, 60, CAIRN_COUNT(raws));
    AWAIT(kept_of(raws, CAIRN_COUNT(raws)) <= 56); /* who was reset hears it a moment later */
    EXPECT(kept_of(raws, CAIRN_COUNT(raws)) >= 48);
    for (size_t i = 0; i < CAIRN_COUNT(raws); i++) cairn_raw_release(&raws[i]);
}

struct reader {
    pthread_t thread;
    uint16_t port;
    const char *request;
    size_t bytes;
    bool ok, right;   /* every byte came, and they are the shard's */
    bool too_soon;    /* a 503 before PLACE_WAIT_MS */
    unsigned refused; /* answers 503 */
};

/* Of rank 0's shard of step 1. */
static bool body_is_right(const struct cairn_buf *reply, size_t bytes) {
    const char *end = reply->data ? strstr(reply->data, "\r\n\r\n") : NULL;
    size_t head = end ? (size_t)(end + 4 - reply->data) : 0;
    if (!end || reply->size != head + bytes) return false;
    CAIRN_AUTO_HEAP uint8_t *wanted = malloc(bytes);
    if (!wanted) return false;
    hand_fill(wanted, bytes, 1);
    return !memcmp(reply->data + head, wanted, bytes);
}

/* True: answered 503, and to be sent again. */
static bool read_once(struct reader *reader) {
    CAIRN_AUTO(buf) reply = {.limit = CAIRN_GIB};
    CAIRN_AUTO(raw) raw = {.fd = -1};
    uint64_t from_ms = cairn_mono_ms();
    if (!cairn_raw_open(&raw, reader->port) || !cairn_raw_text(&raw, reader->request)) return false;
    while (cairn_raw_more(&raw, HANG_MS, &reply)) continue;
    bool refused = reply.data && !strncmp(reply.data, "HTTP/1.1 503 ", 13);
    reader->refused += refused;
    reader->too_soon |= refused && cairn_mono_ms() - from_ms < PLACE_WAIT_MS;
    reader->ok = reply.data && !strncmp(reply.data, "HTTP/1.1 200 OK", 15);
    reader->right = reader->ok && body_is_right(&reply, reader->bytes);
    return refused;
}

static void *read_all(void *argument) {
    struct reader *reader = argument;
    uint64_t until_ms = cairn_mono_ms() + READ_MS_MAX;
    while (read_once(reader) && cairn_mono_ms() < until_ms) continue;
    return NULL;
}

#define READERS 16

/* Where 160 MiB take more than 20 s the last readers get 503, and they repeat the request. */
TEST(more_readers_than_places_wait_20_s_for_a_turn_and_all_get_every_byte) { /* R6, stream.h#3 */
    struct cairn_hand_save save;
    JOB(1, "--streams-max=2", SLOTS_ALONE);
    REQUIRE_OK(hand_save_all(&hand, 1, 1, "error", TURN_SHARD_BYTES, &save));
    const char *request = hand_download(&save);
    struct reader readers[READERS];
    for (size_t i = 0; i < READERS; i++) {
        readers[i] = (struct reader){
            .port = world.server.port, .request = request, .bytes = TURN_SHARD_BYTES};
        REQUIRE(!pthread_create(&readers[i].thread, NULL, read_all, &readers[i]));
    }
    for (size_t i = 0; i < READERS; i++) {
        pthread_join(readers[i].thread, NULL);
        EXPECT(!readers[i].too_soon);
        EXPECT(readers[i].ok);
        EXPECT(readers[i].right);
    }
}

TEST(readers_that_take_nothing_keep_nobody_out_and_go_on_where_they_stopped) { /* stream.h#3 */
    struct cairn_hand_save save;
    JOB(1, "--streams-max=2", SLOTS_ALONE, "--request-timeout=10min");
    REQUIRE_OK(hand_save_all(&hand, 1, 1, "error", SHARD_BYTES, &save));
    const char *request = hand_download(&save);
    struct cairn_raw silent[2];
    struct cairn_buf taken[2] = {{.limit = CAIRN_GIB}, {.limit = CAIRN_GIB}};
    for (size_t i = 0; i < 2; i++) {
        REQUIRE(cairn_raw_open(&silent[i], world.server.port));
        REQUIRE(cairn_raw_text(&silent[i], request));
        REQUIRE(
            cairn_raw_more(&silent[i], HANG_MS, &taken[i])); /* it has begun, and reads no more */
        EXPECT(strstr(taken[i].data, "200 OK") != NULL);
    }
    struct reader third = {.port = world.server.port, .request = request, .bytes = SHARD_BYTES};
    EXPECT(!read_once(&third)); /* a place is there after the 2 s of the silent ones */
    EXPECT(third.ok);
    EXPECT(third.right);
    for (size_t i = 0; i < 2; i++) {
        while (cairn_raw_more(&silent[i], HANG_MS, &taken[i])) continue;
        EXPECT(body_is_right(&taken[i], SHARD_BYTES));
        cairn_raw_release(&silent[i]);
        cairn_buf_release(&taken[i]);
    }
}

/* Of the anonymous memory that a process may write to; what is larger than any of its buffers
 * belongs to a sanitizer. */
static uint64_t mapped_bytes(pid_t pid) {
    char line[512];
    uint64_t bytes = 0;
    FILE *maps = fopen(TEXT("/proc/%d/maps", (int)pid), "re");
    while (maps && fgets(line, sizeof(line), maps)) {
        char mode[8] = "", *rest = NULL;
        uint64_t begin = strtoull(line, &rest, 16), end = strtoull(rest + 1, &rest, 16), inode = 1;
        if (sscanf(rest, " %7s %*s %*s %" SCNu64, mode, &inode) != 2 || strcmp(mode, "rw-p") ||
            inode || end - begin > CAIRN_GIB / 4)
            continue;
        bytes += end - begin;
    }
    if (maps) fclose(maps);
    return bytes;
}

static bool read_little(const struct cairn_world *world, const char *request,
                        struct cairn_raw *ret) {
    CAIRN_AUTO(buf) taken = {.limit = CAIRN_GIB};
    return cairn_raw_open(ret, world->server.port) && cairn_raw_text(ret, request) &&
           cairn_raw_more(ret, HANG_MS, &taken) && strstr(taken.data, "200 OK");
}

#define SILENT 4
#define STREAM_BYTES (8 * CAIRN_MIB) /* what the server maps for one */

TEST(a_reader_whose_slot_is_lent_has_no_memory_mapped) { /* R6, stream.h#3 */
    struct cairn_hand_save save;
    struct cairn_raw raws[2 * SILENT];
    uint64_t mapped[3] = {0};
#ifdef __SANITIZE_THREAD__
    SKIP("ThreadSanitizer keeps the shadow of what was mapped, four times its size");
#endif
    JOB(1, "--streams-max=4", SLOTS_ALONE);
    REQUIRE_OK(hand_save_all(&hand, 1, 1, "error", SHARD_BYTES, &save));
    const char *request = hand_download(&save);
    mapped[0] = mapped_bytes(world.server.pid);
    for (size_t i = 0; i < 2 * SILENT; i++) {
        raws[i] = (struct cairn_raw){.fd = -1};
        EXPECT(read_little(&world, request, &raws[i]));
        if (i == SILENT - 1) mapped[1] = mapped_bytes(world.server.pid);
    }
    mapped[2] = mapped_bytes(world.server.pid);
    EXPECT(mapped[1] >= mapped[0] + SILENT * STREAM_BYTES);
    EXPECT(mapped[2] < mapped[1] + SILENT * STREAM_BYTES / 2); /* as many have lent theirs */
    for (size_t i = 0; i < 2 * SILENT; i++) cairn_raw_release(&raws[i]);
}

/* ---- damage ---- */

/* Bytes and checksums that were changed alike are still not what was committed. */
TEST(a_changed_checksums_bin_is_damage_and_serves_nothing) { /* P3, P14 */
    struct cairn_hand_save save;
    JOB(1);
    REQUIRE_OK(hand_save_all(&hand, 1, 1, "error", 1000, &save));
    SHARD_KEY(shard, &save, "rank-00000/x");
    KEY(checksums, checksums, &save);
    static uint8_t forged[1000];
    uint32_t crc = cairn_crc32c(0, forged, sizeof(forged));
    uint8_t crc_le[4] = {(uint8_t)crc, (uint8_t)(crc >> 8), (uint8_t)(crc >> 16),
                         (uint8_t)(crc >> 24)};
    struct cairn_store_request puts[] = {
        {.op = CAIRN_STORE_PUT, .key = shard.text, .body = {forged, sizeof(forged)}},
        {.op = CAIRN_STORE_PUT, .key = checksums.text, .body = {crc_le, sizeof(crc_le)}},
    };
    for (size_t i = 0; i < 2; i++) REQUIRE_OK(cairn_store_perform(world.worker, &puts[i], &err));
    CAIRN_AUTO(buf) reply = {0};
    const char *request = hand_download(&save);
    EXPECT_EQ_U64((uint64_t)cairn_raw_exchange(world.server.port, request, strlen(request), &reply),
                  502);
    EXPECT(strstr(reply.data, "checksums.bin") != NULL);
}

TEST(a_look_is_answered_while_every_change_waits_for_the_catalog) { /* T2 */
    NEED_SQLITE;
    static const char put[] =
        "PUT " WORLD_RUN " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    static const char get[] = "GET " WORLD_RUN " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    WORLD("--request-workers=2");
    CAIRN_AUTO(buf) reply = {0};
    struct cairn_raw changes[4] = {{-1}, {-1}, {-1}, {-1}};
    sqlite3 *other = NULL;
    EXPECT_CODE(world_call(&world, "PUT", WORLD_RUN, NULL, NULL), CAIRN_OK);
    EXPECT_EQ_U64((uint64_t)sqlite3_open_v2(TEXT("%s/catalog.db", world.data_path), &other,
                                            SQLITE_OPEN_READWRITE, NULL),
                  SQLITE_OK);
    sqlite3_busy_timeout(other, 5000); /* the server may be writing a row of its own */
    EXPECT_EQ_U64((uint64_t)sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    for (size_t i = 0; i < CAIRN_COUNT(changes); i++)
        EXPECT(cairn_raw_open(&changes[i], world.server.port) && cairn_raw_text(&changes[i], put));
    EXPECT_EQ_U64((uint64_t)cairn_raw_reply(&changes[0], 300, &reply), (uint64_t)-1);
    CAIRN_AUTO(raw) look = {-1};
    if (EXPECT(cairn_raw_open(&look, world.server.port) && cairn_raw_text(&look, get)))
        EXPECT_EQ_U64((uint64_t)cairn_raw_reply(&look, HANG_MS, &reply), 200);
    EXPECT_EQ_U64((uint64_t)sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    for (size_t i = 0; i < CAIRN_COUNT(changes); i++) {
        EXPECT_EQ_U64((uint64_t)cairn_raw_reply(&changes[i], HANG_MS, &reply), 200);
        cairn_raw_release(&changes[i]);
    }
    sqlite3_close(other);
}

static enum cairn_code fill(struct srv_tx *tx, void *argument, struct cairn_error *why) {
    (void)argument;
    static const struct srv_statement statement = {
        "fill", "",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) INSERT "
        "INTO meta(name, value) SELECT 'name ' || i, 'value ' || i FROM n"};
    return srv_sql_run(tx, NULL, why, &statement);
}

#undef err

TEST(a_damaged_catalog_is_refused_at_start, err) { /* D02 */
    struct srv_catalog *catalog = NULL;
    struct stat st;
    static char garbage[4096];
    REQUIRE_OK(srv_catalog_open(cairn_test_folder(), &catalog, &err));
    REQUIRE_OK(srv_catalog_write(catalog, fill, NULL, &err));
    srv_catalog_free(catalog);
    catalog = NULL;
    const char *path = TEXT("%s/catalog.db", cairn_test_folder());
    memset(garbage, 0xa5, sizeof(garbage));
    {
        CAIRN_AUTO_FD fd = open(path, O_RDWR | O_CLOEXEC);
        REQUIRE(fd >= 0 && !fstat(fd, &st) && st.st_size > 60 * 4096);
        REQUIRE(pwrite(fd, garbage, sizeof(garbage), st.st_size - 20 * 4096) == sizeof(garbage));
    }
    enum cairn_code code = srv_catalog_open(cairn_test_folder(), &catalog, &err);
    EXPECT(code == CAIRN_CORRUPT || code == CAIRN_UNSUPPORTED);
    EXPECT(strstr(err.message, "quick_check") != NULL);
    if (!code) srv_catalog_free(catalog);
}

TEST(d06_a_catalog_on_a_network_file_system_is_refused, err) { /* D06 */
    struct srv_catalog *catalog = NULL;
    pretended = NFS_MAGIC;
    EXPECT_CODE(srv_catalog_open(cairn_test_folder(), &catalog, &err), CAIRN_UNSUPPORTED);
    pretended = 0;
    EXPECT(strstr(err.message, "nfs") != NULL);
    if (catalog) srv_catalog_free(catalog);
    catalog = NULL;
    REQUIRE_OK(srv_catalog_open(cairn_test_folder(), &catalog, &err));
    srv_catalog_free(catalog);
}

#define err world.err

/* ---- what nobody sealed, what is dead ---- */

TEST(a_registered_shard_that_the_seal_does_not_name_refuses_the_seal) { /* Q22, P1 */
    JOB_INSIDE(1);
    BEGUN(save, 5);
    json_t *named = hand_shard(&save, "x", 0, CAIRN_VIEW("abc"));
    json_t *stranger = hand_shard(&save, "y", 0, CAIRN_VIEW("def"));
    REQUIRE_OK(hand_send(&save, json_pack("[o, o]", named, stranger), NULL, NULL));
    EXPECT_FAILS(hand_seal_alone(&save, 0, "x", 3), CAIRN_SHARD_CONFLICT, "\"y\"");
    EXPECT_GET(save.path, "state", "open");
}

TEST(the_sweep_of_a_dead_version_ends_its_uploads) { /* P8, S26, V14 */
    JOB_INSIDE(1);
    BEGUN(save, 5);
    SHARD_KEY(key, &save, "rank-00000/x");
    KEY(prefix, version_prefix, &save);
    PERFORMED(create, world.worker,
              {.op = CAIRN_STORE_UPLOAD_CREATE,
               .key = key.text,
               .token = "6f0f1c1e-5a55-4c6b-9d4b-0b3f6a5f9f01",
               .length = 10 * CAIRN_MIB});
    EXPECT_EQ_U64(cairn_listed(world.worker, CAIRN_STORE_UPLOADS, prefix.text), 1);
    ASK("POST", TEXT("%s/abort", save.path), NULL);
    inside_pass(&world.inside, 1000);
    EXPECT_EQ_U64(cairn_listed(world.worker, CAIRN_STORE_UPLOADS, prefix.text), 0);
}

TEST(a_version_is_open_for_everybody_until_its_record_is_written) { /* Q24, P5 */
    WORLD_IN(world_points(), "CAIRN_CRASH_AT=server.commit.before_record:2:delay=4000");
    HAND(1);
    SAVED(one, 1);
    BEGUN(two, 2);
    REQUIRE_OK(hand_put(&two, "x", 0, CAIRN_VIEW("abc")));
    REQUIRE_AWAIT(world_passed("server.commit.before_record") == 2);
    EXPECT_GET(WORLD_RUN "/checkpoints/latest", "version", one.id.text);
    GOT(shown, two.path);
    EXPECT_EQ_TEXT(world_text(shown, "state"), "open");
    EXPECT(!json_is_true(json_object_get(shown, "recorded")));
}

TEST(an_attempt_resumes_only_from_what_has_its_record_in_the_store) { /* Q24, P5 */
    struct cairn_hand next;
    struct cairn_hand_save save;
    JOB_INSIDE(1);
    REQUIRE_OK(hand_save_all(&hand, 5, 1, "error", 100, &save));
    KEY(record, committed, &save);
    /* As a server leaves it that dies between the transaction and the record. */
    REQUIRE_OK(cairn_store_delete(world.worker, record.text, &err));
    REQUIRE(world_sql(&world, "UPDATE versions SET recorded = 0"));
    REQUIRE_OK(hand_open(&world, &next, "j2", 1, save.id.text, 1));
    EXPECT_EQ_TEXT(next.resumed, save.id.text);
    EXPECT_PERFORMED(CAIRN_OK, head, world.worker, {.op = CAIRN_STORE_HEAD, .key = record.text});
}

/* ---- large bodies ---- */

#define NICE_MAX 19

struct pool_seen { /* of the threads of one pool of a server */
    unsigned threads, asleep;
    int nice;           /* of the last one */
    uint64_t came_back; /* how often they have waited for something to do */
};

static bool read_proc(const char *path, char *ret, size_t capacity) {
    FILE *file = fopen(path, "re");
    size_t size = file ? fread(ret, 1, capacity - 1, file) : 0;
    if (file) fclose(file);
    ret[size] = '\0';
    return size > 0;
}

static struct pool_seen look_at_pool(pid_t pid, const char *name) {
    struct pool_seen seen = {0};
    char text[4096];
    DIR *tasks = opendir(TEXT("/proc/%d/task", (int)pid));
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        if (task->d_name[0] == '.' ||
            !read_proc(TEXT("/proc/%d/task/%s/comm", (int)pid, task->d_name), text, sizeof(text)))
            continue;
        text[strcspn(text, "\n")] = '\0';
        if (strcmp(text, name) != 0) continue;
        seen.threads++;
        seen.nice = getpriority(PRIO_PROCESS, (id_t)strtoul(task->d_name, NULL, 10));
        bool there =
            read_proc(TEXT("/proc/%d/task/%s/status", (int)pid, task->d_name), text, sizeof(text));
        const char *count = there ? strstr(text, "\nvoluntary_ctxt_switches:") : NULL;
        seen.asleep += there && strstr(text, "\nState:\tS");
        if (count) seen.came_back += strtoull(strchr(count, ':') + 1, NULL, 10);
    }
    if (tasks) closedir(tasks);
    return seen;
}

/* Threads name themselves once they run, which may be after the server has answered: the pool as
 * two looks in a row find it asleep. */
static struct pool_seen pool_at_rest(pid_t pid, const char *name) {
    struct pool_seen seen = look_at_pool(pid, name);
    struct pool_seen last = {0};
    AWAIT((last = seen, seen = look_at_pool(pid, name)).threads && seen.came_back &&
          seen.threads == last.threads && seen.came_back == last.came_back &&
          seen.asleep == seen.threads);
    return seen;
}

#define EMPTY_OBJECTS 6000 /* 18 KB that take more than a MiB once they are parsed */

TEST(a_body_of_many_values_is_handled_by_threads_of_its_own_behind_all_others) { /* T2, B05 */
    WORLD();
    EXPECT_CODE(world_call(&world, "PUT", WORLD_RUN, NULL, NULL), CAIRN_OK);
    struct pool_seen before = pool_at_rest(world.server.pid, "cairn-heavy"), after = before;
    EXPECT(before.threads > 0);
    /* No thread is nicer than the nicest. */
    EXPECT(before.nice > getpriority(PRIO_PROCESS, (id_t)world.server.pid) ||
           before.nice == NICE_MAX);
    EXPECT_CODE(world_call(&world, "PUT", WORLD_RUN, json_pack("{s:{}}", "labels"), NULL),
                CAIRN_OK);
    EXPECT_EQ_U64(look_at_pool(world.server.pid, "cairn-heavy").came_back, before.came_back);
    json_t *objects = json_array();
    for (int i = 0; i < EMPTY_OBJECTS; i++) json_array_append_new(objects, json_object());
    EXPECT_REFUSED(CAIRN_TOO_LARGE, "PUT", WORLD_RUN, json_pack("{s:o}", "labels", objects));
    /* Its thread is counted once it waits again. */
    AWAIT((after = look_at_pool(world.server.pid, "cairn-heavy")).came_back > before.came_back);
}
