/* SPDX-License-Identifier: Apache-2.0 */
/* Runs with an open save, their liveness, and why each version is not committed; see watched.h. */
#include "cli/verbs/watched.h"

#include <stdio.h>

#include "common/clock.h"
#include "common/text.h"

#define RUNS_MAX 10000

void cairn_cli_watched_release(struct cairn_cli_watched *watched) {
    for (size_t i = 0; i < watched->save_count; i++) json_decref(watched->saves[i].why);
    watched->save_count = 0;
}

bool cairn_cli_scope_has(const struct cairn_cli_scope *scope, const char *project, const char *run,
                         const char *version, uint64_t step) {
    if (scope->project[0] && (!project || strcmp(scope->project, project) != 0)) return false;
    if (scope->run[0] && (!run || strcmp(scope->run, run) != 0)) return false;
    if (scope->version[0]) return version && !strcmp(scope->version, version);
    return !scope->step_given || (version && version[0] && step == scope->step);
}

/* ---- one version ---- */

static void add_known(uint64_t *sum, uint64_t more) {
    if (more != CAIRN_MESSAGE_NONE) *sum += more;
}

static enum cairn_code read_node(const json_t *item, struct cairn_cli_watched_save *save,
                                 struct cairn_error *err) {
    struct cairn_msg_why_node said = {.silent_ms = CAIRN_MESSAGE_NONE,
                                      .done_bytes = CAIRN_MESSAGE_NONE,
                                      .total_bytes = CAIRN_MESSAGE_NONE,
                                      .parts_done = CAIRN_MESSAGE_NONE,
                                      .parts_total = CAIRN_MESSAGE_NONE};
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_why_node, item, &said, err));
    add_known(&save->bytes_done, said.done_bytes);
    add_known(&save->bytes_total, said.total_bytes);
    add_known(&save->parts_done, said.parts_done);
    add_known(&save->parts_total, said.parts_total);
    save->waited_count += said.waited_for;
    if (save->node_count == CAIRN_CLI_WATCHED_NODES) return CAIRN_OK;
    struct cairn_cli_watched_node *node = &save->nodes[save->node_count++];
    *node = (struct cairn_cli_watched_node){.bytes_done = said.done_bytes,
                                            .bytes_total = said.total_bytes,
                                            .parts_done = said.parts_done,
                                            .parts_total = said.parts_total,
                                            .silent_ms = said.silent_ms,
                                            .waited_for = said.waited_for,
                                            .left = said.left};
    const char *error = said.error ? said.error : said.trouble ? said.trouble : "";
    (void)cairn_text_copy(node->name, sizeof node->name, said.node);
    (void)cairn_text_copy(node->error, sizeof node->error, error);
    return CAIRN_OK;
}

static enum cairn_code read_why(const json_t *json, struct cairn_cli_watched_save *save,
                                bool *ret_open, struct cairn_error *err) {
    struct cairn_msg_why why = {0};
    struct cairn_msg_liveness_open open = {.begun_at = ""};
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_why, json, &why, err));
    *ret_open = why.open != NULL;
    if (!why.open) return CAIRN_OK;
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_liveness_open, why.open, &open, err));
    save->step = open.step;
    save->attempt = open.attempt;
    save->world_size = open.world_size;
    save->ranks_sealed = open.ranks_sealed;
    save->shards = open.shards;
    save->shards_done = open.shards_registered;
    (void)cairn_text_copy(save->version, sizeof save->version, why.version);
    (void)cairn_text_copy(save->commit, sizeof save->commit, why.commit ? why.commit : "");
    for (size_t i = 0; i < json_array_size(why.nodes); i++)
        CAIRN_TRY(read_node(json_array_get(why.nodes, i), save, err));
    /* A node that does not report it any more has sealed its bytes. */
    save->bytes_total = cairn_max_u64(save->bytes_total, open.bytes);
    if (!save->waited_count) save->bytes_done = save->bytes_total;
    return CAIRN_OK;
}

static void take_rate(const struct cairn_cli_watched *before, struct cairn_cli_watched_save *save) {
    uint64_t now_ms = cairn_mono_ms();
    save->first_ms = now_ms;
    save->first_bytes = save->bytes_done;
    for (size_t i = 0; i < before->save_count; i++) {
        const struct cairn_cli_watched_save *old = &before->saves[i];
        if (strcmp(old->version, save->version) != 0 || save->bytes_done < old->first_bytes)
            continue;
        save->first_ms = old->first_ms;
        save->first_bytes = old->first_bytes;
    }
    uint64_t elapsed_ms = now_ms - save->first_ms;
    if (elapsed_ms) save->rate_bytes = (save->bytes_done - save->first_bytes) * 1000 / elapsed_ms;
}

/* ---- all that are open ---- */

struct watched_look {
    const struct cairn_cli *cli;
    const struct cairn_cli_scope *scope;
    struct cairn_cli_watched found;
};

static enum cairn_code look_at_version(struct watched_look *look, const struct cairn_cli_ref *run,
                                       const char *version, struct cairn_error *err) {
    struct cairn_cli_ref ref = *run;
    struct cairn_cli_watched_save *save = &look->found.saves[look->found.save_count];
    bool open = false;
    CAIRN_AUTO_JSON json_t *json = NULL;
    (void)cairn_text_copy(ref.version, sizeof ref.version, version);
    enum cairn_code code =
        cairn_cli_call(look->cli, &ref, (struct cairn_cli_call){.tail = "/why"}, &json, err);
    if (code == CAIRN_NOT_FOUND || code == CAIRN_DELETED) return CAIRN_OK;
    CAIRN_TRY(code);
    *save = (struct cairn_cli_watched_save){0};
    snprintf(save->run, sizeof save->run, "%s/%s", run->name.project, run->name.run);
    CAIRN_TRY(read_why(json, save, &open, err));
    if (!open) return CAIRN_OK;
    save->why = CAIRN_TAKE(json);
    look->found.save_count++;
    return CAIRN_OK;
}

static enum cairn_code look_at_run(struct watched_look *look, const char *project, const char *run,
                                   struct cairn_error *err) {
    struct cairn_cli_ref ref = {0};
    struct cairn_msg_liveness facts = {0};
    CAIRN_AUTO_JSON json_t *json = NULL;
    (void)cairn_text_copy(ref.name.project, sizeof ref.name.project, project);
    (void)cairn_text_copy(ref.name.run, sizeof ref.name.run, run);
    enum cairn_code code =
        cairn_cli_call(look->cli, &ref, (struct cairn_cli_call){.tail = "/liveness"}, &json, err);
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK; /* it may be made yet */
    CAIRN_TRY(code);
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_liveness, json, &facts, err));
    for (size_t i = 0; i < json_array_size(facts.open); i++) {
        struct cairn_msg_liveness_open save = {.begun_at = ""};
        if (look->found.save_count == CAIRN_CLI_WATCHED_SAVES) return CAIRN_OK;
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_liveness_open, json_array_get(facts.open, i),
                                       &save, err));
        if (!cairn_cli_scope_has(look->scope, project, run, save.version, save.step)) continue;
        CAIRN_TRY(look_at_version(look, &ref, save.version, err));
    }
    return CAIRN_OK;
}

/* A run whose save is open is idle since never. */
static enum cairn_code look_at_runs(struct watched_look *look, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *runs = json_array();
    char path[CAIRN_NAME_BYTES_MAX + 32] = "/v1/runs";
    const char *project = look->scope->project;
    if (project[0]) snprintf(path, sizeof path, "/v1/runs?project=%s", project);
    CAIRN_TRY(cairn_cli_list(look->cli, path, RUNS_MAX, runs, NULL, err));
    for (size_t i = 0; i < json_array_size(runs); i++) {
        struct cairn_msg_run_row run = {.idle_s = CAIRN_MESSAGE_NONE};
        CAIRN_TRY(
            cairn_cli_reply_read(CAIRN_MESSAGE_run_row, json_array_get(runs, i), &run, err));
        if (run.idle_s != CAIRN_MESSAGE_NONE) continue;
        if (look->found.save_count == CAIRN_CLI_WATCHED_SAVES) return CAIRN_OK;
        CAIRN_TRY(look_at_run(look, run.project, run.run, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_cli_watched_look(const struct cairn_cli *cli,
                                       const struct cairn_cli_scope *scope,
                                       struct cairn_cli_watched *watched, struct cairn_error *err) {
    struct watched_look look = {.cli = cli, .scope = scope};
    enum cairn_code code = scope->run[0] ? look_at_run(&look, scope->project, scope->run, err)
                                         : look_at_runs(&look, err);
    if (code) {
        cairn_cli_watched_release(&look.found);
        return code;
    }
    for (size_t i = 0; i < look.found.save_count; i++) take_rate(watched, &look.found.saves[i]);
    cairn_cli_watched_release(watched);
    *watched = look.found;
    return CAIRN_OK;
}
