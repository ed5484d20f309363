/* SPDX-License-Identifier: Apache-2.0 */
/* s3world: starts the server, opens the store, asks the server what it saw. */
#include "tests/support/s3world.h"

#include <sys/mman.h>

#include "common/json.h"
#include "common/log.h"
#include "tests/harness.h"

static int log_fd = -1;

/* ---- secrets in the log ---- */

/* Where it stands, unless what follows it is hidden. */
static const char *find_in_log(const char *bytes, size_t size, const char *text, bool shown_only) {
    static const char hidden[] = "<hidden>";
    const char *end = bytes + size, *at = bytes;
    while ((at = memmem(at, (size_t)(end - at), text, strlen(text)))) {
        const char *value = at + strlen(text);
        bool is_hidden =
            (size_t)(end - value) >= sizeof hidden - 1 && !memcmp(value, hidden, sizeof hidden - 1);
        if (!shown_only || !is_hidden) return at;
        at = value;
    }
    return NULL;
}

static void expect_absent(const char *bytes, size_t size, const char *text, bool shown_only) {
    const char *at = find_in_log(bytes, size, text, shown_only);
    if (EXPECT(!at)) return;
    while (at > bytes && at[-1] != '\n') at--;
    int length = (int)cairn_min_u64(300, (uint64_t)(bytes + size - at));
    fprintf(stderr, "the log holds %s: %.*s\n", text, length, at);
}

/* Keys, tokens, signatures: none may be there, encoded or not. */
static void expect_clean_log(bool traced) {
    off_t size = lseek(log_fd, 0, SEEK_END);
    if (size <= 0) return;
    char *bytes = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, log_fd, 0);
    if (!EXPECT(bytes != MAP_FAILED)) return;
    EACH_TEXT(text, CAIRN_S3WORLD_SECRET, "canary%2Bsecret", CAIRN_S3WORLD_TOKEN,
              "canary%2Fsession", "Signature%3D")
        expect_absent(bytes, (size_t)size, text, false);
    EACH_TEXT(one, "Signature=", "Credential=", "Token=", "Authorization: ")
        expect_absent(bytes, (size_t)size, one, true);
    /* It was at trace level. */
    EXPECT(!traced || find_in_log(bytes, (size_t)size, "HTTP/1.1", false));
    munmap(bytes, (size_t)size);
    EXPECT(ftruncate(log_fd, 0) == 0);
}

static void begin_log(void) {
    if (log_fd >= 0) return;
    log_fd = memfd_create("log", MFD_CLOEXEC);
    if (log_fd < 0 || fcntl(log_fd, F_SETFL, O_APPEND) != 0) abort();
    cairn_log_start("s3faults", CAIRN_LOG_DEBUG, log_fd);
}

/* ---- life ---- */

static void set_keys(const struct cairn_s3world_options *options) {
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    if (options->own_keys) return;
    setenv("AWS_ACCESS_KEY_ID", CAIRN_S3WORLD_ACCESS, 1);
    setenv("AWS_SECRET_ACCESS_KEY", CAIRN_S3WORLD_SECRET, 1);
    if (options->token)
        setenv("AWS_SESSION_TOKEN", CAIRN_S3WORLD_TOKEN, 1);
    else
        unsetenv("AWS_SESSION_TOKEN");
}

static enum cairn_code start_server(struct cairn_s3world *world,
                                    const struct cairn_s3world_options *options) {
    char page[16];
    snprintf(page, sizeof page, "%u", options->page_max ? options->page_max : 1000);
    const char *seed = TEXT("%" PRIu64, (options->seed ? options->seed : cairn_test_seed()) >> 1);
    const char *args[32] = {"--access-key", CAIRN_S3WORLD_ACCESS,
                            "--secret-key", CAIRN_S3WORLD_SECRET,
                            "--bucket",     "lab",
                            "--page-max",   page,
                            "--seed",       seed,
                            "--region",     options->region ? options->region : "us-east-1",
                            "--profile",    options->profile ? options->profile : "aws"};
    size_t count = 14;
    if (options->token) {
        args[count++] = "--session-token";
        args[count++] = CAIRN_S3WORLD_TOKEN;
    }
    if (options->rules) {
        args[count++] = "--rules";
        args[count++] = options->rules;
    }
    if (options->receive_buffer) {
        args[count++] = "--receive-buffer";
        args[count++] = options->receive_buffer;
    }
    if (options->tls_certificate) {
        args[count++] = "--tls-cert";
        args[count++] = options->tls_certificate;
        args[count++] = "--tls-key";
        args[count++] = options->tls_key;
    }
    struct cairn_daemon_options daemon = {
        .program = "s3fault", .folder = cairn_test_folder(), .args = args};
    CAIRN_TRY(cairn_daemon_start(&daemon, &world->daemon, &world->error));
    if (options->tls_certificate)
        snprintf(world->ca_bundle, sizeof world->ca_bundle, "%s", options->tls_certificate);
    snprintf(world->endpoint, sizeof world->endpoint, "%s://%s:%u",
             options->tls_certificate ? "https" : "http",
             options->host ? options->host : "127.0.0.1", world->daemon.port);
    return CAIRN_OK;
}

enum cairn_code cairn_s3world_open(struct cairn_s3world *world,
                                   const struct cairn_s3world_options *options) {
    struct cairn_store_s3_options s3 = options->s3;
    cairn_store_worker_free(CAIRN_TAKE(world->worker));
    cairn_store_free(CAIRN_TAKE(world->store));
    world->elsewhere = s3.endpoint != NULL;
    if (!s3.endpoint) s3.endpoint = world->endpoint;
    if (!s3.region) s3.region = "us-east-1";
    s3.verbose_trace = true;
    struct cairn_store_options open = {.url = "s3://lab/base", .s3 = &s3};
    if (options->virtual_clock) open.clock = &world->clock.clock;
    CAIRN_TRY(cairn_store_s3_open(&open, &world->store, &world->error));
    return cairn_store_worker_new(world->store, &world->worker, &world->error);
}

enum cairn_code cairn_s3world_start(struct cairn_s3world *world,
                                    const struct cairn_s3world_options *options) {
    begin_log();
    set_keys(options);
    cairn_clock_virtual_init(&world->clock, cairn_clock_real.wall_ms(&cairn_clock_real));
    CAIRN_TRY(start_server(world, options));
    return options->no_store ? CAIRN_OK : cairn_s3world_open(world, options);
}

void cairn_s3world_release(struct cairn_s3world *world) {
    bool used = world->worker != NULL;
    if (world->worker) cairn_store_worker_free(world->worker);
    if (world->store) cairn_store_free(world->store);
    cairn_daemon_end(&world->daemon);
    if (used) expect_clean_log(!world->elsewhere);
}

/* ---- asking and steering ---- */

/* Past the store, over a connection of its own, without a trace. */
static bool talk(struct cairn_s3world *world, const char *method, const char *what,
                 struct cairn_view body, struct cairn_buf *ret) {
    struct cairn_http_engine *engine = NULL;
    struct cairn_http_options options = {0};
    struct cairn_error err = {0};
    char url[300], port[64];
    bool tls = world->ca_bundle[0];
    if (tls) options.ca_bundle = world->ca_bundle;
    snprintf(port, sizeof port, "%s", strrchr(world->endpoint, ':') + 1);
    snprintf(url, sizeof url, "http%s://127.0.0.1:%s/-/%s", tls ? "s" : "", port, what);
    if (cairn_http_engine_new(&options, &engine, &err) != CAIRN_OK) return false;
    ret->limit = 64 * CAIRN_MIB;
    struct cairn_http_request request = {.method = method,
                                         .url = url,
                                         .body = body,
                                         .has_body = strcmp(method, "GET") != 0,
                                         .reply_buf = ret,
                                         .total_ms = HANG_MS};
    bool good = cairn_http_perform(engine, &request, &err) == CAIRN_OK && request.status == 200;
    if (!good) fprintf(stderr, "s3fault %s: %d %s\n", what, request.status, err.message);
    cairn_http_engine_free(engine);
    return good;
}

void cairn_s3world_post(struct cairn_s3world *world, const char *what, const char *body) {
    CAIRN_AUTO(buf) answer = {0};
    bool is_taken = talk(world, "POST", what, cairn_view_of(body), &answer);
    EXPECT(is_taken);
}

void cairn_s3world_rules(struct cairn_s3world *world, const char *rules) {
    cairn_s3world_post(world, "rules", rules);
}

static json_t *load_state(struct cairn_s3world *world) {
    CAIRN_AUTO(buf) text = {0};
    if (!talk(world, "GET", "state", (struct cairn_view){0}, &text)) return NULL;
    return json_loadb(text.data, text.size, 0, NULL);
}

uint64_t cairn_s3world_counter(struct cairn_s3world *world, const char *name) {
    CAIRN_AUTO_JSON json_t *state = load_state(world);
    return (uint64_t)json_integer_value(json_object_get(json_object_get(state, "counters"), name));
}

uint64_t cairn_s3world_acted(struct cairn_s3world *world, unsigned rule_index) {
    CAIRN_AUTO_JSON json_t *state = load_state(world);
    json_t *rule = json_array_get(json_object_get(state, "rules"), rule_index);
    return (uint64_t)json_integer_value(json_object_get(rule, "acted"));
}

uint64_t cairn_s3world_open_uploads(struct cairn_s3world *world) {
    CAIRN_AUTO_JSON json_t *state = load_state(world);
    return state ? json_array_size(json_object_get(state, "uploads")) : UINT64_MAX;
}

static const char *text_of(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

bool cairn_s3world_object(struct cairn_s3world *world, const char *key,
                          struct cairn_s3world_object *ret) {
    CAIRN_AUTO_JSON json_t *state = load_state(world);
    size_t i;
    json_t *object;
    const char *full = TEXT("base/%s", key);
    json_array_foreach(json_object_get(state, "objects"), i, object) {
        if (strcmp(text_of(object, "key"), full) != 0) continue;
        ret->size = (uint64_t)json_integer_value(json_object_get(object, "size"));
        ret->crc32c = (uint32_t)strtoul(text_of(object, "crc32c"), NULL, 16);
        snprintf(ret->token, sizeof ret->token, "%s",
                 text_of(json_object_get(object, "meta"), "cairn-upload"));
        return true;
    }
    return false;
}

/* Calls on each line of the journal. */
static void each_line(struct cairn_s3world *world, void (*on_line)(const json_t *line, void *owner),
                      void *owner) {
    CAIRN_AUTO(buf) text = {0};
    if (!talk(world, "GET", "journal", (struct cairn_view){0}, &text) || !text.size) return;
    char *rest = text.data;
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
        CAIRN_AUTO_JSON json_t *json = json_loads(line, 0, NULL);
        if (json) on_line(json, owner);
    }
}

struct asked {
    const char *op, *field;
    int status;
    uint64_t count;
    char *text;
};

static void count_line(const json_t *line, void *owner) {
    struct asked *asked = owner;
    if (strcmp(text_of(line, "op"), asked->op) != 0) return;
    int status = (int)json_integer_value(json_object_get(line, "status"));
    if (!asked->status || asked->status == status) asked->count++;
    if (!asked->field) return;
    const json_t *value = json_object_get(line, asked->field);
    if (json_is_integer(value))
        snprintf(asked->text, 256, "%lld", (long long)json_integer_value(value));
    else
        snprintf(asked->text, 256, "%s", text_of(line, asked->field));
}

uint64_t cairn_s3world_journaled(struct cairn_s3world *world, const char *op, int status) {
    struct asked asked = {.op = op, .status = status};
    each_line(world, count_line, &asked);
    return asked.count;
}

void cairn_s3world_last(struct cairn_s3world *world, const char *op, const char *field,
                        char ret_text[256]) {
    struct asked asked = {.op = op, .field = field, .text = ret_text};
    ret_text[0] = '\0';
    each_line(world, count_line, &asked);
}
