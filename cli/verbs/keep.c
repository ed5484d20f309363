/* SPDX-License-Identifier: Apache-2.0 */
/* Flags to a policy, a plan to lines; see keep.h. */
#include "cli/verbs/keep.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "cli/shell/output.h"
#include "cli/shell/sizes.h"
#include "common/text.h"

#define CHECKPOINTS_MAX 1000 /* that are asked for the names of their metrics */

static enum cairn_code read_best(const char *text, struct cairn_policy *policy,
                                 struct cairn_error *err) {
    while (text) {
        const char *comma = strchr(text, ',');
        struct cairn_view one = {text, comma ? (size_t)(comma - text) : strlen(text)};
        if (policy->best_count == CAIRN_POLICY_BEST_MAX)
            return cairn_fail(err, CAIRN_INVALID, "--keep-best: more than %d metrics",
                              CAIRN_POLICY_BEST_MAX);
        enum cairn_code code =
            cairn_policy_best_parse(one, &policy->best[policy->best_count++], err);
        if (code) return cairn_within(err, code, "--keep-best %s", text);
        text = comma ? comma + 1 : NULL;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_cli_keep_policy(const struct cairn_cli *cli, json_t **ret,
                                      struct cairn_error *err) {
    struct cairn_policy policy = {0};
    enum cairn_code code = CAIRN_OK;
    memcpy(policy.numbers, cli->keep_numbers, sizeof policy.numbers);
    for (size_t i = 0; i < cli->keep_best.count; i++)
        CAIRN_TRY(read_best(cli->keep_best.items[i], &policy, err));
    if (cli->keep_within)
        code = cairn_policy_within_parse(cairn_view_of(cli->keep_within), &policy, err);
    if (code) return cairn_within(err, code, "--keep-within");
    for (size_t i = 0; i < cli->keep_labels.count; i++) /* CAIRN_POLICY_LABELS_MAX of them */
        CAIRN_TRY(cairn_selector_parse(cairn_view_of(cli->keep_labels.items[i]),
                                       &policy.labels[policy.labels_count++], err));
    if (cli->unmeasured_grace)
        code =
            cairn_policy_unmeasured_grace_parse(cairn_view_of(cli->unmeasured_grace), &policy, err);
    if (code) return cairn_within(err, code, "--unmeasured-grace");
    for (size_t i = 0; !code && i < cli->copies.count; i++)
        code = cairn_policy_copies_parse(cairn_view_of(cli->copies.items[i]), &policy, err);
    if (code) return cairn_within(err, code, "--copies");
    if (cli->partner_copies)
        code = cairn_policy_partner_copies_parse(cairn_view_of(cli->partner_copies), &policy, err);
    if (code) return cairn_within(err, code, "--partner-copies");
    *ret = NULL;
    bool nothing =
        cairn_policy_empty(&policy) && !policy.copies_count && !policy.says_partner_copies;
    return nothing ? CAIRN_OK : cairn_policy_json(&policy, ret, err);
}

enum cairn_code cairn_cli_keep_preview(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                       json_t *take_body, json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = take_body;
    struct cairn_cli_call preview = {.method = "POST", .tail = "/retention/preview", .body = body};
    return cairn_cli_call(cli, run, preview, ret, err);
}

/* ---- metrics that no checkpoint has ---- */

/* Is the newest of a rule's choice among the reasons? Then some checkpoint has the metric. */
static bool has_metric(const json_t *plan, const char *metric) {
    size_t index = 0, other = 0;
    json_t *version = NULL, *reason = NULL;
    json_array_foreach(json_object_get(plan, "versions"), index, version) {
        json_array_foreach(json_object_get(version, "reasons"), other, reason) {
            const char *rule = json_string_value(json_object_get(reason, "rule"));
            const char *of = json_string_value(json_object_get(reason, "metric"));
            if (rule && of && !strcmp(rule, "best") && !strcmp(of, metric)) return true;
        }
    }
    return false;
}

/* "eval_loss, acc", of the newest checkpoints. */
static enum cairn_code metrics_of(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                  struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array(), *known = json_object();
    CAIRN_AUTO(buf) path = {0};
    size_t index = 0;
    json_t *item = NULL, *value = NULL;
    const char *name = NULL;
    CAIRN_TRY(cairn_cli_path(run, "/checkpoints", &path, err));
    CAIRN_TRY(cairn_cli_list(cli, path.data, CHECKPOINTS_MAX, items, NULL, err));
    json_array_foreach(items, index, item) {
        json_object_foreach(json_object_get(item, "metrics"), name, value) {
            if (json_object_get(known, name)) continue;
            json_object_set_new(known, name, json_true());
            CAIRN_TRY(cairn_buf_printf(ret, err, "%s%s", ret->size ? ", " : "", name));
        }
    }
    return ret->size ? CAIRN_OK : cairn_buf_append_text(ret, "none yet", err);
}

enum cairn_code cairn_cli_keep_check(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                     const json_t *plan, struct cairn_error *err) {
    const json_t *keep = json_object_get(json_object_get(plan, "policy"), "keep");
    CAIRN_AUTO(buf) there = {.limit = 512};
    size_t index = 0;
    json_t *best = NULL;
    bool any = json_integer_value(json_object_get(plan, "keep")) +
                   json_integer_value(json_object_get(plan, "remove")) >
               0;
    if (cli->force || !any) return CAIRN_OK;
    json_array_foreach(json_object_get(keep, "best"), index, best) {
        const char *metric = json_string_value(json_object_get(best, "metric"));
        if (!metric || has_metric(plan, metric)) continue;
        CAIRN_TRY(metrics_of(cli, run, &there, err));
        return cairn_fail(err, CAIRN_INVALID,
                          "no checkpoint of %s/%s has the metric %s (there are: %s); --force takes "
                          "the rule all the same",
                          run->name.project, run->name.run, metric, there.data);
    }
    return CAIRN_OK;
}

/* ---- as people read it ---- */

static void add(char *text, size_t capacity, const char *format, ...) CAIRN_PRINTF(3, 4);
static void add(char *text, size_t capacity, const char *format, ...) {
    size_t at = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + at, capacity - at, format, arguments);
    va_end(arguments);
}

/* "last 1/2, best 1/1 by eval_loss (1.931), pinned" */
static enum cairn_code reasons_text(const json_t *reasons, char *ret, size_t capacity,
                                    struct cairn_error *err) {
    size_t index = 0;
    json_t *json = NULL;
    *ret = '\0';
    json_array_foreach((json_t *)(uintptr_t)reasons, index, json) {
        struct cairn_msg_retention_reason reason = {0};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_retention_reason, json, &reason, err));
        add(ret, capacity, "%s%s", index ? ", " : "", reason.rule);
        if (reason.place) add(ret, capacity, " %" PRIu64 "/%" PRIu64, reason.place, reason.of);
        if (reason.metric && !strcmp(reason.rule, "best"))
            add(ret, capacity, " by %s (%s)", reason.metric, cairn_real(reason.value).text);
        else if (reason.metric)
            add(ret, capacity, " by %s", reason.metric);
        if (reason.labels) add(ret, capacity, " %s", reason.labels);
    }
    cairn_cli_clean(ret);
    return CAIRN_OK;
}

static enum cairn_code print_version(const json_t *json, struct cairn_error *err) {
    struct cairn_msg_retention_version version = {0};
    char size[24], why[600];
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_retention_version, json, &version, err));
    CAIRN_TRY(reasons_text(version.reasons, why, sizeof why, err));
    cairn_cli_size(version.bytes, size);
    bool removed = !strcmp(version.fate, "remove"), kept = !strcmp(version.fate, "keep");
    printf("%-7s %9" PRIu64 "  %10s  %s%s\n",
           removed ? "REMOVE"
           : kept  ? "KEEP"
                   : "SKIP",
           version.step, size, removed ? "-" : why,
           version.version || version.committed_at == NULL ? "" : " (assumed)");
    return CAIRN_OK;
}

enum cairn_code cairn_cli_keep_print(const struct cairn_cli_ref *run, const json_t *plan,
                                     const char *tail, struct cairn_error *err) {
    struct cairn_msg_retention_plan row = {0};
    char size[24], grace[24];
    size_t index = 0;
    json_t *version = NULL;
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_retention_plan, plan, &row, err));
    printf("Policy (run %s/%s, %" PRIu64 " committed): %s\n", run->name.project, run->name.run,
           row.keep + row.remove, row.text);
    json_array_foreach(row.versions, index, version) CAIRN_TRY(print_version(version, err));
    cairn_cli_size(row.remove_bytes, size);
    cairn_duration_text(row.trash_grace_ms, grace);
    printf("keep %" PRIu64 ", remove %" PRIu64 ": %s after %s in the trash (undo: cairn undelete)",
           row.keep, row.remove, size, grace);
    printf("%s%s\n", *tail ? "; " : "", tail);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}
