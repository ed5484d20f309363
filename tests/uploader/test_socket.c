/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* Bad messages, bad descriptors, bad peers: that session ends, the others do not notice. */

#include "tests/uploader/trainer.h"

static const struct cairn_view none = {NULL, 0};

/* A healthy trainer still saves. */
static void expect_alive(struct cairn_up_world *world, const char *job) {
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(trainer_open(&trainer,
                         &(struct trainer_options){.socket = world->socket_path, .job = job}));
    static uint64_t step;
    COMMITTED(save, &trainer, ++step, 0, 1, 5000);
}

static bool connect_raw(struct cairn_up_world *world, struct cairn_trainer *trainer) {
    return cairn_net_connect_unix(world->socket_path, &trainer->fd, &trainer->err) == CAIRN_OK;
}

TEST(broken_frames_end_their_session_alone) { /* U01 */
    WORLD();
    EACH(one, FIELDS(const char *bytes; size_t size), {"\0\0\0\0\0\0\0\0", 8}, /* no JSON */
         {"\xff\xff\xff\xff\0\0\0\0", 8},                                      /* 4 GiB of JSON */
         {"\x02\0\0\0\xff\xff\xff\xff{}", 10},                                 /* 4 GiB of blob */
         {"\x02\0\0\0\0\0\0\0{}", 10},                                         /* no name */
         {"\x02\0\0\0\0\0\0\0[]", 10},                                         /* no object */
         {"\x08\0\0\0\0\0\0\0{\"t\":1}x", 16},        /* name is no text, JSON is followed */
         {"\x09\0\0\0\0\0\0\0{\"t\":\"x\"}", 17},     /* unknown message */
         {"\x0d\0\0\0\0\0\0\0{\"t\":\"hello\"}", 21}, /* hello without an id */
         {"\x10\0\0\0\0\0\0\0{\"id\":1,\"t\":\"bye\"}", 26},
         /* cut or wrong length */) {
        CAIRN_AUTO(trainer) raw = {0};
        REQUIRE(connect_raw(&world, &raw));
        EXPECT(write(raw.fd, one->bytes, one->size) == (ssize_t)one->size);
        if (!EXPECT(trainer_is_cut(&raw, HANG_MS))) printf("  case %zu\n", AT(one));
    }
    expect_alive(&world, "job-1");
}

TEST(frames_cut_at_each_byte_are_put_together) { /* U01 */
    WORLD();
    CAIRN_AUTO(trainer) raw = {0};
    REQUIRE(connect_raw(&world, &raw));
    CAIRN_AUTO(buf) bytes = {0};
    CAIRN_AUTO_JSON json_t *hello =
        json_pack("{s:s, s:i, s:i, s:i, s:s, s:b}", "t", "hello", "id", 1, "min", 2, "max", 2,
                  "run", "llm/seven", "read_only", 1);
    REQUIRE(cairn_frame_encode(hello, none, &bytes, &raw.err) == CAIRN_OK);
    for (size_t i = 0; i < bytes.size; i++) EXPECT(write(raw.fd, bytes.data + i, 1) == 1);
    EXPECT_EVENT(&raw, "welcome", UINT32_MAX);
    /* Half a frame, then nobody: the uploader forgets it. */
    EXPECT(write(raw.fd, bytes.data, 20) == 20);
    trainer_hang_up(&raw);
    expect_alive(&world, "job-1");
}

TEST(messages_out_of_order_are_refused) { /* U01, uploader/trainers/session.h#1 */
    WORLD();
    EACH_TEXT(text, "attempt", "slabs", "begin", "seal", "offer", "restore", "bye") {
        CAIRN_AUTO(trainer) raw = {0};
        REQUIRE(connect_raw(&world, &raw));
        (void)trainer_call(&raw, json_pack("{s:s}", "t", text));
        if (!EXPECT(trainer_is_cut(&raw, HANG_MS))) printf("  %s before hello\n", text);
    }
    struct trainer_options options = {
        .socket = world.socket_path, .job = "job-1", .no_slabs = true};
    {
        CAIRN_AUTO(trainer) twice = {0};
        REQUIRE(trainer_open(&twice, &options));
        EXPECT(trainer_call(&twice, json_pack("{s:s, s:i, s:i, s:s}", "t", "hello", "min", 2, "max",
                                              1, "run", "llm/seven")) == NULL);
        EXPECT(twice.err.code == CAIRN_PROTOCOL);
        EXPECT(trainer_is_cut(&twice, HANG_MS));
    }
    CAIRN_AUTO(trainer) trainer = {0};
    options.job = "job-2";
    REQUIRE(trainer_open(&trainer, &options));
    EXPECT(trainer_call(&trainer, json_pack("{s:s, s:i}", "t", "seal", "save", 77)) == NULL);
    EXPECT(trainer.err.code == CAIRN_NOT_FOUND);
    BEGUN(save, &trainer, 900, 1);
    EXPECT(trainer_call(&trainer, json_pack("{s:s, s:I, s:i, s:[]}", "t", "stage", "save",
                                            (json_int_t)save.number, "slab", 0, "shards")) == NULL);
    EXPECT(trainer.err.code == CAIRN_INVALID);
    EXPECT(trainer_send(&trainer,
                        json_pack("{s:s, s:I, s:i, s:i}", "t", "staged", "save",
                                  (json_int_t)save.number, "shard", 0, "bytes", 5),
                        none, NULL, 0));
    EXPECT(trainer_is_cut(&trainer, HANG_MS));
    expect_alive(&world, "job-3");
}

TEST(wrong_shards_are_refused_by_name) {
    WORLD();
    TRAINER(trainer, .job = "job-1");
    BEGUN(save, &trainer, 1, 1);
    EACH_TEXT(text, "[{\"name\":\"../x\",\"kind\":\"raw\",\"offset\":0,\"bytes\":1}]",
              "[{\"name\":\"x\",\"kind\":\"other\",\"offset\":0,\"bytes\":1}]",
              "[{\"name\":\"x\",\"kind\":\"raw\",\"offset\":1,\"bytes\":1}]",
              "[{\"name\":\"x\",\"kind\":\"raw\",\"offset\":0,\"bytes\":99999999}]",
              "[{\"name\":\"x\",\"kind\":\"raw\",\"offset\":4611686018427379712,\"bytes\":"
              "4611686018427379712}]",
              "[{\"name\":\"x\",\"kind\":\"raw\",\"offset\":4096,\"bytes\":1},"
              "{\"name\":\"y\",\"kind\":\"raw\",\"offset\":0,\"bytes\":1}]",
              "[{\"name\":\"x\",\"kind\":\"raw\",\"offset\":0}]",
              "[{\"name\":\"rank-00000\",\"kind\":\"raw\",\"offset\":0,\"bytes\":1},"
              "{\"name\":\"rank-00000/x\",\"kind\":\"raw\",\"offset\":4096,\"bytes\":1}]",
              "[{\"name\":\"opt/state\",\"kind\":\"raw\",\"offset\":0,\"bytes\":1},"
              "{\"name\":\"opt\",\"kind\":\"raw\",\"offset\":4096,\"bytes\":1}]") {
        json_t *shards = json_loads(text, 0, NULL);
        EXPECT(trainer_call(&trainer, json_pack("{s:s, s:I, s:i, s:o}", "t", "stage", "save",
                                                (json_int_t)save.number, "slab", 0, "shards",
                                                shards)) == NULL);
        if (!EXPECT(trainer.err.code == CAIRN_INVALID))
            printf("  case %zu: %s\n", AT_OF(text), trainer.err.message);
    }
    REQUIRE(trainer_stage(&trainer, &save, 0, 1, 1000));
    SEAL_AND_COMMIT(save, &trainer);
}

static void offer_refused(struct cairn_up_world *world, int fd, uint64_t bytes, const char *what,
                          enum cairn_code expected) {
    CAIRN_AUTO(trainer) trainer = {0};
    struct stat status = {0};
    fstat(fd, &status);
    REQUIRE(trainer_hello(&trainer,
                          &(struct trainer_options){.socket = world->socket_path, .job = "job-1"}));
    CAIRN_AUTO(frame) frame = {0};
    enum cairn_code code = trainer_ask(
        &trainer,
        json_pack("{s:s, s:I, s:s, s:s, s:[{s:I, s:I, s:I, s:i}], s:[]}", "t", "offer", "attempt",
                  (json_int_t)1, "nonce", "00000000000000000000000000000000", "job", "job-1",
                  "slabs", "bytes", (json_int_t)bytes, "device", (json_int_t)status.st_dev, "inode",
                  (json_int_t)status.st_ino, "owner", 0, "saves"),
        none, &fd, 1, &frame);
    if (!EXPECT(code == expected)) printf("  %s: %s\n", what, trainer.err.message);
}

static void offer_fd(struct cairn_up_world *world, int fd, uint64_t bytes, const char *what) {
    offer_refused(world, fd, bytes, what, CAIRN_PROTOCOL);
}

TEST(n07_descriptors_that_are_no_sealed_memory_are_refused) { /* U02, N07 */
    WORLD();
    uint64_t size = 2 * CAIRN_MIB;
    int sparse = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT(ftruncate(sparse, (off_t)size) == 0 && pwrite(sparse, "x", 1, 4096) == 1);
    EXPECT(fcntl(sparse, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    offer_fd(&world, sparse, size, "with holes");
    close(sparse);
    int unsealed = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT(ftruncate(unsealed, (off_t)size) == 0);
    offer_fd(&world, unsealed, size, "unsealed");
    int brief = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT(ftruncate(brief, 4096) == 0);
    EXPECT(fcntl(brief, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    offer_fd(&world, brief, size, "short");
    int pipes[2];
    EXPECT(pipe2(pipes, O_CLOEXEC) == 0);
    offer_fd(&world, pipes[0], size, "pipe");
    int zero = open("/dev/zero", O_RDWR | O_CLOEXEC),
        dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int path = open("/", O_PATH | O_CLOEXEC);
    offer_fd(&world, zero, size, "/dev/zero");
    offer_fd(&world, dir, size, "folder");
    offer_fd(&world, path, size, "O_PATH");
    close(unsealed);
    close(brief);
    close(pipes[0]);
    close(pipes[1]);
    close(zero);
    close(dir);
    close(path);
    expect_alive(&world, "job-2");
}

TEST(memory_beyond_the_budget_is_refused_before_it_is_looked_at) { /* U02, Q13 */
    WORLD_WITH(.uploader_args = ARGS("--memory-budget=64MiB"));
    uint64_t size = 65 * CAIRN_MIB;
    int whole = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT(posix_fallocate(whole, 0, (off_t)size) == 0);
    EXPECT(fcntl(whole, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    offer_refused(&world, whole, size, "larger than the budget", CAIRN_NO_MEMORY);
    close(whole);
    expect_alive(&world, "job-2");
}

static unsigned fds_of(pid_t pid) {
    unsigned count = 0;
    for (int fd = 0; fd < 512; fd++) {
        const char *path = TEXT("/proc/%d/fd/%d", (int)pid, fd);
        struct stat status;
        if (lstat(path, &status) == 0) count++;
    }
    return count;
}

TEST(descriptors_that_no_message_takes_are_closed) { /* U02 */
    WORLD();
    CAIRN_AUTO(trainer) trainer = {0};
    REQUIRE(trainer_hello(&trainer,
                          &(struct trainer_options){.socket = world.socket_path, .job = "job-1"}));
    int pipes[2];
    EXPECT(pipe2(pipes, O_CLOEXEC) == 0);
    unsigned before = fds_of(world.uploader.pid);
    for (int i = 0; i < 20; i++) {
        int fds[4] = {pipes[0], pipes[1], pipes[0], pipes[1]};
        CAIRN_AUTO(frame) frame = {0};
        (void)!trainer_ask(&trainer, json_pack("{s:s}", "t", "mapped"), none, fds, 4, &frame);
        (void)!trainer_ask(
            &trainer,
            json_pack("{s:s, s:i, s:s, s:i}", "t", "file", "save", 1, "name", "x", "bytes", 5),
            none, fds, 1, NULL);
    }
    EXPECT(fds_of(world.uploader.pid) <= before + 1);
    close(pipes[0]);
    close(pipes[1]);
}

TEST(only_listed_users_may_connect) { /* U03 */
    WORLD();
    if (geteuid() != 0) SKIP("needs root to become somebody else");
    chmod(world.folder, 0755);
    pid_t pid = fork();
    if (!pid) {
        struct cairn_trainer stranger = {0};
        if (setresuid(65534, 65534, 65534) ||
            cairn_net_connect_unix(world.socket_path, &stranger.fd, &stranger.err) != CAIRN_OK)
            _exit(2);
        _exit(trainer_is_cut(&stranger, HANG_MS) ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ_U64((uint64_t)status, 0);
    expect_alive(&world, "job-1");
}

TEST(a_second_uploader_of_the_node_does_not_start) { /* Q15, V19 */
    WORLD();
    struct cairn_daemon first = world.uploader;
    EXPECT(!world_uploader_start(&world, NULL, NULL));
    EXPECT(cairn_daemon_logged(&world.uploader, "uploader of node n1"));
    world.uploader = first;
    expect_alive(&world, "job-1");
}

/* Neither the folder of the journal nor the socket says that they are one node. */
TEST(a_second_uploader_of_the_node_with_other_folders_does_not_start) { /* Q15 */
    WORLD();
    struct cairn_daemon first = world.uploader;
    char state[320], socket[140], server[64];
    snprintf(state, sizeof(state), "--state-dir=%s/other", world.folder);
    snprintf(socket, sizeof(socket), "--socket=%.90s/other.sock", world.folder);
    const char *const args[] = {state, socket, NULL};
    world.uploader_args = args;
    EXPECT(!world_uploader_start(&world, NULL, NULL));
    EXPECT(cairn_daemon_logged(&world.uploader, "uploader of node n1"));
    cairn_daemon_release(&world.uploader);
    /* The same server by another name: known when store.json is read, which is the same. */
    snprintf(server, sizeof(server), "--server=http://localhost:%u", world.port);
    const char *const renamed[] = {state, socket, server, NULL};
    world.uploader_args = renamed;
    (void)world_uploader_start(&world, NULL, NULL);
    EXPECT(cairn_daemon_ended(&world.uploader, HANG_MS));
    EXPECT(cairn_daemon_logged(&world.uploader, "uploader of node n1"));
    world.uploader = first;
    world.uploader_args = NULL;
    expect_alive(&world, "job-1");
    world_uploader_kill(&world);
    REQUIRE(world_uploader_start(&world, NULL, NULL)); /* its name went with it */
    expect_alive(&world, "job-2");
}

TEST(a_peer_that_never_reads_stops_nobody) { /* U03 */
    WORLD();
    CAIRN_AUTO(trainer) deaf = {0};
    REQUIRE(trainer_hello(&deaf,
                          &(struct trainer_options){.socket = world.socket_path, .job = "job-1"}));
    for (int i = 0; i < 20000; i++) {
        json_t *message = json_pack("{s:s, s:i}", "t", "mapped", "id", i + 10);
        CAIRN_AUTO(buf) bytes = {0};
        REQUIRE(cairn_frame_encode(message, none, &bytes, &deaf.err) == CAIRN_OK);
        json_decref(message);
        if (write(deaf.fd, bytes.data, bytes.size) != (ssize_t)bytes.size) break;
    }
    expect_alive(&world, "job-2");
}

/* ---- unfinished frames ---- */

#define GREEDY 4
#define BLOB_BYTES (60 * CAIRN_MIB)
#define ROUNDS 100 /* of each connection's 64 KiB and more, where nothing holds them back */

/* Writes as much as is taken now of a frame of BLOB_BYTES; how much it has written in all. */
static uint64_t push(struct cairn_trainer *trainer, uint64_t *sent, uint64_t end) {
    static const char zeros[1 << 18];
    static const uint8_t head[] = {18, 0, 0, 0, 0, 0, 0xc0, 3}; /* 60 MiB */
    static const char text[] = "{\"t\":\"bye\",\"id\":1}";
    while (*sent < end) {
        const void *from = zeros;
        uint64_t left = cairn_min_u64(sizeof(zeros), end - *sent);
        if (*sent < sizeof(head) + 18) {
            uint8_t start[sizeof(head) + 18];
            memcpy(start, head, sizeof(head));
            memcpy(start + sizeof(head), text, 18);
            return *sent = send(trainer->fd, start, sizeof(start), MSG_DONTWAIT) ==
                                   (ssize_t)sizeof(start)
                               ? sizeof(start)
                               : 0;
        }
        ssize_t size = send(trainer->fd, from, left, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (size <= 0) break;
        *sent += (uint64_t)size;
    }
    return *sent;
}

struct pushing {
    struct cairn_trainer *trainer;
    uint64_t sent, end;
};
static bool is_pushed(void *owner) {
    struct pushing *pushing = owner;
    return push(pushing->trainer, &pushing->sent, pushing->end) == pushing->end;
}

TEST(large_frames_of_one_user_take_turns) { /* socket.h#4 */
    CAIRN_AUTO(up_world) world = {0};
    struct cairn_trainer greedy[GREEDY] = {{0}};
    struct pushing pushing[GREEDY];
    REQUIRE(world_open(&world, &(struct world_options){0})); /* 96 MiB: one such frame */
    const struct trainer_options options = {.socket = world.socket_path, .job = "job-1"};
    for (int i = 0; i < GREEDY; i++) {
        REQUIRE(trainer_hello(&greedy[i], &options));
        pushing[i] = (struct pushing){&greedy[i], 0, 26 + BLOB_BYTES};
    }
    pushing[0].end -= 1; /* it is whole but for its last byte */
    AWAIT(is_pushed(&pushing[0]));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 1; i < GREEDY; i++) (void)is_pushed(&pushing[i]);
        if (round % 10) continue;
        CAIRN_AUTO(trainer) another = {0}; /* all that came before it was looked at */
        REQUIRE(trainer_hello(&another, &options));
    }
    for (int i = 1; i < GREEDY; i++) EXPECT(pushing[i].sent < 2 * CAIRN_MIB);
    for (int i = 0; i < GREEDY; i++) {
        pushing[i].end = 26 + BLOB_BYTES;
        AWAIT(is_pushed(&pushing[i]));
    }
    for (int i = 0; i < GREEDY; i++) cairn_trainer_release(&greedy[i]);
    expect_alive(&world, "job-2");
}

TEST(before_hello_a_frame_is_small) { /* socket.h#3 */
    WORLD();
    CAIRN_AUTO(trainer) raw = {0};
    uint64_t sent = 0;
    REQUIRE(connect_raw(&world, &raw));
    push(&raw, &sent, BLOB_BYTES);
    push(&raw, &sent, BLOB_BYTES);
    EXPECT(trainer_is_cut(&raw, HANG_MS));
    expect_alive(&world, "job-1");
}

/* ---- K08: descriptors ---- */

#define CALLERS 24
#define SPARE 6
#define BEATS 5
#define SPIN_MS 300 /* of CPU in a second; a loop that asks without pause takes a thousand */

static bool say_hello(struct cairn_trainer *caller) {
    CAIRN_AUTO(buf) bytes = {0};
    CAIRN_AUTO_JSON json_t *hello =
        json_pack("{s:s, s:i, s:i, s:i, s:s, s:b}", "t", "hello", "id", 1, "min", 2, "max", 2,
                  "run", "llm/seven", "read_only", 1);
    return cairn_frame_encode(hello, none, &bytes, &caller->err) == CAIRN_OK &&
           write(caller->fd, bytes.data, bytes.size) == (ssize_t)bytes.size;
}

static bool is_welcome(struct cairn_trainer *caller, uint32_t ms) {
    CAIRN_AUTO_JSON json_t *welcome = trainer_event(caller, "welcome", UINT32_MAX, ms);
    return welcome != NULL;
}

TEST(callers_beyond_the_descriptors_wait_without_a_spin_and_are_heard_later) { /* K08 */
    WORLD();
    struct cairn_trainer callers[CALLERS] = {0};
    bool heard[CALLERS] = {false};
    unsigned count = 0;
    REQUIRE(cairn_daemon_spare_files(&world.uploader, SPARE));
    for (size_t i = 0; i < CALLERS; i++) {
        REQUIRE(connect_raw(&world, &callers[i])); /* the kernel takes it */
        REQUIRE(say_hello(&callers[i]));
    }
    REQUIRE_AWAIT(cairn_daemon_logged(&world.uploader, "socket.accept"));
    uint64_t from_ms = cairn_daemon_cpu_ms(&world.uploader), since_ms = cairn_mono_ms();
    uint64_t heard_of = world_answered(&world, "node_put");
    REQUIRE_AWAIT(world_answered(&world, "node_put") >= heard_of + BEATS);
    uint64_t used_ms = cairn_daemon_cpu_ms(&world.uploader) - from_ms;
    uint64_t took_ms = cairn_mono_ms() - since_ms;
    printf("    %" PRIu64 " ms of CPU in %" PRIu64 " ms\n", used_ms, took_ms);
    EXPECT(used_ms * 1000 < SPIN_MS * took_ms);
    for (size_t i = 0; i < CALLERS; i++) {
        heard[i] = is_welcome(&callers[i], 1);
        count += heard[i];
    }
    EXPECT(count > 0 && count < CALLERS); /* a descriptor may have been free again meanwhile */
    REQUIRE(cairn_daemon_spare_files(&world.uploader, -1));
    for (size_t i = 0; i < CALLERS; i++)
        EXPECT(heard[i] || is_welcome(&callers[i], HANG_MS) || trainer_is_cut(&callers[i], 0));
    for (size_t i = 0; i < CALLERS; i++) cairn_trainer_release(&callers[i]);
    expect_alive(&world, "job-1");
}

/* ---- what others do on this host ---- */

/* The name comes first; what listens behind it, a moment later. */
static bool takes_calls(struct cairn_up_world *world) {
    CAIRN_AUTO(trainer) caller = {0};
    return connect_raw(world, &caller);
}

TEST(a_socket_that_somebody_deleted_is_made_again) { /* U06 */
    WORLD();
    TRAINER(old, .job = "job-1");
    for (int i = 0; i < 2; i++) {
        REQUIRE(unlink(world.socket_path) == 0);
        REQUIRE_AWAIT(takes_calls(&world));
        expect_alive(&world, i ? "job-3" : "job-2");
    }
    CAIRN_AUTO_JSON json_t *ok = trainer_call(&old, json_pack("{s:s}", "t", "bye"));
    EXPECT(ok != NULL); /* who was connected goes on */
}

/* Lines of the uploader's log with that event. */
static unsigned lines_of(const struct cairn_up_world *world, const char *event) {
    CAIRN_AUTO(buf) log = {.limit = 64 * CAIRN_MIB};
    unsigned count = 0;
    if (cairn_file_load(world->uploader.log, &log, NULL) != CAIRN_OK) return UINT32_MAX;
    for (const char *at = log.data; at && (at = strstr(at, event)); at++) count++;
    return count;
}

TEST(callers_that_are_turned_away_again_and_again_are_said_once) { /* U07 */
    WORLD();
    if (geteuid() != 0) SKIP("needs root to become somebody else");
    chmod(world.folder, 0755);
    pid_t pid = fork();
    if (!pid) {
        bool cut = setresuid(65534, 65534, 65534) == 0;
        for (int i = 0; i < 200 && cut; i++) {
            struct cairn_trainer stranger = {0};
            cut = cairn_net_connect_unix(world.socket_path, &stranger.fd, &stranger.err) ==
                      CAIRN_OK &&
                  trainer_is_cut(&stranger, HANG_MS);
            close(stranger.fd);
        }
        _exit(cut ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_ALL_U64((uint64_t)status, 0, lines_of(&world, "socket.refused"), 1);
    for (int i = 0; i < 50; i++) { /* and one that says what it may not */
        CAIRN_AUTO(trainer) raw = {0};
        REQUIRE(connect_raw(&world, &raw));
        EXPECT(write(raw.fd, "\0\0\0\0\0\0\0\0", 8) == 8);
        EXPECT(trainer_is_cut(&raw, HANG_MS));
    }
    EXPECT_EQ_U64(lines_of(&world, "session.broken"), 1);
    expect_alive(&world, "job-1");
}

TEST(the_limit_of_descriptors_is_raised_as_far_as_it_may_be) { /* K08 */
    CAIRN_AUTO(up_world) world = {0};
    struct rlimit before, low, now;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    low = (struct rlimit){256, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0); /* the daemons inherit it */
    bool opened = world_open(&world, &(struct world_options){0});
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    REQUIRE(opened);
    REQUIRE(prlimit(world.uploader.pid, RLIMIT_NOFILE, NULL, &now) == 0);
    EXPECT_EQ_U64(now.rlim_cur, before.rlim_max < 1048576 ? before.rlim_max : 1048576);
}

/* How many files of a save were taken before one was refused. */
static unsigned give_files(struct cairn_trainer *trainer, const struct trainer_save *save,
                           const char *path, unsigned most) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    unsigned count = 0;
    enum cairn_code code = fd < 0 ? CAIRN_IO : CAIRN_OK;
    for (; code == CAIRN_OK && count < most; count++) {
        const char *name = TEXT("file-%u", count);
        code = trainer_file(trainer, save->number, name, fd, 5);
    }
    close(fd);
    return code == CAIRN_OK ? count : count - 1;
}

TEST(a_file_that_is_refused_is_closed_once) { /* U02 */
    WORLD();
    const char *path = TEXT("%s/five", world.folder);
    REQUIRE(cairn_file_replace(path, cairn_view_of("12345"), 0644, NULL) == CAIRN_OK);
    TRAINER(trainer, .job = "job-1");
    BEGUN(save, &trainer, 1, 1);
    EXPECT_EQ_U64(give_files(&trainer, &save, path, 1), 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    enum cairn_code code = trainer_file(&trainer, save.number, "file-0/below", fd, 5);
    EXPECT(code == CAIRN_INVALID); /* file-0 is no folder */
    close(fd);
    SEAL_AND_COMMIT(save, &trainer);
}

TEST(a_trainer_with_many_files_leaves_descriptors_to_the_others) { /* K08 */
    WORLD();
    CAIRN_AUTO(trainer) greedy = {0}, other = {0};
    char path[300];
    struct rlimit limit;
    snprintf(path, sizeof path, "%s/five", world.folder);
    REQUIRE(cairn_file_replace(path, cairn_view_of("12345"), 0644, NULL) == CAIRN_OK);
    struct trainer_options options = {.socket = world.socket_path, .job = "job-1"};
    REQUIRE(trainer_open(&greedy, &options));
    REQUIRE(prlimit(world.uploader.pid, RLIMIT_NOFILE, NULL, &limit) == 0);
    limit.rlim_cur = 400;
    REQUIRE(prlimit(world.uploader.pid, RLIMIT_NOFILE, &limit, NULL) == 0);
    int nameless = memfd_create("no name", MFD_CLOEXEC); /* so it cannot be opened again */
    REQUIRE(nameless >= 0 && write(nameless, "12345", 5) == 5);
    snprintf(path, sizeof path, "/proc/self/fd/%d", nameless);
    BEGUN(many, &greedy, 1, 1);
    unsigned taken = give_files(&greedy, &many, path, 500);
    EXPECT(taken > 20 && taken < 400);
    EXPECT(greedy.err.code == CAIRN_BUSY);
    options.job = "job-2";
    options.run = "llm/eight";
    REQUIRE(trainer_open(&other, &options));
    BEGUN(few, &other, 1, 1);
    EXPECT_EQ_U64(give_files(&other, &few, path, 20), 20);
    close(nameless);
    COMMIT(few, &other, 2, 0, 1, 5000);
}

TEST(a_trainer_saves_three_times_as_many_files_as_there_are_descriptors) { /* U10, K08 */
    WORLD();
    struct rlimit limit;
    const char *path = TEXT("%s/five", world.folder);
    REQUIRE(cairn_file_replace(path, cairn_view_of("12345"), 0644, NULL) == CAIRN_OK);
    TRAINER(trainer, .job = "job-1");
    REQUIRE(prlimit(world.uploader.pid, RLIMIT_NOFILE, NULL, &limit) == 0);
    limit.rlim_cur = 512;
    REQUIRE(prlimit(world.uploader.pid, RLIMIT_NOFILE, &limit, NULL) == 0);
    BEGUN(save, &trainer, 1, 1);
    EXPECT_EQ_U64(give_files(&trainer, &save, path, 1536), 1536);
    SEAL_AND_COMMIT(save, &trainer);
}

TEST(a_journal_of_another_node_name_is_named) {
    WORLD();
    EXPECT(!cairn_daemon_logged(&world.uploader, "journal.other_node"));
    EXPECT_EQ_U64((uint64_t)world_uploader_stop(&world), 0);
    world.uploader_args = ARGS("--node=n2");
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT(cairn_daemon_logged(&world.uploader, "journal.other_node"));
    EXPECT(cairn_daemon_logged(&world.uploader, "n1.journal"));
    EXPECT(cairn_daemon_logged(&world.uploader, "node=n2 host="));
    EXPECT(cairn_daemon_logged(&world.uploader, "other_node=n1"));
    EXPECT_EQ_U64((uint64_t)world_uploader_stop(&world), 0);
    REQUIRE(world_uploader_start(&world, NULL, NULL)); /* by now it has one of its own */
    expect_alive(&world, "job-1");
}
