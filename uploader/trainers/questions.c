/* SPDX-License-Identifier: Apache-2.0 */
/* list, remove, annotate and alias: requests of a trainer that only the server can answer. A helper
 * asks it under the uploader's token; its refusals go to the trainer as they are. */
#include <inttypes.h>
#include <stdlib.h>

#include "api/wire/frame.h"
#include "api/wire/messages.h"
#include "common/text.h"
#include "uploader/fetch/fetch.h"
#include "uploader/fetch/leases.h"
#include "uploader/tasks.h"
#include "uploader/trainers/inside.h"
#include "uploader/trainers/session.h"

#define LEASES_BACK_MS 5000

struct question {
    struct cairn_up *up;
    struct cairn_up_mail_item item;
    uint64_t conn;
    int64_t request;
    struct cairn_run_name name;
    uint64_t limit, answer_by_ms;
    struct cairn_msg_list list; /* texts are those of the buffers below */
    char cursor[600], ref[128], state[17], labels[1025];
    char removed[CAIRN_VERSION_ID_BYTES];
    char alias[64];
    json_t *body; /* of PATCH and PUT; owned */
    /* the answer */
    enum cairn_code code;
    struct cairn_error error;
    json_t *reply;
};

static void question_free(void *owner) {
    struct question *question = owner;
    json_decref(question->body);
    json_decref(question->reply);
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
    question->answer_by_ms = cairn_up_answer_by_ms(timeout_ms);
    return question;
}

static enum cairn_code hand_over(struct question *question,
                                 void (*run)(struct cairn_up_helper *helper, void *owner),
                                 struct cairn_error *err) {
    enum cairn_code code =
        cairn_up_tasks_add(question->up->tasks, run, question_free, question, err);
    if (code != CAIRN_OK) question_free(question);
    return code;
}

static void answered(struct question *question, json_t *take_answer) {
    if (question->code == CAIRN_OK)
        cairn_up_mail_answer(question->up->mail, question->conn, question->request, take_answer);
    else
        cairn_up_mail_refuse(question->up->mail, question->conn, question->request,
                             &question->error);
    if (question->code != CAIRN_OK) json_decref(take_answer);
    question_free(question);
}

static void done(void *owner, struct cairn_up_session *session) {
    (void)session;
    answered(owner, CAIRN_PACK(ok, 0));
}

/* ---- list ---- */

static void list_done(void *owner, struct cairn_up_session *session) {
    struct question *question = owner;
    (void)session;
    answered(question, CAIRN_PACK(listed, .reply = question->reply));
}

static enum cairn_code add_query(struct cairn_buf *path, const char *name, const char *value,
                                 struct cairn_error *err) {
    if (!value[0]) return CAIRN_OK;
    CAIRN_TRY(cairn_buf_printf(path, err, "&%s=", name));
    return cairn_percent_encode(cairn_view_of(value), false, path, err);
}

static enum cairn_code list_path(const struct question *question, struct cairn_buf *path,
                                 struct cairn_error *err) {
    if (question->list.runs)
        CAIRN_TRY(cairn_buf_printf(path, err, "/v1/runs?limit=%" PRIu64, question->limit));
    else
        CAIRN_TRY(cairn_buf_printf(path, err, "/v1/runs/%s/%s/checkpoints?limit=%" PRIu64,
                                   question->name.project, question->name.run, question->limit));
    CAIRN_TRY(add_query(path, "state", question->state, err));
    CAIRN_TRY(add_query(path, "l", question->labels, err));
    return add_query(path, "cursor", question->cursor, err);
}

static enum cairn_code ask_page(struct cairn_rest *rest, struct question *question,
                                struct cairn_error *err) {
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(list_path(question, &path, err));
    json_decref(CAIRN_TAKE(question->reply));
    CAIRN_TRY(cairn_rest_call(rest, "GET", path.data, NULL,
                              cairn_up_call_ms(question->answer_by_ms, 0), &question->reply, err));
    return question->reply ? CAIRN_OK
                           : cairn_fail(err, CAIRN_PROTOCOL, "the server's list is empty text");
}

/* One version, as a list that has it alone. */
static enum cairn_code ask_one(struct cairn_rest *rest, struct question *question,
                               struct cairn_error *err) {
    CAIRN_AUTO(buf) path = {0};
    CAIRN_AUTO_JSON json_t *version = NULL;
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/%s/checkpoints/", question->name.project,
                               question->name.run));
    CAIRN_TRY(cairn_percent_encode(cairn_view_of(question->ref), false, &path, err));
    CAIRN_TRY(cairn_rest_call(rest, "GET", path.data, NULL,
                              cairn_up_call_ms(question->answer_by_ms, 0), &version, err));
    question->reply = json_pack("{s:[O]}", "items", version);
    return question->reply ? CAIRN_OK
                           : cairn_fail(err, CAIRN_PROTOCOL, "the server's version is empty text");
}

/* Versions may carry 64 KiB of `meta` each: a page that one frame cannot hold is asked for again
 * with half as many, and its cursor goes on from there. */
static enum cairn_code ask_list(struct cairn_up_helper *helper, struct question *question,
                                struct cairn_error *err) {
    struct cairn_rest *rest = NULL;
    CAIRN_TRY(cairn_up_helper_rest(helper, &rest, err));
    if (question->ref[0]) return ask_one(rest, question, err);
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
    cairn_up_mail_call(helper->up->mail, question->conn, list_done, question, &question->item);
}

static void copy_text(char *to, size_t size, const char *from) {
    (void)cairn_text_copy(to, size, from ? from : "");
}

enum cairn_code cairn_up_on_list(struct cairn_up_session *session,
                                 const struct cairn_up_request *request, struct cairn_error *err) {
    struct cairn_msg_list told = {.limit = 100, .cursor = ""};
    struct cairn_run_name other;
    CAIRN_TRY(cairn_msg_list_read(request->frame->message, "", &told, err));
    if (told.run) CAIRN_TRY(cairn_run_name_parse(told.run, &other, err));
    struct question *question = question_new(session, request, told.timeout_ms, err);
    if (!question) return CAIRN_NO_MEMORY;
    if (told.run) question->name = other;
    question->limit = told.limit;
    question->list.runs = told.runs;
    copy_text(question->cursor, sizeof(question->cursor), told.cursor);
    copy_text(question->ref, sizeof(question->ref), told.ref);
    copy_text(question->state, sizeof(question->state), told.state);
    copy_text(question->labels, sizeof(question->labels), told.labels);
    return hand_over(question, list_task, err);
}

/* ---- remove ---- */

/* One that is in the trash or gone is removed: the answer to an earlier call may have been lost. */
static enum cairn_code ask_remove(struct cairn_up_helper *helper, struct question *question,
                                  struct cairn_error *err) {
    struct cairn_rest *rest = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_up_helper_rest(helper, &rest, err));
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/%s/checkpoints/%s", question->name.project,
                               question->name.run, question->removed));
    enum cairn_code code =
        cairn_rest_call(rest, "DELETE", path.data, NULL,
                        cairn_up_call_ms(question->answer_by_ms, 0), &question->reply, err);
    return code == CAIRN_DELETED ? CAIRN_OK : code;
}

/* The leases of restores that have ended on this node would be found by the removal: those that are
 * being given back are waited for, and what is kept for nobody but other nodes is let go. */
static void remove_task(struct cairn_up_helper *helper, void *owner) {
    struct question *question = owner;
    struct cairn_up_fetch *fetch = helper->up->fetch;
    uint64_t until_ms = cairn_mono_ms() + LEASES_BACK_MS;
    cairn_up_version_let_go(fetch, question->removed);
    cairn_up_leases_settle(fetch, question->removed,
                           cairn_min_u64(until_ms, question->answer_by_ms));
    do question->code = ask_remove(helper, question, &question->error);
    while (cairn_up_helper_again(helper, question->code, question->answer_by_ms));
    cairn_up_mail_call(helper->up->mail, question->conn, done, question, &question->item);
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
    copy_text(question->removed, sizeof(question->removed), told.version);
    return hand_over(question, remove_task, err);
}

/* ---- annotate, alias ---- */

/* What stands there before does not matter (If-Match: *): labels and metrics are merged one by one,
 * and the last word about an alias counts. A new alias has nothing to match. */
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
    (void)!cairn_rest_set_if_match(rest, NULL, NULL); /* the helper's next request has none */
    return code;
}

static void change_task(struct cairn_up_helper *helper, void *owner) {
    struct question *question = owner;
    do question->code = ask_change(helper, question, &question->error);
    while (cairn_up_helper_again(helper, question->code, question->answer_by_ms));
    cairn_up_mail_call(helper->up->mail, question->conn, done, question, &question->item);
}

static json_t *patch_of(const struct cairn_msg_annotate *told) {
    CAIRN_AUTO_JSON json_t *body = json_object();
    bool failed = !body;
    if (told->labels) failed = json_object_set(body, "labels", told->labels) || failed;
    if (told->metrics) failed = json_object_set(body, "metrics", told->metrics) || failed;
    if (told->pin != (uint32_t)CAIRN_MESSAGE_NONE)
        failed = json_object_set_new(body, "pinned", json_boolean(told->pin)) || failed;
    return failed ? NULL : json_deep_copy(body);
}

enum cairn_code cairn_up_on_annotate(struct cairn_up_session *session,
                                     const struct cairn_up_request *request,
                                     struct cairn_error *err) {
    struct cairn_msg_annotate told = {.pin = (uint32_t)CAIRN_MESSAGE_NONE};
    CAIRN_TRY(cairn_msg_annotate_read(request->frame->message, "", &told, err));
    struct question *question = question_new(session, request, told.timeout_ms, err);
    if (!question) return CAIRN_NO_MEMORY;
    copy_text(question->ref, sizeof(question->ref), told.ref);
    question->body = patch_of(&told);
    if (question->body) return hand_over(question, change_task, err);
    question_free(question);
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a change");
}

enum cairn_code cairn_up_on_alias(struct cairn_up_session *session,
                                  const struct cairn_up_request *request,
                                  struct cairn_error *err) {
    struct cairn_msg_alias told = {0};
    CAIRN_TRY(cairn_msg_alias_read(request->frame->message, "", &told, err));
    if (!told.alias[0]) return cairn_fail(err, CAIRN_INVALID, "alias names none");
    struct question *question = question_new(session, request, told.timeout_ms, err);
    if (!question) return CAIRN_NO_MEMORY;
    copy_text(question->alias, sizeof(question->alias), told.alias);
    question->body = told.ref ? CAIRN_PACK(alias_put, .ref = told.ref) : NULL;
    return hand_over(question, change_task, err);
}
