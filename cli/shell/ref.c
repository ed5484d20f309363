/* SPDX-License-Identifier: Apache-2.0 */
/* References as people type them. */
#include "cli/shell/ref.h"

#include "common/text.h"

static bool version_valid(const char *text) {
    struct cairn_view view = cairn_view_of(text);
    if (cairn_version_id_valid(view)) return true;
    if (*text >= 'a' && *text <= 'z' && !cairn_text_starts(text, "ckpt_")) /* latest, best, prod */
        return !text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-")];
    uint64_t step = 0;
    return cairn_parse_u64(view, &step, NULL) == CAIRN_OK && step <= CAIRN_STEP_MAX;
}

enum cairn_code cairn_cli_ref_parse(const char *text, struct cairn_cli_ref *ret,
                                    struct cairn_error *err) {
    struct cairn_cli_ref ref = {0};
    if (cairn_text_starts(text, "cairn://")) text += strlen("cairn://");
    const char *at = strchr(text, '@');
    char name[2 * CAIRN_NAME_BYTES_MAX + 2] = "";
    size_t name_bytes = at ? (size_t)(at - text) : strlen(text);
    if (name_bytes >= sizeof name)
        return cairn_fail(err, CAIRN_INVALID, "\"%.60s...\" is too long for project/run", text);
    memcpy(name, text, name_bytes);
    struct cairn_error why = {0};
    if (!strchr(name, '/'))
        return cairn_fail(err, CAIRN_INVALID,
                          "\"%.80s\" has no slash: a run is project/run, a checkpoint of it "
                          "project/run@step",
                          text);
    if (cairn_run_name_parse(name, &ref.name, &why) != CAIRN_OK)
        return cairn_fail(err, CAIRN_INVALID, "%s (wanted: project/run or project/run@step)",
                          why.message);
    if (at) {
        if (!cairn_text_copy(ref.version, sizeof ref.version, at + 1) ||
            !version_valid(ref.version))
            return cairn_fail(
                err, CAIRN_INVALID,
                "\"%.60s\" after @ names no checkpoint: it is a step, latest, best, an "
                "alias, or an id (ckpt_ and 36 characters)",
                at + 1);
    }
    *ret = ref;
    return CAIRN_OK;
}

enum cairn_code cairn_cli_ref_run(const char *verb, const char *text, struct cairn_cli_ref *ret,
                                  struct cairn_error *err) {
    CAIRN_TRY(cairn_cli_ref_parse(text, ret, err));
    if (!ret->version[0]) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "%s takes a run without @: %s/%s", verb,
                      ret->name.project, ret->name.run);
}

enum cairn_code cairn_cli_path(const struct cairn_cli_ref *ref, const char *tail,
                               struct cairn_buf *ret, struct cairn_error *err) {
    cairn_buf_clear(ret);
    CAIRN_TRY(cairn_buf_printf(ret, err, "/v1/runs/%s/%s", ref->name.project, ref->name.run));
    if (ref->version[0]) CAIRN_TRY(cairn_buf_printf(ret, err, "/checkpoints/%s", ref->version));
    return cairn_buf_append_text(ret, tail, err);
}
