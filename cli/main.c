/* SPDX-License-Identifier: Apache-2.0 */
/* cairn: finds the verb's row, runs it and exits with its status. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cairn/cairn.h>

#include "api/wire/messages.h"
#include "cli/shell/output.h"
#include "common/config.h"
#include "common/file.h"
#include "common/json.h"
#include "common/process.h"
#include "common/text.h"
#include "common/trace.h"
#include "store/open.h"
#include "store/s3/s3.h"
#include "store/store.h"

static void usage(FILE *to) {
    fputs("cairn keeps the checkpoints of training jobs.\n\n"
          "Examples:\n"
          "  cairn up ./store                              server and uploader on a folder\n"
          "  cairn put ./model llm/7b@1000                 keep a directory as a checkpoint\n"
          "  cairn get llm/7b@latest -d ./restored         get the newest one back, verified\n",
          to);
    for (size_t i = 0; i < cli_verb_count; i++) {
        const char *chapter = cli_verbs[i]->chapter;
        if (chapter) fprintf(to, "\n%s:\n", chapter);
        fprintf(to, "  %-10s %s\n", cli_verbs[i]->name, cli_verbs[i]->purpose);
    }
    fputs("  version    Print the version.\n\n"
          "`cairn VERB --help` shows examples and flags of one verb.\n"
          "Exit status: 0 ok, 1 error, 2 usage, 3 not found, 4 not allowed, 5 unavailable, 6 "
          "refused,\n"
          "7 integrity failure, 8 timeout, 130 interrupted.\n",
          to);
}

static const struct cli_verb *find_verb(const char *name) {
    for (size_t i = 0; i < cli_verb_count; i++)
        if (!strcmp(cli_verbs[i]->name, name)) return cli_verbs[i];
    return NULL;
}

/* A missing bucket exits as "not found", every other store failure as CAIRN_STORE. */
static int status_of(enum cairn_code code, const struct cairn_error *err) {
    bool no_bucket = code == CAIRN_STORE && err->http_status == 404;
    return cairn_code_info(no_bucket ? CAIRN_NOT_FOUND : code)->exit_status;
}

/* The last line of standard error: the failure as one JSON object (docs/command.md). */
static bool tell_json(const char *verb, enum cairn_code code, const struct cairn_error *why) {
    CAIRN_AUTO_JSON json_t *answer =
        json_pack("{s:s, s:i, s:b}", "verb", verb, "exit", status_of(code, why), "retryable",
                  cairn_code_info(code)->retryable);
    CAIRN_AUTO(buf) text = {0};
    struct cairn_error said = *why;
    said.code = code;
    if (!answer || !cairn_failure_put(answer, "message", &said) ||
        cairn_json_show(answer, &text, NULL) != CAIRN_OK)
        return false;
    fprintf(stderr, "%s\n", text.data);
    return true;
}

/* Scans argv itself, because errors of the parser must come as JSON, too. */
static bool wants_json(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        static const char output[] = "--output=";
        const char *form = "";
        if (!strcmp(argv[i], "--json")) return true;
        if (!strncmp(argv[i], output, sizeof output - 1)) form = argv[i] + sizeof output - 1;
        if ((!strcmp(argv[i], "--output") || !strcmp(argv[i], "-o")) && i + 1 < argc)
            form = argv[i + 1];
        if (!strcmp(form, "json") || !strcmp(form, "jsonl")) return true;
    }
    return false;
}

static void tell(const char *verb, bool json, enum cairn_code code, struct cairn_error *err) {
    /* The reader closed the pipe (head, a pager): not an error. */
    if (err->os_errno == EPIPE && ferror(stdout)) return;
    cli_clean(err->message); /* may quote another user's text */
    if (json && tell_json(verb, code, err)) return;
    fprintf(stderr, "cairn %s: %s\n", verb, err->message);
    if (err->request_id[0]) fprintf(stderr, "  the store's request id: %s\n", err->request_id);
}

static int unknown_verb(const char *name, bool json) {
    enum { VERBS_MAX = 64 };
    const char *names[VERBS_MAX];
    size_t count = 0;
    struct cairn_error err = {0};
    while (count < VERBS_MAX && count < cli_verb_count) {
        names[count] = cli_verbs[count]->name;
        count++;
    }
    const char *nearest = cli_nearest(name, names, count);
    enum cairn_code code = cairn_fail(&err, CAIRN_INVALID, "no verb \"%s\"%s%s%s", name,
                                      nearest ? "; did you mean " : "", nearest ? nearest : "",
                                      nearest ? "?" : "; see cairn --help");
    if (!json || !tell_json(name, code, &err)) fprintf(stderr, "cairn: %s\n", err.message);
    return status_of(code, &err);
}

/* CAIRN_PARENT, set by a server: the command ends with the thread that started it. */
static enum cairn_code follow_parent(struct cairn_error *err) {
    const char *text = getenv("CAIRN_PARENT");
    uint64_t pid = 0;
    enum cairn_code code = text ? cairn_parse_u64(cairn_view_of(text), &pid, err) : CAIRN_OK;
    if (code) return cairn_within(err, code, "CAIRN_PARENT");
    return cairn_parent_follow(pid, err);
}

/* CAIRN_MEMORY, set by a server: the kernel refuses address space beyond start size + this, also to
 * the uploader that the command starts. */
static enum cairn_code limit_memory(struct cairn_error *err) {
    const char *text = getenv("CAIRN_MEMORY");
    CAIRN_AUTO(buf) pages = {.limit = 4096};
    uint64_t more = 0;
    if (!text) return CAIRN_OK;
    enum cairn_code code = cairn_parse_u64(cairn_view_of(text), &more, err);
    if (code) return cairn_within(err, code, "CAIRN_MEMORY");
    CAIRN_TRY(cairn_file_load("/proc/self/statm", &pages, err));
    rlim_t most = strtoull(pages.data, NULL, 10) * (rlim_t)sysconf(_SC_PAGESIZE) + more;
    const struct rlimit limit = {most, most};
    return setrlimit(RLIMIT_AS, &limit) ? cairn_fail_errno(err, "RLIMIT_AS") : CAIRN_OK;
}

int main(int argc, char **argv) {
    bool json = wants_json(argc, argv);
    cairn_start_signals();
    cairn_json_watch_memory();
    cairn_store_register(CAIRN_STORE_SCHEME_S3, cairn_store_s3_open);
    if (argc < 2) {
        usage(stderr);
        return cairn_code_info(CAIRN_INVALID)->exit_status;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        const struct cli_verb *asked = argc > 2 ? find_verb(argv[2]) : NULL;
        struct cairn_error help_error = {0};
        if (asked) return cli_help(asked, &help_error) == CAIRN_OK ? 0 : 1;
        if (argc > 2 && argv[2][0] != '-') return unknown_verb(argv[2], json);
        usage(stdout);
        return 0;
    }
    if (!strcmp(argv[1], "version") || !strcmp(argv[1], "--version")) {
        printf("cairn %s\n", cairn_version());
        return 0;
    }
    const struct cli_verb *verb = find_verb(argv[1]);
    if (!verb) return unknown_verb(argv[1], json);
    char folder[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[size > 0 ? size : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
    struct cairn_trace trace;
    /* Continues the trace of TRACEPARENT, as OpenTelemetry does, or begins one. */
    const char *parent = getenv("TRACEPARENT");
    if (!parent || !cairn_trace_parse(cairn_view_of(parent), &trace)) cairn_trace_new(&trace);
    cairn_trace_set(&trace);
    struct cairn_rest_seen seen = {0};
    struct cli cli = {.program_folder = folder, .seen = &seen};
    struct cairn_error err = {0};
    enum cairn_code code = follow_parent(&err);
    if (code == CAIRN_OK) code = limit_memory(&err);
    if (code == CAIRN_OK) code = cli_parse(verb, argc - 1, argv + 1, &cli, &err);
    /* `cairn profile` repairs the profiles file, so it runs whatever the file holds. */
    if (code == CAIRN_OK && !cli.help && verb != &cli_verb_profile)
        code = cli_profile_choose(&cli, &err);
    cli_print_as(&cli);
    cli_paint_init(&cli);
    if (code == CAIRN_OK) code = cli.help ? cli_help(verb, &err) : verb->run(&cli, &err);
    if (code != CAIRN_OK) {
        /* put and import call the uploader, which names an older server itself. */
        if (verb != &cli_verb_put && verb != &cli_verb_import)
            cli_name_older_server(&cli, code, &err);
        tell(verb->name, json, code, &err);
    }
    return status_of(code, &err);
}
