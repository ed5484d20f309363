/* SPDX-License-Identifier: Apache-2.0 */
/* cairn doctor: checks store, server, uploader and machine, with advice for each problem. */
#include "cli/verbs/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "api/wire/rest.h"
#include "cli/shell/output.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/text.h"

static const char *const level_names[] = {"ok", "WARN", "FAIL"};

void cli_doctor_say(struct cli_doctor *doctor, enum cli_level level, const char *check,
                    const char *hint, const char *format, ...) {
    if (doctor->count == CLI_FINDINGS_MAX) return;
    struct cli_finding *finding = &doctor->findings[doctor->count++];
    finding->level = level;
    (void)cairn_text_copy(finding->check, sizeof finding->check, check);
    (void)cairn_text_copy(finding->hint, sizeof finding->hint, hint);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->text, sizeof finding->text, format, arguments);
    va_end(arguments);
}

static size_t count_findings(const struct cli_doctor *doctor, enum cli_level level) {
    size_t count = 0;
    for (size_t i = 0; i < doctor->count; i++) count += doctor->findings[i].level == level;
    return count;
}

/* The JSON form is described in docs/command.md. */
static enum cairn_code print_findings(const struct cli_doctor *doctor, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *list = json_array();
    bool is_table = doctor->cli->output == CLI_TABLE;
    for (size_t i = 0; i < doctor->count; i++) {
        const struct cli_finding *finding = &doctor->findings[i];
        const char *level = level_names[finding->level];
        if (is_table) {
            printf("%-4s  %-18s %s\n", level, finding->check, finding->text);
            if (finding->hint[0]) printf("%26s-> %s\n", "", finding->hint);
            continue;
        }
        json_t *row = json_pack("{s:s, s:s, s:s, s:s}", "level", level, "check", finding->check,
                                "text", finding->text, "hint", finding->hint);
        CAIRN_TRY(cli_list_add(list, row, err));
    }
    if (is_table) return cli_flush(err);
    bool ok = !count_findings(doctor, CLI_FAIL);
    CAIRN_AUTO_JSON json_t *answer =
        json_pack("{s:s, s:b, s:O}", "store", doctor->url, "ok", ok, "findings", list);
    if (!answer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the findings");
    return cli_print_json(answer, true, err);
}

/* ---- server, uploader and machine ---- */

#define UPLOADER_ANSWERS_MS 2000
#define FILES_WANTED 4096

/* Reports the checks of /readyz; a failed check makes the reply a 503 with the same body. */
static void report_checks(struct cli_doctor *doctor, struct cairn_rest *rest, const char *named) {
    struct cairn_error err = {0};
    CAIRN_AUTO_JSON json_t *reply = NULL;
    enum cairn_code code = cairn_rest_call(rest, "GET", "/readyz", NULL, 10000, &reply, &err);
    struct cairn_msg_readiness ready = {0};
    const json_t *body = code == CAIRN_OK ? reply : cairn_rest_problem(rest);
    json_t *said = NULL;
    const char *name = NULL;
    struct cairn_error *why = code == CAIRN_OK ? &err : NULL;
    bool read = body && !cli_reply_read(CAIRN_MESSAGE_readiness, body, &ready, why);
    json_object_foreach(ready.checks, name, said) {
        const char *text = json_string_value(said);
        if (!text || !strcmp(text, "ok")) continue;
        char check[40];
        snprintf(check, sizeof check, "server's %.20s", name);
        cli_doctor_say(doctor, code == CAIRN_OK ? CLI_WARN : CLI_FAIL, check,
                       "docs/runbook.md says what to do; the server's log says more", "%s%s", named,
                       text);
    }
    if (!read) cli_doctor_say(doctor, CLI_WARN, "server's checks", "", "%s%s", named, err.message);
}

/* is_one_of: findings name the server's URL, because several are checked. */
static void check_server(struct cli_doctor *doctor, const struct cli *cli, bool is_one_of) {
    struct cairn_error err = {0};
    char named[256] = "";
    if (is_one_of) snprintf(named, sizeof named, "%s: ", cli->server);
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_program program = {0};
    enum cairn_code code = cli_connect(cli, &rest, &err);
    if (code == CAIRN_OK) code = cairn_rest_call(rest, "GET", "/version", NULL, 5000, &reply, &err);
    if (code == CAIRN_OK) code = cli_reply_read(CAIRN_MESSAGE_program, reply, &program, &err);
    if (code != CAIRN_OK) {
        cli_doctor_say(doctor, CLI_WARN, "server",
                       "start cairn-server, or name it by --server or CAIRN_URL", "%s",
                       err.message);
        return;
    }
    cli_doctor_say(doctor, CLI_FINE, "server", "", "%sanswers, version %s", named, program.version);
    report_checks(doctor, rest, named);
}

/* Checks servers one by one, because a call to the list would reach only the first that answers. */
static void check_servers(struct cli_doctor *doctor) {
    struct cairn_error err = {0};
    CAIRN_AUTO(servers) servers = {0};
    if (cairn_servers_parse(cli_server_url(doctor->cli), &servers, &err) != CAIRN_OK) {
        cli_doctor_say(doctor, CLI_WARN, "server",
                       "name it by --server or CAIRN_URL, several with commas between", "%s",
                       err.message);
        return;
    }
    struct cli_server all;
    cli_server_of(doctor->cli, &all);
    for (uint32_t i = 0; i < servers.count; i++) {
        struct cli one = *doctor->cli;
        struct cairn_rest_seen seen = {0};
        one.server = servers.places[i].name;
        one.token_file = all.token_file;
        one.ca_file = all.ca_file;
        one.seen = &seen;
        check_server(doctor, &one, servers.count > 1);
    }
}

static void check_uploader(struct cli_doctor *doctor) {
    struct cairn_error err = {0};
    const char *path = cli_uploader_socket(doctor->cli);
    CAIRN_AUTO_JSON json_t *report = NULL;
    struct cli_uploader uploader;
    enum cairn_code code = cli_uploader_open(path, &uploader, &err);
    if (code == CAIRN_OK)
        code = cli_uploader_ask(&uploader, CAIRN_PACK(status, 0),
                                cairn_mono_ms() + UPLOADER_ANSWERS_MS, &report, &err);
    cli_uploader_close(&uploader);
    if (code == CAIRN_OK) {
        cli_doctor_say(doctor, CLI_FINE, "uploader", "", "listens on %s", path);
        return;
    }
    cli_doctor_say(doctor, CLI_WARN, "uploader",
                   "trainers of this node need one; `cairn put --store` brings its own", "%s",
                   err.message);
}

static void report_limits(struct cli_doctor *doctor) {
    struct rlimit memory, files;
    if (!getrlimit(RLIMIT_MEMLOCK, &memory)) {
        bool endless = memory.rlim_cur == RLIM_INFINITY;
        cli_doctor_say(doctor, CLI_FINE, "locked memory", "", "RLIMIT_MEMLOCK is %s",
                       endless ? "unlimited" : cli_size(memory.rlim_cur).text);
    }
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        bool few = files.rlim_max < FILES_WANTED;
        cli_doctor_say(doctor, few ? CLI_WARN : CLI_FINE, "open files",
                       few ? "raise it: LimitNOFILE= of the service, or ulimit -n" : "",
                       "RLIMIT_NOFILE may be %llu", (unsigned long long)files.rlim_max);
    }
}

/* Slabs are memfds, whose huge pages follow the shared-memory setting. */
static void check_huge_pages(struct cli_doctor *doctor) {
    CAIRN_AUTO(buf) text = {.limit = 4096};
    if (cairn_file_load("/sys/kernel/mm/transparent_hugepage/shmem_enabled", &text, NULL)) {
        cli_doctor_say(doctor, CLI_FINE, "huge pages", "",
                       "this kernel does not tell; staging works with small ones");
        return;
    }
    char *begin = strchr(text.data, '['), *end = begin ? strchr(begin, ']') : NULL;
    if (end) *end = '\0';
    const char *now = end ? begin + 1 : "unknown";
    bool helps = !strcmp(now, "advise") || !strcmp(now, "within_size") || !strcmp(now, "always") ||
                 !strcmp(now, "force");
    cli_doctor_say(doctor, helps ? CLI_FINE : CLI_WARN, "huge pages",
                   helps ? ""
                         : "as root: echo advise > "
                           "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
                   "of shared memory: %s", now);
}

static const struct cli_flag doctor_flags[] = {
    {"store", 0, CLI_TEXT, CLI_AT(store), 0, "URL",
     "The store to test: a folder or s3://bucket/prefix; default $CAIRN_STORE."},
    {"for", 0, CLI_TEXT, CLI_AT(wait_for), 0, "ROLE",
     "Whose keys these are: server (the default), which needs all rights, or uploader."},
};

uint64_t cli_doctor_deadline(const struct cli_doctor *doctor, uint64_t ms) {
    uint64_t deadline_ms = cairn_deadline_in(&cairn_clock_real, ms);
    return doctor->until_ms ? cairn_min_u64(doctor->until_ms, deadline_ms) : deadline_ms;
}

static enum cairn_code run_doctor(struct cli *cli, struct cairn_error *err) {
    struct cli_doctor *doctor = calloc(1, sizeof *doctor);
    if (!doctor) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for findings");
    const char *url = cli->argument_count ? cli->arguments[0] : cli->store;
    doctor->cli = cli;
    doctor->url = url ? url : getenv("CAIRN_STORE");
    if (cli->timeout_ms && cli->timeout_ms < UINT32_MAX)
        doctor->until_ms = cairn_mono_ms() + cli->timeout_ms;
    const char *role = cli->wait_for ? cli->wait_for : "server";
    doctor->for_uploader = !strcmp(role, "uploader");
    enum cairn_code code = CAIRN_OK;
    if (!doctor->for_uploader && strcmp(role, "server") != 0)
        code = cairn_fail(err, CAIRN_INVALID, "--for is server or uploader, not %s", role);
    else if (!doctor->url || !*doctor->url)
        code = cairn_fail(err, CAIRN_INVALID,
                          "name the store to test, or set CAIRN_STORE: cairn doctor STORE");
    if (code == CAIRN_OK) {
        cli_doctor_store(doctor);
        check_servers(doctor);
        check_uploader(doctor);
        report_limits(doctor);
        check_huge_pages(doctor);
        code = print_findings(doctor, err);
    }
    size_t failed = count_findings(doctor, CLI_FAIL);
    size_t warned = count_findings(doctor, CLI_WARN);
    free(doctor);
    if (code != CAIRN_OK || !failed) return code;
    return cairn_fail(err, CAIRN_STORE, "%zu failed, %zu with a warning", failed, warned);
}

const struct cli_verb cli_verb_doctor = {
    CLI_VERB(doctor),
    .chapter = "Stores",
    .synopsis = "cairn doctor [flags] [STORE]",
    .purpose = "Test a store with real requests, and this machine, and advise.",
    .examples = "  cairn doctor s3://bucket/prefix\n"
                "  cairn doctor /mnt/checkpoints --json\n"
                "  cairn doctor s3://bucket/prefix --for uploader\n",
    CLI_TAKES(doctor_flags, 0, 1),
};
