/* SPDX-License-Identifier: Apache-2.0 */
/* cairn token create|generate|list|revoke|whoami: who may do what at a server. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/wire/rights.h"
#include "api/wire/words.h"
#include "cli/output.h"
#include "common/text.h"
#include "common/trace.h"

#define TOKENS_MAX 10016

static const struct cairn_cli_flag flags[] = {
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

static bool wants_json(const struct cairn_cli *cli) {
    return cli->output == CAIRN_CLI_JSON || cli->output == CAIRN_CLI_JSONL;
}

static enum cairn_code flush(struct cairn_error *err) {
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

/* ---- where a token goes ---- */

struct out {
    const char *path; /* NULL: standard output */
    int fd;
};

/* Before the server is asked: a token that cannot be kept must not be made. */
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
        return flush(err);
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

/* One that a site gives to its servers (admin-token-file): no server is asked. */
static enum cairn_code generate(const struct cairn_cli *cli, struct cairn_error *err) {
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

/* What it is good for has no default: a token that nobody bounded would be good for all. */
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

/* The token alone on standard output, so that it can go into a file that nobody else reads. */
static enum cairn_code create(const struct cairn_cli *cli, struct cairn_error *err) {
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
    if (wants_json(cli)) return cairn_cli_print_json(reply, cli->output == CAIRN_CLI_JSON, err);
    if (cli->output == CAIRN_CLI_NAME) puts(made.id);
    CAIRN_TRY(flush(err));
    cairn_cli_note("token %s for %s, told this once", made.id, made.project);
    return CAIRN_OK;
}

static enum cairn_code print_row(const struct cairn_cli *cli, const json_t *item,
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

static enum cairn_code list(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    size_t index = 0;
    json_t *item = NULL;
    CAIRN_TRY(cairn_cli_list(cli, "/v1/tokens", TOKENS_MAX, items, NULL, err));
    if (cli->output == CAIRN_CLI_JSON) return cairn_cli_print_json(items, true, err);
    json_array_foreach(items, index, item) CAIRN_TRY(print_row(cli, item, err));
    return flush(err);
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
    if (wants_json(cli)) return cairn_cli_print_json(reply, cli->output == CAIRN_CLI_JSON, err);
    bool unstored = json_is_false(json_object_get(reply, "stored"));
    const char *form = cli->output == CAIRN_CLI_NAME ? "%s\n" : "%s is revoked\n";
    size_t index = 0;
    const json_t *child = NULL;
    printf(form, id);
    json_array_foreach(json_object_get(reply, "children"), index, child)
        if (json_is_string(child)) printf(form, json_string_value(child));
    if (unstored)
        fprintf(stderr, "the store could not be told: until the server's next copy there, a "
                        "catalog that is made again from it takes the token\n");
    return flush(err);
}

static enum cairn_code whoami(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_whoami who = {0};
    char scopes[CAIRN_SCOPES_TEXT_BYTES] = "no scope";
    unsigned bits = 0;
    CAIRN_TRY(cairn_cli_call(cli, NULL, (struct cairn_cli_call){.tail = "/whoami"}, &reply, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_whoami, reply, &who, err));
    if (wants_json(cli)) return cairn_cli_print_json(reply, cli->output == CAIRN_CLI_JSON, err);
    if (!cairn_scopes_read(who.scopes, &bits, NULL)) cairn_scopes_text(bits, scopes);
    bool named = who.actor && who.actor[0];
    if (cli->output == CAIRN_CLI_NAME)
        puts(who.id ? who.id : "");
    else
        printf("%s: %s in %s%s%s%s\n", named ? who.actor : "anybody", scopes,
               who.project ? who.project : "", who.expires_at ? ", until " : "",
               who.expires_at ? who.expires_at : "",
               who.tokens_needed ? "" : " (this server asks for no tokens)");
    return flush(err);
}

static enum cairn_code run_token(struct cairn_cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    bool two = cli->argument_count == 2;
    if (!strcmp(what, "create")) return create(cli, err);
    if (!strcmp(what, "generate") && !two) return generate(cli, err);
    if (!strcmp(what, "list") && !two) return list(cli, err);
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
    .flags = flags,
    .flag_count = CAIRN_COUNT(flags),
    .arguments_min = 1,
    .arguments_max = 2,
    .run = run_token,
};
