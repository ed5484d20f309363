/* SPDX-License-Identifier: Apache-2.0 */
/* What a save waits for before it is committed, in one sentence: asked of the server when a trainer
 * is about to give up its wait. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/text.h"
#include "uploader/server/outcome.h"
#include "uploader/tasks.h"
#include "uploader/trainers/inside.h"

#define SILENT_MS 10000 /* a node that was heard later than that is not worth a word */
#define TEXT_BYTES 300

struct question {
    struct cairn_up *up;
    uint64_t conn, answer_by_ms;
    int64_t request;
    char run_text[2 * CAIRN_NAME_BYTES_MAX + 2], grant[CAIRN_GRANT_BYTES_MAX];
    char version[CAIRN_VERSION_ID_BYTES];
};

/* ---- the sentence ---- */

/* The most telling one first: a rank that no node has is never heard of again by itself. */
static const json_t *first_missing(const json_t *ranks) {
    for (size_t i = 0; i < json_array_size(ranks); i++)
        if (!json_is_string(json_object_get(json_array_get(ranks, i), "node")))
            return json_array_get(ranks, i);
    return json_array_get(ranks, 0);
}

/* "; its node was heard last 34 s ago", or what that node is in trouble with. */
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

/* "": it is over, and its verdict is on the way. */
static enum cairn_code say(const json_t *reply, char *text, size_t capacity,
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

/* ---- the call ---- */

static enum cairn_code ask(struct cairn_up_helper *helper, const struct question *question,
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
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_error error = {0};
    char text[TEXT_BYTES];
    enum cairn_code code = ask(helper, question, &reply, &error);
    if (!code) code = say(reply, text, sizeof(text), &error);
    struct cairn_up_mail *mail = helper->up->mail;
    if (code)
        cairn_up_mail_refuse(mail, question->conn, question->request, &error);
    else
        cairn_up_mail_answer(mail, question->conn, question->request,
                             CAIRN_PACK(save_waits, .reason = text));
    free(question);
}

enum cairn_code cairn_up_on_why(struct cairn_up_session *session,
                                const struct cairn_up_request *request, struct cairn_error *err) {
    struct cairn_msg_save_why told = {0};
    struct cairn_up *up = session->up;
    CAIRN_TRY(cairn_msg_save_why_read(request->frame->message, "", &told, err));
    CAIRN_AUTO_HEAP struct question *question = calloc(1, sizeof(*question));
    if (!question) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request");
    *question = (struct question){.up = up, .conn = session->conn, .request = request->id,
                                  .answer_by_ms = cairn_up_answer_by_ms(told.timeout_ms)};
    {
        CAIRN_HOLD(&up->lock);
        const struct cairn_up_save *save =
            cairn_up_save_of_locked(up, session->conn, told.save);
        if (!save)
            return cairn_fail(err, CAIRN_NOT_FOUND, "this session has no save %u", told.save);
        (void)cairn_text_copy(question->run_text, sizeof(question->run_text),
                              save->attempt->run_text);
        (void)cairn_text_copy(question->grant, sizeof(question->grant), save->attempt->text);
        (void)cairn_text_copy(question->version, sizeof(question->version), save->place.id.text);
    }
    CAIRN_TRY(cairn_up_tasks_add(up->tasks, why_task, free, question, err));
    question = NULL;
    return CAIRN_OK;
}
