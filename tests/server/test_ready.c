/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* Shards of a folder that memory holds, as the thread that sends them reads them (stream.h#4). */
#include <linux/magic.h>
#include <sys/uio.h>

#include "tests/server/world.h"

#define SIZE (9 * CAIRN_MIB + 5)
#define LONG_SIZE (40 * CAIRN_MIB) /* more than the buffers of a connection hold */
#define SILENT_MS 2000             /* stream.h#3 */
#define TRIES 20                   /* the system may take a page away at any moment */

/* ---- the shard's file ---- */

struct shard {
    struct cairn_world *world;
    struct cairn_hand_save save;
    char path[1600];
    size_t size;
};

/* One committed version of one shard. */
static bool saved(struct cairn_world *world, size_t size, struct shard *ret) {
    static struct cairn_hand hand;
    *ret = (struct shard){.world = world, .size = size};
    if (hand_open(world, &hand, "j1", 0, "latest", 1) ||
        hand_save_all(&hand, 1, 1, "error", size, &ret->save))
        return false;
    snprintf(ret->path, sizeof(ret->path), "%s", hand_file(&ret->save));
    return !chmod(ret->path, 0600);
}

/* Is the file's last byte in memory? -1: its file system does not say so. */
static int is_ready(const struct shard *shard) {
    CAIRN_AUTO_FD fd = open(shard->path, O_RDONLY | O_CLOEXEC);
    struct statfs system;
    char byte;
    struct iovec piece = {&byte, 1};
    if (fd < 0 || fstatfs(fd, &system)) return -1;
    if (system.f_type == TMPFS_MAGIC) return 1;
    if (preadv2(fd, &piece, 1, (off_t)shard->size - 1, RWF_NOWAIT) == 1) return 1;
    return errno == EAGAIN ? 0 : -1;
}

static bool bring_into_memory(const struct shard *shard) {
    static char bytes[CAIRN_MIB];
    CAIRN_AUTO_FD fd = open(shard->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    while (read(fd, bytes, sizeof(bytes)) > 0) continue;
    return is_ready(shard) == 1;
}

#define NEED_READY(shard)                                                                          \
    do {                                                                                           \
        if (is_ready(shard) < 0) SKIP("this file system does not say what memory holds");          \
    } while (0)

/* ---- what is asked ---- */

/* How many bytes went that way since the server's start. */
static uint64_t ready_bytes(const struct cairn_world *world) {
    CAIRN_AUTO(buf) reply = {.limit = CAIRN_MIB};
    if (world_ask(world, "GET", "/metrics", "", NULL, &reply) != 200) return UINT64_MAX;
    const char *at = strstr(reply.data, "\ncairn_read_ready_bytes_total ");
    return at ? strtoull(strchr(at, ' ') + 1, NULL, 10) : 0;
}

static const char *request_of(const struct shard *shard, const char *range) {
    return TEXT("GET %s/shards/rank-00000%%2Fx/data HTTP/1.1\r\nHost: localhost\r\nConnection: "
                "close\r\n%s%s%s\r\n",
                shard->save.path, *range ? "Range: bytes=" : "", range, *range ? "\r\n" : "");
}

static int ask(const struct shard *shard, const char *range, struct cairn_buf *ret) {
    ret->limit = 2 * LONG_SIZE;
    return world_raw(shard->world, request_of(shard, range), ret);
}

/* The bytes of a reply that may have been cut are the shard's from `begin` on; how many there are,
 * or SIZE_MAX. */
static size_t right_bytes(const struct shard *shard, const struct cairn_buf *reply, size_t begin) {
    const char *end = reply->data ? strstr(reply->data, "\r\n\r\n") : NULL;
    CAIRN_AUTO_HEAP uint8_t *wanted = malloc(shard->size);
    if (!end || !wanted) return SIZE_MAX;
    size_t size = reply->size - (size_t)(end + 4 - reply->data);
    hand_fill(wanted, shard->size, 1);
    bool right = size <= shard->size - begin && !memcmp(end + 4, wanted + begin, size);
    return right ? size : SIZE_MAX;
}

/* A reader that has begun and takes no more for now. */
struct slow {
    struct cairn_raw raw;
    struct cairn_buf taken;
};
static bool begin_slowly(const struct shard *shard, const char *range, struct slow *ret) {
    *ret = (struct slow){.raw = {.fd = -1}, .taken = {.limit = 2 * LONG_SIZE}};
    return cairn_raw_open(&ret->raw, shard->world->server.port) &&
           cairn_raw_text(&ret->raw, request_of(shard, range)) &&
           cairn_raw_more(&ret->raw, HANG_MS, &ret->taken) &&
           !strncmp(ret->taken.data, "HTTP/1.1 20", 11);
}

/* What it took until the end, right as above. */
static size_t go_on(const struct shard *shard, struct slow *slow) {
    while (cairn_raw_more(&slow->raw, HANG_MS, &slow->taken)) continue;
    size_t size = right_bytes(shard, &slow->taken, 0);
    cairn_raw_release(&slow->raw);
    cairn_buf_release(&slow->taken);
    return size;
}

/* Waits until a reader that does not read holds up the server: no more bytes go that way. */
static void wait_until_full(const struct cairn_world *world) {
    uint64_t before = UINT64_MAX;
    for (uint64_t now; (now = ready_bytes(world)) != before; before = now)
        cairn_test_pause_ms(200); /* step of a poll */
}

/* ---- */

static const struct {
    const char *range;
    uint64_t begin, end;
    uint64_t ready; /* of these; the first block, and what ends within one, goes the other way */
} ranges[] = {
    {"", 0, SIZE, SIZE - CAIRN_MIB},
    {"1048576-", 1048576, SIZE, SIZE - 2 * CAIRN_MIB},
    {"1048575-5242879", 1048575, 5 * CAIRN_MIB, 4 * CAIRN_MIB},
    {"5-4194303", 5, 4 * CAIRN_MIB, 0}, /* a single chunk */
    {"0-4194304", 0, 4 * CAIRN_MIB + 1, 3 * CAIRN_MIB},
    {"0-8388606", 0, 8 * CAIRN_MIB - 1, 6 * CAIRN_MIB},
    {"0-1048575", 0, CAIRN_MIB, 0},
    {"-6", SIZE - 6, SIZE, 0},
    {"5242879-", 5 * CAIRN_MIB - 1, SIZE, 4 * CAIRN_MIB + 5},
};

/* A world with one shard of that many bytes, which memory may hold. */
#define SHARD(bytes, ...)                                                                          \
    struct shard shard;                                                                            \
    WORLD(__VA_ARGS__);                                                                            \
    REQUIRE(saved(&world, bytes, &shard))

TEST(what_memory_holds_is_read_by_who_sends_it_and_every_byte_is_right) { /* stream.h#4, P3 */
    SHARD(SIZE);
    NEED_READY(&shard);
    for (size_t i = 0; i < CAIRN_COUNT(ranges); i++) {
        uint64_t size = ranges[i].end - ranges[i].begin, ready = UINT64_MAX;
        for (size_t k = 0; k < TRIES && ready != ranges[i].ready; k++) {
            CAIRN_AUTO(buf) reply = {0};
            (void)bring_into_memory(&shard);
            uint64_t before = ready_bytes(&world);
            EXPECT_EQ_U64((uint64_t)ask(&shard, ranges[i].range, &reply),
                          *ranges[i].range ? 206 : 200);
            EXPECT_EQ_U64(right_bytes(&shard, &reply, ranges[i].begin), size);
            ready = ready_bytes(&world) - before;
        }
        cairn_test_check(ready == ranges[i].ready, __FILE__, __LINE__, "%s: %llu ready",
                         ranges[i].range, (unsigned long long)ready);
    }
}

TEST(none_of_it_is_read_so_where_the_setting_is_0) {
    SHARD(SIZE, "--ready-streams-max=0");
    (void)bring_into_memory(&shard);
    CAIRN_AUTO(buf) reply = {0};
    EXPECT(ask(&shard, "", &reply) == 200);
    EXPECT_ALL_U64(right_bytes(&shard, &reply, 0), SIZE, ready_bytes(&world), 0);
}

TEST(a_block_that_is_wrong_in_memory_never_leaves_and_is_named) { /* P3, stream.h#4 */
    SHARD(SIZE);
    NEED_READY(&shard);
    REQUIRE(cairn_flip_byte(shard.path, 5 * CAIRN_MIB + 77));
    for (size_t i = 0; i < TRIES && ready_bytes(&world) < 4 * CAIRN_MIB; i++) {
        CAIRN_AUTO(buf) reply = {0};
        (void)bring_into_memory(&shard);
        EXPECT(ask(&shard, "", &reply) == 200);
        EXPECT(strstr(reply.data, "Content-Length: 9437189\r\n"));
        EXPECT(right_bytes(&shard, &reply, 0) <= 5 * CAIRN_MIB);
    }
    EXPECT(ready_bytes(&world) >= 4 * CAIRN_MIB);
    EXPECT(cairn_daemon_logged(&world.server, "read.broken"));
    EXPECT(cairn_daemon_logged(&world.server, "bytes 5242880-6291455: expected CRC32C"));
    CAIRN_AUTO(buf) rest = {0};
    EXPECT(ask(&shard, "5242880-", &rest) == 502); /* who goes on where it was cut */
    EXPECT(strstr(rest.data, "store-corrupt") != NULL);
}

TEST(a_shard_that_is_cut_short_while_it_is_sent_breaks_the_connection) { /* P3 */
    struct slow slow;
    SHARD(LONG_SIZE);
    NEED_READY(&shard);
    (void)bring_into_memory(&shard);
    REQUIRE(begin_slowly(&shard, "", &slow));
    wait_until_full(&world);
    REQUIRE(!truncate(shard.path, LONG_SIZE / 2 + 1000));
    size_t size = go_on(&shard, &slow);
    EXPECT(size >= CAIRN_MIB);
    EXPECT(size <= LONG_SIZE / 2);
    EXPECT(cairn_daemon_logged(&world.server, "read.broken"));
}

TEST(what_memory_has_lost_while_a_shard_is_sent_is_read_from_the_store) { /* stream.h#4 */
    struct slow slow;
    SHARD(LONG_SIZE);
    NEED_READY(&shard);
    (void)bring_into_memory(&shard);
    REQUIRE(begin_slowly(&shard, "", &slow));
    wait_until_full(&world);
    CAIRN_AUTO_FD fd = open(shard.path, O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0 && !fsync(fd) && !posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    bool is_lost = is_ready(&shard) == 0; /* never of a tmpfs */
    EXPECT_EQ_U64(go_on(&shard, &slow), LONG_SIZE);
    if (is_lost) EXPECT(ready_bytes(&world) < LONG_SIZE - 2 * CAIRN_MIB);
}

TEST(no_more_shards_than_ready_streams_max_are_read_so_at_once) { /* R6, stream.h */
    struct slow slow;
    SHARD(LONG_SIZE, "--ready-streams-max=1");
    NEED_READY(&shard);
    bool is_one = false;
    for (size_t i = 0; i < TRIES && !is_one; i++) {
        CAIRN_AUTO(buf) reply = {0};
        (void)bring_into_memory(&shard);
        uint64_t before = ready_bytes(&world);
        REQUIRE(begin_slowly(&shard, "", &slow));
        wait_until_full(&world);
        uint64_t first = ready_bytes(&world);
        is_one = first > before;
        EXPECT(ask(&shard, "", &reply) == 200);
        EXPECT_EQ_U64(right_bytes(&shard, &reply, 0), LONG_SIZE);
        if (is_one) EXPECT_EQ_U64(ready_bytes(&world), first);
        EXPECT_EQ_U64(go_on(&shard, &slow), LONG_SIZE);
    }
    EXPECT(is_one);
    bool again = false; /* the place is given back when the reply has ended */
    for (size_t i = 0; i < TRIES && !again; i++) {
        CAIRN_AUTO(buf) reply = {0};
        (void)bring_into_memory(&shard);
        uint64_t before = ready_bytes(&world);
        EXPECT(ask(&shard, "", &reply) == 200);
        again = ready_bytes(&world) > before;
        if (!again) cairn_test_pause_ms(20); /* step of a poll */
    }
    EXPECT(again);
}

/* A range that ends within a block needs a slot for the last one. Here its slot has gone to another
 * reader, who takes nothing either: it gets one when that one has been silent for a while. */
TEST(who_lent_its_slot_while_it_needed_none_gets_one_for_what_is_not_ready) { /* stream.h#3, #4 */
    struct slow ready, other;
    SHARD(LONG_SIZE, "--streams-max=1", "--ready-streams-max=1", "--request-timeout=10min");
    NEED_READY(&shard);
    (void)bring_into_memory(&shard);
    REQUIRE(begin_slowly(&shard, "0-41943038", &ready));
    wait_until_full(&world);
    uint64_t before_ms = cairn_mono_ms();
    REQUIRE(begin_slowly(&shard, "", &other));
    EXPECT_EQ_U64(go_on(&shard, &ready), LONG_SIZE - 1);
    EXPECT(cairn_mono_ms() - before_ms >= SILENT_MS);
    EXPECT_EQ_U64(go_on(&shard, &other), LONG_SIZE);
}
