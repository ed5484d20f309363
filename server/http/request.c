/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of handlers: bodies, problems, cursors, grants; see request.h. */
#include "server/http/request.h"

#include <stdarg.h>
#include <stdio.h>

#include "api/wire/messages.h"

void srv_reply_release(struct srv_reply *reply) {
    cairn_buf_release(&reply->body);
    cairn_buf_release(&reply->location);
    cairn_buf_release(&reply->next);
    json_decref(reply->extra);
    reply->extra = NULL;
}

void srv_reply_header(struct srv_reply *reply, const char *name, const char *format, ...) {
    CAIRN_ASSERT(reply->header_count < CAIRN_COUNT(reply->headers));
    va_list arguments;
    va_start(arguments, format);
    size_t at = reply->header_count++;
    reply->headers[at].name = name;
    vsnprintf(reply->headers[at].value, sizeof(reply->headers[at].value), format, arguments);
    va_end(arguments);
}

enum cairn_code srv_reply_json(struct srv_reply *reply, int status, json_t *take_json,
                               struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = take_json;
    if (!json) return srv_no_memory(err);
    cairn_buf_clear(&reply->body);
    reply->body.limit = 64 * CAIRN_MIB;
    CAIRN_TRY(cairn_json_show(json, &reply->body, err));
    CAIRN_TRY(cairn_buf_append_text(&reply->body, "\n", err));
    reply->status = status;
    return CAIRN_OK;
}

enum cairn_code srv_reply_page(struct srv_reply *reply, json_t *take_items, json_t *take_next,
                               struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = take_items, *next = take_next;
    const char *cursor = json_string_value(next);
    if (cursor) CAIRN_TRY(cairn_buf_printf(&reply->next, err, "%s", cursor));
    return srv_reply_json(
        reply, 200, items ? CAIRN_PACK(page, .items = items, .next_cursor = cursor) : NULL, err);
}

/* Extension members of a problem (RFC 9457, 3.2), by name. */
void srv_reply_extra(struct srv_reply *reply, const char *name, json_t *take_value) {
    if (!reply->extra) reply->extra = json_object();
    if (!reply->extra || json_object_set_new(reply->extra, name, take_value)) return;
}

/* One step of an RFC 6901 pointer; token lies behind the slash. NULL: there is no such member. */
static const json_t *member_of(const json_t *at, struct cairn_view token) {
    char name[256];
    size_t size = 0;
    uint64_t index = 0;
    if (token.size >= sizeof(name)) return NULL;
    for (size_t i = 0; i < token.size; i++) {
        char byte = ((const char *)token.data)[i];
        bool escapes = byte == '~' && i + 1 < token.size;
        if (escapes) byte = ((const char *)token.data)[++i] == '0' ? '~' : '/';
        name[size++] = byte;
    }
    if (json_is_object(at)) return json_object_getn(at, name, size);
    name[size] = '\0';
    if (!json_is_array(at) || cairn_parse_u64(cairn_view_of(name), &index, NULL)) return NULL;
    return json_array_get(at, index);
}

static bool names_member(const json_t *body, struct cairn_view pointer) {
    const char *at = (const char *)pointer.data, *end = at + pointer.size;
    while (body && at < end) {
        at++;
        const char *slash = memchr(at, '/', (size_t)(end - at));
        const char *stop = slash ? slash : end;
        body = member_of(body, (struct cairn_view){at, (size_t)(stop - at)});
        at = stop;
    }
    return body != NULL;
}

size_t srv_pointer_bytes(const char *detail, struct cairn_view body) {
    const char *first = detail[0] == '/' ? strstr(detail, ": ") : NULL, *found = first;
    CAIRN_AUTO_JSON json_t *json = NULL;
    if (!first || !strstr(first + 2, ": ") || !body.size) return 0;
    if (cairn_json_parse(body, (struct cairn_json_limits){.bytes = body.size}, &json, NULL))
        return 0;
    for (const char *at = first; at; at = strstr(at + 2, ": "))
        if (names_member(json, (struct cairn_view){detail, (size_t)(at - detail)})) found = at;
    return (size_t)(found - detail);
}

/* RFC 9457, 3: for a body refused for one member, its JSON pointer (RFC 6901) and the reason. Such
 * messages begin with the pointer and a colon. NULL: the refusal concerns no member. */
static json_t *errors_of(enum cairn_code code, const char *detail, size_t pointer_bytes) {
    const char *colon = detail[0] == '/' ? strstr(detail + pointer_bytes, ": ") : NULL;
    if (code != CAIRN_INVALID || !colon) return NULL;
    char pointer[256];
    snprintf(pointer, sizeof(pointer), "%.*s", (int)(colon - detail), detail);
    json_t *one = CAIRN_PACK(refusal_of, .pointer = pointer, .detail = colon + 2);
    return one ? json_pack("[o]", one) : NULL;
}

json_t *srv_problem(enum cairn_code code, const struct cairn_error *why, const char *instance,
                    size_t pointer_bytes) {
    const struct cairn_code_info *info = cairn_code_info(code);
    char type[96];
    snprintf(type, sizeof(type), "urn:cairn:problem:%s", info->slug);
    /* A path from outside may hold any bytes; one that is not UTF-8 is omitted. */
    bool readable = cairn_utf8_valid(cairn_view_of(instance));
    CAIRN_AUTO_JSON json_t *errors = errors_of(code, why->message, pointer_bytes);
    return CAIRN_PACK(
        refusal, .type = type, .title = info->meaning, .status = (uint32_t)info->http_status,
        .code = info->slug, .retryable = info->retryable, .detail = why->message,
        .request_id = why->request_id, .instance = readable ? instance : NULL, .errors = errors);
}

enum cairn_code srv_body(const struct srv_request *request, size_t nodes, json_t **ret_body,
                         struct cairn_error *err) {
    if (!request->body.size)
        return cairn_fail(err, CAIRN_INVALID, "a JSON object is needed as the body");
    struct cairn_json_limits limits = {.bytes = request->body.size, .nodes = nodes};
    json_t *body = NULL;
    CAIRN_TRY(cairn_json_parse(request->body, limits, &body, err));
    if (!json_is_object(body)) {
        json_decref(body);
        return cairn_fail(err, CAIRN_INVALID, "the body must be a JSON object");
    }
    *ret_body = body;
    return CAIRN_OK;
}

enum cairn_code srv_query_limit(const struct srv_request *request, uint64_t *ret,
                                struct cairn_error *err) {
    const char *text = cairn_query_get(&request->query, "limit");
    uint64_t limit = 100;
    enum cairn_code code = text ? cairn_parse_u64(cairn_view_of(text), &limit, err) : CAIRN_OK;
    if (code) return cairn_within(err, code, "limit");
    if (limit < 1 || limit > 1000)
        return cairn_fail(err, CAIRN_INVALID, "limit must be 1 to 1000, not %s", text);
    *ret = limit;
    return CAIRN_OK;
}

/* RFC 7240: `wait=` and whole seconds, in a list. An unreadable preference is ignored. */
static uint64_t preferred_ms(const char *prefer) {
    for (const char *at = prefer; *at; at += strcspn(at, ",")) {
        uint64_t seconds = 0;
        at += strspn(at, " \t,");
        if (strncasecmp(at, "wait=", 5) != 0) continue;
        struct cairn_view digits = {at + 5, strspn(at + 5, "0123456789")};
        if (!cairn_parse_u64(digits, &seconds, NULL))
            return cairn_min_u64(seconds, CAIRN_WAIT_MS_MAX) * 1000;
    }
    return 0;
}

enum cairn_code srv_query_wait(const struct srv_request *request, uint64_t *ret_until_ms,
                               struct cairn_error *err) {
    const char *wait = cairn_query_get(&request->query, "wait");
    uint64_t wait_ms = preferred_ms(request->prefer);
    enum cairn_code code =
        wait ? cairn_parse_duration(cairn_view_of(wait), &wait_ms, err) : CAIRN_OK;
    if (code) return cairn_within(err, code, "wait");
    uint64_t until_ms = request->arrived_ms + cairn_min_u64(wait_ms, CAIRN_WAIT_MS_MAX);
    bool waits = wait_ms && !request->wait_over && srv_mono_ms(request->server) < until_ms;
    if (waits) *ret_until_ms = until_ms;
    return CAIRN_OK;
}

void srv_reply_cached(const struct srv_request *request, struct srv_reply *reply) {
    bool fixed = cairn_version_id_valid(cairn_view_of(request->params.ref));
    srv_reply_header(reply, "Cache-Control", "%s",
                     fixed ? "private, immutable, max-age=3600" : "private, no-cache");
}

bool srv_tag_listed(const char *list, const char *tag, bool weak_counts) {
    size_t size = strlen(tag);
    if (!strcmp(list, "*")) return true;
    for (const char *at = list; *at;) {
        at += strspn(at, " \t,");
        bool weak = at[0] == 'W' && at[1] == '/';
        if (weak) at += 2;
        const char *end = at[0] == '"' ? strchr(at + 1, '"') : NULL;
        if (!end) return false; /* not a tag: the rest of the list is unreliable */
        size_t one = (size_t)(end + 1 - at);
        if (one == size && !memcmp(at, tag, size) && (!weak || weak_counts)) return true;
        at = end + 1;
    }
    return false;
}

enum cairn_code srv_must_match(const struct srv_request *request, const char *tag,
                               const char *other, struct cairn_error *err) {
    const char *list = request->if_match;
    if (!list[0])
        return cairn_fail(err, CAIRN_PRECONDITION_MISSING,
                          "send If-Match: %s to change what was read, or If-Match: * to change "
                          "whatever is there",
                          tag);
    if (srv_tag_listed(list, tag, false) || (other && srv_tag_listed(list, other, false)))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_PRECONDITION, "it is another by now: its tag is %s", tag);
}

/* ---- cursors ----
 *
 * P16: a page may end at a name that the caller may not know, so cursors are encrypted. Entity tags
 * are hashes of whole pages, so the same text must give the same cursor: the vector is a MAC of the
 * text, which also authenticates it. */

#define VECTOR_BYTES 12

static struct cairn_view cursor_key(const struct srv *server) {
    return (struct cairn_view){server->grant_key, sizeof(server->grant_key)};
}

static void cursor_vector(const struct srv *server, const uint8_t *text, size_t size,
                          uint8_t ret[VECTOR_BYTES]) {
    static const char start[] = "cairn cursor of ";
    uint8_t bytes[sizeof(start) + SRV_CURSOR_BYTES_MAX], mac[CAIRN_SHA256_BYTES];
    memcpy(bytes, start, sizeof(start));
    memcpy(bytes + sizeof(start), text, size);
    cairn_hmac_sha256(cursor_key(server), (struct cairn_view){bytes, sizeof(start) + size}, mac);
    memcpy(ret, mac, VECTOR_BYTES);
}

/* Encrypts or decrypts in place. */
static void cursor_turn(const struct srv *server, const uint8_t vector[VECTOR_BYTES], uint8_t *text,
                        size_t size) {
    struct {
        char start[20];
        uint8_t vector[VECTOR_BYTES];
        uint32_t number;
    } block = {.start = "cairn cursor by "};
    uint8_t mac[CAIRN_SHA256_BYTES];
    memcpy(block.vector, vector, VECTOR_BYTES);
    for (size_t i = 0; i < size; i++) {
        block.number = (uint32_t)(i / sizeof(mac));
        if (i % sizeof(mac) == 0)
            cairn_hmac_sha256(cursor_key(server), (struct cairn_view){&block, sizeof(block)}, mac);
        text[i] ^= mac[i % sizeof(mac)];
    }
}

/* "" without a cursor. */
static enum cairn_code cursor_read(const struct srv_request *request, char *ret, size_t capacity,
                                   struct cairn_error *err) {
    const char *text = cairn_query_get(&request->query, "cursor");
    uint8_t bytes[VECTOR_BYTES + SRV_CURSOR_BYTES_MAX], vector[VECTOR_BYTES];
    uint8_t *said = bytes + VECTOR_BYTES;
    ret[0] = 0;
    if (!text) return CAIRN_OK;
    size_t size = strlen(text) / 2;
    bool good = strlen(text) % 2 == 0 && size > VECTOR_BYTES && size <= sizeof(bytes) &&
                size - VECTOR_BYTES < capacity &&
                !cairn_hex_decode(cairn_view_of(text), bytes, size, NULL);
    if (good) {
        size -= VECTOR_BYTES;
        cursor_turn(request->server, bytes, said, size);
        cursor_vector(request->server, said, size, vector);
        good = cairn_equal_secret(vector, bytes, VECTOR_BYTES);
    }
    if (!good) return cairn_fail(err, CAIRN_INVALID, "cursor is not one that this server gave out");
    memcpy(ret, said, size);
    ret[size] = 0;
    return CAIRN_OK;
}

static json_t *cursor_write(const struct srv *server, const char *text) {
    uint8_t bytes[VECTOR_BYTES + SRV_CURSOR_BYTES_MAX];
    char hex[2 * sizeof(bytes) + 1];
    size_t size = strlen(text);
    CAIRN_ASSERT(size <= SRV_CURSOR_BYTES_MAX);
    memcpy(bytes + VECTOR_BYTES, text, size);
    cursor_vector(server, bytes + VECTOR_BYTES, size, bytes);
    cursor_turn(server, bytes, bytes + VECTOR_BYTES, size);
    cairn_hex_encode(bytes, VECTOR_BYTES + size, hex);
    return json_string(hex);
}

/* ---- lists ---- */

enum cairn_code srv_list_open(const struct srv_request *request, struct srv_list *ret,
                              struct cairn_error *err) {
    ret->request = request;
    CAIRN_TRY(srv_query_limit(request, &ret->limit, err));
    CAIRN_TRY(cursor_read(request, ret->after, sizeof(ret->after), err));
    ret->items = json_array();
    return CAIRN_OK;
}

enum cairn_code srv_list_after(const struct srv_list *list, uint64_t *ret,
                               struct cairn_error *err) {
    return list->after[0] ? cairn_parse_u64(cairn_view_of(list->after), ret, err) : CAIRN_OK;
}

bool srv_list_takes(struct srv_list *list, const char *place) {
    if (list->count == list->limit) list->more = true;
    if (list->more) return false;
    list->count++;
    (void)cairn_text_copy(list->place, sizeof(list->place), place);
    return true;
}

enum cairn_code srv_list_add(struct srv_list *list, json_t *take_item, struct cairn_error *err) {
    return cairn_json_append(list->items, take_item, "the list", err);
}

enum cairn_code srv_list_reply(struct srv_list *list, struct srv_reply *reply,
                               struct cairn_error *err) {
    json_t *next = list->more ? cursor_write(list->request->server, list->place) : NULL;
    return srv_reply_page(reply, CAIRN_TAKE(list->items), next, err);
}

void srv_list_release(struct srv_list *list) {
    json_decref(list->items);
    list->items = NULL;
}

enum cairn_code srv_grant_judge(const struct srv *server, const char *text, struct cairn_grant *ret,
                                struct cairn_error *err) {
    if (cairn_grant_check(text, server->grant_key, ret, err))
        return cairn_fail(err, CAIRN_UNAUTHORIZED, "the grant was not signed by this server");
    if (strcmp(ret->store_uuid, server->store_uuid))
        return cairn_fail(err, CAIRN_FORBIDDEN, "the grant is for another store");
    return CAIRN_OK;
}

enum cairn_code srv_grant_read(const struct srv_request *request, const char *text,
                               struct cairn_grant *ret, struct cairn_error *err) {
    if (!text || !text[0])
        return cairn_fail(err, CAIRN_UNAUTHORIZED, "a grant is needed: POST .../attempts gives it");
    CAIRN_TRY(srv_grant_judge(request->server, text, ret, err));
    if (!cairn_run_name_same(&ret->name, &request->params.run_name))
        return cairn_fail(err, CAIRN_FORBIDDEN, "the grant is for run %s/%s", ret->name.project,
                          ret->name.run);
    return CAIRN_OK;
}
