/* SPDX-License-Identifier: Apache-2.0 */
/* Administration of a server: cairn token, quota, nodes and webhooks. */

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "api/wire/rights.h"
#include "api/wire/words.h"
#include "cli/shell/output.h"
#include "common/text.h"
#include "common/trace.h"

#define TOKENS_MAX 10016

static const struct cli_flag token_flags[] = {
    {"scope", 0, CLI_TEXT, CLI_AT(scopes), 0, "LIST",
     "Create: what it allows: read, write, retain, admin; commas between."},
    {"project", 0, CLI_TEXT, CLI_AT(project), 0, "GLOB",
     "Create: the projects it is for, as nlp-*; * is all that the caller's own token is for."},
    {"expires", 0, CLI_TIME, CLI_AT(expires_ms), 0, "TIME",
     "It ends after this time, as 30d; default never."},
    {"out", 0, CLI_TEXT, CLI_AT(out), 0, "FILE",
     "Write the token into this new file, which its owner alone can read, and not to standard "
     "output."},
    {"children", 0, CLI_TEXT, CLI_AT(children), 0, "WHAT",
     "Revoke: what becomes of the tokens that it made: revoke or keep."},
};

struct out {
    const char *path; /* NULL: standard output */
    int fd;
};

/* Opened before the request: a token must not be created if it cannot be stored. */
static enum cairn_code open_out(const struct cli *cli, struct out *ret, struct cairn_error *err) {
    *ret = (struct out){.path = cli->out, .fd = -1};
    if (!cli->out) return CAIRN_OK;
    ret->fd = open(cli->out, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (ret->fd >= 0) return CAIRN_OK;
    if (errno == EEXIST)
        return cairn_fail(err, CAIRN_INVALID,
                          "--out %s is there already, and may hold a token that is in use: name "
                          "another file, or remove it",
                          cli->out);
    return cairn_fail_errno(err, "--out %s", cli->out);
}

static enum cairn_code write_out(const struct out *out, const char *token,
                                 struct cairn_error *err) {
    if (!out->path) {
        puts(token);
        return cli_flush(err);
    }
    if (dprintf(out->fd, "%s\n", token) < 0 || fsync(out->fd))
        return cairn_fail_errno(err, "--out %s", out->path);
    return CAIRN_OK;
}

static void close_out(const struct out *out, enum cairn_code code) {
    if (out->fd < 0) return;
    close(out->fd);
    if (code) (void)unlink(out->path);
}

/* Standard output gets only the token, so that it can be redirected to a private file. */
static enum cairn_code create_token(const struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL, *body = NULL, *array = NULL;
    struct cairn_msg_token_made made = {0};
    unsigned scopes = 0;
    /* Scope and project have no default, so that no token is unlimited by accident. */
    if (!cli->scopes)
        return cairn_fail(err, CAIRN_INVALID,
                          "--scope is missing: what the token allows (read, write, retain, admin; "
                          "commas between)");
    if (!cli->project)
        return cairn_fail(err, CAIRN_INVALID,
                          "--project is missing: the projects that the token is for, as nlp-*; '*' "
                          "is all that your own is for");
    enum cairn_code code = cairn_scopes_parse(cli->scopes, &scopes, err);
    if (code) return cairn_within(err, code, "--scope");
    array = cairn_scopes_json(scopes);
    uint64_t expires_s = (cli->expires_ms + 999) / 1000;
    body = CAIRN_PACK(token_make, .scopes = array, .name = cli->arguments[1],
                      .project = cli->project, .expires_s = expires_s);
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request");
    struct cli_call call = {.method = "POST", .tail = "/tokens", .body = body};
    struct out out;
    CAIRN_TRY(open_out(cli, &out, err));
    code = cli_call(cli, NULL, call, &reply, err);
    if (!code) code = cli_reply_read(CAIRN_MESSAGE_token_made, reply, &made, err);
    if (!code && (out.path || cli->output == CLI_TABLE)) code = write_out(&out, made.token, err);
    close_out(&out, code);
    if (code) return code;
    if (out.path) (void)json_object_del(reply, "token");
    if (cli_wants_json(cli)) return cli_print_reply(cli, reply, err);
    if (cli->output == CLI_NAME) puts(made.id);
    CAIRN_TRY(cli_flush(err));
    cli_note("token %s for %s, told this once", made.id, made.project);
    return CAIRN_OK;
}

static const struct cli_table token_table = {
    CAIRN_MESSAGE_token_row,
    .name = "{id}",
    .line = "{id} {scopes:packed} {project} {name}[{expired? expired |= until }{expires_at}]"
            "[ by {actor}]",
};

/* Appends before, then the value percent-encoded: "/nodes/", "gpu 07". */
static enum cairn_code add_encoded(const char *before, const char *value, struct cairn_buf *path,
                                   struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append_text(path, before, err));
    return cairn_percent_encode(cairn_view_of(value), false, path, err);
}

static enum cairn_code revoke_token(const struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO(buf) tail = {0};
    const char *id = cli->arguments[1];
    CAIRN_TRY(add_encoded("/tokens/", id, &tail, err));
    if (cli->children) CAIRN_TRY(add_encoded("?children=", cli->children, &tail, err));
    struct cli_call call = {.method = "DELETE", .tail = tail.data};
    enum cairn_code code = cli_call(cli, NULL, call, &reply, err);
    if (code == CAIRN_CONFLICT && !cli->children)
        return cairn_within(err, code, "say --children revoke or --children keep");
    if (code) return code;
    if (cli_wants_json(cli)) return cli_print_reply(cli, reply, err);
    bool unstored = json_is_false(json_object_get(reply, "stored"));
    const char *form = cli->output == CLI_NAME ? "%s\n" : "%s is revoked\n";
    printf(form, id);
    CAIRN_JSON_EACH(child, json_object_get(reply, "children"))
        if (json_is_string(child)) printf(form, json_string_value(child));
    if (unstored)
        fprintf(stderr, "the store could not be told: until the server's next copy there, a "
                        "catalog that is made again from it takes the token\n");
    return cli_flush(err);
}

static const struct cli_table whoami_table = {
    CAIRN_MESSAGE_whoami,
    .name = "{id}",
    .line = "{actor|=anybody}: {scopes:packed|=no scope} in {project}[, until {expires_at}]"
            "{tokens_needed?|= (this server asks for no tokens)}",
};

static enum cairn_code run_token(struct cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    bool two = cli->argument_count == 2;
    if (!strcmp(what, "create")) return create_token(cli, err);
    if (!strcmp(what, "generate") && !two) {
        /* Makes a token for admin-token-file without a server. */
        char text[CAIRN_TOKEN_TEXT_BYTES];
        struct cairn_token_key key;
        struct out out;
        CAIRN_TRY(open_out(cli, &out, err));
        cairn_token_make(cairn_random, text, &key);
        enum cairn_code code = write_out(&out, text, err);
        explicit_bzero(text, sizeof text);
        close_out(&out, code);
        if (!code) cli_note("token %s; no server knows it yet", key.id);
        return code;
    }
    if (!strcmp(what, "list") && !two)
        return cli_print_list(cli, NULL, "/tokens", TOKENS_MAX, &token_table, err);
    if (!strcmp(what, "revoke") && two) return revoke_token(cli, err);
    if (!strcmp(what, "whoami") && !two) {
        CAIRN_AUTO_JSON json_t *reply = NULL;
        CAIRN_TRY(cli_call(cli, NULL, (struct cli_call){.tail = "/whoami"}, &reply, err));
        return cli_print_one(cli, reply, &whoami_table, err);
    }
    return cairn_fail(err, CAIRN_INVALID,
                      "want create [NAME], generate, list, revoke ID or whoami; usage: %s",
                      cli_verb_token.synopsis);
}

const struct cli_verb cli_verb_token = {
    CLI_VERB(token),
    .synopsis = "cairn token create|generate|list|revoke|whoami [flags] [NAME|ID]",
    .purpose = "Create, list and revoke tokens.",
    .examples = "  cairn token create --scope read,write --project 'nlp-*' --out ci.token ci\n"
                "  cairn token list\n  cairn token revoke --children keep 4f1c9a0b7d22e6c3\n",
    CLI_TAKES(token_flags, 1, 2),
    .surplus = "project",
};

/* ---- quota ls|get|set|unset ---- */

#define PROJECTS_MAX 1000000

static const struct cli_flag quota_flags[] = {
    {"versions", 0, CLI_NUMBER, CLI_AT(quota_versions), CLI_AT(quota_versions_given), "N",
     "Of set: at most N versions at once; those in the trash and open ones count."},
    {"bytes", 0, CLI_SIZE, CLI_AT(quota_bytes), CLI_AT(quota_bytes_given), "SIZE",
     "Of set: no further save begins from so many bytes on, as 20TiB."},
};

static const struct cli_table quota_table = {
    CAIRN_MESSAGE_quota_row,
    .name = "{project|=*}",
    .columns = {{"PROJECT", .text = "{project|=*}"},
                {"VERSIONS", .text = "{used_versions}", CLI_RIGHT},
                {"OF", .text = "{limit_versions|=-}", CLI_RIGHT},
                {"BYTES", .text = "{used_bytes:size}", CLI_RIGHT},
                {"OF", .text = "{limit_bytes:size|=-}", CLI_RIGHT},
                {"FROM", .text = "{from}"}},
};

/* Without a project: the default quota of projects without their own. */
static enum cairn_code ask_quota(const struct cli *cli, const char *method, json_t *body,
                                 struct cairn_error *err) {
    const char *project = cli->arguments[1];
    char tail[CAIRN_NAME_BYTES_MAX + 40] = "/quota";
    CAIRN_AUTO_JSON json_t *reply = NULL;
    if (project && !cairn_name_valid(cairn_view_of(project)))
        return cairn_fail(err, CAIRN_INVALID,
                          "\"%.200s\": name a project; without one it is the default of all",
                          project);
    if (project) snprintf(tail, sizeof tail, "/projects/%s/quota", project);
    struct cli_call call = {.method = method, .tail = tail, .body = body};
    CAIRN_TRY(cli_call(cli, NULL, call, &reply, err));
    return cli_print_one(cli, reply, &quota_table, err);
}

static enum cairn_code set_quota(const struct cli *cli, struct cairn_error *err) {
    if (!cli->quota_versions_given && !cli->quota_bytes_given)
        return cairn_fail(err, CAIRN_INVALID,
                          "say how much, as --versions 200 or --bytes 20TiB; what is not named has "
                          "no bound, and `cairn quota unset` takes the quota away");
    CAIRN_AUTO_JSON json_t *body = CAIRN_PACK(
        quota_put, .versions = cli->quota_versions_given ? cli->quota_versions : CAIRN_MESSAGE_NONE,
        .bytes = cli->quota_bytes_given ? cli->quota_bytes : CAIRN_MESSAGE_NONE);
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request");
    return ask_quota(cli, "PUT", body, err);
}

static enum cairn_code run_quota(struct cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    if (!strcmp(what, "ls") && cli->argument_count == 1)
        return cli_print_list(cli, NULL, "/quotas", PROJECTS_MAX, &quota_table, err);
    if (!strcmp(what, "get")) return ask_quota(cli, NULL, NULL, err);
    if (!strcmp(what, "set")) return set_quota(cli, err);
    if (!strcmp(what, "unset")) return ask_quota(cli, "DELETE", NULL, err);
    return cairn_fail(err, CAIRN_INVALID, "want ls, or get, set or unset [PROJECT]; usage: %s",
                      cli_verb_quota.synopsis);
}

const struct cli_verb cli_verb_quota = {
    CLI_VERB(quota),
    .synopsis = "cairn quota ls|get|set|unset [flags] [PROJECT]",
    .purpose = "Show how much projects store, and set their quotas.",
    .examples = "  cairn quota set llm --versions 200 --bytes 20TiB\n"
                "  cairn quota ls\n"
                "  cairn quota unset llm\n",
    CLI_TAKES(quota_flags, 1, 2),
    .surplus = "bytes",
};

/* ---- nodes ls|rm ---- */

#define NODES_MAX 100000

static const struct cli_table node_table = {
    CAIRN_MESSAGE_node_row,
    .name = "{node}",
    .columns = {{"NODE", .text = "{node}"},
                {"HEARD", .text = "{heard_at|=never}"},
                {"OPEN", .text = "{versions}", CLI_RIGHT},
                {"UPLOADS", .text = "{uploader.upload_bytes_per_s:rate|=-}", CLI_RIGHT},
                {"STATE", .text = "{uploader.draining?draining}"},
                {"TROUBLE", .text = "{trouble}"},
                {"VERSION", .text = "{uploader.version}", CLI_WIDE},
                {"IN MEMORY", .text = "{uploader.kept_bytes:some|=-}", CLI_RIGHT | CLI_WIDE},
                {"DOMAIN", .text = "{uploader.failure_domain}", CLI_WIDE}},
};

static enum cairn_code run_nodes(struct cli *cli, struct cairn_error *err) {
    const char *what = cli->argument_count ? cli->arguments[0] : "ls";
    if (!strcmp(what, "ls") && cli->argument_count <= 1)
        return cli_print_list(cli, NULL, "/nodes", NODES_MAX, &node_table, err);
    if (!strcmp(what, "rm") && cli->argument_count == 2) {
        const char *node = cli->arguments[1];
        CAIRN_AUTO(buf) tail = {0};
        CAIRN_AUTO_JSON json_t *json = NULL;
        CAIRN_TRY(add_encoded("/nodes/", node, &tail, err));
        struct cli_call call = {.method = "DELETE", .tail = tail.data};
        CAIRN_TRY(cli_call(cli, NULL, call, &json, err));
        if (cli->output != CLI_TABLE) return cli_print_json(json, true, err);
        printf("node %s is forgotten; its next heartbeat makes it known again\n", node);
        return cli_flush(err);
    }
    return cairn_fail(err, CAIRN_INVALID, "want ls, or rm NODE, not \"%.40s\"; usage: %s", what,
                      cli_verb_nodes.synopsis);
}

const struct cli_verb cli_verb_nodes = {
    CLI_VERB(nodes),
    .chapter = "The service",
    .synopsis = "cairn nodes [ls|rm] [flags] [NODE]",
    .purpose = "List the uploaders known to the server with their state, or forget one.",
    .examples = "  cairn nodes\n  cairn nodes -o wide\n"
                "  cairn nodes rm gpu-07                       (one that will not come back)\n",
    CLI_ARGUMENTS(0, 2),
};

/* ---- webhooks ls|letters|redeliver ---- */

#define WEBHOOKS_MAX 1000

static const struct cli_table webhook_table = {
    CAIRN_MESSAGE_webhook_row,
    .name = "{name}",
    .columns = {{"NAME", .text = "{name}"},
                {"TOLD", .text = "{delivered}", CLI_RIGHT},
                {"BEHIND", .text = "{behind}", CLI_RIGHT},
                {"DEAD LETTERS", .text = "{dead_letters}", CLI_RIGHT},
                {"RECEIVER", .text = "{host}"},
                {"LAST FAILURE", .text = "{cause}"}},
};
static const struct cli_table letter_table = {
    CAIRN_MESSAGE_letter_row,
    .name = "{id}",
    .columns = {{"EVENT", .text = "{id}", CLI_RIGHT},
                {"WHAT", .text = "{event.event}"},
                {"TRIES", .text = "{tries}", CLI_RIGHT},
                {"LAST TRY", .text = "{tried_at}"},
                {"WHY", .text = "{cause}"}},
};

static enum cairn_code run_webhooks(struct cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0], *name = cli->arguments[1];
    char path[CAIRN_NAME_BYTES_MAX + 40];
    bool named = cli->argument_count == 2;
    if (named && !cairn_name_valid(cairn_view_of(name)))
        return cairn_fail(err, CAIRN_INVALID, "\"%.80s\": name a webhook", name);
    if (!strcmp(what, "ls") && !named)
        return cli_print_list(cli, NULL, "/webhooks", WEBHOOKS_MAX, &webhook_table, err);
    if (!strcmp(what, "letters") && named) {
        snprintf(path, sizeof path, "/webhooks/%s/dead-letters", name);
        return cli_print_list(cli, NULL, path, WEBHOOKS_MAX, &letter_table, err);
    }
    if (!strcmp(what, "redeliver") && named) {
        snprintf(path, sizeof path, "/webhooks/%s/redeliver", name);
        CAIRN_AUTO_JSON json_t *json = NULL;
        struct cairn_msg_redelivered done = {0};
        const struct cli_call call = {.method = "POST", .tail = path};
        CAIRN_TRY(cli_ask(cli, NULL, call, CAIRN_MESSAGE_redelivered, &json, &done, err));
        if (cli->output != CLI_TABLE) return cli_print_json(json, true, err);
        cli_tell("{name}: {dead_letters#dead letter is/dead letters are} tried once more", json);
        return cli_flush(err);
    }
    return cairn_fail(err, CAIRN_INVALID, "want ls, or letters or redeliver NAME; usage: %s",
                      cli_verb_webhooks.synopsis);
}

const struct cli_verb cli_verb_webhooks = {
    CLI_VERB(webhooks),
    .synopsis = "cairn webhooks ls|letters|redeliver [flags] [NAME]",
    .purpose = "Show the receivers of webhooks, and events that they did not accept.",
    .examples = "  cairn webhooks ls\n"
                "  cairn webhooks letters chat\n"
                "  cairn webhooks redeliver chat\n",
    CLI_ARGUMENTS(1, 2),
};
