/* SPDX-License-Identifier: Apache-2.0 */
/* POST {R}/imports and POST {C}/exports: what `cairn import` and `cairn export` do, as an operation
 * on the server's machine. */
#include <inttypes.h>

#include "api/wire/messages.h"
#include "common/log.h"
#include "server/ledger/versions.h"
#include "server/operations/operation_command.h"
#include "server/operations/operations_job.h"
#include "server/operations/operations_json.h"

/* Each argument is a word of its own, with its value behind '=': no value is taken for a flag. */
static void add(json_t *arguments, const char *format, ...) CAIRN_PRINTF(2, 3);
static void add(json_t *arguments, const char *format, ...) {
    va_list values;
    va_start(values, format);
    json_array_append_new(arguments, json_vsprintf(format, values));
    va_end(values);
}

static enum cairn_code check_word(const char *name, const char *given, const char *const *known,
                                  size_t count, struct cairn_error *err) {
    CAIRN_AUTO(buf) words = {0};
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(given, known[i])) return CAIRN_OK;
        const char *between = i == 0 ? "" : i + 1 < count ? ", " : " or ";
        CAIRN_TRY(cairn_buf_printf(&words, err, "%s%s", between, known[i]));
    }
    return cairn_fail(err, CAIRN_INVALID, "/%s: \"%s\" is not known: %s", name, given, words.data);
}

/* The operation is begun, or the one that is alike is shown. */
static enum cairn_code begin(struct cairn_srv_request *request,
                             struct cairn_srv_operation_wish *wish, struct cairn_srv_reply *reply,
                             struct cairn_error *err) {
    char id[CAIRN_SRV_OPERATION_BYTES];
    bool made = false;
    wish->name = &request->params.run_name;
    wish->caller = &request->caller;
    enum cairn_code code = cairn_srv_operation_begin(request->server, wish, id, &made, err);
    cairn_srv_place_release(&wish->place);
    if (code) return code;
    if (made)
        cairn_log(INFO, "operation.begun", "operation=%s kind=%s run=%s/%s", id, wish->kind,
                  wish->name->project, wish->name->run);
    return cairn_srv_reply_begun(request, id, reply, err);
}

/* ---- POST {R}/imports ---- */

static json_t *import_arguments(const struct cairn_srv_request *request,
                                const struct cairn_msg_import_begin *said,
                                const struct cairn_srv_place *place) {
    json_t *arguments = json_array();
    const struct cairn_run_name *name = &request->params.run_name;
    add(arguments, "import");
    add(arguments, "--no-links");
    add(arguments, "--store=%s", cairn_store_url(request->server->store));
    add(arguments, "--socket=/proc/self/no-uploader"); /* of another server, perhaps */
    if (said->new_version) add(arguments, "--new-version");
    if (said->latest) add(arguments, "--latest");
    if (said->labels) {
        CAIRN_AUTO(buf) labels = {0};
        if (!cairn_json_dump(said->labels, &labels, NULL))
            add(arguments, "--labels=%s", labels.data);
    }
    add(arguments, "--");
    add(arguments, "%s", said->kind);
    add(arguments, "./%s", place->name);
    add(arguments, "%s/%s@%" PRIu64, name->project, name->run, said->step);
    return arguments;
}

enum cairn_code cairn_srv_on_import_begin(struct cairn_srv_request *request,
                                    struct cairn_srv_reply *reply, struct cairn_error *err) {
    static const char *const kinds[] = {"deepspeed", "dcp", "hf", "torch", "safetensors"};
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_msg_import_begin said = {0};
    struct cairn_srv_operation_wish wish = {.kind = "import", .inside = true, .sends = true};
    const struct cairn_srv_folders allowed = {
        "import-folders", request->server->settings->import_folders,
        request->params.run_name.project, false};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    CAIRN_TRY(cairn_srv_body(request, 1000, &body, err));
    CAIRN_TRY(cairn_msg_import_begin_read(body, "", &said, err));
    CAIRN_TRY(check_word("kind", said.kind, kinds, CAIRN_COUNT(kinds), err));
    CAIRN_TRY(cairn_srv_place_open(&allowed, said.path, &wish.place, err));
    enum cairn_code code = cairn_srv_place_has_no_link(&wish.place, err);
    if (code) {
        cairn_srv_place_release(&wish.place);
        return code;
    }
    CAIRN_AUTO_JSON json_t *arguments = import_arguments(request, &said, &wish.place);
    wish.arguments = arguments;
    wish.request = body;
    wish.path = said.path;
    return begin(request, &wish, reply, err);
}

/* ---- POST {C}/exports ---- */

struct version {
    struct cairn_srv_request *request;
    struct cairn_version_id id;
};

static enum cairn_code find(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct version *found = argument;
    CAIRN_AUTO(srv_version) version = {0};
    struct cairn_srv_ref ref = {&found->request->params.run_name, found->request->params.ref,
                                false};
    CAIRN_TRY(cairn_srv_version_find(tx, &ref, &version, err));
    CAIRN_TRY(cairn_srv_version_there(&version, err));
    found->id = version.id;
    if (cairn_srv_version_shown(&version) == CAIRN_STATE_COMMITTED) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_COMMITTED, "%s is %s: what is committed can be exported",
                      version.id.text, cairn_state_text(cairn_srv_version_shown(&version)));
}

static json_t *export_arguments(const struct version *version,
                                const struct cairn_msg_export_begin *said) {
    json_t *arguments = json_array();
    const struct cairn_run_name *name = &version->request->params.run_name;
    add(arguments, "export");
    add(arguments, "--same"); /* it may have been whole when its server ended */
    if (said->to) add(arguments, "--to=%s", said->to);
    if (said->dtype) add(arguments, "--dtype=%s", said->dtype);
    if (said->max_shard_bytes) add(arguments, "--max-shard-size=%" PRIu64, said->max_shard_bytes);
    if (said->only) add(arguments, "--only=%s", said->only);
    if (said->strip_prefix) add(arguments, "--strip-prefix=%s", said->strip_prefix);
    if (said->rename) add(arguments, "--rename=%s", said->rename);
    if (said->exclude_frozen) add(arguments, "--exclude-frozen");
    if (said->copy_tied) add(arguments, "--copy-tied");
    if (said->optimizer) add(arguments, "--optimizer");
    if (said->workers) add(arguments, "--workers=%" PRIu64, said->workers);
    add(arguments, "--");
    add(arguments, "%s/%s@%s", name->project, name->run, version->id.text);
    add(arguments, CAIRN_SRV_OPERATION_FOLDER);
    return arguments;
}

enum cairn_code cairn_srv_on_export_begin(struct cairn_srv_request *request,
                                    struct cairn_srv_reply *reply, struct cairn_error *err) {
    static const char *const forms[] = {"safetensors", "torch", "dcp"};
    static const char *const dtypes[] = {"keep", "fp32", "bf16", "fp16"};
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_msg_export_begin said = {0};
    struct version version = {.request = request};
    struct cairn_srv_operation_wish wish = {.kind = "export"};
    const struct cairn_srv_folders allowed = {
        "export-folders", request->server->settings->export_folders,
        request->params.run_name.project, true};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    if (!cairn_srv_caller_may(&request->caller, CAIRN_SCOPE_READ, request->params.run_name.project))
        return cairn_fail(err, CAIRN_FORBIDDEN, "the token %s lacks the scope read",
                          request->caller.who);
    CAIRN_TRY(cairn_srv_body(request, 100, &body, err));
    CAIRN_TRY(cairn_msg_export_begin_read(body, "", &said, err));
    if (said.to) CAIRN_TRY(check_word("to", said.to, forms, CAIRN_COUNT(forms), err));
    if (said.dtype) CAIRN_TRY(check_word("dtype", said.dtype, dtypes, CAIRN_COUNT(dtypes), err));
    CAIRN_TRY(cairn_srv_catalog_read(request->server->catalog, find, &version, err));
    CAIRN_TRY(cairn_srv_place_open(&allowed, said.path, &wish.place, err));
    CAIRN_AUTO_JSON json_t *arguments = export_arguments(&version, &said);
    json_object_set_new(body, "version", json_string(version.id.text));
    wish.arguments = arguments;
    wish.request = body;
    wish.path = said.path;
    return begin(request, &wish, reply, err);
}
