/* SPDX-License-Identifier: Apache-2.0 */
/* cairn doctor: what works, what works with less, and what to do about the rest. */
#include "cli/verbs/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/output.h"
#include "common/text.h"

static const char *const level_names[] = {"ok", "WARN", "FAIL"};

static const struct cairn_cli_flag flags[] = {
    {"store", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(store), 0, "URL",
     "The store to test: a folder or s3://bucket/prefix; default $CAIRN_STORE."},
    {"for", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(wait_for), 0, "ROLE",
     "Whose keys these are: server (the default), which needs all rights, or uploader."},
};

void cairn_cli_doctor_say(struct cairn_cli_doctor *doctor, enum cairn_cli_level level,
                          const char *check, const char *hint, const char *format, ...) {
    if (doctor->count == CAIRN_CLI_FINDINGS_MAX) return;
    struct cairn_cli_finding *finding = &doctor->findings[doctor->count++];
    finding->level = level;
    (void)cairn_text_copy(finding->check, sizeof finding->check, check);
    (void)cairn_text_copy(finding->hint, sizeof finding->hint, hint);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->text, sizeof finding->text, format, arguments);
    va_end(arguments);
}

static size_t count_of(const struct cairn_cli_doctor *doctor, enum cairn_cli_level level) {
    size_t count = 0;
    for (size_t i = 0; i < doctor->count; i++) count += doctor->findings[i].level == level;
    return count;
}

static enum cairn_code print_json(const struct cairn_cli_doctor *doctor, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *answer = json_object();
    json_t *list = json_array();
    bool good = answer && list;
    for (size_t i = 0; good && i < doctor->count; i++) {
        const struct cairn_cli_finding *finding = &doctor->findings[i];
        good = !json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:s}", "level", level_names[finding->level], "check",
                            finding->check, "text", finding->text, "hint", finding->hint));
    }
    good = good && !json_object_set_new(answer, "store", json_string(doctor->url));
    good =
        good && !json_object_set_new(answer, "ok", json_boolean(!count_of(doctor, CAIRN_CLI_FAIL)));
    good = good && !json_object_set(answer, "findings", list);
    json_decref(list);
    if (!good) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the findings");
    return cairn_cli_print_json(answer, true, err);
}

static enum cairn_code print(const struct cairn_cli_doctor *doctor, struct cairn_error *err) {
    if (doctor->cli->output != CAIRN_CLI_TABLE) return print_json(doctor, err);
    for (size_t i = 0; i < doctor->count; i++) {
        const struct cairn_cli_finding *finding = &doctor->findings[i];
        printf("%-4s  %-18s %s\n", level_names[finding->level], finding->check, finding->text);
        if (finding->hint[0]) printf("%26s-> %s\n", "", finding->hint);
    }
    if (fflush(stdout)) return cairn_fail_errno(err, "standard output");
    return CAIRN_OK;
}

static enum cairn_code run(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_doctor *doctor = calloc(1, sizeof *doctor);
    if (!doctor) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for findings");
    const char *url = cli->argument_count ? cli->arguments[0] : cli->store;
    doctor->cli = cli;
    doctor->url = url ? url : getenv("CAIRN_STORE");
    const char *role = cli->wait_for ? cli->wait_for : "server";
    doctor->for_uploader = !strcmp(role, "uploader");
    enum cairn_code code = CAIRN_OK;
    if (!doctor->for_uploader && strcmp(role, "server") != 0)
        code = cairn_fail(err, CAIRN_INVALID, "--for is server or uploader, not %s", role);
    else if (!doctor->url || !*doctor->url)
        code = cairn_fail(err, CAIRN_INVALID, "which store? give it, or set CAIRN_STORE");
    if (code == CAIRN_OK) {
        cairn_cli_doctor_store(doctor);
        cairn_cli_doctor_machine(doctor);
        code = print(doctor, err);
    }
    size_t failed = count_of(doctor, CAIRN_CLI_FAIL), warned = count_of(doctor, CAIRN_CLI_WARN);
    free(doctor);
    if (code != CAIRN_OK || !failed) return code;
    return cairn_fail(err, CAIRN_STORE, "%zu failed, %zu with a warning", failed, warned);
}

const struct cairn_cli_verb cairn_cli_verb_doctor = {
    .name = "doctor",
    .synopsis = "cairn doctor [flags] [STORE]",
    .purpose = "Test a store with real requests, and this machine; say what to do.",
    .examples = "  cairn doctor s3://bucket/prefix\n"
                "  cairn doctor /mnt/checkpoints --json\n"
                "  cairn doctor s3://bucket/prefix --for uploader\n",
    .flags = flags,
    .flag_count = CAIRN_COUNT(flags),
    .arguments_min = 0,
    .arguments_max = 1,
    .run = run,
};
