/* SPDX-License-Identifier: Apache-2.0 */
/* A call is: headers, one request on the engine, then a judgement of the reply; with a list of
 * servers, again on the next server if one is unavailable. No reply, a problem body and a reply
 * that is neither all end as one struct cairn_error. */
#include "api/wire/rest.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/text.h"

#define REPLY_BYTES_MAX (64 * CAIRN_MIB)
#define REPLY_NODES_MAX 4000000
#define ERROR_BODY_BYTES_MAX CAIRN_MIB
#define AUTHORIZATION "Authorization: Bearer "
#define KEY_HEADER "Idempotency-Key: "
#define PROBLEM_TYPE "urn:cairn:problem:"
#define ANSWER_MS 10000 /* beyond the time that a server was asked to wait */

/* For lists of servers. Connecting succeeds despite one lost packet, or the next server is tried. A
 * call that waits for a commit is silent for long, so after QUIET_MS_MAX /livez is probed, which a
 * busy machine answers within tens of milliseconds. Shorter calls use less, so that every server
 * gets a turn within the call's time. A server that has not answered yet gets UNHEARD_MS_MAX, since
 * a command is one process and would wait that long at each start. */
#define CONNECT_MS 2000
#define QUIET_MS_MAX 5000
#define LIVEZ_MS_MAX 2000
#define UNHEARD_MS_MAX 500 /* replaces both for a server not heard yet */
#define RETRY_AFTER_S_MAX 3600
#define HELD_MS 200 /* longer than a refusal takes */
#define VERSION_MS 5000

struct cairn_rest {
    struct cairn_http_engine *engine;
    struct cairn_servers servers;
    struct cairn_rest_seen *seen, own_seen;
    const char *name;    /* of the server called last, for messages */
    char *authorization; /* the whole header line, or NULL */
    char *token_file;    /* or NULL */
    bool keys_posts;
    char *grant;    /* the whole header line, or NULL */
    char *if_match; /* the whole header line, or NULL */
    uint32_t timeout_ms;
    json_t *problem;
};

struct call {
    struct cairn_http_request request;
    size_t authorization; /* its index in headers */
    struct cairn_buf url, range, type, reply;
    const char *headers[8];
    char trace[CAIRN_TRACE_HEADER_BYTES];
    char key[sizeof KEY_HEADER + CAIRN_UUID_TEXT_BYTES]; /* "": no key */
    uint32_t wait_ms; /* time the server may hold the call; 0: not asked to */
    bool json_reply, problem_reply;
    uint64_t retry_after_s;         /* 0: not sent */
    char location[160], server[40]; /* of a reply that is not Cairn's; "": absent */
};

static void cairn_call_release(struct call *call) {
    cairn_buf_release(&call->url);
    cairn_buf_release(&call->range);
    cairn_buf_release(&call->type);
    cairn_buf_release(&call->reply);
}
#define AUTO_CALL __attribute__((cleanup(cairn_call_release))) struct call

static void free_secret(char **text) {
    if (*text) explicit_bzero(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

/* Makes a header line with a secret; refuses control bytes, which would end the line. */
static enum cairn_code make_secret_line(const char *start, const char *secret, char **ret,
                                        struct cairn_error *err) {
    if (!secret) return CAIRN_OK;
    for (const char *at = secret; *at; at++)
        if (*at <= ' ' || *at > '~')
            return cairn_fail(err, CAIRN_INVALID,
                              "the credential holds a byte that no header takes");
    size_t size = strlen(start) + strlen(secret) + 1;
    *ret = malloc(size);
    if (!*ret) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a credential");
    snprintf(*ret, size, "%s%s", start, secret);
    return CAIRN_OK;
}

/* *ret stays NULL if the file is empty. An absent file is CAIRN_INVALID, a wrong setting, since
 * CAIRN_NOT_FOUND would be taken for an absent checkpoint. */
static enum cairn_code load_token(const char *path, char **ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) token = {.limit = CAIRN_REST_TOKEN_BYTES_MAX};
    enum cairn_code code = cairn_file_load_secret_line(path, &token, err);
    if (!code && token.size) code = make_secret_line(AUTHORIZATION, token.data, ret, err);
    if (token.data) explicit_bzero(token.data, token.size);
    return code ? cairn_within(err, CAIRN_INVALID, "the token file") : CAIRN_OK;
}

enum cairn_code cairn_rest_new(const struct cairn_rest_options *options, struct cairn_rest **ret,
                               struct cairn_error *err) {
    CAIRN_AUTO_PTR(rest) rest = calloc(1, sizeof *rest);
    if (!rest) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a server connection");
    rest->timeout_ms = options->timeout_ms ? options->timeout_ms : CAIRN_REST_TIMEOUT_MS;
    rest->keys_posts = options->keys_posts;
    rest->seen = options->seen ? options->seen : &rest->own_seen;
    CAIRN_TRY(cairn_servers_parse(options->url, &rest->servers, err));
    rest->name = rest->servers.places[0].name;
    CAIRN_TRY(make_secret_line(AUTHORIZATION, options->token, &rest->authorization, err));
    if (options->token_file && options->token_file[0]) {
        rest->token_file = strdup(options->token_file);
        if (!rest->token_file) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a path");
        if (!rest->authorization)
            CAIRN_TRY(load_token(rest->token_file, &rest->authorization, err));
    }
    struct cairn_http_options http = {
        .connections_max = 2, /* a call, and /livez at the same time */
        .connect_ms = rest->servers.count > 1 ? CONNECT_MS : 0,
        .ca_bundle = options->ca_bundle && options->ca_bundle[0] ? options->ca_bundle : NULL};
    CAIRN_TRY(cairn_http_engine_new(&http, &rest->engine, err));
    *ret = CAIRN_TAKE(rest);
    return CAIRN_OK;
}

void cairn_rest_free(struct cairn_rest *rest) {
    if (!rest) return;
    cairn_http_engine_free(rest->engine);
    json_decref(rest->problem);
    free_secret(&rest->authorization);
    free(rest->token_file);
    free_secret(&rest->grant);
    free_secret(&rest->if_match);
    cairn_servers_release(&rest->servers);
    free(rest);
}

enum cairn_code cairn_rest_set_grant(struct cairn_rest *rest, const char *grant,
                                     struct cairn_error *err) {
    char *line = NULL;
    CAIRN_TRY(make_secret_line("X-Cairn-Grant: ", grant, &line, err));
    free_secret(&rest->grant);
    rest->grant = line;
    return CAIRN_OK;
}

enum cairn_code cairn_rest_set_if_match(struct cairn_rest *rest, const char *tags,
                                        struct cairn_error *err) {
    char *line = NULL;
    CAIRN_TRY(make_secret_line("If-Match: ", tags, &line, err));
    free_secret(&rest->if_match);
    rest->if_match = line;
    return CAIRN_OK;
}

const json_t *cairn_rest_problem(const struct cairn_rest *rest) {
    return rest->problem;
}

/* ---- the reply ---- */

static bool is_named(struct cairn_view name, const char *wanted) {
    return name.size == strlen(wanted) && !strncasecmp(name.data, wanted, name.size);
}

static void keep_start(struct cairn_view value, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%.*s", (int)cairn_min_u64(value.size, capacity - 1),
             (const char *)value.data);
}

static void note_header(struct cairn_http_request *request, struct cairn_view name,
                        struct cairn_view value) {
    struct call *call = request->owner;
    uint64_t seconds = 0; /* dates are ignored: a Cairn server never sends one */
    if (is_named(name, "Retry-After") && !cairn_parse_u64(value, &seconds, NULL))
        call->retry_after_s = cairn_min_u64(seconds, RETRY_AFTER_S_MAX);
    if (is_named(name, "Location")) keep_start(value, call->location, sizeof call->location);
    if (is_named(name, "Server")) keep_start(value, call->server, sizeof call->server);
    if (!is_named(name, "Content-Type")) return;
    const char *text = value.data;
    size_t size = value.size;
    call->problem_reply = size >= 24 && !strncasecmp(text, "application/problem+json", 24);
    call->json_reply =
        (size >= 16 && !strncasecmp(text, "application/json", 16)) || call->problem_reply;
}

static const char *text_field(const json_t *problem, const char *name) {
    const char *text = json_string_value(json_object_get(problem, name));
    return text ? text : "";
}

/* For a problem of this API whose code this release does not know. */
static enum cairn_code code_of_status(int status) {
    static const struct {
        int status;
        enum cairn_code code;
    } codes[] = {{401, CAIRN_UNAUTHORIZED}, {403, CAIRN_FORBIDDEN},    {404, CAIRN_NOT_FOUND},
                 {409, CAIRN_CONFLICT},     {412, CAIRN_PRECONDITION}, {413, CAIRN_TOO_LARGE},
                 {416, CAIRN_RANGE},        {429, CAIRN_BUSY},         {502, CAIRN_UNAVAILABLE},
                 {503, CAIRN_UNAVAILABLE},  {504, CAIRN_UNAVAILABLE}};
    for (size_t i = 0; i < CAIRN_COUNT(codes); i++)
        if (codes[i].status == status) return codes[i].code;
    return CAIRN_PROTOCOL;
}

/* For a reply that is not Cairn's: a temporary code for what passes while a proxy reloads or finds
 * its servers again, a permanent code otherwise. */
static enum cairn_code code_of_stranger(int status) {
    if (status == 401) return CAIRN_UNAUTHORIZED;
    if (status == 429) return CAIRN_BUSY;
    bool passes = status == 403 || status == 404 || status == 408 || status == 410 || status >= 500;
    return passes ? CAIRN_UNAVAILABLE : CAIRN_PROTOCOL;
}

bool cairn_rest_spoke(const struct cairn_rest *rest) {
    const char *slug = json_string_value(json_object_get(rest->problem, "code"));
    return slug && (cairn_code_from_slug(slug) != CAIRN_INTERNAL || !strcmp(slug, "internal"));
}

static enum cairn_code judge_problem(struct cairn_rest *rest, const struct call *call,
                                     struct cairn_error *err) {
    int status = call->request.status;
    const char *slug = json_string_value(json_object_get(rest->problem, "code"));
    enum cairn_code code = slug ? cairn_code_from_slug(slug) : code_of_status(status);
    if (code == CAIRN_OK || (code == CAIRN_INTERNAL && slug && strcmp(slug, "internal") != 0))
        code = code_of_status(status);
    const char *title = text_field(rest->problem, "title");
    const char *detail = text_field(rest->problem, "detail");
    const char *hint = text_field(rest->problem, "hint");
    const char *first = detail[0] ? detail : title[0] ? title : "the server refused";
    /* Cause, then advice. The code's title comes last, where a long message is cut; it is omitted
     * for CAIRN_INVALID and CAIRN_NOT_FOUND, where the detail says the same. */
    bool means = detail[0] && title[0] && code != CAIRN_INVALID && code != CAIRN_NOT_FOUND;
    size_t size = strlen(first);
    bool ends = size && first[size - 1] == '.' && !hint[0];
    cairn_fail(err, code, "%s%s%s%s%s%s", first, hint[0] ? " (" : "", hint, hint[0] ? ")" : "",
               !means ? ""
               : ends ? " "
                      : ". ",
               means ? title : "");
    if (!err) return code;
    err->http_status = status;
    cairn_error_request_id(err, text_field(rest->problem, "request_id"));
    return code;
}

/* Is the reply of this API, in this release's form or another's? */
static bool is_of_api(const struct cairn_rest *rest) {
    return cairn_rest_spoke(rest) ||
           (json_is_string(json_object_get(rest->problem, "code")) &&
            cairn_text_starts(text_field(rest->problem, "type"), PROBLEM_TYPE));
}

static enum cairn_code judge_stranger(const struct cairn_rest *rest, const struct call *call,
                                      struct cairn_error *err) {
    const struct cairn_http_request *request = &call->request;
    int status = request->status;
    enum cairn_code code = code_of_stranger(status);
    char what[200] = "";
    if (status / 100 == 3 && call->location[0])
        snprintf(what, sizeof what, " and leads to %.150s", call->location);
    else if (status == 413)
        snprintf(what, sizeof what, " to a body of %zu bytes: its limit has to be larger",
                 request->body.size);
    cairn_fail(err, code,
               "%s: %s answered %d%s. That is no answer of cairn-server: a proxy%s%s%s, or another "
               "program, gave it",
               request->unix_socket ? rest->name : cairn_short(request->url).text, request->method,
               status, what, call->server[0] ? " (" : "", call->server, call->server[0] ? ")" : "");
    if (err) err->http_status = status;
    return code;
}

static enum cairn_code judge_refusal(struct cairn_rest *rest, const struct call *call,
                                     struct cairn_error *err) {
    struct cairn_json_limits limits = {ERROR_BODY_BYTES_MAX, 0};
    if (call->json_reply && call->reply.size &&
        cairn_json_parse(cairn_buf_view(&call->reply), limits, &rest->problem, NULL) == CAIRN_OK &&
        is_of_api(rest))
        return judge_problem(rest, call, err);
    if (strcmp(call->request.method, "HEAD") != 0 || !call->problem_reply)
        return judge_stranger(rest, call, err);
    enum cairn_code code = code_of_status(call->request.status); /* a problem type of this API */
    cairn_fail(err, code, "server %s answered %d", rest->name, call->request.status);
    if (err) err->http_status = call->request.status;
    return code;
}

/* ---- the call ---- */

static void add_header(struct call *call, const char *line) {
    CAIRN_ASSERT(call->request.header_count < CAIRN_COUNT(call->headers));
    if (line) call->headers[call->request.header_count++] = line;
}

/* Polls until the request or the other (NULL: none) is done, or the time is over. */
static enum cairn_code poll_for(struct cairn_rest *rest, const struct cairn_http_request *request,
                                const struct cairn_http_request *other, uint32_t ms,
                                struct cairn_error *err) {
    uint64_t until_us = cairn_mono_us() + (uint64_t)ms * 1000, now_us;
    while (request->engine_private && (!other || other->engine_private) &&
           (now_us = cairn_mono_us()) < until_us)
        CAIRN_TRY(cairn_http_poll(rest->engine, (uint32_t)((until_us - now_us + 999) / 1000), err));
    return CAIRN_OK;
}

/* Any answer shows that the process runs and may still answer the call. */
static bool answers_livez(struct cairn_rest *rest, const struct cairn_server_place *place,
                          const struct cairn_http_request *request, uint32_t ms) {
    CAIRN_AUTO(buf) url = {0};
    if (cairn_buf_printf(&url, NULL, "%s/livez", place->base) != CAIRN_OK) return true;
    struct cairn_http_request probe = {
        .method = "GET", .url = url.data, .unix_socket = place->unix_socket, .total_ms = ms};
    if (cairn_http_submit(rest->engine, &probe, NULL) != CAIRN_OK) return true;
    enum cairn_code code = poll_for(rest, &probe, request, ms + 1000, NULL);
    cairn_http_cancel(rest->engine, &probe);
    return code != CAIRN_OK || !request->engine_private || probe.code == CAIRN_OK;
}

static bool heard_lately(const struct cairn_rest *rest, uint32_t at, uint32_t ms) {
    return atomic_load(&rest->seen->at) == at &&
           cairn_mono_us() < atomic_load(&rest->seen->heard_us) + (uint64_t)ms * 1000;
}

/* Time to wait for an answer, and then, *ret_livez_ms, for one to /livez. */
static uint32_t quiet_limit_ms(const struct cairn_rest *rest, uint32_t at,
                               const struct cairn_http_request *request, uint32_t *ret_livez_ms) {
    bool heard = atomic_load(&rest->seen->at) == at && atomic_load(&rest->seen->heard_us);
    uint64_t turn_ms = request->stall_ms / (2 * rest->servers.count) + 1;
    uint64_t quiet_ms = cairn_min_u64(turn_ms, heard ? QUIET_MS_MAX : UNHEARD_MS_MAX);
    *ret_livez_ms = (uint32_t)cairn_min_u64(quiet_ms, LIVEZ_MS_MAX);
    return (uint32_t)quiet_ms;
}

static void note_heard(struct cairn_rest *rest, uint32_t at) {
    atomic_store(&rest->seen->at, at);
    atomic_store(&rest->seen->heard_us, cairn_mono_us());
}

/* As cairn_http_perform, but ends if neither the call nor /livez is answered (rest.h#5). */
static enum cairn_code perform_watched(struct cairn_rest *rest, struct call *call, uint32_t at,
                                       struct cairn_error *err) {
    const struct cairn_server_place *place = &rest->servers.places[at];
    struct cairn_http_request *request = &call->request;
    uint32_t livez_ms = 0, quiet_ms = quiet_limit_ms(rest, at, request, &livez_ms);
    enum cairn_code code = CAIRN_OK;
    CAIRN_TRY(cairn_http_submit(rest->engine, request, err));
    while ((code = poll_for(rest, request, NULL, quiet_ms, err)) == CAIRN_OK &&
           request->engine_private) {
        if (heard_lately(rest, at, quiet_ms)) continue;
        if (!answers_livez(rest, place, request, livez_ms)) {
            code = cairn_fail(err, CAIRN_UNAVAILABLE,
                              "no answer, and none to /livez within %u ms: it hangs", livez_ms);
            break;
        }
        if (request->engine_private) note_heard(rest, at);
        quiet_ms = quiet_limit_ms(rest, at, request, &livez_ms);
    }
    if (code != CAIRN_OK) {
        cairn_http_cancel(rest->engine, request);
        return code;
    }
    if (request->code != CAIRN_OK && err) *err = request->error;
    return request->code;
}

static enum cairn_code make_url(const struct cairn_server_place *place, struct call *call,
                                const char *path, struct cairn_error *err) {
    cairn_buf_clear(&call->url);
    CAIRN_TRY(cairn_buf_printf(&call->url, err, "%s%s", place->base, path));
    if (call->wait_ms) {
        uint32_t left_ms = call->request.total_ms;
        CAIRN_TRY(cairn_buf_printf(&call->url, err, "%cwait=%ums", strchr(path, '?') ? '&' : '?',
                                   left_ms > ANSWER_MS ? left_ms - ANSWER_MS : 0));
    }
    call->request.url = call->url.data;
    return CAIRN_OK;
}

static enum cairn_code try_server(struct cairn_rest *rest, struct call *call, uint32_t at,
                                  bool is_last, const char *path, struct cairn_error *err) {
    struct cairn_http_request *request = &call->request;
    const struct cairn_server_place *place = &rest->servers.places[at];
    json_decref(rest->problem);
    rest->problem = NULL;
    rest->name = place->name;
    CAIRN_TRY(make_url(place, call, path, err));
    cairn_buf_clear(&call->reply);
    call->json_reply = call->problem_reply = false;
    call->retry_after_s = 0;
    call->location[0] = call->server[0] = '\0';
    request->unix_socket = place->unix_socket;
    enum cairn_code code = is_last ? cairn_http_perform(rest->engine, request, err)
                                   : perform_watched(rest, call, at, err);
    if (code != CAIRN_OK) return cairn_within(err, code, "server %s", place->name);
    if (request->status >= 200 && request->status < 300) return CAIRN_OK;
    return judge_refusal(rest, call, err);
}

/* Tries the servers within the call's own time; the caller decides about later retries. If a server
 * held the call before it failed, all are tried again: of two servers restarted in turn, each may
 * end a held wait once. */
static enum cairn_code try_all(struct cairn_rest *rest, struct call *call, const char *path,
                               struct cairn_error *err) {
    struct cairn_http_request *request = &call->request;
    uint32_t count = rest->servers.count, at = atomic_load(&rest->seen->at) % count;
    uint64_t begun_ms = cairn_mono_ms(), until_ms = begun_ms + request->total_ms;
    enum cairn_code code = CAIRN_UNAVAILABLE;
    for (uint32_t left = count; left; at = (at + 1) % count) {
        *err = (struct cairn_error){0};
        code = try_server(rest, call, at, left == 1, path, err);
        if (code != CAIRN_UNAVAILABLE) {
            if (request->status) note_heard(rest, at);
            return code;
        }
        uint64_t now_ms = cairn_mono_ms();
        if (count == 1 || now_ms >= until_ms) break;
        left = now_ms - begun_ms >= HELD_MS ? count : left - 1;
        begun_ms = now_ms;
        request->total_ms = (uint32_t)(until_ms - now_ms);
    }
    return count > 1 ? cairn_within(err, code, "none of %u servers; the last", count) : code;
}

/* Reads the token file; true if it has another token now. */
static bool renew_token(struct cairn_rest *rest, struct call *call) {
    char *line = NULL;
    if (!rest->token_file || load_token(rest->token_file, &line, NULL) || !line) return false;
    if (rest->authorization && !strcmp(line, rest->authorization)) {
        free_secret(&line);
        return false;
    }
    bool had = rest->authorization != NULL;
    free_secret(&rest->authorization);
    rest->authorization = line;
    if (had)
        call->headers[call->authorization] = line;
    else
        add_header(call, line);
    return true;
}

/* rest.h#8: adds a random part, so that clients refused together do not retry together. */
static bool wait_for_rate(struct cairn_rest *rest, struct call *call, uint64_t until_ms) {
    json_int_t said_ms = json_integer_value(json_object_get(rest->problem, "retry_after_ms"));
    uint64_t wait_ms = call->retry_after_s * 1000;
    if (said_ms > 0) wait_ms = cairn_min_u64((uint64_t)said_ms, RETRY_AFTER_S_MAX * 1000);
    if (!wait_ms) wait_ms = 1000;
    wait_ms += cairn_mono_us() % (wait_ms / 2 + 1);
    uint64_t now_ms = cairn_mono_ms(), again_ms = now_ms + wait_ms;
    if (again_ms >= until_ms) return false;
    for (; now_ms < again_ms; now_ms = cairn_mono_ms())
        (void)poll(NULL, 0, (int)(again_ms - now_ms));
    call->request.total_ms = (uint32_t)(cairn_max_u64(until_ms, now_ms + 1) - now_ms);
    return true;
}

static enum cairn_code run_call(struct cairn_rest *rest, struct call *call, const char *path,
                                struct cairn_error *err) {
    CAIRN_ASSERT(path[0] == '/');
    struct cairn_http_request *request = &call->request;
    struct cairn_error why = {0};
    call->authorization = request->header_count;
    add_header(call, rest->authorization);
    add_header(call, rest->grant);
    add_header(call, rest->if_match);
    cairn_trace_header(call->trace);
    add_header(call, call->trace[0] ? call->trace : NULL);
    request->headers = call->headers;
    request->reply_buf = &call->reply;
    request->stall_ms = request->total_ms;
    request->on_header = note_header;
    request->owner = call;
    uint64_t until_ms = cairn_mono_ms() + request->total_ms;
    enum cairn_code code = try_all(rest, call, path, &why);
    while (code == CAIRN_RATE_LIMITED && wait_for_rate(rest, call, until_ms))
        code = try_all(rest, call, path, &why);
    if (code == CAIRN_UNAUTHORIZED && renew_token(rest, call))
        code = try_all(rest, call, path, &why);
    if (code != CAIRN_OK && err) *err = why;
    return code;
}

static enum cairn_code call_json(struct cairn_rest *rest, const char *method, const char *path,
                                 const json_t *body, uint32_t timeout_ms, uint32_t wait_ms,
                                 json_t **ret_reply, struct cairn_error *err) {
    AUTO_CALL call = {.reply.limit = REPLY_BYTES_MAX, .wait_ms = wait_ms};
    CAIRN_AUTO(buf) text = {.limit = REPLY_BYTES_MAX};
    if (body) CAIRN_TRY(cairn_json_dump(body, &text, err));
    call.request = (struct cairn_http_request){
        .method = method,
        .body = cairn_buf_view(&text),
        .has_body = body || !strcmp(method, "POST") || !strcmp(method, "PUT"),
        .total_ms = timeout_ms ? timeout_ms : rest->timeout_ms,
    };
    add_header(&call, "Accept: application/json, application/problem+json");
    /* Also without a body: pages of other sites cannot send this type. */
    if (body || !strcmp(method, "POST")) add_header(&call, "Content-Type: application/json");
    if (rest->keys_posts && !strcmp(method, "POST")) {
        memcpy(call.key, KEY_HEADER, sizeof KEY_HEADER);
        cairn_uuid_random(call.key + sizeof KEY_HEADER - 1);
        add_header(&call, call.key);
    }
    CAIRN_TRY(run_call(rest, &call, path, err));
    json_t *reply = NULL;
    if (call.reply.size) {
        struct cairn_json_limits limits = {REPLY_BYTES_MAX, REPLY_NODES_MAX};
        if (!call.json_reply ||
            cairn_json_parse(cairn_buf_view(&call.reply), limits, &reply, NULL) != CAIRN_OK)
            return cairn_fail(err, CAIRN_PROTOCOL, "server %s: %s %s: the answer is no JSON",
                              rest->name, method, cairn_short(path).text);
    }
    if (ret_reply)
        *ret_reply = reply;
    else
        json_decref(reply);
    return CAIRN_OK;
}

enum cairn_code cairn_rest_call(struct cairn_rest *rest, const char *method, const char *path,
                                const json_t *body, uint32_t timeout_ms, json_t **ret_reply,
                                struct cairn_error *err) {
    return call_json(rest, method, path, body, timeout_ms, 0, ret_reply, err);
}

enum cairn_code cairn_rest_wait(struct cairn_rest *rest, const char *path, uint32_t wait_ms,
                                json_t **ret_reply, struct cairn_error *err) {
    return call_json(rest, "GET", path, NULL, wait_ms + ANSWER_MS, wait_ms, ret_reply, err);
}

static enum cairn_code add_line(struct call *call, struct cairn_buf *line, const char *name,
                                const char *value, struct cairn_error *err) {
    if (strpbrk(value, "\r\n")) return cairn_fail(err, CAIRN_INVALID, "line break in %s", name);
    CAIRN_TRY(cairn_buf_printf(line, err, "%s: %s", name, value));
    add_header(call, line->data);
    return CAIRN_OK;
}

enum cairn_code cairn_rest_bytes(struct cairn_rest *rest, const char *method, const char *path,
                                 const char *content_type, struct cairn_view body,
                                 const char *range, struct cairn_buf *ret_reply,
                                 struct cairn_error *err) {
    size_t limit = ret_reply && ret_reply->limit ? ret_reply->limit : REPLY_BYTES_MAX;
    AUTO_CALL call = {.reply.limit = cairn_max_u64(limit, ERROR_BODY_BYTES_MAX)};
    call.request = (struct cairn_http_request){
        .method = method,
        .body = body,
        .has_body = content_type != NULL,
        .total_ms = rest->timeout_ms,
    };
    if (content_type) CAIRN_TRY(add_line(&call, &call.type, "Content-Type", content_type, err));
    if (range) CAIRN_TRY(add_line(&call, &call.range, "Range", range, err));
    CAIRN_TRY(run_call(rest, &call, path, err));
    if (range && call.request.status != 206)
        return cairn_fail(err, CAIRN_PROTOCOL, "server %s: %s %s: asked for a range, got %d",
                          rest->name, method, cairn_short(path).text, call.request.status);
    if (!ret_reply || !call.reply.size) return CAIRN_OK;
    return cairn_buf_append(ret_reply, call.reply.data, call.reply.size, err);
}

enum cairn_code cairn_rest_range(struct cairn_rest *rest, const char *path, uint64_t offset,
                                 void *into, size_t size, struct cairn_error *err) {
    CAIRN_ASSERT(size > 0);
    AUTO_CALL call = {.reply.limit = ERROR_BODY_BYTES_MAX};
    call.request = (struct cairn_http_request){
        .method = "GET",
        .reply_data = into,
        .reply_capacity = size,
        .direct = true,
        .total_ms = rest->timeout_ms,
    };
    CAIRN_TRY(cairn_buf_printf(&call.range, err, "Range: bytes=%llu-%llu",
                               (unsigned long long)offset,
                               (unsigned long long)(offset + size - 1)));
    add_header(&call, call.range.data);
    CAIRN_TRY(run_call(rest, &call, path, err));
    if (call.request.status != 206)
        return cairn_fail(err, CAIRN_PROTOCOL, "server %s: GET %s: asked for a range, got %d",
                          rest->name, cairn_short(path).text, call.request.status);
    if (call.request.reply_bytes != size)
        return cairn_fail(err, CAIRN_CORRUPT, "server %s: GET %s: %zu bytes asked for, %llu sent",
                          rest->name, cairn_short(path).text, size,
                          (unsigned long long)call.request.reply_bytes);
    return CAIRN_OK;
}

/* Compares "0.2.0"; ignores text after the numbers. */
static bool is_older(const char *version, const char *than) {
    for (int i = 0; i < 3; i++) {
        char *rest = NULL, *rest_than = NULL;
        unsigned long a = strtoul(version, &rest, 10), b = strtoul(than, &rest_than, 10);
        if (a != b) return a < b;
        version = *rest == '.' ? rest + 1 : rest;
        than = *rest_than == '.' ? rest_than + 1 : rest_than;
    }
    return false;
}

void cairn_rest_name_older(struct cairn_rest *rest, const char *program, const char *version,
                           struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    char text[sizeof err->message];
    if (cairn_rest_call(rest, "GET", "/version", NULL, VERSION_MS, &reply, NULL)) return;
    const char *said = json_string_value(json_object_get(reply, "version"));
    if (!said || !is_older(said, version)) return;
    snprintf(text, sizeof text,
             "%.200s; the server is older (%.20s, %s is %s): if that is why, upgrade it",
             err->message, said, program, version);
    memcpy(err->message, text, sizeof text);
}

/* ---- lists of servers ---- */

/* Splits at commas; each entry is checked alone, then against the earlier ones. */

void cairn_servers_release(struct cairn_servers *servers) {
    for (uint32_t i = 0; i < servers->count; i++) {
        free(servers->places[i].name);
        free(servers->places[i].base);
        free(servers->places[i].unix_socket);
    }
    *servers = (struct cairn_servers){0};
}

/* Name of an entry in messages: "the server's URL", or its number. */
struct cairn_called {
    char text[48];
};
static struct cairn_called called(bool listed, uint32_t number) {
    struct cairn_called name = {"the server's URL"};
    if (listed) snprintf(name.text, sizeof name.text, "server %u of the list", number);
    return name;
}

static enum cairn_code check_server_url(const char *text, bool listed, uint32_t number,
                                        struct cairn_error *err) {
    struct cairn_url parts;
    struct cairn_called name = called(listed, number);
    if (!*text)
        return cairn_fail(err, CAIRN_INVALID, "%s is empty%s", name.text,
                          listed ? ": a comma too many" : "");
    if (listed && cairn_text_starts(text, "unix:"))
        return cairn_fail(err, CAIRN_INVALID,
                          "%s is a Unix socket: one stands alone, since its path may hold commas",
                          name.text);
    if (!cairn_text_starts(text, "unix:") && !cairn_url_split_http(text, &parts))
        return cairn_fail(err, CAIRN_INVALID, "%s must be http(s)://host[:port]%s", name.text,
                          listed ? "" : " or unix:PATH");
    if (strpbrk(text, "@?#"))
        return cairn_fail(err, CAIRN_INVALID, "%s takes no user, query or fragment", name.text);
    if (strpbrk(text, " \t\r\n"))
        return cairn_fail(err, CAIRN_INVALID, "%s holds a blank", name.text);
    return CAIRN_OK;
}

/* ret owns what was allocated, also on failure. */
static enum cairn_code fill_place(const char *text, size_t size, struct cairn_server_place *ret,
                                  struct cairn_error *err) {
    bool is_unix = size >= 5 && !strncmp(text, "unix:", 5);
    ret->name = strndup(text, size);
    ret->base = is_unix ? strdup("http://localhost") : strndup(text, size);
    ret->unix_socket = is_unix ? strndup(text + 5, size - 5) : NULL;
    if (!ret->name || !ret->base || (is_unix && !ret->unix_socket))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the server's URL");
    for (size_t left = strlen(ret->base); left && ret->base[left - 1] == '/'; left--)
        ret->base[left - 1] = '\0';
    return CAIRN_OK;
}

/* One certificate name and one proxy path: a list names the same API at several addresses. */
static enum cairn_code compare_servers(const struct cairn_servers *servers,
                                       struct cairn_error *err) {
    uint32_t last = servers->count - 1;
    struct cairn_url first, own;
    for (uint32_t i = 0; i < last; i++)
        if (!strcmp(servers->places[i].base, servers->places[last].base))
            return cairn_fail(err, CAIRN_INVALID, "servers %u and %u of the list are the same",
                              i + 1, last + 1);
    if (!last) return CAIRN_OK;
    if (!cairn_url_split_http(servers->places[0].base, &first) ||
        !cairn_url_split_http(servers->places[last].base, &own))
        return cairn_fail(err, CAIRN_INVALID, "server %u of the list has no host", last + 1);
    if (first.scheme.size != own.scheme.size)
        return cairn_fail(err, CAIRN_INVALID,
                          "servers 1 and %u of the list have different schemes: http or https for "
                          "all",
                          last + 1);
    if (strcmp(first.path, own.path) != 0)
        return cairn_fail(err, CAIRN_INVALID, "servers 1 and %u of the list have different paths",
                          last + 1);
    return CAIRN_OK;
}

static enum cairn_code add_server(const char *text, size_t size, bool listed,
                                  struct cairn_servers *servers, struct cairn_error *err) {
    if (servers->count == CAIRN_SERVERS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "more than %d servers in the list",
                          CAIRN_SERVERS_MAX);
    struct cairn_server_place *place = &servers->places[servers->count++];
    CAIRN_TRY(fill_place(text, size, place, err));
    CAIRN_TRY(check_server_url(place->name, listed, servers->count, err));
    return compare_servers(servers, err);
}

enum cairn_code cairn_servers_parse(const char *text, struct cairn_servers *ret,
                                    struct cairn_error *err) {
    CAIRN_AUTO(servers) servers = {0};
    bool is_unix = cairn_text_starts(text, "unix:");
    if (is_unix && (strstr(text, ",http") || strstr(text, ",unix:")))
        return cairn_fail(err, CAIRN_INVALID,
                          "a Unix socket stands alone: no list of servers begins with one");
    bool listed = !is_unix && strchr(text, ',');
    for (const char *at = text;;) {
        size_t size = listed ? strcspn(at, ",") : strlen(at);
        CAIRN_TRY(add_server(at, size, listed, &servers, err));
        if (!at[size]) break;
        at += size + 1;
    }
    *ret = servers;
    servers = (struct cairn_servers){0};
    return CAIRN_OK;
}

/* ---- leases ---- */

#define LEASE_MS 5000 /* short: the caller has other work, and may want to stop */

static enum cairn_code lease_call(const struct cairn_read_lease *lease, struct cairn_rest *rest,
                                  const char *method, json_t *take_body, json_t **ret,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = take_body;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/%s/checkpoints/%s/leases%s%s",
                               lease->name.project, lease->name.run, lease->version.text,
                               lease->id[0] ? "/" : "", lease->id));
    return cairn_rest_call(rest, method, path.data, body, LEASE_MS, ret, err);
}

static enum cairn_code take_lease(struct cairn_read_lease *lease, struct cairn_rest *rest,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_lease_row row = {0};
    json_t *body = CAIRN_PACK(lease_take, .job = lease->job, .ttl_s = lease->ttl_s);
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a lease");
    lease->id[0] = '\0';
    CAIRN_TRY(lease_call(lease, rest, "POST", body, &reply, err));
    CAIRN_TRY(cairn_msg_lease_row_read(reply, "", &row, err));
    if (cairn_text_copy(lease->id, sizeof(lease->id), row.lease)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_PROTOCOL, "the server named the lease \"%s\"", row.lease);
}

enum cairn_code cairn_read_lease_keep(struct cairn_read_lease *lease, struct cairn_rest *rest,
                                      struct cairn_error *err) {
    struct cairn_error why = {0};
    if (!lease->id[0]) return take_lease(lease, rest, err);
    json_t *body = CAIRN_PACK(lease_renew, .ttl_s = lease->ttl_s);
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a lease");
    enum cairn_code code = lease_call(lease, rest, "PUT", body, NULL, &why);
    if (code == CAIRN_NOT_FOUND) return take_lease(lease, rest, err);
    if (code && err) *err = why;
    return code;
}

enum cairn_code cairn_read_lease_give(struct cairn_read_lease *lease, struct cairn_rest *rest,
                                      struct cairn_error *err) {
    struct cairn_error why = {0};
    if (!lease->id[0]) return CAIRN_OK;
    enum cairn_code code = lease_call(lease, rest, "DELETE", NULL, NULL, &why);
    if (!code || code == CAIRN_NOT_FOUND || code == CAIRN_DELETED) {
        lease->id[0] = '\0';
        return CAIRN_OK;
    }
    if (err) *err = why;
    return code;
}
