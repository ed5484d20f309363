/* SPDX-License-Identifier: Apache-2.0 */
/* warmup: an object of this rank is written to the store, the server looks for it there, and it is
 * removed again. What a helper cannot do is named with node and rank, here and at the server. */
#include <stdlib.h>

#include "api/documents/digest.h"
#include "api/wire/messages.h"
#include "common/crc.h"
#include "common/log.h"
#include "common/text.h"
#include "store/store.h"
#include "uploader/mail.h"
#include "uploader/saves/attempt.h"
#include "uploader/server/outcome.h"
#include "uploader/tasks.h"
#include "uploader/trainers/inside.h"

#define PROBE_BYTES 4096

struct probe {
    struct cairn_up *up;
    uint64_t conn;
    int64_t request;
    uint32_t rank;
    uint64_t answer_by_ms;
    char run_text[2 * CAIRN_NAME_BYTES_MAX + 2], grant[CAIRN_GRANT_BYTES_MAX];
    struct cairn_key key;
};

/* What nothing is sent for now fails the probe as it holds up every save. */
static enum cairn_code store_is_there(struct cairn_up *up, struct cairn_error *err) {
    CAIRN_HOLD(&up->lock);
    if (!up->locked.store_waits[0]) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNAVAILABLE, "%s", up->locked.store_waits);
}

static enum cairn_code write_probe(struct cairn_up_helper *helper, const struct probe *probe,
                                   struct cairn_error *err) {
    static const char bytes[PROBE_BYTES] = "a probe of cairn: nothing is kept here\n";
    struct cairn_store_worker *store = NULL;
    CAIRN_TRY(store_is_there(helper->up, err));
    CAIRN_TRY(cairn_up_helper_store(helper, &store, err));
    struct cairn_store_request put = {.op = CAIRN_STORE_PUT,
                                      .key = probe->key.text,
                                      .body = {bytes, sizeof(bytes)},
                                      .has_crc32c = true,
                                      .crc32c = cairn_crc32c(0, bytes, sizeof(bytes)),
                                      .deadline_ms = probe->answer_by_ms};
    enum cairn_code code = cairn_store_perform(store, &put, err);
    return code ? cairn_within(err, code, "writing to the store %s",
                               cairn_store_url(helper->up->store))
                : CAIRN_OK;
}

/* failed: why it was not written, or NULL. What the server found is an error, too. */
static enum cairn_code tell_server(struct cairn_up_helper *helper, const struct probe *probe,
                                   const struct cairn_error *failed, struct cairn_error *err) {
    struct cairn_rest *rest = NULL;
    struct cairn_msg_probe_row found = {0};
    const struct cairn_error none = {0}, *why = failed ? failed : &none;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_up_helper_rest(helper, &rest, err));
    CAIRN_AUTO_JSON json_t *body =
        CAIRN_PACK(probe_put, .grant = probe->grant, .node = helper->up->places.node,
                   .rank = probe->rank, .bytes = PROBE_BYTES,
                   .code = failed ? cairn_code_info(why->code)->slug : NULL,
                   .reason = failed ? why->message : NULL);
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request to the server");
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/probes", probe->run_text));
    CAIRN_TRY(cairn_rest_set_grant(rest, probe->grant, err));
    enum cairn_code code = cairn_rest_call(rest, "POST", path.data, body,
                                           cairn_up_call_ms(probe->answer_by_ms, 0), &reply, err);
    code = cairn_up_heard(rest, code, err);
    (void)!cairn_rest_set_grant(rest, NULL, NULL);
    if (code) return cairn_within(err, code, "telling the server");
    CAIRN_TRY(cairn_msg_probe_row_read(reply, "", &found, err));
    if (found.ok || failed) return CAIRN_OK;
    struct cairn_error said = {0};
    cairn_failure_get(reply, "reason", &said);
    return cairn_fail(err, said.code ? said.code : CAIRN_STORE, "%s", said.message);
}

/* A key that may write and not delete leaves it to the server, which finds it among the orphans. */
static void remove_probe(struct cairn_up_helper *helper, const struct probe *probe) {
    struct cairn_error why = {0};
    if (cairn_store_delete(helper->store, probe->key.text, &why))
        cairn_log(DEBUG, "warmup.left", "key=%s cause=\"%s\"", probe->key.text, why.message);
}

static void probe_task(struct cairn_up_helper *helper, void *owner) {
    struct probe *probe = owner;
    struct cairn_up *up = helper->up;
    struct cairn_error error = {0}, ignored = {0};
    enum cairn_code code = write_probe(helper, probe, &error);
    bool written = !code;
    if (written)
        code = tell_server(helper, probe, NULL, &error);
    else
        (void)!tell_server(helper, probe, &error, &ignored); /* the rank hears it in any case */
    if (code) {
        (void)cairn_within(&error, code, "node %s, rank %u", up->places.node, probe->rank);
        cairn_log(WARN, "warmup.failed", "run=%s rank=%u cause=\"%s\"", probe->run_text,
                  probe->rank, error.message);
        cairn_up_mail_refuse(up->mail, probe->conn, probe->request, &error);
    } else {
        cairn_up_mail_answer(up->mail, probe->conn, probe->request, CAIRN_PACK(ok, 0));
    }
    if (written) remove_probe(helper, probe);
    free(probe);
}

enum cairn_code cairn_up_on_warmup(struct cairn_up_session *session,
                                   const struct cairn_up_request *request,
                                   struct cairn_error *err) {
    struct cairn_msg_warmup told = {0};
    CAIRN_TRY(cairn_msg_warmup_read(request->frame->message, "", &told, err));
    if (!session->attempt)
        return cairn_fail(err, CAIRN_PROTOCOL, "a warm-up before the attempt was opened");
    struct probe *probe = calloc(1, sizeof(*probe));
    if (!probe) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request");
    const struct cairn_up_attempt *attempt = session->attempt;
    *probe = (struct probe){.up = session->up,
                            .conn = session->conn,
                            .request = request->id,
                            .rank = session->rank,
                            .answer_by_ms = cairn_up_answer_by_ms(told.timeout_ms)};
    (void)cairn_text_copy(probe->run_text, sizeof(probe->run_text), attempt->run_text);
    (void)cairn_text_copy(probe->grant, sizeof(probe->grant), attempt->text);
    cairn_probe_key(&attempt->grant.name, attempt->grant.attempt, attempt->grant.nonce,
                    session->rank, &probe->key);
    enum cairn_code code = cairn_up_tasks_add(session->up->tasks, probe_task, free, probe, err);
    if (code) free(probe);
    return code;
}
