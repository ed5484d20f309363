/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many keys in one request (DeleteObjects), and what became of each. Not in quiet mode: a key
 * counts as deleted when the store has said so, never because it was not mentioned. Where the store
 * has no such operation, or does not tell of a key, the keys are deleted one by one within the same
 * task.
 */
#include <stdio.h>

#include "common/text.h"
#include "store/s3/codes.h"
#include "store/s3/inside.h"

/* How often keys that failed for now are asked for again. An answer that tells of each key comes
 * from a store that works: it must not be paused for the sake of one key. */
#define ROUNDS_MAX 4

static bool is_decided(const struct cairn_store_deletion *deletion) {
    return deletion->deleted || deletion->refused;
}

/* The first at or behind `from` that is not decided, around the end; deletion_count: none is. */
static size_t next_of(const struct cairn_store_request *request, size_t from) {
    for (size_t i = 0; i < request->deletion_count; i++) {
        size_t at = (from + i) % request->deletion_count;
        if (!is_decided(&request->deletions[at])) return at;
    }
    return request->deletion_count;
}

void cairn_s3_delete_choose(struct cairn_s3_task *task) {
    const struct cairn_store_request *request = task->request;
    if (atomic_load(&cairn_s3_store_of(task)->no_delete_many)) task->one_by_one = true;
    /* Behind the last one: a key that always fails must not keep the others waiting. */
    task->deletion = next_of(request, task->tries + task->ticket.tries_sent > 1 ? task->deletion + 1
                                                                                : task->deletion);
    CAIRN_ASSERT(task->deletion < request->deletion_count);
}

static enum cairn_code write_version(const char *id, struct cairn_buf *text,
                                     struct cairn_error *err) {
    if (!id) return CAIRN_OK;
    CAIRN_TRY(cairn_buf_append_text(text, "<VersionId>", err));
    CAIRN_TRY(cairn_xml_escape(id, text, err));
    return cairn_buf_append_text(text, "</VersionId>", err);
}

enum cairn_code cairn_s3_delete_write(struct cairn_s3_task *task, struct cairn_error *err) {
    const struct cairn_store_request *request = task->request;
    struct cairn_buf *text = &task->document;
    const char *prefix = cairn_s3_store_of(task)->config.prefix;
    CAIRN_TRY(cairn_buf_append_text(
        text, "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", err));
    for (size_t i = 0; i < request->deletion_count; i++) {
        if (is_decided(&request->deletions[i])) continue;
        CAIRN_TRY(cairn_buf_append_text(text, "<Object><Key>", err));
        CAIRN_TRY(cairn_xml_escape(prefix, text, err));
        CAIRN_TRY(cairn_xml_escape(request->deletions[i].key, text, err));
        CAIRN_TRY(cairn_buf_append_text(text, "</Key>", err));
        CAIRN_TRY(write_version(request->deletions[i].version_id, text, err));
        CAIRN_TRY(cairn_buf_append_text(text, "</Object>", err));
    }
    return cairn_buf_append_text(text, "</Delete>", err);
}

/* ---- outcomes ---- */

static void refuse(struct cairn_store_deletion *deletion, enum cairn_code code,
                   const char *reason) {
    deletion->refused = true;
    deletion->code = code;
    (void)cairn_text_copy(deletion->reason, sizeof deletion->reason, reason);
}

/* When all is decided: what the whole request is told, the first refusal or nothing. */
static void conclude(const struct cairn_store_request *request, struct cairn_error *ret_error) {
    for (size_t i = 0; i < request->deletion_count; i++) {
        const struct cairn_store_deletion *deletion = &request->deletions[i];
        if (!deletion->refused) continue;
        cairn_fail(ret_error, deletion->code, "%s: %s", cairn_short(deletion->key).text,
                   deletion->reason);
        return;
    }
}

bool cairn_s3_delete_decided(const struct cairn_store_request *request,
                             struct cairn_error *ret_error) {
    if (next_of(request, 0) < request->deletion_count) return false;
    conclude(request, ret_error);
    return true;
}

struct outcome {
    struct cairn_s3_task *task;
    size_t at; /* answers come in the order of the keys, mostly */
    bool slow;
    struct cairn_error again; /* of a key that is worth another try */
};

/* What is told without a version is of the first one of the key that nothing was told of. */
static bool is_told_of(const struct cairn_store_deletion *deletion, const char *key,
                       const char *version) {
    if (strcmp(deletion->key, key) != 0) return false;
    if (!*version) return !is_decided(deletion);
    return !deletion->version_id || !strcmp(deletion->version_id, version);
}

static void note_key(void *owner, const char *key, const char *version, const char *code,
                     const char *message) {
    struct outcome *outcome = owner;
    const struct cairn_store_request *request = outcome->task->request;
    struct cairn_store_deletion *deletion = NULL;
    for (size_t i = 0; i < request->deletion_count && !deletion; i++) {
        size_t at = (outcome->at + i) % request->deletion_count;
        if (is_told_of(&request->deletions[at], key, version)) deletion = &request->deletions[at];
    }
    if (!deletion || is_decided(deletion)) return;
    outcome->at = (size_t)(deletion - request->deletions) + 1;
    struct cairn_s3_meaning meaning = cairn_s3_meaning_of(code ? code : "", 500);
    char reason[120];
    snprintf(reason, sizeof reason, "%.40s%s%.70s", code ? code : "", *message ? ": " : "",
             message);
    if (!code || meaning.code == CAIRN_NOT_FOUND) {
        deletion->deleted = true;
    } else if (meaning.policy == CAIRN_S3_FINAL || meaning.policy == CAIRN_S3_FEATURE) {
        refuse(deletion, meaning.code, reason);
    } else {
        outcome->slow |= meaning.policy == CAIRN_S3_SLOW_DOWN;
        deletion->code = meaning.code;
        (void)cairn_text_copy(deletion->reason, sizeof deletion->reason, reason);
        cairn_fail(&outcome->again, meaning.code, "%s: %s", cairn_short(key).text, reason);
    }
}

static enum cairn_s3_judgement take_document(struct cairn_s3_task *task,
                                             struct cairn_error *ret_error) {
    struct outcome outcome = {.task = task};
    struct cairn_xml_deletions reader = {cairn_s3_store_of(task)->config.prefix, note_key,
                                         &outcome};
    if (cairn_xml_deletions_read(cairn_buf_view(&task->reply), &reader, ret_error) != CAIRN_OK)
        return CAIRN_S3_FAILURE;
    if (cairn_s3_delete_decided(task->request, ret_error)) return CAIRN_S3_DONE;
    if (outcome.again.code) {
        *ret_error = outcome.again;
        if (++task->deletion_rounds > ROUNDS_MAX) return CAIRN_S3_DONE;
        return outcome.slow ? CAIRN_S3_SLOW : CAIRN_S3_FAILURE;
    }
    task->one_by_one = true; /* the answer told nothing of them */
    return CAIRN_S3_MORE;
}

static enum cairn_s3_judgement next_key(struct cairn_s3_task *task, struct cairn_error *ret_error) {
    return cairn_s3_delete_decided(task->request, ret_error) ? CAIRN_S3_DONE : CAIRN_S3_MORE;
}

enum cairn_s3_judgement cairn_s3_delete_take(struct cairn_s3_task *task,
                                             struct cairn_error *ret_error) {
    if (!task->one_by_one) return take_document(task, ret_error);
    if (task->reply.size && strcasestr(task->reply.data, "<html")) {
        cairn_fail(ret_error, CAIRN_PROTOCOL, "a removal was answered with a document");
        return CAIRN_S3_FAILURE;
    }
    task->request->deletions[task->deletion].deleted = true;
    return next_key(task, ret_error);
}

/* ---- refusals ---- */

/* Refusals that another key may not meet; all others would only be met again. */
static bool is_of_key(enum cairn_code code) {
    return !code || code == CAIRN_FORBIDDEN || code == CAIRN_PRECONDITION ||
           code == CAIRN_INVALID || code == CAIRN_UNSUPPORTED;
}

bool cairn_s3_delete_refused(struct cairn_s3_task *task, const struct cairn_error *why,
                             bool is_final, enum cairn_s3_judgement *ret_judgement,
                             struct cairn_error *ret_error) {
    struct cairn_store_deletion *deletion = &task->request->deletions[task->deletion];
    if (!task->one_by_one || !is_final || !is_of_key(why->code)) return false;
    if (why->code)
        refuse(deletion, why->code, why->message);
    else
        deletion->deleted = true;
    *ret_judgement = next_key(task, ret_error);
    return true;
}

bool cairn_s3_delete_split(struct cairn_s3_task *task, const char *code, bool is_final) {
    int status = task->http.status;
    bool absent =
        status == 405 || status == 501 || (status == 404 && strcmp(code, "NoSuchBucket") != 0);
    /* 411, 412: of proxies and stores that do not bear the POST, or its Content-MD5. */
    bool final = is_final && (status == 400 || status == 411 || status == 412);
    if (task->one_by_one || (!absent && !final)) return false;
    if (absent) atomic_store(&cairn_s3_store_of(task)->no_delete_many, true);
    task->one_by_one = true;
    return true;
}
