/* SPDX-License-Identifier: Apache-2.0 */
/* A server that asks for tokens; see office.h. */
#include "tests/server/office.h"

static struct cairn_error err;

void cairn_office_release(struct office *office) {
    EXPECT(!office->admin[0] || !cairn_daemon_logged(&office->world.server, office->admin + 23));
    cairn_world_release(&office->world);
}

bool office_admin(struct office *office) {
    CAIRN_AUTO(buf) line = {0};
    const char *path = TEXT("%s/admin.token", office->world.data_path);
    if (cairn_file_load_line(path, &line, &err)) return false;
    snprintf(office->admin, sizeof(office->admin), "%s", line.data);
    return true;
}

static bool use_token(struct cairn_world *world, const char *token) {
    struct cairn_rest_options options = {.url = world->server.url, .token = token};
    cairn_rest_free(world->rest);
    world->rest = NULL;
    return !cairn_rest_new(&options, &world->rest, &err);
}

bool office_open(struct office *office) {
    return cairn_office_open_with(office, NULL);
}

bool cairn_office_open_with(struct office *office, const char *const *env) {
    return world_start(&office->world,
                       WORLD_ARGS("--require-token", "--log-level=debug", "--sweep-interval=50ms",
                                  "--metrics-runs-max=100"),
                       env) &&
           office_admin(office) && use_token(&office->world, office->admin);
}

int office_say(const struct office *office, const char *token, const char *method, const char *path,
               const char *more, const char *body, struct cairn_buf *ret) {
    CAIRN_AUTO(buf) request = {.limit = CAIRN_MIB}, reply = {.limit = CAIRN_MIB};
    (void)!cairn_buf_printf(&request, NULL, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, path,
                            more ? more : "");
    if (token) (void)!cairn_buf_printf(&request, NULL, "Authorization: Bearer %s\r\n", token);
    if (body || !strcmp(method, "POST"))
        (void)!cairn_buf_printf(&request, NULL,
                                "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                                body ? strlen(body) : 0);
    (void)!cairn_buf_printf(&request, NULL, "\r\n%s", body ? body : "");
    if (strcmp(method, "HEAD") != 0)
        return cairn_raw_exchange(office->world.server.port, request.data, request.size,
                                  ret ? ret : &reply);
    struct cairn_raw raw; /* its Content-Length is that of a body which does not come */
    int status = -1;
    if (!cairn_raw_open(&raw, office->world.server.port)) return -1;
    bool came = cairn_raw_send(&raw, request.data, request.size) &&
                cairn_raw_more(&raw, HANG_MS, ret ? ret : &reply);
    if (came) (void)sscanf((ret ? ret : &reply)->data, "HTTP/1.1 %d", &status);
    cairn_raw_release(&raw);
    return status;
}

bool office_make(struct office *office, const char *scopes, const char *project, uint64_t expires_s,
                 struct made *ret) {
    CAIRN_AUTO_JSON json_t *reply = NULL, *array = NULL;
    unsigned bits = 0;
    if (cairn_scopes_parse(scopes, &bits, &err)) return false;
    array = cairn_scopes_json(bits);
    json_t *body = json_pack("{s:O, s:s}", "scopes", array, "project", project);
    if (expires_s) json_object_set_new(body, "expires_s", json_integer((json_int_t)expires_s));
    if (world_call(&office->world, "POST", "/v1/tokens", body, &reply)) return false;
    snprintf(ret->id, sizeof(ret->id), "%s", world_text(reply, "id"));
    snprintf(ret->text, sizeof(ret->text), "%s", world_text(reply, "token"));
    return true;
}

enum cairn_code office_end(struct office *office, const struct made *made) {
    const char *path = TEXT("/v1/tokens/%s", made->id);
    return world_call(&office->world, "DELETE", path, NULL, NULL);
}

void office_expect(int line, int got, int wanted, const char *what) {
    cairn_test_check(got == wanted, __FILE__, line, "%s: %d, not %d", what, got, wanted);
}

void office_says(int line, const struct office *office, const char *token,
                 const char *const *requests) {
    for (; *requests; requests++) (void)office_answer(line, office, token, *requests);
}

const char *office_answer(int line, const struct office *office, const char *token,
                          const char *request) {
    CAIRN_AUTO(buf) reply = {.limit = CAIRN_MIB};
    char method[16] = "", path[1000] = "";
    int wanted = 0, size = 0;
    (void)sscanf(request, "%d %15s %999s%n", &wanted, method, path, &size);
    const char *body = request[size] ? request + size + 1 : NULL;
    int got = office_say(office, token, method, path, NULL, body, &reply);
    office_expect(line, got, wanted, request);
    return TEXT("%s", reply.data ? reply.data : "");
}

bool office_runs(struct office *office, const char *const *runs) {
    for (; *runs; runs++)
        if (world_call(&office->world, "PUT", TEXT("/v1/runs/%s", *runs), json_object(), NULL))
            return false;
    return true;
}
