/* SPDX-License-Identifier: Apache-2.0 */
/* cairn health [server|uploader]: does it answer, and is it ready? For container engines, service
 * managers and scripts: no token, one line, an exit status. */
#include <stdio.h>

#include "cli/shell/options.h"
#include "cli/shell/output.h"
#include "cli/shell/profile.h"
#include "cli/shell/uploader_link.h"
#include "common/clock.h"
#include "common/text.h"

#define ANSWER_DEFAULT_MS 5000

static const struct cairn_cli_flag health_flags[] = {
    {"ready", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(ready), 0, NULL,
     "Not only whether it answers: also whether it can do its work now."},
};

/* What is wrong, with "; " between. */
struct troubles {
    char text[400];
    size_t size;
};

static void add_trouble(struct troubles *troubles, const char *what, const char *text) {
    size_t room = sizeof troubles->text - troubles->size;
    int size = snprintf(troubles->text + troubles->size, room, "%s%s%s%s",
                        troubles->size ? "; " : "", what, *what ? ": " : "", text);
    troubles->size += size < 0 ? 0 : cairn_min_u64((uint64_t)size, room - 1);
}

static uint32_t answer_ms(const struct cairn_cli *cli) {
    return cli->timeout_ms ? (uint32_t)cairn_min_u64(cli->timeout_ms, UINT32_MAX)
                           : ANSWER_DEFAULT_MS;
}

static enum cairn_code say_health(const struct cairn_cli *cli, const char *what, const char *name,
                                  struct cairn_error *err) {
    if (cli->output == CAIRN_CLI_TABLE || cli->output == CAIRN_CLI_NAME) {
        printf("%s is %s\n", name, cli->ready ? "ready" : "alive");
    } else {
        CAIRN_AUTO_JSON json_t *answer = json_pack("{s:s, s:s, s:b, s:b}", "of", what, "name", name,
                                                   "alive", true, "ready", cli->ready);
        if (!answer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
        if (!cli->ready) (void)json_object_del(answer, "ready");
        return cairn_cli_print_json(answer, cli->output == CAIRN_CLI_JSON, err);
    }
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

/* ---- the server ---- */

static void add_checks(const json_t *body, struct troubles *troubles) {
    struct cairn_msg_readiness ready = {0};
    const char *name = NULL;
    json_t *said = NULL;
    if (!body || cairn_msg_readiness_read(body, "", &ready, NULL)) return;
    json_object_foreach(ready.checks, name, said) {
        const char *text = json_string_value(said);
        bool of_one_run = !strcmp(name, "commits") || !strcmp(name, "runs") ||
                          !strcmp(name, "nodes") || !strcmp(name, "copies");
        if (text && strcmp(text, "ok") != 0 && !of_one_run) add_trouble(troubles, name, text);
    }
}

static enum cairn_code ask_server(const struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_server server;
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct troubles troubles = {0};
    cairn_cli_server_of(cli, &server);
    struct cairn_rest_options options = {.url = server.url,
                                         .ca_bundle = server.ca_file,
                                         .timeout_ms = answer_ms(cli),
                                         .seen = cli->seen};
    CAIRN_TRY(cairn_rest_new(&options, &rest, err));
    enum cairn_code code = cairn_rest_call(rest, "GET", cli->ready ? "/readyz" : "/livez", NULL, 0,
                                           &reply, err);
    if (!code) return say_health(cli, "server", server.url, err);
    add_checks(cairn_rest_problem(rest), &troubles);
    if (!troubles.size) return code;
    return cairn_fail(err, CAIRN_UNAVAILABLE, "%s is not ready: %s", server.url, troubles.text);
}

/* ---- the uploader ---- */

static enum cairn_code judge_report(const struct cairn_cli *cli,
                                    const struct cairn_msg_report *said, struct cairn_error *err) {
    struct troubles troubles = {0};
    char since[24] = "", what[64];
    cairn_duration_text(said->store_waits_ms, since);
    snprintf(what, sizeof what, "nothing is sent for %s", since);
    if (said->draining) add_trouble(&troubles, "", "it is draining");
    if (said->store_waits && *said->store_waits) add_trouble(&troubles, what, said->store_waits);
    if (said->journal && *said->journal)
        add_trouble(&troubles, "the journal is not written", said->journal);
    if (!cli->ready || !troubles.size) return say_health(cli, "uploader", said->node, err);
    return cairn_fail(err, CAIRN_UNAVAILABLE, "the uploader of node %s is not ready: %s",
                      said->node, troubles.text);
}

static enum cairn_code ask_uploader(const struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_uploader link = {0};
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_report said = {0};
    CAIRN_TRY(cairn_cli_uploader_open(cairn_cli_uploader_socket(cli), &link, err));
    uint64_t deadline_ms = cairn_deadline_in(&cairn_clock_real, answer_ms(cli));
    enum cairn_code code =
        cairn_cli_uploader_ask(&link, CAIRN_PACK(status, 0), deadline_ms, &json, err);
    if (!code) code = cairn_cli_reply_read(CAIRN_MESSAGE_report, json, &said, err);
    cairn_cli_uploader_close(&link);
    return code ? code : judge_report(cli, &said, err);
}

static enum cairn_code run_health(struct cairn_cli *cli, struct cairn_error *err) {
    const char *what = cli->argument_count ? cli->arguments[0]
                       : cli->socket       ? "uploader"
                                           : "server";
    if (!strcmp(what, "server")) return ask_server(cli, err);
    if (!strcmp(what, "uploader")) return ask_uploader(cli, err);
    return cairn_fail(err, CAIRN_INVALID, "want server or uploader, not \"%.40s\"; usage: %s", what,
                      cairn_cli_verb_health.synopsis);
}

const struct cairn_cli_verb cairn_cli_verb_health = {
    .name = "health",
    .synopsis = "cairn health [flags] [server|uploader]",
    .purpose = "Whether a server or this node's uploader answers, or is ready; without a token.",
    .examples = "  cairn health\n  cairn health --ready --server https://cairn.lab:7420\n"
                "  cairn health --ready --socket /run/cairn/uploader.sock\n",
    .flags = health_flags,
    .flag_count = CAIRN_COUNT(health_flags),
    .arguments_max = 1,
    .run = run_health,
};
