/* SPDX-License-Identifier: Apache-2.0 */
/* The responder's answer function is the script. */
#include "tests/support/s3_script.h"

void cairn_rig_release(struct cairn_rig *rig) {
    cairn_store_worker_free(rig->worker);
    cairn_store_free(rig->store);
    cairn_responder_stop(rig->server);
}
static void follow_script(struct cairn_responder_request *request) {
    struct cairn_rig *rig = request->owner;
    size_t at = cairn_min_u64(request->index, rig->script_size - 1);
    const struct cairn_s3_line *line = &rig->script[at];
    if (request->index < HEADS_MAX)
        snprintf(rig->heads[request->index], sizeof rig->heads[0], "%.2000s", request->head);
    request->close = line->status == 0;
    if (line->status < 0) request->close = cairn_responder_drain(request, 1) == 0;
    if (line->status > 0) cairn_responder_reply(request, line->status, line->headers, line->body);
}

enum cairn_code cairn_rig_open(struct cairn_rig *rig, const struct cairn_s3_line *script,
                               size_t size, struct cairn_store_s3_options options) {
    EACH_TEXT(text, "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION",
              "AWS_PROFILE", "AWS_SESSION_TOKEN")
        unsetenv(text);
    setenv("AWS_ACCESS_KEY_ID", "AKIDCANARY", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "canary-of-a-secret", 1);
    rig->script = script;
    rig->script_size = size;
    struct cairn_responder_options serve = {.answer = follow_script, .owner = rig};
    rig->server = cairn_responder_start(&serve);
    if (!rig->server) return CAIRN_IO;
    options.endpoint = cairn_responder_url(rig->server);
    options.region = "us-east-1";
    struct cairn_store_options open = {.url = "s3://bucket/pre/fix", .s3 = &options};
    CAIRN_TRY(cairn_store_s3_open(&open, &rig->store, &rig->error));
    return cairn_store_worker_new(rig->store, &rig->worker, &rig->error);
}
