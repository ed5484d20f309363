/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that a helper answers: lists, removals, annotations, aliases, warm-ups, reasons, all
 * from the server, errors included; and restore, window, read, release. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/documents/digest.h"
#include "api/wire/frame.h"
#include "api/wire/messages.h"
#include "common/crc.h"
#include "common/text.h"
#include "uploader/fetch/fetch.h"
#include "uploader/saves/slabs.h"
#include "uploader/server/calls.h"
#include "uploader/trainers/inside.h"

#define LEASES_BACK_MS 5000

struct question { /* of one request, answered by a helper */
    struct cairn_up *up;
    uint64_t conn, answer_by_ms;
    int64_t request;
    struct cairn_run_name name;
    uint32_t rank;
    /* from the request; each kind uses some */
    bool lists_runs;
    uint64_t limit;
    char cursor[600], ref[128], state[17], labels[1025], alias[64];
    char version[CAIRN_VERSION_ID_BYTES];
    json_t *body; /* of PATCH and PUT; owned */
    char run_text[2 * CAIRN_NAME_BYTES_MAX + 2], grant[CAIRN_GRANT_BYTES_MAX]; /* of an attempt */
    struct cairn_key probe;
    struct cairn_up_mail_item item; /* of a restore and a window, whose session keeps the result */
    char format[64], known_version[CAIRN_VERSION_ID_BYTES];
    bool insists, looks, writable;
    uint32_t local_world_size;
    uint64_t known_step, bytes, asked_us;
    /* the answer */
    enum cairn_code code;
    struct cairn_error error;
    json_t *reply;
    struct cairn_up_version *loaded;
    struct cairn_up_window *window;
};

static void question_free(void *owner) {
    struct question *question = owner;
    json_decref(question->body);
    json_decref(question->reply);
    cairn_up_version_leave(question->loaded);
    cairn_up_window_leave(question->window);
    free(question);
}

static struct question *question_new(const struct cairn_up_session *session,
                                     const struct cairn_up_request *request, uint64_t timeout_ms,
                                     struct cairn_error *err) {
    struct question *question = calloc(1, sizeof(*question));
    if (!question) {
        (void)cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request");
        return NULL;
    }
    question->up = session->up;
    question->conn = session->conn;
    question->request = request->id;
    question->name = session->name;
    question->rank = session->rank;
    question->answer_by_ms = cairn_up_answer_by_ms(timeout_ms);
    question->asked_us = cairn_mono_us();
    return question;
}

/* Takes the named run in place of the session's. */
static enum cairn_code choose_run(struct question *question, const char *run,
                                  struct cairn_error *err) {
    if (run) CAIRN_TRY(cairn_run_name_parse(run, &question->name, err));
    if (question->name.run[0]) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "the session has no run, and the request names none");
}

static enum cairn_code hand_over(struct question *question,
                                 void (*run)(struct cairn_up_helper *helper, void *owner),
                                 struct cairn_error *err) {
    enum cairn_code code =
        cairn_up_tasks_add(question->up->tasks, run, question_free, question, err);
    if (code != CAIRN_OK) question_free(question);
    return code;
}

static enum cairn_code hand_over_of_run(struct question *question,
                                        void (*run)(struct cairn_up_helper *helper, void *owner),
                                        struct cairn_error *err) {
    enum cairn_code code = choose_run(question, NULL, err);
    if (!code) return hand_over(question, run, err);
    question_free(question);
    return code;
}

static void copy_text(char *to, size_t size, const char *from) {
    (void)cairn_text_copy(to, size, from ? from : "");
}

static void set_attempt(struct question *question, const struct cairn_up_attempt *attempt) {
    copy_text(question->run_text, sizeof(question->run_text), attempt->run_text);
    copy_text(question->grant, sizeof(question->grant), attempt->text);
}

/* The answer alone holds the server's reply from here on: the socket's thread frees both. */
static void answer(struct question *question, json_t *take_answer) {
    struct cairn_up_mail *mail = question->up->mail;
    json_decref(question->reply);
    question->reply = NULL;
    if (question->code == CAIRN_OK) {
        cairn_up_mail_answer(mail, question->conn, question->request, take_answer);
    } else {
        cairn_up_mail_refuse(mail, question->conn, question->request, &question->error);
        json_decref(take_answer);
    }
    question_free(question);
}

static enum cairn_code add_query(struct cairn_buf *path, const char *name, const char *value,
                                 struct cairn_error *err) {
    if (!value[0]) return CAIRN_OK;
    CAIRN_TRY(cairn_buf_printf(path, err, "&%s=", name));
    return cairn_percent_encode(cairn_view_of(value), false, path, err);
}

static enum cairn_code ask_page(struct cairn_rest *rest, struct question *question,
                                struct cairn_error *err) {
    CAIRN_AUTO(buf) path = {0};
    if (question->lists_runs)
        CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs?limit=%" PRIu64, question->limit));
    else
        CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/%s/checkpoints?limit=%" PRIu64,
                                   question->name.project, question->name.run, question->limit));
    CAIRN_TRY(add_query(&path, "state", question->state, err));
    CAIRN_TRY(add_query(&path, "l", question->labels, err));
    CAIRN_TRY(add_query(&path, "cursor", question->cursor, err));
    json_decref(CAIRN_TAKE(question->reply));
    CAIRN_TRY(cairn_rest_call(rest, "GET", path.data, NULL,
                              cairn_up_call_ms(question->answer_by_ms, 0), &question->reply, err));
    return question->reply ? CAIRN_OK
                           : cairn_fail(err, CAIRN_PROTOCOL, "the server's list is empty text");
}

/* Versions may carry 64 KiB of `meta` each: a page too large for a frame is requested with half as
 * many versions, and its cursor continues from there. */
static enum cairn_code ask_list(struct cairn_up_helper *helper, struct question *question,
                                struct cairn_error *err) {
    struct cairn_rest *rest = NULL;
    CAIRN_TRY(cairn_up_helper_rest(helper, &rest, err));
    if (question->ref[0]) {
        CAIRN_AUTO(buf) path = {0};
        CAIRN_AUTO_JSON json_t *version = NULL;
        CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/%s/checkpoints/",
                                   question->name.project, question->name.run));
        CAIRN_TRY(cairn_percent_encode(cairn_view_of(question->ref), false, &path, err));
        CAIRN_TRY(cairn_rest_call(rest, "GET", path.data, NULL,
                                  cairn_up_call_ms(question->answer_by_ms, 0), &version, err));
        question->reply = json_pack("{s:[O]}", "items", version);
        return question->reply
                   ? CAIRN_OK
                   : cairn_fail(err, CAIRN_PROTOCOL, "the server's version is empty text");
    }
    for (;; question->limit /= 2) {
        struct cairn_error problem = {0};
        enum cairn_code code = ask_page(rest, question, &problem);
        if (code == CAIRN_OK) code = cairn_frame_holds(question->reply, &problem);
        if (code == CAIRN_TOO_LARGE && question->limit > 1) continue;
        if (code != CAIRN_OK && err) *err = problem;
        return code;
    }
}

static void list_task(struct cairn_up_helper *helper, void *owner) {
    struct question *question = owner;
    do question->code = ask_list(helper, question, &question->error);
    while (cairn_up_helper_again(helper, question->code, question->answer_by_ms));
    answer(question, CAIRN_PACK(listed, .reply = question->reply));
}

enum cairn_code cairn_up_on_list(struct cairn_up_session *session,
                                 const struct cairn_up_request *request, struct cairn_error *err) {
    struct cairn_msg_list told = {.limit = 100, .cursor = ""};
    CAIRN_TRY(cairn_msg_list_read(request->frame->message, "", &told, err));
    struct question *question = question_new(session, request, told.timeout_ms, err);
    if (!question) return CAIRN_NO_MEMORY;
    enum cairn_code code = told.runs ? CAIRN_OK : choose_run(question, told.run, err);
    if (code) {
        question_free(question);
        return code;
    }
    question->limit = told.limit;
    question->lists_runs = told.runs;
    copy_text(question->cursor, sizeof(question->cursor), told.cursor);
    copy_text(question->ref, sizeof(question->ref), told.ref);
    copy_text(question->state, sizeof(question->state), told.state);
    copy_text(question->labels, sizeof(question->labels), told.labels);
    return hand_over(question, list_task, err);
}

/* A version in the trash or gone counts as removed: an earlier answer may have been lost. */
static enum cairn_code ask_remove(struct cairn_up_helper *helper, struct question *question,
                                  struct cairn_error *err) {
    struct cairn_rest *rest = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_up_helper_rest(helper, &rest, err));
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/%s/checkpoints/%s", question->name.project,
                               question->name.run, question->version));
    enum cairn_code code =
        cairn_rest_call(rest, "DELETE", path.data, NULL,
                        cairn_up_call_ms(question->answer_by_ms, 0), &question->reply, err);
    return code == CAIRN_DELETED ? CAIRN_OK : code;
}

/* Waits for the return of ended restores' leases, and releases versions kept for other nodes, since
 * both would block the removal. */
static void remove_task(struct cairn_up_helper *helper, void *owner) {
    struct question *question = owner;
    struct cairn_up_fetch *fetch = helper->up->fetch;
    uint64_t until_ms = cairn_mono_ms() + LEASES_BACK_MS;
    cairn_up_version_let_go(fetch, question->version);
    cairn_up_leases_settle(fetch, question->version,
                           cairn_min_u64(until_ms, question->answer_by_ms));
    do question->code = ask_remove(helper, question, &question->error);
    while (cairn_up_helper_again(helper, question->code, question->answer_by_ms));
    answer(question, CAIRN_PACK(ok, 0));
}

enum cairn_code cairn_up_on_remove(struct cairn_up_session *session,
                                   const struct cairn_up_request *request,
                                   struct cairn_error *err) {
    struct cairn_msg_remove told = {0};
    CAIRN_TRY(cairn_msg_remove_read(request->frame->message, "", &told, err));
    if (!cairn_version_id_valid(cairn_view_of(told.version)))
        return cairn_fail(err, CAIRN_INVALID, "remove names no version");
    struct question *question = question_new(session, request, told.timeout_ms, err);
    if (!question) return CAIRN_NO_MEMORY;
    copy_text(question->version, sizeof(question->version), told.version);
    return hand_over_of_run(question, remove_task, err);
}

/* Overwrites (If-Match: *): labels and metrics merge one by one, and the last write of an alias
 * wins. A new alias has nothing to match. */
static enum cairn_code ask_change(struct cairn_up_helper *helper, struct question *question,
                                  struct cairn_error *err) {
    struct cairn_rest *rest = NULL;
    CAIRN_AUTO(buf) path = {0};
    bool alias = question->alias[0], put = alias && question->body;
    const char *method = put ? "PUT" : alias ? "DELETE" : "PATCH";
    enum cairn_code code = CAIRN_PRECONDITION_MISSING;
    CAIRN_TRY(cairn_up_helper_rest(helper, &rest, err));
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/%s/%s/", question->name.project,
                               question->name.run, alias ? "aliases" : "checkpoints"));
    CAIRN_TRY(cairn_percent_encode(cairn_view_of(alias ? question->alias : question->ref), false,
                                   &path, err));
    for (int matched = !put; matched < 2 && code == CAIRN_PRECONDITION_MISSING; matched++) {
        CAIRN_TRY(cairn_rest_set_if_match(rest, matched ? "*" : NULL, err));
        code = cairn_rest_call(rest, method, path.data, question->body,
                               cairn_up_call_ms(question->answer_by_ms, 0), &question->reply, err);
    }
    (void)!cairn_rest_set_if_match(rest, NULL, NULL); /* for the helper's next request */
    return code;
}

static void change_task(struct cairn_up_helper *helper, void *owner) {
    struct question *question = owner;
    do question->code = ask_change(helper, question, &question->error);
    while (cairn_up_helper_again(helper, question->code, question->answer_by_ms));
    answer(question, CAIRN_PACK(ok, 0));
}

enum cairn_code cairn_up_on_annotate(struct cairn_up_session *session,
                                     const struct cairn_up_request *request,
                                     struct cairn_error *err) {
    struct cairn_msg_annotate told = {.pin = (uint32_t)CAIRN_MESSAGE_NONE};
    CAIRN_TRY(cairn_msg_annotate_read(request->frame->message, "", &told, err));
    struct question *question = question_new(session, request, told.timeout_ms, err);
    if (!question) return CAIRN_NO_MEMORY;
    copy_text(question->ref, sizeof(question->ref), told.ref);
    CAIRN_AUTO_JSON json_t *body = json_object();
    bool failed = !body;
    if (told.labels) failed = json_object_set(body, "labels", told.labels) || failed;
    if (told.metrics) failed = json_object_set(body, "metrics", told.metrics) || failed;
    if (told.pin != (uint32_t)CAIRN_MESSAGE_NONE)
        failed = json_object_set_new(body, "pinned", json_boolean(told.pin)) || failed;
    question->body = failed ? NULL : json_deep_copy(body);
    if (question->body) return hand_over_of_run(question, change_task, err);
    question_free(question);
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a change");
}

enum cairn_code cairn_up_on_alias(struct cairn_up_session *session,
                                  const struct cairn_up_request *request, struct cairn_error *err) {
    struct cairn_msg_alias told = {0};
    CAIRN_TRY(cairn_msg_alias_read(request->frame->message, "", &told, err));
    if (!told.alias[0]) return cairn_fail(err, CAIRN_INVALID, "alias names none");
    struct question *question = question_new(session, request, told.timeout_ms, err);
    if (!question) return CAIRN_NO_MEMORY;
    copy_text(question->alias, sizeof(question->alias), told.alias);
    question->body = told.ref ? CAIRN_PACK(alias_put, .ref = told.ref) : NULL;
    return hand_over_of_run(question, change_task, err);
}

/* ---- warm-up ---- */

#define PROBE_BYTES 4096

/* Fails the probe while the senders wait for the store, as every save then waits. */
static enum cairn_code store_is_there(struct cairn_up *up, struct cairn_error *err) {
    CAIRN_HOLD(&up->lock);
    if (!up->locked.store_waits[0]) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNAVAILABLE, "%s", up->locked.store_waits);
}

static enum cairn_code write_probe(struct cairn_up_helper *helper, const struct question *question,
                                   struct cairn_error *err) {
    static const char bytes[PROBE_BYTES] = "a probe of cairn: nothing is kept here\n";
    struct cairn_store_worker *store = NULL;
    CAIRN_TRY(store_is_there(helper->up, err));
    CAIRN_TRY(cairn_up_helper_store(helper, &store, err));
    struct cairn_store_request put = {.op = CAIRN_STORE_PUT,
                                      .key = question->probe.text,
                                      .body = {bytes, sizeof(bytes)},
                                      .has_crc32c = true,
                                      .crc32c = cairn_crc32c(0, bytes, sizeof(bytes)),
                                      .deadline_ms = question->answer_by_ms};
    enum cairn_code code = cairn_store_perform(store, &put, err);
    return code ? cairn_within(err, code, "writing to the store %s",
                               cairn_store_url(helper->up->store))
                : CAIRN_OK;
}

/* failed: why the probe was not written, or NULL. The server's finding is an error, too. */
static enum cairn_code tell_server(struct cairn_up_helper *helper, const struct question *question,
                                   const struct cairn_error *failed, struct cairn_error *err) {
    struct cairn_rest *rest = NULL;
    struct cairn_msg_probe_row found = {0};
    const struct cairn_error none = {0}, *why = failed ? failed : &none;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_up_helper_rest(helper, &rest, err));
    CAIRN_AUTO_JSON json_t *body =
        CAIRN_PACK(probe_put, .grant = question->grant, .node = helper->up->places.node,
                   .rank = question->rank, .bytes = PROBE_BYTES,
                   .code = failed ? cairn_code_info(why->code)->slug : NULL,
                   .reason = failed ? why->message : NULL);
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request to the server");
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/probes", question->run_text));
    CAIRN_TRY(cairn_rest_set_grant(rest, question->grant, err));
    enum cairn_code code = cairn_rest_call(
        rest, "POST", path.data, body, cairn_up_call_ms(question->answer_by_ms, 0), &reply, err);
    code = cairn_up_heard(rest, code, err);
    (void)!cairn_rest_set_grant(rest, NULL, NULL);
    if (code) return cairn_within(err, code, "telling the server");
    CAIRN_TRY(cairn_msg_probe_row_read(reply, "", &found, err));
    if (found.ok || failed) return CAIRN_OK;
    struct cairn_error said = {0};
    cairn_failure_get(reply, "reason", &said);
    return cairn_fail(err, said.code ? said.code : CAIRN_STORE, "%s", said.message);
}

static void probe_task(struct cairn_up_helper *helper, void *owner) {
    struct question *question = owner;
    struct cairn_error *why = &question->error, ignored = {0};
    question->code = write_probe(helper, question, why);
    bool written = !question->code;
    if (written)
        question->code = tell_server(helper, question, NULL, why);
    else
        (void)!tell_server(helper, question, why, &ignored); /* the rank gets `why` anyway */
    if (question->code) {
        (void)cairn_within(why, question->code, "node %s, rank %u", helper->up->places.node,
                           question->rank);
        cairn_log(WARN, "warmup.failed", "run=%s rank=%u cause=\"%s\"", question->run_text,
                  question->rank, why->message);
    }
    struct cairn_key key = question->probe;
    answer(question, CAIRN_PACK(ok, 0));
    if (written) {
        /* Without permission to delete, the probe remains for the server, which finds it among
         * orphans. */
        struct cairn_error cause = {0};
        if (cairn_store_delete(helper->store, key.text, &cause))
            cairn_log(DEBUG, "warmup.left", "key=%s cause=\"%s\"", key.text, cause.message);
    }
}

enum cairn_code cairn_up_on_warmup(struct cairn_up_session *session,
                                   const struct cairn_up_request *request,
                                   struct cairn_error *err) {
    struct cairn_msg_warmup told = {0};
    CAIRN_TRY(cairn_msg_warmup_read(request->frame->message, "", &told, err));
    if (!session->attempt)
        return cairn_fail(err, CAIRN_PROTOCOL, "a warm-up before the attempt was opened");
    struct question *question = question_new(session, request, told.timeout_ms, err);
    if (!question) return CAIRN_NO_MEMORY;
    const struct cairn_grant *grant = &session->attempt->grant;
    set_attempt(question, session->attempt);
    cairn_probe_key(&grant->name, grant->attempt, grant->nonce, session->rank, &question->probe);
    return hand_over(question, probe_task, err);
}

/* ---- why a save is not committed ---- */

#define SILENT_MS 10000 /* only nodes silent for longer are mentioned */
#define TEXT_BYTES 300

/* Picks the most telling rank: a rank without a node never reports again by itself. */
static const json_t *first_missing(const json_t *ranks) {
    for (size_t i = 0; i < json_array_size(ranks); i++)
        if (!json_is_string(json_object_get(json_array_get(ranks, i), "node")))
            return json_array_get(ranks, i);
    return json_array_get(ranks, 0);
}

/* Adds "; its node was heard last 34 s ago", or the node's trouble. */
static void add_node(const json_t *nodes, const char *name, char *text, size_t capacity) {
    size_t used = strlen(text);
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        struct cairn_msg_why_node node = {0};
        if (cairn_msg_why_node_read(json_array_get(nodes, i), "", &node, NULL) ||
            strcmp(node.node, name) != 0)
            continue;
        const char *trouble = node.trouble ? node.trouble : node.error;
        if (node.left || (node.silent_ms != CAIRN_MESSAGE_NONE && node.silent_ms >= SILENT_MS))
            snprintf(text + used, capacity - used, "; that node %s %" PRIu64 " s ago",
                     node.left ? "left, and was heard last" : "was heard last",
                     node.silent_ms == CAIRN_MESSAGE_NONE ? 0 : node.silent_ms / 1000);
        else if (trouble)
            snprintf(text + used, capacity - used, "; that node: %s", cairn_short(trouble).text);
    }
}

static void say_ranks(const struct cairn_msg_liveness_open *open, const json_t *nodes, char *text,
                      size_t capacity) {
    struct cairn_msg_missing_rank rank = {0};
    if (cairn_msg_missing_rank_read(first_missing(open->missing_ranks), "", &rank, NULL)) return;
    uint64_t others = open->missing_rank_count - 1;
    char ranks[64];
    snprintf(ranks, sizeof(ranks), "rank %" PRIu64, rank.rank);
    if (others)
        snprintf(ranks, sizeof(ranks), "rank %" PRIu64 " and %s of %" PRIu64, rank.rank,
                 cairn_counted(others, "other").text, open->world_size);
    if (!rank.node) {
        snprintf(text, capacity,
                 "%s %s not opened this attempt: %s process ended before that, or was never "
                 "started",
                 ranks, others ? "have" : "has", others ? "their" : "its");
        return;
    }
    snprintf(text, capacity, "%s%s on node %s %s not sealed it", ranks, others ? ", the first" : "",
             rank.node, others ? "have" : "has");
    add_node(nodes, rank.node, text, capacity);
}

static void say_shards(const struct cairn_msg_liveness_open *open, char *text, size_t capacity) {
    struct cairn_msg_missing_shard shard = {0};
    if (cairn_msg_missing_shard_read(json_array_get(open->missing_shards, 0), "", &shard, NULL))
        return;
    snprintf(text, capacity,
             "%" PRIu64 " of %" PRIu64 " shards are not registered, the first is %s of rank "
             "%" PRIu64,
             open->missing_shard_count, open->shards, cairn_short(shard.shard).text, shard.rank);
}

/* "": the save is over, and its verdict on the way. */
static enum cairn_code clause_of(const json_t *reply, char *text, size_t capacity,
                                 struct cairn_error *err) {
    struct cairn_msg_why told = {0};
    struct cairn_msg_liveness_open open = {0};
    text[0] = '\0';
    CAIRN_TRY(cairn_msg_why_read(reply, "", &told, err));
    if (told.commit) {
        (void)cairn_text_copy(text, capacity, told.commit);
        return CAIRN_OK;
    }
    if (!told.open) return CAIRN_OK;
    CAIRN_TRY(cairn_msg_liveness_open_read(told.open, "/open", &open, err));
    if (open.missing_rank_count)
        say_ranks(&open, told.nodes, text, capacity);
    else if (open.missing_shard_count)
        say_shards(&open, text, capacity);
    else
        snprintf(text, capacity, "every rank has sealed it, and its commit is under way");
    return CAIRN_OK;
}

static enum cairn_code ask_why(struct cairn_up_helper *helper, const struct question *question,
                               json_t **ret, struct cairn_error *err) {
    struct cairn_rest *rest = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_up_helper_rest(helper, &rest, err));
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/checkpoints/%s/why", question->run_text,
                               question->version));
    CAIRN_TRY(cairn_rest_set_grant(rest, question->grant, err));
    enum cairn_code code = cairn_rest_call(rest, "GET", path.data, NULL,
                                           cairn_up_call_ms(question->answer_by_ms, 0), ret, err);
    (void)!cairn_rest_set_grant(rest, NULL, NULL);
    return cairn_up_heard(rest, code, err);
}

static void why_task(struct cairn_up_helper *helper, void *owner) {
    struct question *question = owner;
    char text[TEXT_BYTES] = "";
    question->code = ask_why(helper, question, &question->reply, &question->error);
    if (!question->code)
        question->code = clause_of(question->reply, text, sizeof(text), &question->error);
    answer(question, CAIRN_PACK(save_waits, .reason = text));
}

enum cairn_code cairn_up_on_why(struct cairn_up_session *session,
                                const struct cairn_up_request *request, struct cairn_error *err) {
    struct cairn_msg_save_why told = {0};
    struct cairn_up *up = session->up;
    CAIRN_TRY(cairn_msg_save_why_read(request->frame->message, "", &told, err));
    struct question *question = question_new(session, request, told.timeout_ms, err);
    if (!question) return CAIRN_NO_MEMORY;
    cairn_lock_take(&up->lock);
    const struct cairn_up_save *save = cairn_up_save_of_locked(up, session->conn, told.save);
    if (save) set_attempt(question, save->attempt);
    if (save) copy_text(question->version, sizeof(question->version), save->place.id.text);
    cairn_lock_give(&up->lock);
    if (question->version[0]) return hand_over(question, why_task, err);
    question_free(question);
    return cairn_fail(err, CAIRN_NOT_FOUND, "this session has no save %u", told.save);
}

static int free_restore(const struct cairn_up_session *session) {
    for (int i = 0; i < CAIRN_UP_RESTORES_MAX; i++) {
        if (!session->restores[i].number) return i;
    }
    return -1;
}

/* The session keeps the version, except that of a look. */
static uint64_t keep_restore(struct cairn_up_session *session, int place,
                             struct question *question) {
    if (question->looks) return 0;
    session->restores[place].number = ++session->restore_last;
    session->restores[place].version = CAIRN_TAKE(question->loaded);
    session->restores[place].asked_us = question->asked_us;
    cairn_metrics_shift(session->up->metrics, CAIRN_UP_METRIC(restores_open), 1);
    return session->restore_last;
}

static void restore_done(void *owner, struct cairn_up_session *session) {
    struct question *question = owner;
    int place = session ? free_restore(session) : -1;
    int fd = -1;
    if (question->code == CAIRN_OK && session && place < 0 && !question->looks)
        question->code =
            cairn_fail(&question->error, CAIRN_BUSY, "at most %d restores at once in a session",
                       CAIRN_UP_RESTORES_MAX);
    if (question->code == CAIRN_OK && session) {
        fd = fcntl(question->loaded->documents_fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
            question->code = cairn_fail_errno(&question->error, "a descriptor for the manifest");
    }
    if (question->code != CAIRN_OK)
        cairn_up_mail_refuse(question->up->mail, question->conn, question->request,
                             &question->error);
    if (question->code == CAIRN_OK && session) {
        const struct cairn_up_version *version = question->loaded;
        cairn_up_mail_answer_fds(
            question->up->mail, question->conn, question->request,
            CAIRN_PACK(restored, .restore = keep_restore(session, place, question),
                       .version = version->place.id.text, .step = version->place.step,
                       .attempt = version->manifest.origin.attempt,
                       .world_size = version->manifest.world_size,
                       .manifest_bytes = version->manifest_bytes,
                       .layout_bytes = version->layout_bytes),
            &fd, 1);
    }
    question_free(question);
}

static void restore_task(struct cairn_up_helper *helper, void *owner) {
    struct question *question = owner;
    struct cairn_up_version_request request = {
        .name = &question->name,
        .ref = question->ref,
        .known_version = question->known_version,
        .known_step = question->known_step,
        .look = question->looks,
        .answer_by_ms = question->answer_by_ms,
    };
    question->code = cairn_up_version_load(helper, &request, &question->loaded, &question->error);
    if (question->code == CAIRN_OK && question->insists &&
        strcmp(question->loaded->manifest.format_tag, question->format) != 0)
        question->code =
            cairn_fail(&question->error, CAIRN_UNSUPPORTED,
                       "%s has format \"%.64s\", wanted: \"%s\"", question->loaded->place.id.text,
                       question->loaded->manifest.format_tag, question->format);
    cairn_up_mail_call(helper->up->mail, question->conn, restore_done, question, &question->item);
}

enum cairn_code cairn_up_on_restore(struct cairn_up_session *session,
                                    const struct cairn_up_request *request,
                                    struct cairn_error *err) {
    struct cairn_msg_restore told = {.ref = "latest"};
    CAIRN_TRY(cairn_msg_restore_read(request->frame->message, "", &told, err));
    bool other = told.run && strcmp(told.run, session->run_text) != 0;
    if (!strcmp(told.ref, "resume")) {
        if (!session->resume_version[0] || other)
            return cairn_fail(err, CAIRN_NOT_FOUND, "this attempt resumed from nothing");
        told.ref = session->resume_version;
    }
    struct question *question = question_new(session, request, told.timeout_ms, err);
    if (!question) return CAIRN_NO_MEMORY;
    copy_text(question->ref, sizeof(question->ref), told.ref);
    question->insists = told.format != NULL;
    copy_text(question->format, sizeof(question->format), told.format);
    question->looks = told.look;
    if (!other)
        copy_text(question->known_version, sizeof(question->known_version),
                  session->resume_version);
    question->known_step = session->resume_step;
    enum cairn_code code = choose_run(question, told.run, err);
    if (!code) return hand_over(question, restore_task, err);
    question_free(question);
    return code;
}

static int find_restore(const struct cairn_up_session *session, uint64_t number) {
    for (int i = 0; i < CAIRN_UP_RESTORES_MAX; i++) {
        if (number && session->restores[i].number == number) return i;
    }
    return -1;
}

static enum cairn_code no_restore(uint64_t number, struct cairn_error *err) {
    return cairn_fail(err, CAIRN_NOT_FOUND, "this session has no restore %" PRIu64, number);
}

static void end_restore(struct cairn_up_session *session, int place,
                        enum cairn_up_restore_end end) {
    struct cairn_up *up = session->up;
    session->restores[place].number = 0;
    cairn_up_version_leave(CAIRN_TAKE(session->restores[place].version));
    cairn_metrics_shift(up->metrics, CAIRN_UP_METRIC(restores_open), -1);
    cairn_metrics_observe(
        up->metrics, (struct cairn_metric_at){CAIRN_UP_METRIC_restore_duration_seconds, end, 0},
        cairn_mono_us() - session->restores[place].asked_us);
}

enum cairn_code cairn_up_on_release(struct cairn_up_session *session,
                                    const struct cairn_up_request *request,
                                    struct cairn_error *err) {
    struct cairn_msg_release told = {0};
    CAIRN_TRY(cairn_msg_release_read(request->frame->message, "", &told, err));
    int place = find_restore(session, told.restore);
    if (place < 0) return no_restore(told.restore, err);
    end_restore(session, place, CAIRN_UP_RESTORE_RELEASED);
    cairn_up_mail_answer(session->up->mail, session->conn, request->id, CAIRN_PACK(ok, 0));
    return CAIRN_OK;
}

static void leave_window(struct cairn_up_helper *helper, void *owner) {
    cairn_up_window_leave(owner);
    cairn_up_slabs_serve(helper->up);
}

static void drop_window(void *owner) {
    cairn_up_window_leave(owner);
}

/* Unmapping many pages takes long, and this thread serves other trainers. */
static void drop_session_window(struct cairn_up_session *session) {
    struct cairn_up_window *window = CAIRN_TAKE(session->window);
    if (window &&
        cairn_up_tasks_add(session->up->tasks, leave_window, drop_window, window, NULL) != CAIRN_OK)
        cairn_up_window_leave(window);
}

void cairn_up_session_drop_restores(struct cairn_up_session *session) {
    for (int i = 0; i < CAIRN_UP_RESTORES_MAX; i++)
        if (session->restores[i].number) end_restore(session, i, CAIRN_UP_RESTORE_LEFT);
    drop_session_window(session);
}

static enum cairn_code answer_window(struct cairn_up_session *session, int64_t request,
                                     struct cairn_error *err) {
    int fd = fcntl(session->window->memory.fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return cairn_fail_errno(err, "a descriptor for the window");
    cairn_up_mail_answer_fds(
        session->up->mail, session->conn, request,
        CAIRN_PACK(window_given, .window = 1, .bytes = session->window->memory.size_bytes), &fd, 1);
    return CAIRN_OK;
}

static void window_done(void *owner, struct cairn_up_session *session) {
    struct question *question = owner;
    if (question->code == CAIRN_OK && session) {
        /* A repeated request, after the first timed out, gets the same window, if it will do. */
        if (session->window && question->writable && !session->window->writable)
            drop_session_window(session);
        if (!session->window) session->window = CAIRN_TAKE(question->window);
        question->code = answer_window(session, question->request, &question->error);
    }
    if (question->code != CAIRN_OK)
        cairn_up_mail_refuse(question->up->mail, question->conn, question->request,
                             &question->error);
    question_free(question);
}

static void window_task(struct cairn_up_helper *helper, void *owner) {
    struct question *question = owner;
    question->code = cairn_up_window_new(helper->up, question->bytes, question->local_world_size,
                                         question->writable, &question->window, &question->error);
    cairn_up_mail_call(helper->up->mail, question->conn, window_done, question, &question->item);
}

/* Answers once the memory is back, but for reads under way, so that the trainer's next request can
 * have it. */
static void window_back_task(struct cairn_up_helper *helper, void *owner) {
    struct question *question = owner;
    leave_window(helper, CAIRN_TAKE(question->window));
    answer(question, CAIRN_PACK(window_given, .window = 0, .bytes = 0));
}

enum cairn_code cairn_up_on_window(struct cairn_up_session *session,
                                   const struct cairn_up_request *request,
                                   struct cairn_error *err) {
    struct cairn_msg_window told = {0};
    CAIRN_TRY(cairn_msg_window_read(request->frame->message, "", &told, err));
    if (told.bytes && session->window && (session->window->writable || !told.writable))
        return answer_window(session, request->id, err);
    struct question *question = question_new(session, request, 0, err);
    if (!question) return CAIRN_NO_MEMORY;
    if (!told.bytes) {
        question->window = CAIRN_TAKE(session->window);
        return hand_over(question, window_back_task, err);
    }
    drop_session_window(session); /* reads under way keep it until they end */
    question->bytes = told.bytes;
    question->local_world_size = session->local_world_size;
    question->writable = told.writable;
    return hand_over(question, window_task, err);
}

struct reply_to {
    struct cairn_up *up;
    uint64_t conn;
    int64_t request;
};

static void read_done(void *owner, enum cairn_code code, const struct cairn_error *why) {
    struct reply_to *reply = owner;
    if (code == CAIRN_OK)
        cairn_up_mail_answer(reply->up->mail, reply->conn, reply->request,
                             CAIRN_PACK(read_done, 0));
    else
        cairn_up_mail_refuse(reply->up->mail, reply->conn, reply->request, why);
    free(reply);
}

static enum cairn_code read_ranges(const json_t *array, struct cairn_up_range **ret,
                                   size_t *ret_count, struct cairn_error *err) {
    size_t count = json_array_size(array);
    if (count > CAIRN_UP_RANGES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "%zu ranges, at most %d", count,
                          CAIRN_UP_RANGES_MAX);
    CAIRN_AUTO_HEAP struct cairn_up_range *ranges = calloc(count + 1, sizeof(*ranges));
    if (!ranges) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    for (size_t i = 0; i < count; i++) {
        struct cairn_msg_read_range told = {0};
        CAIRN_TRY(cairn_msg_read_range_read(json_array_get(array, i), "/ranges", &told, err));
        ranges[i] = (struct cairn_up_range){told.shard, told.offset, told.bytes, told.at};
    }
    *ret = CAIRN_TAKE(ranges);
    *ret_count = count;
    return CAIRN_OK;
}

enum cairn_code cairn_up_on_read(struct cairn_up_session *session,
                                 const struct cairn_up_request *request, struct cairn_error *err) {
    struct cairn_msg_read told = {0};
    size_t count = 0;
    CAIRN_TRY(cairn_msg_read_read(request->frame->message, "", &told, err));
    int place = find_restore(session, told.restore);
    if (place < 0) return no_restore(told.restore, err);
    if (!session->window) return cairn_fail(err, CAIRN_INVALID, "this session has no window");
    CAIRN_AUTO_HEAP struct cairn_up_range *ranges = NULL;
    CAIRN_TRY(read_ranges(told.ranges, &ranges, &count, err));
    struct reply_to *reply = calloc(1, sizeof(*reply));
    if (!reply) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    *reply = (struct reply_to){session->up, session->conn, request->id};
    enum cairn_code code =
        cairn_up_fetch_read(session->up->fetch, session->restores[place].version, session->window,
                            ranges, count, read_done, reply, err);
    if (code != CAIRN_OK) free(reply);
    return code;
}
