/* SPDX-License-Identifier: Apache-2.0 */
/* What doctor finds out about this machine, and who listens. */
#include <stdio.h>
#include <sys/resource.h>

#include "api/wire/rest.h"
#include "cli/call.h"
#include "cli/options.h"
#include "cli/profile.h"
#include "cli/sizes.h"
#include "cli/uploader_link.h"
#include "cli/verbs/doctor.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/text.h"

#define UPLOADER_ANSWERS_MS 2000
#define FILES_WANTED 4096

/* What /readyz says of itself; a check that fails comes with a 503, and the same body. */
static void report_checks(struct cairn_cli_doctor *doctor, struct cairn_rest *rest,
                          const char *named) {
    struct cairn_error err = {0};
    CAIRN_AUTO_JSON json_t *reply = NULL;
    enum cairn_code code = cairn_rest_call(rest, "GET", "/readyz", NULL, 10000, &reply, &err);
    struct cairn_msg_readiness ready = {0};
    const json_t *body = code == CAIRN_OK ? reply : cairn_rest_problem(rest);
    json_t *said = NULL;
    const char *name = NULL;
    struct cairn_error *why = code == CAIRN_OK ? &err : NULL;
    bool read = body && !cairn_cli_reply_read(CAIRN_MESSAGE_readiness, body, &ready, why);
    json_object_foreach(ready.checks, name, said) {
        const char *text = json_string_value(said);
        if (!text || !strcmp(text, "ok")) continue;
        char check[40];
        snprintf(check, sizeof check, "server's %.20s", name);
        cairn_cli_doctor_say(doctor, code == CAIRN_OK ? CAIRN_CLI_WARN : CAIRN_CLI_FAIL, check,
                             "docs/runbook.md says what to do; the server's log says more", "%s%s",
                             named, text);
    }
    if (!read)
        cairn_cli_doctor_say(doctor, CAIRN_CLI_WARN, "server's checks", "", "%s%s", named,
                             err.message);
}

/* One of those that are named; several are told apart by their URLs. */
static void check_server(struct cairn_cli_doctor *doctor, const struct cairn_cli *cli,
                         bool is_one_of) {
    struct cairn_error err = {0};
    char named[256] = "";
    if (is_one_of) snprintf(named, sizeof named, "%s: ", cli->server);
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_program program = {0};
    enum cairn_code code = cairn_cli_connect(cli, &rest, &err);
    if (code == CAIRN_OK) code = cairn_rest_call(rest, "GET", "/version", NULL, 5000, &reply, &err);
    if (code == CAIRN_OK) code = cairn_cli_reply_read(CAIRN_MESSAGE_program, reply, &program, &err);
    if (code != CAIRN_OK) {
        cairn_cli_doctor_say(doctor, CAIRN_CLI_WARN, "server",
                             "start cairn-server, or name it by --server or CAIRN_URL", "%s",
                             err.message);
        return;
    }
    cairn_cli_doctor_say(doctor, CAIRN_CLI_FINE, "server", "", "%sanswers, version %s", named,
                         program.version);
    report_checks(doctor, rest, named);
}

/* Each by itself: a call to the list would show the first that answers. */
static void check_servers(struct cairn_cli_doctor *doctor) {
    struct cairn_error err = {0};
    CAIRN_AUTO(servers) servers = {0};
    if (cairn_servers_parse(cairn_cli_server_url(doctor->cli), &servers, &err) != CAIRN_OK) {
        cairn_cli_doctor_say(doctor, CAIRN_CLI_WARN, "server",
                             "name it by --server or CAIRN_URL, several with commas between", "%s",
                             err.message);
        return;
    }
    struct cairn_cli_server all;
    cairn_cli_server_of(doctor->cli, &all);
    for (uint32_t i = 0; i < servers.count; i++) {
        struct cairn_cli one = *doctor->cli;
        struct cairn_rest_seen seen = {0};
        one.server = servers.places[i].name;
        one.token_file = all.token_file;
        one.ca_file = all.ca_file;
        one.seen = &seen;
        check_server(doctor, &one, servers.count > 1);
    }
}

static void check_uploader(struct cairn_cli_doctor *doctor) {
    struct cairn_error err = {0};
    const char *path = cairn_cli_uploader_socket(doctor->cli);
    CAIRN_AUTO_JSON json_t *report = NULL;
    struct cairn_cli_uploader uploader;
    enum cairn_code code = cairn_cli_uploader_open(path, &uploader, &err);
    if (code == CAIRN_OK)
        code = cairn_cli_uploader_ask(&uploader, CAIRN_PACK(status, 0),
                                      cairn_mono_ms() + UPLOADER_ANSWERS_MS, &report, &err);
    cairn_cli_uploader_close(&uploader);
    if (code == CAIRN_OK) {
        cairn_cli_doctor_say(doctor, CAIRN_CLI_FINE, "uploader", "", "listens on %s", path);
        return;
    }
    cairn_cli_doctor_say(doctor, CAIRN_CLI_WARN, "uploader",
                         "trainers of this node need one; `cairn put --store` brings its own", "%s",
                         err.message);
}

static void report_limits(struct cairn_cli_doctor *doctor) {
    struct rlimit memory, files;
    if (!getrlimit(RLIMIT_MEMLOCK, &memory)) {
        char size[24];
        cairn_cli_size(memory.rlim_cur, size);
        bool endless = memory.rlim_cur == RLIM_INFINITY;
        cairn_cli_doctor_say(doctor, CAIRN_CLI_FINE, "locked memory", "", "RLIMIT_MEMLOCK is %s",
                             endless ? "unlimited" : size);
    }
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        bool few = files.rlim_max < FILES_WANTED;
        cairn_cli_doctor_say(doctor, few ? CAIRN_CLI_WARN : CAIRN_CLI_FINE, "open files",
                             few ? "raise it: LimitNOFILE= of the service, or ulimit -n" : "",
                             "RLIMIT_NOFILE may be %llu", (unsigned long long)files.rlim_max);
    }
}

/* Slabs are memfds: huge pages come by the setting for shared memory, not by the usual one. */
static void check_huge_pages(struct cairn_cli_doctor *doctor) {
    CAIRN_AUTO(buf) text = {.limit = 4096};
    if (cairn_file_load("/sys/kernel/mm/transparent_hugepage/shmem_enabled", &text, NULL)) {
        cairn_cli_doctor_say(doctor, CAIRN_CLI_FINE, "huge pages", "",
                             "this kernel does not tell; staging works with small ones");
        return;
    }
    char *begin = strchr(text.data, '['), *end = begin ? strchr(begin, ']') : NULL;
    if (end) *end = '\0';
    const char *now = end ? begin + 1 : "unknown";
    bool helps = !strcmp(now, "advise") || !strcmp(now, "within_size") || !strcmp(now, "always") ||
                 !strcmp(now, "force");
    cairn_cli_doctor_say(doctor, helps ? CAIRN_CLI_FINE : CAIRN_CLI_WARN, "huge pages",
                         helps ? ""
                               : "as root: echo advise > "
                                 "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
                         "of shared memory: %s", now);
}

void cairn_cli_doctor_machine(struct cairn_cli_doctor *doctor) {
    check_servers(doctor);
    check_uploader(doctor);
    report_limits(doctor);
    check_huge_pages(doctor);
}
