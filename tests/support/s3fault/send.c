/* SPDX-License-Identifier: Apache-2.0 */
/* send: builds the head, edits it, and lets the bytes out past the rule's places. */
#include "tests/support/s3fault/send.h"

#include "tests/support/s3fault/ops.h"

#define WHITESPACE_EVERY_MS 100

/* ---- what is said instead ---- */

static bool is_override(enum s3f_action_kind kind) {
    switch (kind) {
    case S3F_DO_STATUS:
    case S3F_DO_REDIRECT:
    case S3F_DO_COMPLETE_200_ERROR:
    case S3F_DO_HTML:
    case S3F_DO_EMPTY:
    case S3F_DO_BODY:
    case S3F_DO_HUGE_ERROR:
    case S3F_DO_ENTITY_BOMB:
    case S3F_DO_DEEP_XML:
        return true;
    default:
        return false;
    }
}

bool s3f_overrides(const struct s3f_plan *plan) {
    for (size_t i = 0; i < plan->count; i++)
        if (is_override(plan->actions[i].kind)) return true;
    return false;
}

/* "URL/307"; a 301 tells the region, as AWS's does. Without a URL there is no Location. */
static void say_redirect(const struct s3f_server *server, const struct s3f_action *action,
                         struct s3f_reply *reply) {
    const char *slash = strrchr(action->text, '/');
    int status = slash ? (int)strtol(slash + 1, NULL, 10) : 0;
    bool told = status >= 300 && status < 400;
    size_t size = told ? (size_t)(slash - action->text) : strlen(action->text);
    if (!told) status = 307;
    s3f_refuse(reply, status, status == 301 ? "PermanentRedirect" : "TemporaryRedirect",
               "Please re-send this request to the specified endpoint.");
    if (size) s3f_say(&reply->headers, "Location: %.*s\r\n", (int)size, action->text);
    if (status == 301)
        s3f_say(&reply->headers, "x-amz-bucket-region: %s\r\n", server->options.region);
}

static void say_bomb(struct cairn_buf *body) {
    s3f_say(body, "<?xml version=\"1.0\"?>\n<!DOCTYPE b [<!ENTITY a0 \"boom\">\n");
    for (int i = 1; i < 12; i++)
        s3f_say(body, "<!ENTITY a%d \"&a%d;&a%d;&a%d;&a%d;&a%d;&a%d;&a%d;&a%d;\">\n", i, i - 1,
                i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
    s3f_say(body, "]>\n<CompleteMultipartUploadResult><ETag>&a11;</ETag>"
                  "</CompleteMultipartUploadResult>");
}

static void say_instead(const struct s3f_server *server, const struct s3f_action *action,
                        struct s3f_reply *reply) {
    const char *code = strchr(action->text, '/');
    switch (action->kind) {
    case S3F_DO_STATUS:
        s3f_refuse(reply, (int)strtol(action->text, NULL, 10), code ? code + 1 : "ByRule",
                   "by rule");
        return;
    case S3F_DO_REDIRECT:
        say_redirect(server, action, reply);
        return;
    case S3F_DO_COMPLETE_200_ERROR:
        s3f_refuse(reply, 200, action->text, "We encountered an internal error.");
        return;
    case S3F_DO_HUGE_ERROR:
        s3f_refuse(reply, 500, "InternalError", "huge");
        return;
    case S3F_DO_HTML:
        cairn_buf_clear(&reply->headers);
        s3f_say(&reply->headers, "Content-Type: text/html\r\n");
        s3f_say(&reply->body, "<!DOCTYPE html>\n<html><head><title>Sign in</title></head>"
                              "<body><p>Please sign in.<br></body></html>\n");
        return;
    case S3F_DO_BODY:
        s3f_say(&reply->body, "%s", action->text);
        return;
    case S3F_DO_ENTITY_BOMB:
        say_bomb(&reply->body);
        return;
    case S3F_DO_DEEP_XML:
        for (int64_t i = 0; i < (action->number ? action->number : 100000); i++)
            s3f_say(&reply->body, "<a>");
        return;
    default:
        return;
    }
}

bool s3f_override(const struct s3f_server *server, const struct s3f_plan *plan,
                  struct s3f_reply *reply) {
    if (!s3f_overrides(plan)) return false;
    reply->status = 200;
    reply->no_body = false;
    reply->code[0] = '\0';
    cairn_buf_clear(&reply->headers);
    cairn_buf_clear(&reply->body);
    for (size_t i = 0; i < plan->count; i++) {
        const struct s3f_action *action = &plan->actions[i];
        if (!is_override(action->kind)) continue;
        bool status_given = reply->status != 200;
        int status = reply->status;
        if (action->kind != S3F_DO_STATUS) cairn_buf_clear(&reply->body);
        say_instead(server, action, reply);
        if (status_given && action->kind != S3F_DO_REDIRECT) reply->status = status;
    }
    return true;
}

/* ---- the head ---- */

/* Takes every line of that name out of a head. */
static void drop_header(struct cairn_buf *head, const char *name) {
    size_t size = strlen(name);
    for (char *line = head->data; line && *line;) {
        char *end = strstr(line, "\r\n");
        if (!end) return;
        end += 2;
        if (strncasecmp(line, name, size) != 0 || line[size] != ':') {
            line = end;
            continue;
        }
        size_t rest = head->size - (size_t)(end - head->data);
        memmove(line, end, rest + 1);
        head->size -= (size_t)(end - line);
    }
}

static void edit_head(const struct s3f_plan *plan, struct cairn_buf *head) {
    for (size_t i = 0; i < plan->count; i++) {
        const struct s3f_action *action = &plan->actions[i];
        if (action->kind == S3F_DO_DROP_HEADER) drop_header(head, action->text);
        if (action->kind == S3F_DO_GZIP) s3f_say(head, "Content-Encoding: gzip\r\n");
        if (action->kind != S3F_DO_HEADER) continue;
        char name[96];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(action->text, ":"), action->text);
        drop_header(head, name);
        CAIRN_AUTO(buf) text = {0}; /* %2C is a comma, which parts actions */
        if (cairn_percent_decode(cairn_view_of(action->text), &text, NULL) == CAIRN_OK)
            s3f_say(head, "%s\r\n", text.data);
    }
}

static void make_head(struct s3f_server *server, const struct s3f_plan *plan,
                      const struct s3f_reply *reply, uint64_t length, bool last,
                      struct cairn_buf *ret) {
    char time[32];
    cairn_lock_take(&server->lock);
    s3f_time_http(s3f_now_ms(&server->state), time);
    cairn_lock_give(&server->lock);
    s3f_say(ret,
            "HTTP/1.1 %d %s\r\nDate: %s\r\nServer: s3fault\r\nx-amz-request-id: s3fault-%" PRIu64
            "\r\n%s",
            reply->status, s3f_status_text(reply->status), time, reply->serial,
            reply->headers.size ? reply->headers.data : "");
    if (s3f_plan_find(plan, S3F_DO_COMPLETE_WHITESPACE))
        s3f_say(ret, "Transfer-Encoding: chunked\r\n");
    else if (reply->status != 204 && reply->status != 304)
        s3f_say(ret, "Content-Length: %" PRIu64 "\r\n", length);
    if (last) s3f_say(ret, "Connection: close\r\n");
    edit_head(plan, ret);
    s3f_say(ret, "\r\n");
}

/* ---- the bytes ---- */

struct sender {
    struct s3f_connection *connection;
    const struct s3f_plan *plan;
    bool in_head;
    uint64_t sent, size; /* of the head, or of the body */
    uint64_t stalled;    /* the place of a stall that is over */
};

static const struct s3f_action *next_event(const struct sender *sender, uint64_t *ret_at) {
    const struct s3f_action *found = NULL;
    for (size_t i = 0; i < sender->plan->count; i++) {
        const struct s3f_action *action = &sender->plan->actions[i];
        if (action->kind != S3F_DO_STALL && action->kind != S3F_DO_RST &&
            action->kind != S3F_DO_FIN && action->kind != S3F_DO_FLIP)
            continue;
        uint64_t at = s3f_place(action, sender->size);
        if (action->in_head != sender->in_head || at < sender->sent || (found && at >= *ret_at) ||
            (at == sender->stalled && action->kind == S3F_DO_STALL))
            continue;
        found = action;
        *ret_at = at;
    }
    return found;
}

/* False: the connection is over. */
static bool run_event(struct sender *sender, const struct s3f_action *event, const uint8_t *next) {
    struct s3f_wire *wire = &sender->connection->wire;
    switch (event->kind) {
    case S3F_DO_RST:
        s3f_wire_reset(wire);
        return false;
    case S3F_DO_FIN:
        s3f_wire_finish(wire, false);
        return false;
    case S3F_DO_STALL:
        sender->stalled = sender->sent;
        return s3f_wire_hold(wire, event->ms);
    default:
        sender->sent++;
        return s3f_wire_send(wire, &(uint8_t){(uint8_t)(*next ^ 1)}, 1, false);
    }
}

static bool let_out(struct sender *sender, const void *data, uint64_t size, bool more) {
    const uint8_t *at = data;
    uint64_t end = sender->sent + size, place = 0;
    for (;;) {
        const struct s3f_action *event = next_event(sender, &place);
        bool here = event && (place < end || (place == end && end == sender->size));
        if (here && event->kind == S3F_DO_FLIP && place == end) here = false;
        uint64_t piece = (here ? place : end) - sender->sent;
        if (!s3f_wire_send(&sender->connection->wire, at, piece, more && !here)) return false;
        sender->sent += piece;
        at += piece;
        if (!here) return true;
        uint64_t before = sender->sent;
        if (!run_event(sender, event, at)) return false;
        at += sender->sent - before;
    }
}

/* Bytes [from, to) of an object. */
static bool let_object_out(struct sender *sender, const struct s3f_reply *reply, uint64_t length) {
    uint64_t skip = reply->offset;
    const struct s3f_object *object = reply->object;
    for (size_t i = 0; i < object->body_count && length; i++) {
        const struct s3f_body *body = object->bodies[i];
        if (skip >= body->size) {
            skip -= body->size;
            continue;
        }
        uint64_t size = cairn_min_u64(body->size - skip, length);
        length -= size;
        if (!let_out(sender, body->bytes + skip, size, length > 0)) return false;
        skip = 0;
    }
    return true;
}

/* White space while a slow Complete goes on, then the result, or a cut. */
static bool let_chunks_out(struct sender *sender, const struct s3f_reply *reply, uint64_t ms) {
    struct s3f_wire *wire = &sender->connection->wire;
    uint64_t end = cairn_mono_ms() + ms;
    while (cairn_mono_ms() < end)
        if (!s3f_wire_send(wire, "1\r\n \r\n", 6, false) ||
            !s3f_wire_hold(wire, WHITESPACE_EVERY_MS))
            return false;
    if (s3f_plan_find(sender->plan, S3F_DO_CUT)) {
        s3f_wire_reset(wire);
        return false;
    }
    CAIRN_AUTO(buf) chunk = {0};
    s3f_say(&chunk, "%zx\r\n%s\r\n0\r\n\r\n", reply->body.size, reply->body.data);
    return s3f_wire_send(wire, chunk.data, chunk.size, false);
}

static bool let_filler_out(struct sender *sender, uint64_t size) {
    memset(sender->connection->scrap, 'x', S3F_SCRAP_BYTES);
    while (size) {
        uint64_t piece = cairn_min_u64(size, S3F_SCRAP_BYTES);
        if (!let_out(sender, sender->connection->scrap, piece, false)) return false;
        size -= piece;
    }
    return true;
}

struct lengths {
    uint64_t body, filler; /* of the reply itself, and behind it */
};

static struct lengths plan_lengths(const struct s3f_plan *plan, const struct s3f_reply *reply) {
    struct lengths ret = {.body = reply->object ? reply->length : reply->body.size};
    const struct s3f_action *shorter = s3f_plan_find(plan, S3F_DO_SHORT_LENGTH);
    const struct s3f_action *longer = s3f_plan_find(plan, S3F_DO_LONG_BODY);
    const struct s3f_action *truncate = s3f_plan_find(plan, S3F_DO_TRUNCATE);
    const struct s3f_action *huge = s3f_plan_find(plan, S3F_DO_HUGE_ERROR);
    if (truncate) ret.body = s3f_place(truncate, ret.body);
    if (shorter)
        ret.body -= cairn_min_u64(ret.body, shorter->number ? (uint64_t)shorter->number : 1);
    if (longer) ret.filler = longer->number ? (uint64_t)longer->number : 1;
    if (huge) ret.filler = (huge->number ? (uint64_t)huge->number : 1024) * CAIRN_MIB;
    return ret;
}

static bool send_all(struct sender *sender, struct s3f_reply *reply, const struct cairn_buf *head,
                     const struct lengths *lengths) {
    const struct s3f_action *space = s3f_plan_find(sender->plan, S3F_DO_COMPLETE_WHITESPACE);
    bool bare = reply->no_body || reply->status == 204 || reply->status == 304;
    sender->in_head = true;
    sender->size = head->size;
    bool follows = !bare && lengths->body + lengths->filler > 0;
    if (!let_out(sender, head->data, head->size, follows && !space)) return false;
    if (bare) return true;
    if (space) return let_chunks_out(sender, reply, (uint64_t)space->number);
    sender->in_head = false;
    sender->sent = 0;
    sender->stalled = UINT64_MAX;
    sender->size = lengths->body + lengths->filler;
    bool sent = reply->object ? let_object_out(sender, reply, lengths->body)
                              : let_out(sender, reply->body.data, lengths->body, false);
    return sent && let_filler_out(sender, lengths->filler);
}

bool s3f_send(struct s3f_connection *connection, const struct s3f_plan *plan,
              struct s3f_reply *reply, bool last) {
    const struct s3f_action *flood = s3f_plan_find(plan, S3F_DO_FLOOD_1XX);
    const struct s3f_action *slow = s3f_plan_find(plan, S3F_DO_SLOW);
    struct sender sender = {.connection = connection, .plan = plan, .stalled = UINT64_MAX};
    struct lengths lengths = plan_lengths(plan, reply);
    CAIRN_AUTO(buf) head = {0};
    make_head(connection->server, plan, reply, lengths.body + lengths.filler, last, &head);
    /* Without a length the end of the connection ends the body. */
    if (!strcasestr(head.data, "\r\nContent-Length:") && !reply->no_body &&
        !strcasestr(head.data, "\r\nTransfer-Encoding:") && reply->status != 204 &&
        reply->status != 304)
        last = true;
    if (s3f_plan_find(plan, S3F_DO_CLOSE)) last = true;
    for (int64_t i = 0; flood && i < (flood->number ? flood->number : 1000); i++) {
        static const char early[] = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        if (!s3f_wire_send(&connection->wire, early, sizeof early - 1, false)) return false;
    }
    uint64_t cap = connection->wire.cap_bytes_per_s;
    if (slow && slow->number > 0) connection->wire.cap_bytes_per_s = (uint64_t)slow->number;
    bool good = send_all(&sender, reply, &head, &lengths);
    connection->wire.cap_bytes_per_s = cap;
    if (good && last) s3f_wire_finish(&connection->wire, true);
    return good && !last;
}
