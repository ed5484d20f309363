/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/uploader/world.h"

#include "common/log.h"

bool world_await(bool (*cond)(void *owner), void *owner, uint32_t ms) {
    uint64_t since_ms = cairn_test_now_ms();
    while (!cond(owner)) {
        if (cairn_test_now_ms() - since_ms > ms) return false;
        cairn_test_poll_step(since_ms);
    }
    return true;
}

bool world_server_start(struct cairn_up_world *world) {
    char listen[64], store[340], data[300];
    snprintf(listen, sizeof(listen), "--listen=127.0.0.1:%u", world->port);
    snprintf(store, sizeof(store), "--store=%s", world->store_path);
    snprintf(data, sizeof(data), "--data-dir=%s/server", world->folder);
    const char *args[] = {listen, store, data, "--adopt-store=true", NULL};
    struct cairn_daemon_options options = {
        .program = "cairn-server", .folder = world->folder, .args = args, .ready_ms = HANG_MS};
    if (world->passing) options.env = world->passing->env;
    if (cairn_daemon_start(&options, &world->server, &world->err) != CAIRN_OK) {
        fprintf(stderr, "%s\n", world->err.message);
        return false;
    }
    world->port = world->server.port;
    return true;
}

void world_server_kill(struct cairn_up_world *world) {
    cairn_daemon_release(&world->server);
}

bool world_server_restart(struct cairn_up_world *world) {
    world_server_kill(world);
    return world_server_start(world);
}

struct ready {
    struct cairn_up_world *world;
    const char *file;
};
static bool is_ready(void *owner) {
    struct ready *ready = owner;
    return access(ready->file, F_OK) == 0 || cairn_daemon_ended(&ready->world->uploader, 0);
}

bool world_uploader_start(struct cairn_up_world *world, const char *crash_at, const char *fault) {
    char server[64], store[340], state[300], socket[140], file[300], flag[330];
    char crash[200] = "CAIRN_UNSET=1", broken[300] = "CAIRN_UNSET=1";
    snprintf(server, sizeof(server), "--server=http://127.0.0.1:%u", world->port);
    snprintf(store, sizeof(store), "--store=%s", world->store_path);
    snprintf(state, sizeof(state), "--state-dir=%s/state", world->folder);
    snprintf(socket, sizeof(socket), "--socket=%s", world->socket_path);
    snprintf(file, sizeof(file), "%s/ready", world->folder);
    snprintf(flag, sizeof(flag), "--ready-file=%s", file);
    if (crash_at) snprintf(crash, sizeof(crash), "CAIRN_CRASH_AT=%s", crash_at);
    if (fault) snprintf(broken, sizeof(broken), "CAIRN_STORE_FAULT=%s", fault);
    const char *env[10] = {crash, broken};
    for (size_t i = 0; world->passing && world->passing->env[i]; i++)
        env[2 + i] = world->passing->env[i];
    const char *args[24] = {server,
                            store,
                            state,
                            socket,
                            flag,
                            "--node=n1",
                            "--memory-budget=96MiB",
                            "--part-size=1MiB",
                            "--heartbeat=200ms",
                            "--log-level=debug"};
    size_t count = 10;
    for (size_t i = 0; world->uploader_args && world->uploader_args[i]; i++)
        args[count++] = world->uploader_args[i];
    unlink(file);
    struct cairn_daemon_options options = {.program = "cairn-uploader",
                                           .folder = world->folder,
                                           .args = args,
                                           .env = env,
                                           .no_port = true};
    if (cairn_daemon_start(&options, &world->uploader, &world->err) != CAIRN_OK) return false;
    struct ready ready = {world, file};
    return world_await(is_ready, &ready, HANG_MS) && world->uploader.pid;
}

void world_uploader_kill(struct cairn_up_world *world) {
    cairn_daemon_release(&world->uploader);
}

bool world_uploader_restart(struct cairn_up_world *world) {
    world_uploader_kill(world);
    return world_uploader_start(world, NULL, NULL);
}

int world_uploader_stop(struct cairn_up_world *world) {
    int status = cairn_daemon_stop(&world->uploader, SIGTERM, HANG_MS);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool world_s3_rules(struct cairn_up_world *world, const char *rules) {
    struct cairn_rest_options options = {.url = world->s3.url, .timeout_ms = HANG_MS};
    CAIRN_AUTO_PTR(rest) rest = NULL;
    return cairn_rest_new(&options, &rest, &world->err) == CAIRN_OK &&
           cairn_rest_bytes(rest, "POST", "/-/rules", "text/plain", cairn_view_of(rules), NULL,
                            NULL, &world->err) == CAIRN_OK;
}

/* The daemons inherit the keys from this process. */
static bool start_s3(struct cairn_up_world *world) {
    const char *args[] = {"--bucket=lab", "--access-key=AKTEST", "--secret-key=verysecret", NULL};
    struct cairn_daemon_options options = {
        .program = "s3fault", .folder = world->folder, .args = args};
    if (cairn_daemon_start(&options, &world->s3, &world->err) != CAIRN_OK) {
        fprintf(stderr, "%s\n", world->err.message);
        return false;
    }
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    setenv("AWS_ACCESS_KEY_ID", "AKTEST", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "verysecret", 1);
    setenv("AWS_ENDPOINT_URL", world->s3.url, 1);
    snprintf(world->store_path, sizeof(world->store_path), "s3://lab/prod");
    return true;
}

bool world_open(struct cairn_up_world *world, const struct world_options *options) {
    cairn_log_start("test", CAIRN_LOG_ERROR, STDERR_FILENO);
    snprintf(world->folder, sizeof(world->folder), "%s", cairn_test_folder());
    snprintf(world->store_path, sizeof(world->store_path), "%s/store", world->folder);
    snprintf(world->socket_path, sizeof(world->socket_path), "%.90s/up.sock", world->folder);
    snprintf(world->journal_path, sizeof(world->journal_path), "%s/state/n1.journal",
             world->folder);
    world->uploader_args = options->uploader_args;
    world->passing = options->passing;
    if (options->s3_rules && !start_s3(world)) return false;
    if (!world_server_start(world)) return false;
    if (options->no_server) world_server_kill(world);
    if (!world_uploader_start(world, options->crash_at, options->fault)) return false;
    /* Both daemons try the store out when they start; the rules are for what comes after. */
    return !options->s3_rules || world_s3_rules(world, options->s3_rules);
}

void cairn_up_world_release(struct cairn_up_world *world) {
    cairn_daemon_end(&world->uploader);
    EXPECT(!world->uploader.log[0] || !cairn_daemon_logged(&world->uploader, "wait.late"));
    cairn_daemon_end(&world->server);
    cairn_daemon_end(&world->s3);
}

enum cairn_code world_call(struct cairn_up_world *world, const char *method, const char *path,
                           const json_t *body, json_t **ret) {
    struct cairn_rest_options options = {.url = world->server.url, .timeout_ms = HANG_MS};
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_TRY(cairn_rest_new(&options, &rest, &world->err));
    return cairn_rest_call(rest, method, path, body, 0, ret, &world->err);
}

json_t *world_get(struct cairn_up_world *world, const char *path) {
    json_t *reply = NULL;
    return world_call(world, "GET", path, NULL, &reply) ? NULL : reply;
}

json_t *world_post(struct cairn_up_world *world, const char *path, json_t *take_body) {
    CAIRN_AUTO_JSON json_t *body = take_body;
    json_t *reply = NULL;
    return world_call(world, "POST", path, body, &reply) ? NULL : reply;
}

bool world_page(struct cairn_up_world *world, const char *url, const char *path,
                struct cairn_buf *ret) {
    struct cairn_rest_options options = {.url = url, .timeout_ms = HANG_MS};
    CAIRN_AUTO_PTR(rest) rest = NULL;
    enum cairn_code code = cairn_rest_new(&options, &rest, &world->err);
    if (!code)
        code = cairn_rest_bytes(rest, "GET", path, NULL, (struct cairn_view){0}, NULL, ret,
                                &world->err);
    return EXPECT(code == CAIRN_OK);
}

uint64_t world_answered(struct cairn_up_world *world, const char *route) {
    CAIRN_AUTO(buf) page = {.limit = CAIRN_MIB};
    uint64_t sum = 0;
    if (!world_page(world, world->server.url, "/metrics", &page)) return 0;
    const char *wanted = TEXT("\ncairn_http_request_duration_seconds_count{route=\"%s\"", route);
    for (const char *at = page.data; (at = strstr(at, wanted)); at++)
        sum += strtoull(at + strcspn(at, " "), NULL, 10);
    return sum;
}

bool world_await_heartbeats(struct cairn_up_world *world, uint64_t count) {
    uint64_t before = world_answered(world, "node_put");
    return AWAIT(world_answered(world, "node_put") >= before + count);
}

const char *world_state(struct cairn_up_world *world, const char *version, char ret[32]) {
    const char *path = TEXT("/v1/runs/llm/seven/checkpoints/%s", version);
    CAIRN_AUTO_JSON json_t *reply = world_get(world, path);
    const char *state = json_string_value(json_object_get(reply, "state"));
    snprintf(ret, 32, "%s", state ? state : "none");
    return ret;
}

struct awaited {
    struct cairn_up_world *world;
    const char *version, *state;
};
static bool has_state(void *owner) {
    struct awaited *awaited = owner;
    char state[32];
    world_state(awaited->world, awaited->version, state);
    /* A swept version is as aborted as one that waits for its sweep. */
    return !strcmp(state, awaited->state) ||
           (!strcmp(state, "gone") && !strcmp(awaited->state, "aborting"));
}
bool world_await_state(struct cairn_up_world *world, const char *version, const char *state,
                       uint32_t ms) {
    struct awaited awaited = {world, version, state};
    return world_await(has_state, &awaited, ms);
}

/* Live entries of the journal in that file, which no uploader has open. */
static uint64_t live_entries(struct cairn_up_world *world, const char *path) {
    struct cairn_up_journal *journal = NULL;
    struct cairn_up_journal_options options = {.path = path, .node = "n1"};
    if (cairn_up_journal_open(&options, &journal, &world->err) != CAIRN_OK) {
        fprintf(stderr, "%s\n", world->err.message);
        return UINT64_MAX;
    }
    uint64_t count = cairn_up_journal_live_count(journal);
    cairn_up_journal_free(journal);
    return count;
}

uint64_t world_open_entries(struct cairn_up_world *world) {
    return live_entries(world, world->journal_path);
}

uint64_t world_entries_written(struct cairn_up_world *world) {
    CAIRN_AUTO(buf) bytes = {0};
    const char *copy = TEXT("%s.copy", world->journal_path);
    if (cairn_file_load(world->journal_path, &bytes, &world->err) != CAIRN_OK) return UINT64_MAX;
    FILE *file = fopen(copy, "we");
    bool written = file && fwrite(bytes.data, 1, bytes.size, file) == bytes.size;
    if (file && fclose(file)) written = false;
    uint64_t count = written ? live_entries(world, copy) : UINT64_MAX;
    unlink(copy);
    return count;
}

static char temporary[600]; /* the last that was seen; "": none */
static int find_temporary(const char *path, const struct stat *status, int kind,
                          struct FTW *place) {
    (void)status;
    if (kind == FTW_F && strstr(path + place->base, ".tmp"))
        snprintf(temporary, sizeof(temporary), "%s", path);
    return 0;
}

static bool has_no_temporaries(void *owner) {
    const struct cairn_up_world *world = owner;
    temporary[0] = '\0';
    nftw(world->store_path, find_temporary, 16, FTW_PHYS);
    return !temporary[0];
}

const char *world_reason(struct cairn_up_world *world, const char *version) {
    static char reason[1000];
    const char *path = TEXT("/v1/runs/llm/seven/checkpoints/%s", version);
    CAIRN_AUTO_JSON json_t *reply = world_get(world, path);
    const char *said = json_string_value(json_object_get(reply, "reason"));
    snprintf(reason, sizeof(reason), "%s", said ? said : "");
    return reason;
}

void world_expect_drained(struct cairn_up_world *world) {
    EXPECT_EQ_U64(world_uploader_stop(world), 0);
    EXPECT(world_await_no_temporaries(world));
    EXPECT_EQ_U64(world_open_entries(world), 0);
}

bool world_await_no_temporaries(struct cairn_up_world *world) {
    bool none = world_await(has_no_temporaries, world, HANG_MS);
    if (!none) fprintf(stderr, "%s is left over\n", temporary);
    return none;
}
