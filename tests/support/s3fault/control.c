/* SPDX-License-Identifier: Apache-2.0 */
/* control: the journal, and the paths under /-/ by which tests and auditors look and steer. */

#include "tests/support/s3fault/server.h"

#define JOURNAL_BYTES_MAX (16 * CAIRN_MIB)

/* ---- journal ---- */

static void keep_line(struct s3f_server *server, const struct cairn_buf *line) {
    struct cairn_buf *journal = &server->journal;
    if (journal->size + line->size > JOURNAL_BYTES_MAX) {
        char *half = memchr(journal->data + journal->size / 2, '\n', journal->size / 2);
        size_t dropped = half ? (size_t)(half + 1 - journal->data) : journal->size;
        for (size_t i = 0; i < dropped; i++) server->journal_dropped += journal->data[i] == '\n';
        memmove(journal->data, journal->data + dropped, journal->size - dropped);
        journal->size -= dropped;
    }
    journal->limit = JOURNAL_BYTES_MAX + CAIRN_MIB;
    if (cairn_buf_append(journal, line->data, line->size, NULL) != CAIRN_OK) abort();
    if (!server->journal_file) return;
    fwrite(line->data, 1, line->size, server->journal_file);
    fflush(server->journal_file);
}

static void say_request(struct cairn_buf *line, const struct s3f_request *request) {
    s3f_say(line, ",\"op\":\"%s\",\"method\":", s3f_op_name(request->op));
    s3f_say_json(line, request->method ? request->method : "");
    s3f_say(line, ",\"bucket\":");
    s3f_say_json(line, request->bucket);
    s3f_say(line, ",\"key\":");
    s3f_say_json(line, request->key ? request->key : "");
    if (request->upload_id) {
        s3f_say(line, ",\"upload\":");
        s3f_say_json(line, request->upload_id);
    }
    if (request->part_number) s3f_say(line, ",\"part\":%" PRIu32, request->part_number);
    const char *range = request->header_count ? s3f_header(request, "range") : NULL;
    if (range) {
        s3f_say(line, ",\"range\":");
        s3f_say_json(line, range);
    }
    const char *source = request->header_count ? s3f_header(request, "x-amz-copy-source") : NULL;
    if (source) {
        s3f_say(line, ",\"copy_source\":");
        s3f_say_json(line, source);
    }
    const char *if_match = request->header_count ? s3f_header(request, "if-match") : NULL;
    if (if_match) {
        s3f_say(line, ",\"if_match\":");
        s3f_say_json(line, if_match);
    }
    s3f_say(line, ",\"access_key\":");
    s3f_say_json(line, request->access_key);
}

void s3f_journal(struct s3f_server *server, const struct s3f_entry *entry) {
    CAIRN_AUTO(buf) line = {0};
    const struct s3f_reply *reply = entry->reply;
    int64_t wall_ms = cairn_clock_real.wall_ms(&cairn_clock_real);
    uint64_t now = cairn_mono_us(), sent = 0;
    if (reply && !reply->no_body) sent = reply->object ? reply->length : reply->body.size;
    s3f_say(&line,
            "{\"time_ms\":%" PRId64 ",\"mono_us\":%" PRIu64 ",\"took_us\":%" PRIu64
            ",\"connection\":%" PRIu64 ",\"local\":\"%s\"",
            wall_ms, now, now - entry->started_us, entry->connection->serial,
            entry->connection->local);
    say_request(&line, entry->request);
    s3f_say(&line,
            ",\"status\":%d,\"code\":\"%s\",\"bytes_in\":%" PRIu64 ",\"bytes_out\":%" PRIu64
            ",\"crc32c\":\"%08" PRIx32 "\",\"rule\":%d,\"actions\":",
            reply ? reply->status : 0, reply ? reply->code : "", entry->received, sent,
            entry->crc32c, entry->plan->rule);
    s3f_say_json(&line, entry->plan->rule >= 0 ? entry->plan->text : "");
    s3f_say(&line, ",\"note\":");
    s3f_say_json(&line, entry->note ? entry->note : "");
    s3f_say(&line, "}\n");
    CAIRN_HOLD(&server->lock);
    server->bytes_in += entry->received;
    server->bytes_out += sent;
    if (!reply || reply->status >= 400) server->errors++;
    keep_line(server, &line);
}

/* ---- state ---- */

static void say_metadata(struct cairn_buf *body, const char *lines) {
    bool first = true;
    s3f_say(body, "{");
    while (*lines) {
        const char *end = strstr(lines, "\r\n"), *colon = strchr(lines, ':');
        if (!strncmp(lines, "x-amz-meta-", 11)) {
            char name[128], value[2048];
            snprintf(name, sizeof name, "%.*s", (int)(colon - lines - 11), lines + 11);
            snprintf(value, sizeof value, "%.*s", (int)(end - colon - 2), colon + 2);
            if (!first) s3f_say(body, ",");
            s3f_say_json(body, name);
            s3f_say(body, ":");
            s3f_say_json(body, value);
            first = false;
        }
        lines = end + 2;
    }
    s3f_say(body, "}");
}

static void say_objects(const struct s3f_state *state, struct cairn_buf *body) {
    s3f_say(body, "\"objects\":[");
    for (size_t i = 0; i < state->object_count; i++) {
        const struct s3f_object *object = state->objects[i];
        s3f_say(body, "%s{\"bucket\":\"%s\",\"key\":", i ? ",\n" : "\n", object->bucket);
        s3f_say_json(body, object->key);
        s3f_say(body, ",\"size\":%" PRIu64 ",\"crc32c\":\"%08" PRIx32 "\",\"etag\":", object->size,
                object->crc32c);
        s3f_say_json(body, object->etag);
        s3f_say(body, ",\"checksum\":\"%s\",\"parts\":%zu,\"modified_ms\":%" PRId64 ",\"meta\":",
                object->checksum, object->body_count, object->modified_ms);
        say_metadata(body, object->metadata);
        s3f_say(body, "}");
    }
    s3f_say(body, "],");
}

static void say_uploads(const struct s3f_state *state, struct cairn_buf *body) {
    bool first = true;
    s3f_say(body, "\"uploads\":[");
    for (size_t i = 0; i < state->upload_count; i++) {
        const struct s3f_upload *upload = state->uploads[i];
        if (upload->completed) continue;
        uint64_t size = 0;
        for (size_t j = 0; j < upload->part_count; j++) size += upload->parts[j].body->size;
        s3f_say(body, "%s{\"bucket\":\"%s\",\"key\":", first ? "\n" : ",\n", upload->bucket);
        s3f_say_json(body, upload->key);
        s3f_say(body,
                ",\"upload\":\"%s\",\"parts\":%zu,\"bytes\":%" PRIu64 ",\"meta\":", upload->id,
                upload->part_count, size);
        say_metadata(body, upload->metadata);
        s3f_say(body, "}");
        first = false;
    }
    s3f_say(body, "],");
}

/* Versions that no GET without an id finds, and markers, are told by ListObjectVersions alone; here
 * is how much of it costs. */
static void say_versions(const struct s3f_state *state, struct cairn_buf *body) {
    uint64_t bytes = 0, markers = 0;
    for (size_t i = 0; i < state->version_count; i++) {
        const struct s3f_object *object = state->versions[i]->object;
        bytes += object ? object->size : 0;
        markers += !object;
    }
    s3f_say(body, ",\"versions\":%zu,\"markers\":%" PRIu64 ",\"version_bytes\":%" PRIu64,
            state->version_count, markers, bytes);
}

static void say_counters(const struct s3f_server *server, struct cairn_buf *body) {
    s3f_say(body,
            "\"counters\":{\"requests\":%" PRIu64 ",\"connections\":%" PRIu64
            ",\"connections_now\":%" PRIu64 ",\"pending\":%" PRIu64 ",\"errors\":%" PRIu64
            ",\"bytes_in\":%" PRIu64 ",\"bytes_out\":%" PRIu64 ",\"bytes_sent\":%" PRIu64
            ",\"memory_bytes\":%" PRIu64 ",\"journal_dropped\":%" PRIu64,
            server->requests, server->connections, server->connections_now, server->pending,
            server->errors, server->bytes_in, server->bytes_out, server->bytes_sent,
            server->state.memory_bytes, server->journal_dropped);
    for (unsigned i = 0; i < S3F_OP_COUNT; i++)
        if (server->op_count[i])
            s3f_say(body, ",\"op_%s\":%" PRIu64, s3f_op_name((enum s3f_op)i), server->op_count[i]);
    say_versions(&server->state, body);
    s3f_say(body, "},\"rules\":[");
    for (size_t i = 0; i < s3f_rules_count(server->rules); i++) {
        uint64_t matched, acted;
        s3f_rules_told(server->rules, i, &matched, &acted);
        s3f_say(body, "%s{\"matched\":%" PRIu64 ",\"acted\":%" PRIu64 "}", i ? "," : "", matched,
                acted);
    }
    s3f_say(body, "]");
}

static void tell_state(struct s3f_server *server, struct cairn_buf *body) {
    CAIRN_HOLD(&server->lock);
    s3f_say(body, "{");
    say_objects(&server->state, body);
    say_uploads(&server->state, body);
    say_counters(server, body);
    s3f_say(body, "}\n");
}

/* ---- steering ---- */

static bool set_rules(struct s3f_server *server, struct cairn_view text, struct cairn_error *err) {
    CAIRN_AUTO(buf) copy = {0};
    s3f_say(&copy, "%.*s", (int)text.size, text.size ? (const char *)text.data : "");
    struct cairn_s3f_rules *rules = NULL;
    if (s3f_rules_new(copy.data ? copy.data : "", server->options.seed, &rules, err) != CAIRN_OK)
        return false;
    CAIRN_HOLD(&server->lock);
    cairn_s3f_rules_free(server->rules);
    server->rules = rules;
    server->rules_set++;
    return true;
}

/* "ACCESS SECRET [TOKEN]": a new pair, or other values for a known one. */
static bool set_key(struct s3f_server *server, struct cairn_view text, struct cairn_error *err) {
    struct s3f_key key = {0};
    char line[2048];
    snprintf(line, sizeof line, "%.*s", (int)text.size, (const char *)text.data);
    if (sscanf(line, "%127s %127s %1023s", key.access, key.secret, key.token) < 2) {
        cairn_fail(err, CAIRN_INVALID, "not \"ACCESS SECRET [TOKEN]\"");
        return false;
    }
    CAIRN_HOLD(&server->lock);
    size_t i = 0;
    while (i < server->key_count && strcmp(server->keys[i].access, key.access) != 0) i++;
    if (i == S3F_KEYS_MAX) {
        cairn_fail(err, CAIRN_INVALID, "more than %d keys", S3F_KEYS_MAX);
        return false;
    }
    server->keys[i] = key;
    if (i == server->key_count) server->key_count++;
    return true;
}

static bool leave(struct s3f_server *server, struct cairn_view text, struct cairn_error *err) {
    char address[S3F_ADDRESS_BYTES];
    snprintf(address, sizeof address, "%.*s", (int)text.size, (const char *)text.data);
    if (s3f_leave(server, address)) return true;
    cairn_fail(err, CAIRN_INVALID, "nobody listens on \"%s\"", address);
    return false;
}

/* What GET BUCKET?versioning and its like answer, and which keys are under legal hold. */
static struct cairn_buf *document_of(struct s3f_server *server, const char *what) {
    if (!strcmp(what, "lifecycle")) return &server->state.lifecycle;
    if (!strcmp(what, "versioning")) return &server->state.versioning;
    if (!strcmp(what, "policy")) return &server->state.policy;
    if (!strcmp(what, "hold")) return &server->state.hold;
    return !strcmp(what, "object-lock") ? &server->state.object_lock : NULL;
}

static void set_document(struct s3f_server *server, struct cairn_buf *document,
                         struct cairn_view text) {
    CAIRN_HOLD(&server->lock);
    cairn_buf_clear(document);
    if (text.size) s3f_say(document, "%.*s", (int)text.size, (const char *)text.data);
}

static void reset(struct s3f_server *server) {
    CAIRN_HOLD(&server->lock);
    s3f_state_clear(&server->state);
    cairn_buf_clear(&server->journal);
    server->state.clock_offset_ms = 0;
    server->requests = server->connections = server->errors = 0;
    server->bytes_in = server->bytes_out = server->bytes_sent = server->journal_dropped = 0;
    memset(server->op_count, 0, sizeof server->op_count);
    for (size_t i = 0; i < server->key_count; i++) server->keys[i].expired = false;
}

void s3f_control(struct s3f_server *server, const struct s3f_request *request,
                 struct cairn_view body, struct s3f_reply *reply) {
    const char *what = request->path + 3;
    bool post = !strcmp(request->method, "POST"), good = true;
    struct cairn_error err = {0};
    reply->status = 200;
    if (!post && !strcmp(what, "state")) {
        tell_state(server, &reply->body);
    } else if (!post && !strcmp(what, "journal")) {
        CAIRN_HOLD(&server->lock);
        s3f_say(&reply->body, "%s", server->journal.size ? server->journal.data : "");
    } else if (post && !strcmp(what, "rules")) {
        good = set_rules(server, body, &err);
    } else if (post && !strcmp(what, "keys")) {
        good = set_key(server, body, &err);
    } else if (post && !strcmp(what, "leave")) {
        good = leave(server, body, &err);
    } else if (post && !strcmp(what, "clock")) {
        char seconds[24]; /* no NUL ends the body */
        snprintf(seconds, sizeof(seconds), "%.*s", (int)cairn_min_u64(body.size, 23),
                 body.size ? (const char *)body.data : "0");
        CAIRN_HOLD(&server->lock);
        server->state.clock_offset_ms = strtoll(seconds, NULL, 10) * 1000;
    } else if (post && document_of(server, what)) {
        set_document(server, document_of(server, what), body);
    } else if (post && !strcmp(what, "reset")) {
        reset(server);
        good = set_rules(server, (struct cairn_view){0}, &err);
    } else {
        good = false;
        cairn_fail(&err, CAIRN_INVALID,
                   "GET state, GET journal, POST rules, POST keys, POST leave, POST reset");
    }
    if (good) return;
    reply->status = 400;
    s3f_say(&reply->body, "%s\n", err.message);
}
