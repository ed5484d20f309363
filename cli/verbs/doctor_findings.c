/* SPDX-License-Identifier: Apache-2.0 */
/* The list of findings, and its two forms. */
#include "cli/verbs/doctor_findings.h"

#include <stdarg.h>
#include <stdio.h>

#include "cli/shell/output.h"
#include "common/text.h"

static const char *const level_names[] = {"ok", "WARN", "FAIL"};

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

size_t cairn_cli_doctor_count(const struct cairn_cli_doctor *doctor, enum cairn_cli_level level) {
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
    bool ok = !cairn_cli_doctor_count(doctor, CAIRN_CLI_FAIL);
    good = good && !json_object_set_new(answer, "ok", json_boolean(ok));
    good = good && !json_object_set(answer, "findings", list);
    json_decref(list);
    if (!good) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the findings");
    return cairn_cli_print_json(answer, true, err);
}

enum cairn_code cairn_cli_doctor_print(const struct cairn_cli_doctor *doctor,
                                       struct cairn_error *err) {
    if (doctor->cli->output != CAIRN_CLI_TABLE) return print_json(doctor, err);
    for (size_t i = 0; i < doctor->count; i++) {
        const struct cairn_cli_finding *finding = &doctor->findings[i];
        printf("%-4s  %-18s %s\n", level_names[finding->level], finding->check, finding->text);
        if (finding->hint[0]) printf("%26s-> %s\n", "", finding->hint);
    }
    if (fflush(stdout)) return cairn_fail_errno(err, "standard output");
    return CAIRN_OK;
}
