/* SPDX-License-Identifier: Apache-2.0 */
/* POST {C}/verify: a look at every copy at once; or, as an operation, all blocks of every copy, and
 * what is damaged written anew. */
#include "api/wire/messages.h"
#include "common/log.h"
#include "server/copies/verify.h"
#include "server/operations/operations_job.h"
#include "server/operations/operations_json.h"
#include "server/reads/shard_calls.h"

static enum cairn_code work(struct cairn_srv *server, struct cairn_store_worker *worker,
                            const json_t *arguments, void *owner, json_t **ret_result,
                            struct cairn_error *err) {
    struct cairn_srv_verify verify = {
        .server = server,
        .worker = worker,
        .version = json_string_value(json_object_get(arguments, "version")),
        .reads = true,
        .repairs = json_is_true(json_object_get(arguments, "repair")),
        .part = (uint64_t)json_integer_value(json_object_get(arguments, "part")),
        .parts = (uint64_t)json_integer_value(json_object_get(arguments, "parts")),
        .tell = owner ? cairn_srv_operation_tell : NULL,
        .owner = owner};
    return cairn_srv_verify_run(&verify, ret_result, err);
}

static enum cairn_code judge(const struct cairn_srv_request *request,
                             const struct cairn_msg_verify *said, struct cairn_error *err) {
    const char *project = request->params.run_name.project;
    bool whole = !said->part && !said->parts;
    if (!whole && (said->part < 1 || said->part > said->parts))
        return cairn_fail(err, CAIRN_INVALID, "part and parts: want 1 <= part <= parts");
    if (!whole && said->repair)
        return cairn_fail(err, CAIRN_INVALID, "repair reads every shard: leave part and parts out");
    if (!said->repair) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    if (cairn_srv_caller_may(&request->caller, CAIRN_SCOPE_WRITE, project)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_FORBIDDEN, "the token %s lacks the scope write",
                      request->caller.who);
}

static enum cairn_code begin(struct cairn_srv_request *request,
                             const struct cairn_srv_version *version, json_t *body,
                             struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct cairn_srv *server = request->server;
    char id[CAIRN_SRV_OPERATION_BYTES];
    bool made = false;
    struct cairn_srv_operation_wish wish = {.kind = "verify",
                                            .reads = !json_is_true(json_object_get(body, "repair")),
                                            .work = work,
                                            .name = &version->name,
                                            .caller = &request->caller,
                                            .path = version->id.text,
                                            .request = body,
                                            .arguments = body,
                                            .place.folder_fd = -1};
    if (json_object_set_new(body, "version", json_string(version->id.text)))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to verify a version");
    if (!server->operations) { /* a test's */
        json_t *result = NULL;
        CAIRN_TRY(work(server, request->store, body, NULL, &result, err));
        return cairn_srv_reply_json(reply, 200, result, err);
    }
    CAIRN_TRY(cairn_srv_operation_begin(server, &wish, id, &made, err));
    if (made) cairn_log(INFO, "verify.begun", "operation=%s version=%s", id, version->id.text);
    return cairn_srv_reply_begun(request, id, reply, err);
}

static enum cairn_code look(struct cairn_srv_request *request,
                            const struct cairn_srv_version *version, struct cairn_srv_reply *reply,
                            struct cairn_error *err) {
    const struct cairn_srv_verify verify = {
        .server = request->server, .worker = request->store, .version = version->id.text};
    json_t *found = NULL;
    CAIRN_TRY(cairn_srv_verify_run(&verify, &found, err));
    return cairn_srv_reply_json(reply, 200, found, err);
}

enum cairn_code cairn_srv_on_verify(struct cairn_srv_request *request,
                                    struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_AUTO(srv_version) version = {0};
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_msg_verify said = {0};
    if (request->body.size) {
        CAIRN_TRY(cairn_srv_body(request, 10, &body, err));
        CAIRN_TRY(cairn_msg_verify_read(body, "", &said, err));
        CAIRN_TRY(judge(request, &said, err));
    }
    CAIRN_TRY(cairn_srv_readable(request, &version, err));
    return said.read || said.repair ? begin(request, &version, body, reply, err)
                                    : look(request, &version, reply, err);
}
