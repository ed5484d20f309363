/* SPDX-License-Identifier: Apache-2.0 */
/* Administration of a server: cairn token, quota, nodes and webhooks. */

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/wire/rights.h"
#include "api/wire/words.h"
#include "cli/shell/output.h"
#include "common/text.h"
#include "common/trace.h"

#define TOKENS_MAX 10016

static const struct cairn_cli_flag token_flags[] = {
    {"scope", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(scopes), 0, "LIST",
     "Create: what it allows: read, write, retain, admin; commas between."},
    {"project", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(project), 0, "GLOB",
     "Create: the projects it is for, as nlp-*; * is all that the caller's own token is for."},
    {"expires", 0, CAIRN_CLI_TIME, CAIRN_CLI_AT(expires_ms), 0, "TIME",
     "It ends after this time, as 30d; default never."},
    {"out", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(out), 0, "FILE",
     "Write the token into this new file, which its owner alone can read, and not to standard "
     "output."},
    {"children", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(children), 0, "WHAT",
     "Revoke: what becomes of the tokens that it made: revoke or keep."},
};

struct out {
    const char *path; /* NULL: standard output */
    int fd;
};

/* Opened before the request: a token must not be created if it cannot be stored. */
static enum cairn_code open_out(const struct cairn_cli *cli, struct out *ret,
                                struct cairn_error *err) {
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
        return cairn_cli_flush(err);
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

/* Makes a token for admin-token-file without a server. */
static enum cairn_code generate_token(const struct cairn_cli *cli, struct cairn_error *err) {
    char text[CAIRN_TOKEN_TEXT_BYTES];
    struct cairn_token_key key;
    struct out out;
    CAIRN_TRY(open_out(cli, &out, err));
    cairn_token_make(cairn_random, text, &key);
    enum cairn_code code = write_out(&out, text, err);
    explicit_bzero(text, sizeof text);
    close_out(&out, code);
    if (!code) cairn_cli_note("token %s; no server knows it yet", key.id);
    return code;
}

/* Scope and project have no default, so that no token is unlimited by accident. */
static enum cairn_code need_bounds(const struct cairn_cli *cli, struct cairn_error *err) {
    if (!cli->scopes)
        return cairn_fail(err, CAIRN_INVALID,
                          "--scope is missing: what the token allows (read, write, retain, admin; "
                          "commas between)");
    if (!cli->project)
        return cairn_fail(err, CAIRN_INVALID,
                          "--project is missing: the projects that the token is for, as nlp-*; '*' "
                          "is all that your own is for");
    return CAIRN_OK;
}

/* Standard output gets only the token, so that it can be redirected to a private file. */
static enum cairn_code create_token(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL, *body = NULL, *array = NULL;
    struct cairn_msg_token_made made = {0};
    unsigned scopes = 0;
    CAIRN_TRY(need_bounds(cli, err));
    enum cairn_code code = cairn_scopes_parse(cli->scopes, &scopes, err);
    if (code) return cairn_within(err, code, "--scope");
    array = cairn_scopes_json(scopes);
    uint64_t expires_s = (cli->expires_ms + 999) / 1000;
    body = CAIRN_PACK(token_make, .scopes = array, .name = cli->arguments[1],
                      .project = cli->project, .expires_s = expires_s);
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request");
    struct cairn_cli_call call = {.method = "POST", .tail = "/tokens", .body = body};
    struct out out;
    CAIRN_TRY(open_out(cli, &out, err));
    code = cairn_cli_call(cli, NULL, call, &reply, err);
    if (!code) code = cairn_cli_reply_read(CAIRN_MESSAGE_token_made, reply, &made, err);
    if (!code && (out.path || cli->output == CAIRN_CLI_TABLE))
        code = write_out(&out, made.token, err);
    close_out(&out, code);
    if (code) return code;
    if (out.path) (void)json_object_del(reply, "token");
    if (cairn_cli_wants_json(cli)) return cairn_cli_print_reply(cli, reply, err);
    if (cli->output == CAIRN_CLI_NAME) puts(made.id);
    CAIRN_TRY(cairn_cli_flush(err));
    cairn_cli_note("token %s for %s, told this once", made.id, made.project);
    return CAIRN_OK;
}

static enum cairn_code print_token(const struct cairn_cli *cli, const json_t *item,
                                   struct cairn_error *err) {
    struct cairn_msg_token_row row = {0};
    char scopes[CAIRN_SCOPES_TEXT_BYTES] = "", line[700];
    unsigned bits = 0;
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_token_row, item, &row, err));
    if (cli->output == CAIRN_CLI_JSONL) return cairn_cli_print_json(item, false, err);
    if (!cairn_scopes_read(row.scopes, &bits, NULL)) cairn_scopes_text(bits, scopes);
    if (cli->output == CAIRN_CLI_NAME)
        snprintf(line, sizeof line, "%s", row.id);
    else
        snprintf(line, sizeof line, "%s %s %s %s%s%s%s%s", row.id, scopes,
                 row.project ? row.project : "", row.name ? row.name : "",
                 row.expires_at ? row.expired ? " expired " : " until " : "",
                 row.expires_at ? row.expires_at : "", row.actor && row.actor[0] ? " by " : "",
                 row.actor ? row.actor : "");
    cairn_cli_clean(line);
    puts(line);
    return CAIRN_OK;
}

static enum cairn_code list_tokens(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    json_t *item = NULL;
    CAIRN_TRY(cairn_cli_list(cli, NULL, "/tokens", TOKENS_MAX, items, NULL, err));
    if (cli->output == CAIRN_CLI_JSON) return cairn_cli_print_json(items, true, err);
    for (size_t i = 0; (item = json_array_get(items, i)); i++)
        CAIRN_TRY(print_token(cli, item, err));
    return cairn_cli_flush(err);
}

static enum cairn_code revoke_token(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO(buf) tail = {0};
    const char *id = cli->arguments[1];
    CAIRN_TRY(cairn_buf_append_text(&tail, "/tokens/", err));
    CAIRN_TRY(cairn_percent_encode(cairn_view_of(id), false, &tail, err));
    if (cli->children) {
        CAIRN_TRY(cairn_buf_append_text(&tail, "?children=", err));
        CAIRN_TRY(cairn_percent_encode(cairn_view_of(cli->children), false, &tail, err));
    }
    struct cairn_cli_call call = {.method = "DELETE", .tail = tail.data};
    enum cairn_code code = cairn_cli_call(cli, NULL, call, &reply, err);
    if (code == CAIRN_CONFLICT && !cli->children)
        return cairn_within(err, code, "say --children revoke or --children keep");
    if (code) return code;
    if (cairn_cli_wants_json(cli)) return cairn_cli_print_reply(cli, reply, err);
    bool unstored = json_is_false(json_object_get(reply, "stored"));
    const char *form = cli->output == CAIRN_CLI_NAME ? "%s\n" : "%s is revoked\n";
    const json_t *child = NULL;
    printf(form, id);
    for (size_t i = 0; (child = json_array_get(json_object_get(reply, "children"), i)); i++)
        if (json_is_string(child)) printf(form, json_string_value(child));
    if (unstored)
        fprintf(stderr, "the store could not be told: until the server's next copy there, a "
                        "catalog that is made again from it takes the token\n");
    return cairn_cli_flush(err);
}

static enum cairn_code whoami(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_whoami who = {0};
    char scopes[CAIRN_SCOPES_TEXT_BYTES] = "no scope";
    unsigned bits = 0;
    CAIRN_TRY(cairn_cli_get(cli, NULL, "/whoami", CAIRN_MESSAGE_whoami, &reply, &who, err));
    if (cairn_cli_wants_json(cli)) return cairn_cli_print_reply(cli, reply, err);
    if (!cairn_scopes_read(who.scopes, &bits, NULL)) cairn_scopes_text(bits, scopes);
    bool named = who.actor && who.actor[0];
    if (cli->output == CAIRN_CLI_NAME)
        puts(who.id ? who.id : "");
    else
        printf("%s: %s in %s%s%s%s\n", named ? who.actor : "anybody", scopes,
               who.project ? who.project : "", who.expires_at ? ", until " : "",
               who.expires_at ? who.expires_at : "",
               who.tokens_needed ? "" : " (this server asks for no tokens)");
    return cairn_cli_flush(err);
}

static enum cairn_code run_token(struct cairn_cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    bool two = cli->argument_count == 2;
    if (!strcmp(what, "create")) return create_token(cli, err);
    if (!strcmp(what, "generate") && !two) return generate_token(cli, err);
    if (!strcmp(what, "list") && !two) return list_tokens(cli, err);
    if (!strcmp(what, "revoke") && two) return revoke_token(cli, err);
    if (!strcmp(what, "whoami") && !two) return whoami(cli, err);
    return cairn_fail(err, CAIRN_INVALID,
                      "want create [NAME], generate, list, revoke ID or whoami; usage: %s",
                      cairn_cli_verb_token.synopsis);
}

const struct cairn_cli_verb cairn_cli_verb_token = {
    .name = "token",
    .synopsis = "cairn token create|generate|list|revoke|whoami [flags] [NAME|ID]",
    .purpose = "Who may do what at a server.",
    .examples = "  cairn token create --scope read,write --project 'nlp-*' --out ci.token ci\n"
                "  cairn token list\n  cairn token revoke --children keep 4f1c9a0b7d22e6c3\n",
    CAIRN_CLI_FLAGS(token_flags),
    CAIRN_CLI_ARGUMENTS(1, 2),
    .run = run_token,
};

/* ---- quota ls|get|set|unset ---- */

#define PROJECTS_MAX 1000000

static const struct cairn_cli_flag quota_flags[] = {
    {"versions", 0, CAIRN_CLI_NUMBER, CAIRN_CLI_AT(quota_versions),
     CAIRN_CLI_AT(quota_versions_given), "N",
     "Of set: at most N versions at once; those in the trash and open ones count."},
    {"bytes", 0, CAIRN_CLI_SIZE, CAIRN_CLI_AT(quota_bytes), CAIRN_CLI_AT(quota_bytes_given), "SIZE",
     "Of set: no further save begins from so many bytes on, as 20TiB."},
};

static const struct cairn_cli_column quota_columns[] = {
    CAIRN_CLI_FIELD_OR("PROJECT", quota, project, "*"),
    CAIRN_CLI_FIELD_OR("VERSIONS", quota, used_versions, ""),
    CAIRN_CLI_FIELD_OR("OF", quota, limit_versions, "-"),
    CAIRN_CLI_BYTES_OR("BYTES", quota, used_bytes, ""),
    CAIRN_CLI_BYTES_OR("OF", quota, limit_bytes, "-"),
    CAIRN_CLI_FIELD("FROM", quota, from),
};
static const struct cairn_cli_table quota_table =
    CAIRN_CLI_ROWS(quota_row, quota_columns, 0, CAIRN_CLI_FIELD_OR(NULL, quota, project, "*"));

/* Without a project: the default quota of projects without their own. */
static enum cairn_code ask_quota(const struct cairn_cli *cli, const char *method, json_t *body,
                                 struct cairn_error *err) {
    const char *project = cli->arguments[1];
    char tail[CAIRN_NAME_BYTES_MAX + 40] = "/quota";
    CAIRN_AUTO_JSON json_t *reply = NULL;
    if (project && !cairn_name_valid(cairn_view_of(project)))
        return cairn_fail(err, CAIRN_INVALID,
                          "\"%.200s\": name a project; without one it is the default of all",
                          project);
    if (project) snprintf(tail, sizeof tail, "/projects/%s/quota", project);
    struct cairn_cli_call call = {.method = method, .tail = tail, .body = body};
    CAIRN_TRY(cairn_cli_call(cli, NULL, call, &reply, err));
    return cairn_cli_print_one(cli, reply, &quota_table, err);
}

static enum cairn_code set_quota(const struct cairn_cli *cli, struct cairn_error *err) {
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

static enum cairn_code run_quota(struct cairn_cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    if (!strcmp(what, "ls") && cli->argument_count == 1)
        return cairn_cli_print_list(cli, NULL, "/quotas", PROJECTS_MAX, &quota_table, err);
    if (!strcmp(what, "get")) return ask_quota(cli, NULL, NULL, err);
    if (!strcmp(what, "set")) return set_quota(cli, err);
    if (!strcmp(what, "unset")) return ask_quota(cli, "DELETE", NULL, err);
    return cairn_fail(err, CAIRN_INVALID, "want ls, or get, set or unset [PROJECT]; usage: %s",
                      cairn_cli_verb_quota.synopsis);
}

const struct cairn_cli_verb cairn_cli_verb_quota = {
    .name = "quota",
    .synopsis = "cairn quota ls|get|set|unset [flags] [PROJECT]",
    .purpose = "What projects take up in the store, and how much they may.",
    .examples = "  cairn quota set llm --versions 200 --bytes 20TiB\n"
                "  cairn quota ls\n"
                "  cairn quota unset llm\n",
    CAIRN_CLI_FLAGS(quota_flags),
    CAIRN_CLI_ARGUMENTS(1, 2),
    .run = run_quota,
};

/* ---- nodes ls|rm ---- */

#define NODES_MAX 100000

/* The uploader's own figures; all 0 if it sends none. */
static struct cairn_msg_node_uploader uploader_of(const union cairn_cli_row *row) {
    struct cairn_msg_node_uploader said = {0};
    if (!row->node.uploader || cairn_msg_node_uploader_read(row->node.uploader, "", &said, NULL))
        return (struct cairn_msg_node_uploader){0};
    return said;
}
static void print_bytes(uint64_t bytes, const char *behind, char *ret, size_t capacity) {
    char size[24];
    cairn_cli_size(bytes, size);
    snprintf(ret, capacity, "%s%s", bytes ? size : "-", bytes ? behind : "");
}

static void cell_rate(const union cairn_cli_row *row, char *ret, size_t capacity) {
    print_bytes(uploader_of(row).upload_bytes_per_s, "/s", ret, capacity);
}
static void cell_state(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", uploader_of(row).draining ? "draining" : "");
}
static void cell_version(const union cairn_cli_row *row, char *ret, size_t capacity) {
    const char *version = uploader_of(row).version;
    snprintf(ret, capacity, "%s", version ? version : "");
}
static void cell_kept(const union cairn_cli_row *row, char *ret, size_t capacity) {
    print_bytes(uploader_of(row).kept_bytes, "", ret, capacity);
}
static void cell_domain(const union cairn_cli_row *row, char *ret, size_t capacity) {
    const char *domain = uploader_of(row).failure_domain;
    snprintf(ret, capacity, "%s", domain ? domain : "");
}
static const struct cairn_cli_column node_columns[] = {
    CAIRN_CLI_FIELD("NODE", node, node),     CAIRN_CLI_FIELD_OR("HEARD", node, heard_at, "never"),
    CAIRN_CLI_FIELD("OPEN", node, versions), CAIRN_CLI_RIGHT_CELL("UPLOADS", cell_rate),
    CAIRN_CLI_CELL("STATE", cell_state),     CAIRN_CLI_FIELD("TROUBLE", node, trouble),
    CAIRN_CLI_CELL("VERSION", cell_version), CAIRN_CLI_RIGHT_CELL("IN MEMORY", cell_kept),
    CAIRN_CLI_CELL("DOMAIN", cell_domain),
};
static const struct cairn_cli_table node_table =
    CAIRN_CLI_ROWS(node_row, node_columns, 3, CAIRN_CLI_FIELD(NULL, node, node));

static enum cairn_code forget_node(const struct cairn_cli *cli, const char *node,
                                   struct cairn_error *err) {
    CAIRN_AUTO(buf) tail = {0};
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_TRY(cairn_buf_printf(&tail, err, "/nodes/"));
    CAIRN_TRY(cairn_percent_encode(cairn_view_of(node), false, &tail, err));
    struct cairn_cli_call call = {.method = "DELETE", .tail = tail.data};
    CAIRN_TRY(cairn_cli_call(cli, NULL, call, &json, err));
    if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_json(json, true, err);
    printf("node %s is forgotten; its next heartbeat makes it known again\n", node);
    return cairn_cli_flush(err);
}

static enum cairn_code run_nodes(struct cairn_cli *cli, struct cairn_error *err) {
    const char *what = cli->argument_count ? cli->arguments[0] : "ls";
    if (!strcmp(what, "ls") && cli->argument_count <= 1)
        return cairn_cli_print_list(cli, NULL, "/nodes", NODES_MAX, &node_table, err);
    if (!strcmp(what, "rm") && cli->argument_count == 2)
        return forget_node(cli, cli->arguments[1], err);
    return cairn_fail(err, CAIRN_INVALID, "want ls, or rm NODE, not \"%.40s\"; usage: %s", what,
                      cairn_cli_verb_nodes.synopsis);
}

const struct cairn_cli_verb cairn_cli_verb_nodes = {
    .name = "nodes",
    .chapter = "The service",
    .synopsis = "cairn nodes [ls|rm] [flags] [NODE]",
    .purpose = "List the uploaders the server has heard of, and how they fare; or forget one.",
    .examples = "  cairn nodes\n  cairn nodes -o wide\n"
                "  cairn nodes rm gpu-07                       (one that will not come back)\n",
    CAIRN_CLI_ARGUMENTS(0, 2),
    .run = run_nodes,
};

/* ---- webhooks ls|letters|redeliver ---- */

#define WEBHOOKS_MAX 1000

static const struct cairn_cli_column webhook_columns[] = {
    CAIRN_CLI_FIELD("NAME", webhook, name),
    CAIRN_CLI_FIELD("TOLD", webhook, delivered),
    CAIRN_CLI_FIELD("BEHIND", webhook, behind),
    CAIRN_CLI_FIELD("DEAD LETTERS", webhook, dead_letters),
    CAIRN_CLI_FIELD("RECEIVER", webhook, host),
    CAIRN_CLI_FIELD("LAST FAILURE", webhook, cause),
};
static const struct cairn_cli_table webhook_table =
    CAIRN_CLI_ROWS(webhook_row, webhook_columns, 0, CAIRN_CLI_FIELD(NULL, webhook, name));

static void cell_event(const union cairn_cli_row *row, char *ret, size_t capacity) {
    const char *event = json_string_value(json_object_get(row->letter.event, "event"));
    snprintf(ret, capacity, "%s", event ? event : "");
}
static const struct cairn_cli_column letter_columns[] = {
    CAIRN_CLI_FIELD("EVENT", letter, id),    CAIRN_CLI_CELL("WHAT", cell_event),
    CAIRN_CLI_FIELD("TRIES", letter, tries), CAIRN_CLI_FIELD("LAST TRY", letter, tried_at),
    CAIRN_CLI_FIELD("WHY", letter, cause),
};
static const struct cairn_cli_table letter_table =
    CAIRN_CLI_ROWS(letter_row, letter_columns, 0, CAIRN_CLI_FIELD(NULL, letter, id));

static enum cairn_code redeliver(const struct cairn_cli *cli, const char *tail,
                                 struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_redelivered done = {0};
    const struct cairn_cli_call call = {.method = "POST", .tail = tail};
    CAIRN_TRY(cairn_cli_ask(cli, NULL, call, CAIRN_MESSAGE_redelivered, &json, &done, err));
    if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_json(json, true, err);
    printf("%s: %s tried once more\n", done.name,
           cairn_cli_counted(done.dead_letters, "dead letter is", "dead letters are").text);
    return cairn_cli_flush(err);
}

static enum cairn_code run_webhooks(struct cairn_cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0], *name = cli->arguments[1];
    char path[CAIRN_NAME_BYTES_MAX + 40];
    bool named = cli->argument_count == 2;
    if (named && !cairn_name_valid(cairn_view_of(name)))
        return cairn_fail(err, CAIRN_INVALID, "\"%.80s\": name a webhook", name);
    if (!strcmp(what, "ls") && !named)
        return cairn_cli_print_list(cli, NULL, "/webhooks", WEBHOOKS_MAX, &webhook_table, err);
    if (!strcmp(what, "letters") && named) {
        snprintf(path, sizeof path, "/webhooks/%s/dead-letters", name);
        return cairn_cli_print_list(cli, NULL, path, WEBHOOKS_MAX, &letter_table, err);
    }
    if (!strcmp(what, "redeliver") && named) {
        snprintf(path, sizeof path, "/webhooks/%s/redeliver", name);
        return redeliver(cli, path, err);
    }
    return cairn_fail(err, CAIRN_INVALID, "want ls, or letters or redeliver NAME; usage: %s",
                      cairn_cli_verb_webhooks.synopsis);
}

const struct cairn_cli_verb cairn_cli_verb_webhooks = {
    .name = "webhooks",
    .synopsis = "cairn webhooks ls|letters|redeliver [flags] [NAME]",
    .purpose = "Who is told of events, how far, and what they did not take.",
    .examples = "  cairn webhooks ls\n"
                "  cairn webhooks letters chat\n"
                "  cairn webhooks redeliver chat\n",
    CAIRN_CLI_ARGUMENTS(1, 2),
    .run = run_webhooks,
};
