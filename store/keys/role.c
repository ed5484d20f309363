/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Derives keys from a profile, which may have another profile, and so on, as its role's source.
 */

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/text.h"
#include "store/keys/inside.h"
#include "store/keys/profile.h"
#include "store/keys/sigv4.h"
#include "store/time.h"
#include "store/xml/xml.h"

/* ---- STS: keys for a foreign token (web identity) or for other keys ---- */

#define FORM "application/x-www-form-urlencoded"
/* As in store/s3/reply.c: a smaller skew does not explain a refusal. */
#define SKEW_MS_MIN (4 * 60 * 1000)
#define LIFE_S_MIN 900
#define LIFE_S_MAX 43200

/* Input of AssumeRoleWithWebIdentity. */
struct cairn_web_identity {
    const char *role_arn, *token_file;
    const char *session_name; /* NULL: "cairn" */
};
/* Input of AssumeRole. NULL: not given. */
struct cairn_role {
    const char *arn, *session_name, *external_id, *duration_s;
};

static enum cairn_code sts_url(const struct cairn_credentials_options *options,
                               struct cairn_buf *ret, struct cairn_error *err) {
    bool alone = options->profile_alone;
    const char *named =
        alone ? options->sts_url : cairn_credentials_variable("AWS_ENDPOINT_URL_STS");
    if (!named && !alone) named = cairn_credentials_variable("AWS_ENDPOINT_URL");
    if (named && !options->allow_plain_http && !cairn_credentials_may_go_to(named))
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "the endpoint of STS is neither https nor on this machine");
    if (named) return cairn_buf_printf(ret, err, "%s", named);
    if (!options->region) return cairn_buf_append_text(ret, "https://sts.amazonaws.com", err);
    /* In US government regions the usual names are the FIPS endpoints. */
    bool other_name = options->fips && !cairn_text_starts(options->region, "us-gov-");
    return cairn_buf_printf(ret, err, "https://sts%s.%s.%s", other_name ? "-fips" : "",
                            options->region, cairn_aws_domain(options->region));
}

/* The signed parts of the URL. As in libcurl, the host lacks the scheme's default port. */
struct place {
    char host[300], path[256];
};

static enum cairn_code add_field(struct cairn_buf *body, const char *name, const char *value,
                                 struct cairn_error *err) {
    if (!value) return CAIRN_OK;
    CAIRN_TRY(cairn_buf_printf(body, err, "&%s=", name));
    return cairn_percent_encode(cairn_view_of(value), false, body, err);
}

static enum cairn_code read_session(const struct cairn_buf *answer, const char *root,
                                    struct cairn_credentials *ret, struct cairn_error *err) {
    CAIRN_AUTO(xml_session) session = {0};
    CAIRN_TRY(cairn_xml_session_read(cairn_buf_view(answer), root, &session, err));
    CAIRN_TRY(cairn_credentials_set(ret, session.access_key,
                                    cairn_secret_view(&session.secret).data,
                                    cairn_secret_view(&session.token).data, err));
    if (!session.expiration[0]) return CAIRN_OK;
    return cairn_s3_time_iso(session.expiration, &ret->expires_ms, err);
}

static enum cairn_code identity_body(const struct cairn_web_identity *identity,
                                     struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_SECRET_BUF token = {.limit = CAIRN_SECRET_BYTES_MAX};
    CAIRN_TRY(cairn_credentials_load_token(identity->token_file, &token, err));
    CAIRN_TRY(
        cairn_buf_append_text(ret, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15", err));
    CAIRN_TRY(add_field(ret, "RoleArn", identity->role_arn, err));
    CAIRN_TRY(add_field(ret, "RoleSessionName",
                        identity->session_name ? identity->session_name : "cairn", err));
    return add_field(ret, "WebIdentityToken", token.data, err);
}

static enum cairn_code assume_by_identity(const struct cairn_credentials_options *options,
                                          const struct cairn_web_identity *identity,
                                          struct cairn_credentials *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) url = {0};
    CAIRN_SECRET_BUF body = {.limit = 4 * CAIRN_SECRET_BYTES_MAX};
    CAIRN_SECRET_BUF answer = {.limit = CAIRN_CREDENTIALS_ANSWER_BYTES_MAX};
    CAIRN_TRY(sts_url(options, &url, err));
    enum cairn_code code = identity_body(identity, &body, err);
    if (code) return cairn_within(err, code, "web identity");
    struct cairn_credentials_call call = {.source = "web identity",
                                          .method = "POST",
                                          .url = url.data,
                                          .headers = {"Content-Type: " FORM},
                                          .header_count = 1,
                                          .body = cairn_buf_view(&body),
                                          .ms = CAIRN_CREDENTIALS_ANSWER_MS,
                                          .ca_bundle = options->ca_bundle};
    CAIRN_TRY(cairn_credentials_fetch(&call, &answer, err));
    code = read_session(&answer, "AssumeRoleWithWebIdentityResponse", ret, err);
    if (code) return cairn_within(err, code, "web identity");
    snprintf(ret->source, sizeof ret->source, "web identity");
    return CAIRN_OK;
}

enum cairn_code cairn_credentials_web_identity(const struct cairn_credentials_options *options,
                                               struct cairn_credentials *ret, bool *ret_found,
                                               struct cairn_error *err) {
    struct cairn_web_identity identity = {cairn_credentials_variable("AWS_ROLE_ARN"),
                                          cairn_credentials_variable("AWS_WEB_IDENTITY_TOKEN_FILE"),
                                          cairn_credentials_variable("AWS_ROLE_SESSION_NAME")};
    if (!identity.token_file) return CAIRN_OK;
    *ret_found = true;
    if (!identity.role_arn)
        return cairn_fail(err, CAIRN_UNAUTHORIZED,
                          "AWS_WEB_IDENTITY_TOKEN_FILE is set but AWS_ROLE_ARN is not");
    return assume_by_identity(options, &identity, ret, err);
}

static enum cairn_code signer_of(const struct cairn_credentials_options *options,
                                 const struct cairn_credentials *by, struct cairn_sigv4_signer *ret,
                                 struct cairn_error *err) {
    snprintf(ret->service, sizeof ret->service, "sts");
    snprintf(ret->region, sizeof ret->region, "%s",
             options->region ? options->region : "us-east-1");
    memcpy(ret->access_key, by->access_key, sizeof ret->access_key);
    CAIRN_TRY(cairn_secret_copy(&ret->secret, &by->secret, err));
    return cairn_secret_copy(&ret->token, &by->token, err);
}

/* Sends one request, signed as of wall_ms. */
static enum cairn_code ask_signed(struct cairn_credentials_call *call, const struct place *place,
                                  struct cairn_sigv4_signer *signer, int64_t wall_ms,
                                  struct cairn_buf *ret, struct cairn_error *err) {
    char time[CAIRN_SIGV4_TIME_BYTES], hash[2 * CAIRN_SHA256_BYTES + 1];
    uint8_t digest[CAIRN_SHA256_BYTES];
    CAIRN_AUTO(buf) authorization = {0};
    CAIRN_AUTO(buf) date_line = {0};
    CAIRN_AUTO(buf) line = {0};
    CAIRN_SECRET_BUF token_line = {0};
    const char *token = cairn_secret_view(&signer->token).data;
    cairn_sha256_of(call->body, digest);
    cairn_hex_encode(digest, sizeof digest, hash);
    cairn_sigv4_time(wall_ms, time);
    struct cairn_sigv4_pair headers[] = {{"content-type", FORM},
                                         {"host", place->host},
                                         {"x-amz-date", time},
                                         {"x-amz-security-token", token}};
    struct cairn_sigv4_request request = {.method = "POST",
                                          .path = place->path,
                                          .headers = headers,
                                          .header_count = *token ? 4 : 3,
                                          .payload = hash};
    CAIRN_TRY(cairn_sigv4_authorize(signer, time, &request, &authorization, err));
    call->header_count = 1; /* Content-Type */
    CAIRN_TRY(cairn_credentials_add_header(call, &date_line, "X-Amz-Date", time, err));
    CAIRN_TRY(cairn_credentials_add_header(call, &line, "Authorization", authorization.data, err));
    if (*token)
        CAIRN_TRY(
            cairn_credentials_add_header(call, &token_line, "X-Amz-Security-Token", token, err));
    cairn_buf_clear(ret);
    return cairn_credentials_fetch(call, ret, err);
}

/* STS's clock minus ours, if that may explain the refusal. */
static int64_t skew_of(const struct cairn_credentials_call *call, int64_t wall_ms) {
    int64_t theirs = 0;
    if ((call->status != 400 && call->status != 403) ||
        cairn_s3_time_http(call->date, &theirs, NULL) != CAIRN_OK)
        return 0;
    int64_t ahead = theirs - wall_ms;
    return ahead < SKEW_MS_MIN && ahead > -SKEW_MS_MIN ? 0 : ahead;
}

/* by: the keys that assume the role. */
static enum cairn_code assume_by_keys(const struct cairn_credentials_options *options,
                                      const struct cairn_role *role,
                                      const struct cairn_credentials *by,
                                      struct cairn_credentials *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) url = {0};
    CAIRN_AUTO(buf) body = {0};
    CAIRN_AUTO(sigv4_signer) signer = {0};
    CAIRN_SECRET_BUF answer = {.limit = CAIRN_CREDENTIALS_ANSWER_BYTES_MAX};
    struct cairn_error why = {0};
    struct place place;
    CAIRN_TRY(sts_url(options, &url, err));
    struct cairn_url parts;
    bool good = cairn_url_split_http(url.data, &parts) && parts.host.size < sizeof place.host &&
                !strpbrk(url.data, "?#@%\\ \t\r\n") && strlen(parts.path) < sizeof place.path;
    if (!good)
        return cairn_fail(err, CAIRN_INVALID,
                          "the endpoint of STS must be http(s)://host[:port][/path]");
    struct cairn_view host = cairn_url_host(&parts);
    snprintf(place.path, sizeof place.path, "%s", *parts.path ? parts.path : "/");
    snprintf(place.host, sizeof place.host, "%.*s", (int)host.size, (const char *)host.data);
    uint64_t life_s = LIFE_S_MIN;
    if (role->duration_s) CAIRN_TRY(cairn_parse_u64(cairn_view_of(role->duration_s), &life_s, err));
    if (life_s < LIFE_S_MIN || life_s > LIFE_S_MAX)
        return cairn_fail(err, CAIRN_INVALID, "duration_seconds is %s; it is from %d to %d",
                          role->duration_s, LIFE_S_MIN, LIFE_S_MAX);
    CAIRN_TRY(cairn_buf_append_text(&body, "Action=AssumeRole&Version=2011-06-15", err));
    CAIRN_TRY(add_field(&body, "RoleArn", role->arn, err));
    CAIRN_TRY(add_field(&body, "RoleSessionName", role->session_name ? role->session_name : "cairn",
                        err));
    CAIRN_TRY(add_field(&body, "ExternalId", role->external_id, err));
    CAIRN_TRY(add_field(&body, "DurationSeconds", role->duration_s, err));
    CAIRN_TRY(signer_of(options, by, &signer, err));
    struct cairn_credentials_call call = {.source = "AssumeRole",
                                          .method = "POST",
                                          .url = url.data,
                                          .headers = {"Content-Type: " FORM},
                                          .body = cairn_buf_view(&body),
                                          .ms = CAIRN_CREDENTIALS_ANSWER_MS,
                                          .ca_bundle = options->ca_bundle};
    int64_t now = options->clock->wall_ms(options->clock);
    enum cairn_code code = ask_signed(&call, &place, &signer, now, &answer, &why);
    int64_t skew = code ? skew_of(&call, now) : 0;
    if (skew) code = ask_signed(&call, &place, &signer, now + skew, &answer, &why);
    CAIRN_TRY(cairn_pass(err, code, &why));
    return read_session(&answer, "AssumeRoleResponse", ret, err);
}

/* "credential_process" of a profile: started by posix_spawn (R8) with only its output open; its
 * standard error is dropped, since it may hold a secret. */

#define WORDS_MAX 64
#define OUTPUT_BYTES_MAX (64 * CAIRN_KIB)
#define RUN_MS 60000
/* Interval of checks on the program; one that has closed its output ends soon. */
#define LOOK_MS 100
#define LOOK_ENDING_MS 10

extern char **environ;

/* Reads a word from *text to *to, in one buffer: a word never grows. False: unclosed quote. */
static bool read_word(const char **text, char **to) {
    const char *from = *text;
    char *at = *to;
    for (char quote = '\0'; *from && (quote || !strchr(" \t\r\n", *from)); from++) {
        if (quote == '\'' || (quote && *from == quote)) {
            if (*from == quote)
                quote = '\0';
            else
                *at++ = *from;
        } else if (!quote && (*from == '\'' || *from == '"')) {
            quote = *from;
        } else if (*from == '\\' && from[1] && (!quote || from[1] == '"' || from[1] == '\\')) {
            *at++ = *++from;
        } else {
            *at++ = *from;
        }
        if (quote && !from[1]) return false;
    }
    *text = from;
    *at++ = '\0';
    *to = at;
    return true;
}

/* As Python's shlex and the AWS command line: no variables, no ~, no globs. */
static enum cairn_code split_words(const char *command, char *memory,
                                   char *ret_words[WORDS_MAX + 1], struct cairn_error *err) {
    size_t count = 0;
    for (;;) {
        command += strspn(command, " \t\r\n");
        if (!*command) break;
        if (count == WORDS_MAX)
            return cairn_fail(err, CAIRN_INVALID, "it has more than %d words", WORDS_MAX);
        ret_words[count++] = memory;
        if (!read_word(&command, &memory))
            return cairn_fail(err, CAIRN_INVALID, "a quote in it has no end");
    }
    ret_words[count] = NULL;
    if (!count || !*ret_words[0]) return cairn_fail(err, CAIRN_INVALID, "it names no program");
    return CAIRN_OK;
}

struct child {
    pid_t pid; /* 0: not started, or reaped */
    int output;
    int status;
};
static void child_release(struct child *child) {
    if (child->pid > 0) {
        kill(-child->pid, SIGKILL); /* the group, with its children */
        waitpid(child->pid, NULL, 0);
    }
    if (child->output >= 0) close(child->output);
}

/* A group of its own, so that its children can be killed too; default signal handling. */
static int set_attributes(posix_spawnattr_t *attributes) {
    static const int signals[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGPIPE,
                                  SIGTERM, SIGCHLD, SIGUSR1, SIGXFSZ};
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    for (size_t i = 0; i < CAIRN_COUNT(signals); i++) sigaddset(&usual, signals[i]);
    posix_spawnattr_setpgroup(attributes, 0);
    posix_spawnattr_setsigmask(attributes, &none);
    posix_spawnattr_setsigdefault(attributes, &usual);
    return posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                    POSIX_SPAWN_SETSIGDEF);
}

static int spawn_words(char *const *words, int output, pid_t *ret_pid) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    if (posix_spawn_file_actions_init(&files)) return ENOMEM;
    if (posix_spawnattr_init(&attributes)) {
        posix_spawn_file_actions_destroy(&files);
        return ENOMEM;
    }
    int failed = set_attributes(&attributes);
    if (!failed)
        failed = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!failed) failed = posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    if (!failed)
        failed = posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (!failed) failed = posix_spawnp(ret_pid, words[0], &files, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return failed;
}

/* Pipe ends above the standard three: an end moved onto itself would stay close-on-exec. */
static enum cairn_code make_pipe(int ret_ends[2], struct cairn_error *err) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return cairn_fail_errno(err, "a pipe");
    for (int i = 0; i < 2; i++) ret_ends[i] = fcntl(ends[i], F_DUPFD_CLOEXEC, 3);
    for (int i = 0; i < 2; i++) close(ends[i]);
    if (ret_ends[0] >= 0 && ret_ends[1] >= 0) return CAIRN_OK;
    for (int i = 0; i < 2; i++)
        if (ret_ends[i] >= 0) close(ret_ends[i]);
    return cairn_fail_errno(err, "a pipe");
}

static enum cairn_code start_child(struct child *child, char *const *words,
                                   struct cairn_error *err) {
    int ends[2] = {-1, -1};
    CAIRN_TRY(make_pipe(ends, err));
    child->output = ends[0];
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    int failed = spawn_words(words, ends[1], &child->pid);
    close(ends[1]);
    if (!failed) return CAIRN_OK;
    child->pid = 0;
    errno = failed;
    return cairn_fail_errno(err, "start %.100s", words[0]);
}

/* True: it has ended. One that was reaped elsewhere counts as successful; its output decides. */
static bool has_ended(struct child *child) {
    if (!child->pid) return true;
    pid_t pid = waitpid(child->pid, &child->status, WNOHANG);
    if (pid == 0 || (pid < 0 && errno == EINTR)) return false;
    if (pid < 0) child->status = 0;
    child->pid = 0;
    return true;
}

/* Collects the output until the program ends; later holders of the output are not awaited. */
static enum cairn_code collect_output(struct child *child, uint32_t timeout_ms,
                                      struct cairn_buf *ret, struct cairn_error *err) {
    uint64_t until = cairn_mono_ms() + timeout_ms;
    for (bool open = true;;) {
        bool ended = has_ended(child); /* checked before reading, so no output follows */
        if (open) {
            /* Reads the available output. */
            char piece[4096];
            ssize_t size;
            enum cairn_code code = CAIRN_OK;
            while (!code && (size = read(child->output, piece, sizeof piece)) > 0)
                code = cairn_buf_append(ret, piece, (size_t)size, NULL);
            explicit_bzero(piece, sizeof piece);
            if (code) return cairn_fail(err, CAIRN_TOO_LARGE, "it printed more than 64 KiB");
            open = size < 0 && (errno == EAGAIN || errno == EINTR);
        }
        if (ended) return CAIRN_OK;
        if (cairn_mono_ms() >= until)
            return cairn_fail(err, CAIRN_TIMEOUT, "it did not end within %u s", timeout_ms / 1000);
        struct pollfd output = {.fd = open ? child->output : -1, .events = POLLIN};
        poll(&output, 1, open ? LOOK_MS : LOOK_ENDING_MS);
    }
}

static enum cairn_code check_end(const struct child *child, struct cairn_error *err) {
    if (WIFSIGNALED(child->status))
        return cairn_fail(err, CAIRN_UNAUTHORIZED, "it was ended by signal %d",
                          WTERMSIG(child->status));
    if (WEXITSTATUS(child->status))
        return cairn_fail(err, CAIRN_UNAUTHORIZED,
                          "it ended with status %d; run it by hand to see what it says",
                          WEXITSTATUS(child->status));
    return CAIRN_OK;
}

/* Runs a "credential_process" command, shell-quoted but without a shell. timeout_ms 0: 60 s. */
static enum cairn_code keys_of_program(const char *command, uint32_t timeout_ms,
                                       struct cairn_credentials *ret, struct cairn_error *err) {
    CAIRN_SECRET_BUF answer = {.limit = OUTPUT_BYTES_MAX};
    __attribute__((cleanup(child_release))) struct child child = {.output = -1};
    /* Each word ends at a blank or after the text. */
    CAIRN_AUTO_HEAP char *memory = malloc(strlen(command) + 1);
    char *words[WORDS_MAX + 1];
    if (!memory) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a command");
    CAIRN_TRY(split_words(command, memory, words, err));
    CAIRN_TRY(start_child(&child, words, err));
    CAIRN_TRY(collect_output(&child, timeout_ms ? timeout_ms : RUN_MS, &answer, err));
    CAIRN_TRY(check_end(&child, err));
    CAIRN_AUTO_JSON json_t *json = NULL;
    uint64_t version = 0;
    struct cairn_json_field field = {"Version", CAIRN_JSON_U64, true, &version, 0};
    CAIRN_TRY(cairn_credentials_parse(cairn_buf_view(&answer), &json, err));
    CAIRN_TRY(cairn_json_read(json, "", &field, 1, true, err));
    if (version != 1)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "it answers in version %llu; known is 1",
                          (unsigned long long)version);
    return cairn_credentials_take_json(json, "SessionToken", ret, err);
}

/* ---- a profile, or a chain of profiles ---- */

#define CHAIN_MAX 8

struct chain {
    const struct cairn_credentials_options *options;
    const struct cairn_profile *profiles[CHAIN_MAX]; /* outermost first */
    size_t count;
};

static enum cairn_code keys_of(struct chain *chain, struct cairn_credentials *ret, bool *ret_found,
                               struct cairn_error *err);

static const struct cairn_profile *last_of(const struct chain *chain) {
    return chain->profiles[chain->count - 1];
}

static bool has_keys(const struct cairn_profile *profile) {
    return cairn_profile_get(profile, "aws_access_key_id") ||
           cairn_profile_get(profile, "aws_secret_access_key");
}

static enum cairn_code take_keys(const struct cairn_profile *profile, struct cairn_credentials *ret,
                                 struct cairn_error *err) {
    const char *access_key = cairn_profile_get(profile, "aws_access_key_id");
    const char *secret = cairn_profile_get(profile, "aws_secret_access_key");
    if (!access_key || !secret)
        return cairn_fail(err, CAIRN_UNAUTHORIZED, "profile \"%s\" has one of its two keys only",
                          profile->name);
    CAIRN_TRY(cairn_credentials_set(ret, access_key, secret,
                                    cairn_profile_get(profile, "aws_session_token"), err));
    snprintf(ret->source, sizeof ret->source, "profile %.100s", profile->name);
    return CAIRN_OK;
}

/* "a -> b -> a" */
static enum cairn_code refuse_circle(const struct chain *chain, const char *next,
                                     struct cairn_error *err) {
    char names[200] = "";
    size_t used = 0;
    for (size_t i = 0; i < chain->count && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%.40s -> ",
                                 chain->profiles[i]->name);
    return cairn_fail(err, CAIRN_INVALID, "source_profile leads in a circle: %s%.40s", names, next);
}

static enum cairn_code keys_of_source(struct chain *chain, const char *name,
                                      struct cairn_credentials *ret, struct cairn_error *err) {
    const struct cairn_profile *profile = last_of(chain);
    CAIRN_AUTO(profile) source = {0};
    bool found = false;
    /* A profile may be its own source: its keys assume its role. */
    if (!strcmp(name, profile->name) && has_keys(profile)) return take_keys(profile, ret, err);
    for (size_t i = 0; i < chain->count; i++)
        if (!strcmp(name, chain->profiles[i]->name)) return refuse_circle(chain, name, err);
    if (chain->count == CHAIN_MAX)
        return cairn_fail(err, CAIRN_INVALID, "more than %d profiles, each the source of the next",
                          CHAIN_MAX);
    CAIRN_TRY(cairn_profile_load(name, &source, err));
    if (!source.found)
        return cairn_fail(
            err, CAIRN_INVALID,
            "profile \"%s\" names source_profile \"%s\", which is in neither %s nor %s",
            profile->name, name, source.credentials_path, source.config_path);
    chain->profiles[chain->count++] = &source;
    enum cairn_code code = keys_of(chain, ret, &found, err);
    chain->count--;
    if (!code && !found)
        return cairn_fail(err, CAIRN_UNAUTHORIZED, "profile \"%s\" holds no keys", name);
    return code;
}

static enum cairn_code keys_of_named(const struct chain *chain, const char *name,
                                     struct cairn_credentials *ret, struct cairn_error *err) {
    static const struct {
        const char *name;
        cairn_credentials_loader *load;
    } known[] = {{"Environment", cairn_credentials_environment},
                 {"Ec2InstanceMetadata", cairn_credentials_metadata},
                 {"EcsContainer", cairn_credentials_container}};
    for (size_t i = 0; i < CAIRN_COUNT(known); i++) {
        bool found = false;
        if (strcmp(name, known[i].name) != 0) continue;
        CAIRN_TRY(known[i].load(chain->options, ret, &found, err));
        if (found) return CAIRN_OK;
        return cairn_fail(err, CAIRN_UNAUTHORIZED, "credential_source is %s, which has no keys",
                          name);
    }
    return cairn_fail(err, CAIRN_INVALID,
                      "credential_source is \"%.40s\"; it is Environment, Ec2InstanceMetadata or "
                      "EcsContainer",
                      name);
}

static enum cairn_code keys_of_origin(struct chain *chain, struct cairn_credentials *ret,
                                      struct cairn_error *err) {
    const char *source = cairn_profile_get(last_of(chain), "source_profile");
    const char *named = cairn_profile_get(last_of(chain), "credential_source");
    if (source && named)
        return cairn_fail(err, CAIRN_INVALID,
                          "both source_profile and credential_source are given; it can be one");
    if (source) return keys_of_source(chain, source, ret, err);
    if (named) return keys_of_named(chain, named, ret, err);
    return cairn_fail(err, CAIRN_INVALID,
                      "role_arn is given, but neither source_profile, credential_source nor "
                      "web_identity_token_file, whose keys would assume it");
}

static enum cairn_code assume_chain_role(struct chain *chain, struct cairn_credentials *ret,
                                         struct cairn_error *err) {
    const struct cairn_profile *profile = last_of(chain);
    struct cairn_credentials by = {0};
    struct cairn_role role = {
        cairn_profile_get(profile, "role_arn"), cairn_profile_get(profile, "role_session_name"),
        cairn_profile_get(profile, "external_id"), cairn_profile_get(profile, "duration_seconds")};
    if (cairn_profile_get(profile, "mfa_serial"))
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "mfa_serial asks a person for a code at each renewal, which a daemon "
                          "cannot; use a role without it");
    enum cairn_code code = keys_of_origin(chain, &by, err);
    if (!code) code = assume_by_keys(chain->options, &role, &by, ret, err);
    cairn_credentials_release(&by);
    if (code) return code;
    snprintf(ret->source, sizeof ret->source, "role of profile %.100s", profile->name);
    return CAIRN_OK;
}

static enum cairn_code take_role(struct chain *chain, struct cairn_credentials *ret,
                                 struct cairn_error *err) {
    const struct cairn_profile *profile = last_of(chain);
    struct cairn_web_identity identity = {cairn_profile_get(profile, "role_arn"),
                                          cairn_profile_get(profile, "web_identity_token_file"),
                                          cairn_profile_get(profile, "role_session_name")};
    if (identity.token_file) {
        CAIRN_TRY(assume_by_identity(chain->options, &identity, ret, err));
        snprintf(ret->source, sizeof ret->source, "web identity of profile %.100s", profile->name);
        return CAIRN_OK;
    }
    enum cairn_code code = assume_chain_role(chain, ret, err);
    return cairn_within(err, code, "profile \"%s\"", profile->name);
}

static enum cairn_code take_process(const struct chain *chain, const char *command,
                                    struct cairn_credentials *ret, struct cairn_error *err) {
    const char *name = last_of(chain)->name;
    enum cairn_code code = keys_of_program(command, chain->options->process_ms, ret, err);
    if (code) return cairn_within(err, code, "credential_process of profile \"%s\"", name);
    snprintf(ret->source, sizeof ret->source, "credential_process of profile %.90s", name);
    return CAIRN_OK;
}

/* NULL: no browser needed. */
static const char *browser_of(const struct cairn_profile *profile) {
    if (cairn_profile_get(profile, "sso_session") || cairn_profile_get(profile, "sso_start_url"))
        return "SSO";
    return cairn_profile_get(profile, "login_session") ? "`aws login`" : NULL;
}

static enum cairn_code refuse_browser(const struct cairn_profile *profile,
                                      struct cairn_error *err) {
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "profile \"%.60s\" signs in by %s, which needs a browser; write "
                      "credential_process = aws configure export-credentials --profile %.60s "
                      "into another profile and use that",
                      profile->name, browser_of(profile), profile->name);
}

/* Keys of the chain's last profile, in the AWS SDKs' order: a requested role precedes keys; where
 * only keys are needed they come first and end the chain. */
static enum cairn_code keys_of(struct chain *chain, struct cairn_credentials *ret, bool *ret_found,
                               struct cairn_error *err) {
    const struct cairn_profile *profile = last_of(chain);
    const char *command = cairn_profile_get(profile, "credential_process");
    bool is_source = chain->count > 1;
    *ret_found = true;
    if (is_source && has_keys(profile)) return take_keys(profile, ret, err);
    if (cairn_profile_get(profile, "role_arn")) return take_role(chain, ret, err);
    if (has_keys(profile)) return take_keys(profile, ret, err);
    if (command) return take_process(chain, command, ret, err);
    if (browser_of(profile)) return refuse_browser(profile, err);
    *ret_found = false;
    return CAIRN_OK;
}

enum cairn_code cairn_credentials_profile(const struct cairn_credentials_options *options,
                                          struct cairn_credentials *ret, bool *ret_found,
                                          struct cairn_error *err) {
    CAIRN_AUTO(profile) profile = {0};
    CAIRN_TRY(cairn_profile_load(options->profile, &profile, err));
    CAIRN_TRY(cairn_profile_require(&profile, err));
    struct chain chain = {.options = options, .profiles = {&profile}, .count = 1};
    return keys_of(&chain, ret, ret_found, err);
}
