/* SPDX-License-Identifier: Apache-2.0 */
/* exchange: one request from its head to its end, in the order in which a rule can touch it. */

#include "tests/support/s3fault/ops.h"
#include "tests/support/s3fault/send.h"

#define DRAIN_BYTES_MAX (64 * CAIRN_MIB)

struct exchange {
    struct s3f_connection *connection;
    struct s3f_server *server;
    struct s3f_request request;
    struct s3f_plan plan;
    struct s3f_reply reply;
    struct s3f_intake intake;
    uint64_t started_us, rules_set; /* of the server, when this request met its rules */
};

static void exchange_release(struct exchange *x) {
    cairn_lock_take(&x->server->lock);
    x->server->bytes_sent += x->connection->wire.sent_bytes;
    x->connection->wire.sent_bytes = 0;
    s3f_body_drop(&x->server->state, x->intake.body);
    s3f_object_drop(&x->server->state, x->reply.object);
    cairn_lock_give(&x->server->lock);
    cairn_buf_release(&x->reply.headers);
    cairn_buf_release(&x->reply.body);
    s3f_request_release(&x->request);
}

static const struct s3f_action *find(const struct exchange *x, enum s3f_action_kind kind) {
    return s3f_plan_find(&x->plan, kind);
}

static void wait_ms(int64_t ms) {
    struct timespec span = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&span, NULL); /* pause of a stand-in: as its rules say */
}

static uint64_t rules_set(struct s3f_server *server) {
    CAIRN_HOLD(&server->lock);
    return server->rules_set;
}

static void journal(struct exchange *x, bool replied, const char *note) {
    struct s3f_entry entry = {.connection = x->connection,
                              .request = &x->request,
                              .plan = &x->plan,
                              .reply = replied ? &x->reply : NULL,
                              .received = x->intake.received,
                              .crc32c = x->intake.body ? x->intake.body->crc32c : 0,
                              .started_us = x->started_us,
                              .note = note};
    s3f_journal(x->server, &entry);
}

/* ---- before the request is judged ---- */

static void expire_key(struct exchange *x) {
    struct s3f_reply scrap = {0};
    if (s3f_authenticate(x->server, &x->request, &scrap)) {
        CAIRN_HOLD(&x->server->lock);
        for (size_t i = 0; i < x->server->key_count; i++)
            if (!strcmp(x->server->keys[i].access, x->request.access_key))
                x->server->keys[i].expired = true;
    }
    cairn_buf_release(&scrap.headers);
    cairn_buf_release(&scrap.body);
}

static void match_rules(struct exchange *x) {
    struct s3f_server *server = x->server;
    const struct s3f_request *request = &x->request;
    const char *prefix = *request->key ? NULL : s3f_query(request, "prefix");
    struct s3f_subject subject = {request->op, prefix ? prefix : request->key, request->part_number,
                                  x->connection->local};
    CAIRN_HOLD(&server->lock);
    server->op_count[request->op]++;
    s3f_rules_match(server->rules, &subject, &x->plan);
    x->rules_set = server->rules_set;
    const struct s3f_action *clock = find(x, S3F_DO_CLOCK);
    if (clock) server->state.clock_offset_ms += clock->number * 1000;
    struct s3f_upload *upload =
        request->upload_id && find(x, S3F_DO_DROP_UPLOAD)
            ? s3f_upload_find(&server->state, request->bucket, request->key, request->upload_id)
            : NULL;
    if (upload && !upload->completed) s3f_upload_remove(&server->state, upload);
    if (find(x, S3F_DO_DROP_OBJECT))
        s3f_object_vanish(&server->state, request->bucket, request->key);
}

/* What can be said without the body. */
static bool judge_head(struct exchange *x) {
    struct s3f_request *request = &x->request;
    const struct s3f_profile *profile = x->server->options.profile;
    if (!s3f_authenticate(x->server, request, &x->reply)) return false;
    bool sends = !strcmp(request->method, "PUT") || !strcmp(request->method, "POST");
    if (sends && !request->has_length) {
        s3f_refuse(&x->reply, 411, "MissingContentLength",
                   "You must provide the Content-Length HTTP header.");
        return false;
    }
    bool bulk = request->op == S3F_PUT || request->op == S3F_PART;
    if (request->content_length > (bulk ? S3F_BODY_BYTES_MAX : 4 * CAIRN_MIB)) {
        s3f_refuse(&x->reply, 400, "EntityTooLarge", "the body is too large");
        return false;
    }
    for (size_t i = 0; i < request->header_count && profile->checksum_refused; i++)
        if (!strncmp(request->headers[i].name, "x-amz-checksum-", 15)) {
            s3f_refuse(&x->reply, profile->checksum_refused, "InvalidArgument",
                       "Unsupported header '%s' received for this API call.",
                       request->headers[i].name);
            return false;
        }
    return true;
}

/* ---- the answer ---- */

static void make_reply(struct exchange *x) {
    if (!s3f_body_holds(x->server, &x->request, &x->intake, &x->reply)) return;
    struct s3f_call call = {.server = x->server,
                            .request = &x->request,
                            .plan = &x->plan,
                            .body = x->intake.body,
                            .reply = &x->reply};
    s3f_apply(&call);
    x->reply.no_body = x->request.op == S3F_HEAD || x->request.op == S3F_BUCKET_HEAD;
}

/* Refused now, done later, as a store may do that was slower than its front door. */
static bool answer_late(struct exchange *x, int64_t ms) {
    cairn_lock_take(&x->server->lock);
    x->server->pending++;
    cairn_lock_give(&x->server->lock);
    if (!s3f_override(x->server, &x->plan, &x->reply))
        s3f_refuse(&x->reply, 500, "InternalError", "it will be done all the same");
    journal(x, true, NULL);
    s3f_send(x->connection, &x->plan, &x->reply, true);
    wait_ms(ms);
    cairn_buf_clear(&x->reply.headers);
    cairn_buf_clear(&x->reply.body);
    x->reply.code[0] = '\0';
    make_reply(x);
    journal(x, true, "late");
    cairn_lock_take(&x->server->lock);
    x->server->pending--;
    cairn_lock_give(&x->server->lock);
    return false;
}

/* False: the connection is over. */
static bool answer(struct exchange *x, bool allowed) {
    const struct s3f_action *late = find(x, S3F_DO_APPLY_LATE);
    const struct s3f_action *delay = find(x, S3F_DO_DELAY);
    const struct s3f_action *etag = find(x, S3F_DO_ETAG);
    bool early = x->intake.end == S3F_EARLY;
    bool instead = s3f_overrides(&x->plan);
    if (etag) x->request.etag_mode = etag->text;
    if (allowed && late && !early) return answer_late(x, late->number);
    bool applies = !instead || find(x, S3F_DO_APPLY) || find(x, S3F_DO_LOSE_REPLY);
    if (allowed && applies && !early) make_reply(x);
    if (delay) wait_ms(delay->number);
    while (find(x, S3F_DO_HELD) && rules_set(x->server) == x->rules_set) wait_ms(1);
    if (instead && (allowed || find(x, S3F_DO_STATUS) || find(x, S3F_DO_REDIRECT)))
        s3f_override(x->server, &x->plan, &x->reply);
    else if (early)
        s3f_refuse(&x->reply, 503, "SlowDown", "Please reduce your request rate.");
    bool lost = find(x, S3F_DO_LOSE_REPLY) != NULL;
    journal(x, !lost, NULL);
    if (lost) {
        s3f_wire_reset(&x->connection->wire);
        return false;
    }
    if (instead && x->reply.object) x->reply.length = 0;
    if (!early) return s3f_send(x->connection, &x->plan, &x->reply, !x->request.keep_alive);
    x->plan.actions[0] = (struct s3f_action){.kind = S3F_DO_RST, .from_end = true};
    x->plan.count = 1; /* the reply, then RST, since the rest of the body was never read */
    return s3f_send(x->connection, &x->plan, &x->reply, false);
}

static bool take_body(struct exchange *x, bool allowed) {
    const char *expect = s3f_header(&x->request, "expect");
    struct s3f_wire *wire = &x->connection->wire;
    if (expect && allowed && !find(x, S3F_DO_NO_CONTINUE) &&
        !s3f_wire_send(wire, "HTTP/1.1 100 Continue\r\n\r\n", 25, false))
        return false;
    if (!allowed && x->request.content_length > DRAIN_BYTES_MAX) return true;
    if (!allowed) x->request.op = S3F_UNKNOWN; /* nothing is kept */
    if (!s3f_take_in(x->connection, &x->request, &x->plan, &x->intake)) {
        s3f_refuse(&x->reply, 503, "SlowDown", "the memory bound is reached");
        x->intake.end = S3F_EARLY;
    }
    return true;
}

static bool exchange_s3(struct exchange *x) {
    bool routed = s3f_route(x->server, &x->request, &x->reply);
    enum s3f_op op = x->request.op;
    match_rules(x);
    if (find(x, S3F_DO_EXPIRE_KEYS)) expire_key(x);
    bool allowed = routed && judge_head(x);
    if (!take_body(x, allowed)) return false;
    x->request.op = op;
    if (x->intake.end == S3F_LEFT || x->intake.end == S3F_ENDED) {
        journal(x, false, x->intake.end == S3F_LEFT ? "peer left" : "ended by rule");
        return false;
    }
    return answer(x, allowed);
}

static bool exchange_control(struct exchange *x) {
    struct cairn_view body = {0};
    if (x->request.content_length > 4 * CAIRN_MIB ||
        !s3f_take_in(x->connection, &x->request, &x->plan, &x->intake))
        return false;
    if (x->intake.body) body = (struct cairn_view){x->intake.body->bytes, x->intake.body->size};
    s3f_control(x->server, &x->request, body, &x->reply);
    return s3f_send(x->connection, &x->plan, &x->reply, !x->request.keep_alive);
}

bool s3f_exchange(struct s3f_connection *connection) {
    struct exchange x = {.connection = connection,
                         .server = connection->server,
                         .plan = {.rule = -1},
                         .request = {.op = S3F_UNKNOWN, .key = ""}};
    struct cairn_error err = {0};
    enum cairn_code code = s3f_request_read(&connection->wire, &x.request, &err);
    x.started_us = cairn_mono_us();
    bool again = false;
    if (code != CAIRN_UNAVAILABLE) {
        cairn_lock_take(&x.server->lock);
        x.reply.serial = ++x.server->requests;
        cairn_lock_give(&x.server->lock);
    }
    if (code == CAIRN_OK) {
        bool control = !strncmp(x.request.path, "/-/", 3);
        again = control ? exchange_control(&x) : exchange_s3(&x);
    } else if (code != CAIRN_UNAVAILABLE) {
        x.request.method = "?";
        s3f_refuse(&x.reply, code == CAIRN_UNSUPPORTED ? 501 : 400, "BadRequest", "%s",
                   err.message);
        journal(&x, true, err.message);
        again = s3f_send(connection, &x.plan, &x.reply, true);
    }
    exchange_release(&x);
    return again;
}
