/* SPDX-License-Identifier: Apache-2.0 */
/* Valid tokens in memory, sorted by id; see access.h. */
#include "server/access/access.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "common/file.h"
#include "common/log.h"
#include "common/process.h"

#define AGAIN_MS 1000 /* retry after a failed catalog read */

/* seen: number of the look that read the token; for an added token, of the newest look begun. */
struct kept {
    struct srv_token token;
    uint64_t seen;
};
struct tokens {
    struct kept *items;
    size_t count, capacity;
    uint64_t look;
};

/* A lent token: token.who is the lender's actor name, `of` the lender's token id. */
struct lent {
    struct srv_token token;
    char of[CAIRN_TOKEN_ID_BYTES];
    struct lent *next;
};

struct srv_access {
    struct srv *server;
    struct cairn_thread thread;
    _Atomic uint64_t looks; /* numbers looks: a later look is never replaced by an earlier one */
    struct cairn_lock lock;
    struct {
        struct tokens tokens;
        uint64_t look;      /* number of the look that read the tokens */
        uint64_t looked_ms; /* start of that look; mono clock */
        bool known;
        struct lent *lent;
    } locked;
};

/* ---- loading tokens ---- */

static enum cairn_code read_all(struct srv *server, struct tokens *tokens,
                                struct cairn_error *err) {
    SRV_LOOK(look, server->catalog, err);
    SRV_GET(rows, rows, srv_tokens_open(look.tx, NULL, 0, &rows, err));
    SQL_EACH(&rows, err) {
        CAIRN_TRY(CAIRN_ARRAY_ROOM(tokens->items, tokens->count, tokens->capacity, SRV_TOKENS_KEPT,
                                   "tokens", err));
        struct kept *one = &tokens->items[tokens->count];
        CAIRN_TRY(srv_token_row(&rows, &one->token, err));
        one->seen = tokens->look;
        tokens->count++;
    }
    return CAIRN_OK;
}

/* Index of the id, or the index to insert it at. */
static size_t place_of(const struct tokens *tokens, const char *id) {
    size_t from = 0, to = tokens->count;
    while (from < to) {
        size_t at = from + (to - from) / 2;
        if (strcmp(tokens->items[at].token.key.id, id) < 0)
            from = at + 1;
        else
            to = at;
    }
    return from;
}

static const struct kept *find_kept(const struct tokens *tokens, const char *id) {
    size_t at = place_of(tokens, id);
    bool there = at < tokens->count && !strcmp(tokens->items[at].token.key.id, id);
    return there ? &tokens->items[at] : NULL;
}

static enum cairn_code insert(struct tokens *tokens, const struct kept *one,
                              struct cairn_error *err) {
    size_t at = place_of(tokens, one->token.key.id);
    CAIRN_TRY(CAIRN_ARRAY_ROOM(tokens->items, tokens->count, tokens->capacity, SRV_TOKENS_KEPT,
                               "tokens", err));
    memmove(tokens->items + at + 1, tokens->items + at,
            (tokens->count - at) * sizeof(*tokens->items));
    tokens->items[at] = *one;
    tokens->count++;
    return CAIRN_OK;
}

/* Keeps tokens added while this look ran: it may have begun before their rows were written. */
static enum cairn_code take_added(const struct tokens *before, struct tokens *tokens,
                                  struct cairn_error *err) {
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < before->count && !code; i++)
        if (before->items[i].seen >= tokens->look &&
            !find_kept(tokens, before->items[i].token.key.id))
            code = insert(tokens, &before->items[i], err);
    return code;
}

static enum cairn_code look(struct srv_access *access, struct cairn_error *err) {
    uint64_t number = atomic_fetch_add(&access->looks, 1) + 1;
    struct tokens tokens = {.look = number};
    uint64_t begun_ms = srv_mono_ms(access->server);
    enum cairn_code code = read_all(access->server, &tokens, err);
    if (!code) {
        CAIRN_HOLD(&access->lock);
        if (number > access->locked.look) code = take_added(&access->locked.tokens, &tokens, err);
        if (!code && number > access->locked.look) {
            struct tokens before = access->locked.tokens;
            access->locked.tokens = tokens;
            access->locked.look = number;
            access->locked.looked_ms = begun_ms;
            access->locked.known = true;
            tokens = before;
        }
    }
    free(tokens.items);
    return code;
}

/* The change deleted the rows of some expired tokens (tokens.h#3); a reload reads the others. */
static void drop_expired(struct tokens *tokens, int64_t now_ms) {
    size_t count = 0;
    for (size_t i = 0; i < tokens->count; i++) {
        if (!srv_token_expired(&tokens->items[i].token, now_ms))
            tokens->items[count++] = tokens->items[i];
    }
    tokens->count = count;
}

uint64_t srv_access_looks(struct srv_access *access) {
    return atomic_load(&access->looks);
}

void srv_access_add(struct srv_access *access, const struct srv_token *token, uint64_t looks) {
    bool added = false;
    {
        CAIRN_HOLD(&access->lock);
        struct tokens *tokens = &access->locked.tokens;
        const struct kept one = {*token, looks};
        /* A look that began since `looks` may have read the revocation of this very token. */
        bool alone = access->locked.known && atomic_load(&access->looks) == looks;
        if (alone && find_kept(tokens, token->key.id)) return; /* a repeated request */
        if (alone && tokens->count >= SRV_TOKENS_MAX)
            drop_expired(tokens, srv_wall_ms(access->server));
        added = alone && !insert(tokens, &one, NULL);
    }
    if (!added) srv_access_reload(access);
}

void srv_access_reload(struct srv_access *access) {
    struct cairn_error why = {0};
    if (!look(access, &why)) return;
    cairn_log(WARN, "tokens.unknown", "cause=\"%s\"", why.message);
    {
        CAIRN_HOLD(&access->lock);
        access->locked.known = false;
        access->locked.look = access->looks; /* discards looks that began before the change */
    }
    cairn_thread_wake(&access->thread);
}

static void run(struct cairn_thread *thread, void *owner) {
    struct srv_access *access = owner;
    bool shared = srv_catalog_is_shareable(access->server->catalog);
    uint64_t next_ms = 0;
    while (cairn_thread_wait(thread, next_ms)) {
        struct cairn_error why = {0};
        enum cairn_code code = look(access, &why);
        if (code) cairn_log(DEBUG, "tokens.late", "cause=\"%s\"", why.message);
        next_ms = shared ? cairn_mono_ms() + SRV_TOKENS_LOOK_MS : UINT64_MAX;
        if (code) next_ms = cairn_mono_ms() + AGAIN_MS;
    }
}

void srv_access_notified(struct srv_access *access, uint64_t key) {
    if (!access || !access->thread.started) return;
    if (key == SRV_NOTIFY_ALL || key == srv_key_of(SRV_TOKENS_KEY))
        cairn_thread_wake(&access->thread);
}

enum cairn_code srv_access_new(struct srv *server, struct srv_access **ret,
                               struct cairn_error *err) {
    struct srv_access *access = calloc(1, sizeof(*access));
    if (!access) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for tokens");
    access->server = server;
    cairn_lock_init(&access->lock, CAIRN_LOCK_server_access);
    access->thread = (struct cairn_thread){.name = "cairn-access", .run = run, .owner = access};
    enum cairn_code code = look(access, err);
    if (code)
        srv_access_free(access);
    else
        *ret = access;
    return code;
}

enum cairn_code srv_access_start(struct srv_access *access, struct cairn_error *err) {
    return cairn_thread_start(&access->thread, err);
}

void srv_access_free(struct srv_access *access) {
    if (!access) return;
    cairn_thread_stop(&access->thread);
    free(access->locked.tokens.items);
    while (access->locked.lent) {
        struct lent *lent = access->locked.lent;
        access->locked.lent = lent->next;
        free(lent);
    }
    cairn_lock_release(&access->lock);
    free(access);
}

/* ---- identifying a caller ---- */

void srv_credential_read(const char *value, struct srv_credential *ret) {
    static const char scheme[] = "Bearer";
    size_t size = sizeof(scheme) - 1;
    *ret = (struct srv_credential){.there = true};
    if (strncasecmp(value, scheme, size) != 0 || value[size] != ' ') return;
    value += size + strspn(value + size, " ");
    ret->readable = cairn_token_read(cairn_view_of(value), &ret->key);
}

/* A lent token ends when the lender's token is revoked. */
static const struct srv_token *find_lent(const struct srv_access *access, const char *id) {
    const struct lent *lent = access->locked.lent;
    while (lent && strcmp(lent->token.key.id, id)) lent = lent->next;
    return lent && find_kept(&access->locked.tokens, lent->of) ? &lent->token : NULL;
}

/* A01: for an unknown id the digest is compared with zeros, to take the same time. */
static bool find(struct srv_access *access, const struct cairn_token_key *key,
                 struct srv_token *ret, bool *ret_lent) {
    static const struct srv_token none;
    CAIRN_HOLD(&access->lock);
    const struct kept *kept = find_kept(&access->locked.tokens, key->id);
    const struct srv_token *found = kept ? &kept->token : NULL;
    if ((*ret_lent = !found)) found = find_lent(access, key->id);
    const struct srv_token *one = found ? found : &none;
    /* In memory at once; the sweep notes the expiry in the catalog later. */
    if (kept && srv_token_expired(found, srv_wall_ms(access->server)))
        access->locked.tokens.items[kept - access->locked.tokens.items].token.over = true;
    bool same = cairn_equal_secret(one->key.digest, key->digest, sizeof(key->digest));
    *ret = *one;
    return same && found;
}

/* Tokens in memory are accepted only while they are younger than SRV_TOKENS_OLD_MS (A02). */
static bool is_fresh(struct srv_access *access) {
    uint64_t now_ms = srv_mono_ms(access->server);
    bool shared = srv_catalog_is_shareable(access->server->catalog);
    CAIRN_HOLD(&access->lock);
    return access->locked.known &&
           (!shared || now_ms < access->locked.looked_ms + SRV_TOKENS_OLD_MS);
}

enum cairn_code srv_access_identify(struct srv_access *access,
                                    const struct srv_credential *credential, struct srv_caller *ret,
                                    struct cairn_error *err) {
    struct srv_token token;
    if (!credential->there)
        return cairn_fail(err, CAIRN_UNAUTHORIZED,
                          "a token is needed: give the command or the uploader --token-file or "
                          "CAIRN_TOKEN, any other client Authorization: Bearer cairn_...");
    if (!credential->readable)
        return cairn_fail(err, CAIRN_UNAUTHORIZED,
                          "what the header Authorization holds is no token of this server");
    if (!is_fresh(access))
        return cairn_fail(err, CAIRN_UNAVAILABLE,
                          "the catalog cannot be read, so nobody knows which tokens are good");
    bool lent = false, good = find(access, &credential->key, &token, &lent);
    if (!good) return cairn_fail(err, CAIRN_UNAUTHORIZED, "the token is not known, or was revoked");
    if (srv_token_expired(&token, srv_wall_ms(access->server)))
        return cairn_fail(err, CAIRN_UNAUTHORIZED, "the token has expired");
    *ret = (struct srv_caller){
        .kind = SRV_TOKEN, .scopes = token.scopes, .expires_ms = token.expires_ms};
    (void)cairn_text_copy(ret->id, sizeof(ret->id), token.key.id);
    (void)cairn_text_copy(ret->projects, sizeof(ret->projects), token.projects);
    if (lent)
        (void)cairn_text_copy(ret->who, sizeof(ret->who), token.who);
    else
        snprintf(ret->who, sizeof(ret->who), "%s%s%s", token.name, token.name[0] ? "/" : "",
                 token.key.id);
    return CAIRN_OK;
}

enum cairn_code srv_access_lend(struct srv_access *access, const struct srv_caller *caller,
                                char ret_text[CAIRN_TOKEN_TEXT_BYTES],
                                char ret_id[CAIRN_TOKEN_ID_BYTES], struct cairn_error *err) {
    CAIRN_ASSERT(caller->kind == SRV_TOKEN);
    struct lent *lent = calloc(1, sizeof(*lent));
    if (!lent) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a token");
    lent->token =
        (struct srv_token){.scopes = caller->scopes & (CAIRN_SCOPE_READ | CAIRN_SCOPE_WRITE),
                           .expires_ms = caller->expires_ms};
    (void)cairn_text_copy(lent->token.projects, sizeof(lent->token.projects), caller->projects);
    (void)cairn_text_copy(lent->token.who, sizeof(lent->token.who), caller->who);
    (void)cairn_text_copy(lent->of, sizeof(lent->of), caller->id);
    cairn_token_make(access->server->random, ret_text, &lent->token.key);
    (void)cairn_text_copy(ret_id, CAIRN_TOKEN_ID_BYTES, lent->token.key.id);
    CAIRN_HOLD(&access->lock);
    lent->next = access->locked.lent;
    access->locked.lent = lent;
    return CAIRN_OK;
}

void srv_access_return(struct srv_access *access, const char *id) {
    struct lent *lent = NULL;
    {
        CAIRN_HOLD(&access->lock);
        struct lent **at = &access->locked.lent;
        while (*at && strcmp((*at)->token.key.id, id)) at = &(*at)->next;
        lent = *at;
        if (lent) *at = lent->next;
    }
    free(lent);
}

bool srv_access_holds(struct srv_access *access, const struct srv_credential *credential) {
    struct srv_caller caller;
    if (!access || !access->server->settings->require_token) return true;
    return srv_access_identify(access, credential, &caller, NULL) == CAIRN_OK;
}

/* ---- permissions ---- */

bool srv_caller_may(const struct srv_caller *caller, enum cairn_scope scope, const char *project) {
    if (caller->kind == SRV_EVERYBODY) return true;
    return caller->kind == SRV_TOKEN && (caller->scopes & (unsigned)scope) &&
           cairn_project_pattern_fits(caller->projects, project);
}

/* ---- the operator's first token ---- */

struct first {
    struct srv_token token;
    int64_t now_ms;
    bool again, there;
};

static enum cairn_code look_for_admin(struct srv_tx *tx, struct first *first,
                                      struct cairn_error *err) {
    if (first->again) return CAIRN_OK;
    SRV_GET(rows, rows, srv_tokens_open(tx, NULL, 0, &rows, err));
    SQL_EACH(&rows, err) {
        struct srv_token token;
        CAIRN_TRY(srv_token_row(&rows, &token, err));
        bool lives = !token.expires_ms || token.expires_ms > first->now_ms;
        if (lives && (token.scopes & CAIRN_SCOPE_ADMIN) && !strcmp(token.projects, "*"))
            first->there = true;
    }
    return CAIRN_OK;
}

/* Looks again inside the write: of two servers that start at once, only one makes the token. */
SRV_CHANGE(put_first, struct first *first) {
    CAIRN_TRY(look_for_admin(tx, first, err));
    return first->there ? CAIRN_OK : srv_token_put(tx, &first->token, err);
}

SRV_CHANGE(put_given, struct first *first) {
    struct srv_token known;
    struct cairn_error why = {0};
    first->there = false;
    enum cairn_code code = srv_token_get(tx, first->token.key.id, &known, &why);
    if (code == CAIRN_NOT_FOUND) return srv_token_put(tx, &first->token, err);
    CAIRN_TRY(cairn_pass(err, code, &why));
    first->there = true;
    first->again = memcmp(known.key.digest, first->token.key.digest, sizeof(known.key.digest));
    return CAIRN_OK;
}

/* A leftover admin_token_file must not readmit a token that an operator has revoked. */
static enum cairn_code is_revoked(struct srv *server, const char *id, bool *ret,
                                  struct cairn_error *err) {
    struct cairn_store_worker *worker = NULL;
    struct cairn_key key;
    struct cairn_error why = {0};
    cairn_key_revoked(id, &key);
    CAIRN_TRY(cairn_store_worker_new(server->store, &worker, err));
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    enum cairn_code code = cairn_store_perform(worker, &head, &why);
    cairn_store_worker_free(worker);
    *ret = !code;
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK;
    if (code && err) *err = why;
    return code ? cairn_within(err, code, "looking whether the admin token was revoked") : CAIRN_OK;
}

static enum cairn_code bring_first(struct srv *server, struct first *first,
                                   struct cairn_error *err) {
    const char *path = server->settings->admin_token_file;
    CAIRN_AUTO(buf) text = {.limit = 4096};
    bool revoked = false;
    enum cairn_code code = cairn_file_load_secret_line(path, &text, err);
    if (code) return cairn_within(err, code, "admin-token-file");
    bool good = cairn_token_read(cairn_buf_view(&text), &first->token.key);
    cairn_wipe(text.data, text.size);
    if (!good)
        return cairn_fail(err, CAIRN_INVALID,
                          "admin-token-file %s holds no token: make one with `cairn token generate "
                          "--out %s`",
                          path, path);
    CAIRN_TRY(is_revoked(server, first->token.key.id, &revoked, err));
    if (revoked)
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "the token %s in admin-token-file %s was revoked: write another one of "
                          "`cairn token generate` there",
                          first->token.key.id, path);
    CAIRN_TRY(srv_catalog_write(server->catalog, put_given, first, err));
    if (first->there && first->again)
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "the token in admin-token-file %s has the id of another one, %s: write "
                          "another one of `cairn token generate` there",
                          path, first->token.key.id);
    if (!first->there)
        cairn_log(INFO, "token.given", "file=\"%s\" token=%s", path, first->token.key.id);
    return CAIRN_OK;
}

enum cairn_code srv_access_first(struct srv *server, struct cairn_error *err) {
    const struct srv_settings *settings = server->settings;
    struct first first = {.now_ms = srv_wall_ms(server), .again = settings->new_admin_token};
    char text[CAIRN_TOKEN_TEXT_BYTES], line[CAIRN_TOKEN_TEXT_BYTES + 1];
    CAIRN_AUTO(buf) path = {0};
    if (!settings->require_token && !first.again) return CAIRN_OK;
    first.token = (struct srv_token){.name = SRV_TOKENS_OPERATORS,
                                     .projects = "*",
                                     .who = SRV_TOKENS_SERVER,
                                     .scopes = CAIRN_SCOPES_ALL,
                                     .created_ms = first.now_ms};
    if (settings->admin_token_file[0]) return bring_first(server, &first, err);
    {
        SRV_LOOK(look, server->catalog, err);
        CAIRN_TRY(look_for_admin(look.tx, &first, err));
    }
    if (first.there) return CAIRN_OK;
    CAIRN_TRY(cairn_buf_printf(&path, err, "%s/admin.token", settings->data_dir));
    cairn_token_make(server->random, text, &first.token.key);
    /* The file before the row: the text of a lost token cannot be recovered. */
    snprintf(line, sizeof(line), "%s\n", text);
    enum cairn_code code = cairn_file_replace(path.data, cairn_view_of(line), 0600, err);
    cairn_wipe(text, sizeof(text));
    cairn_wipe(line, sizeof(line));
    if (!code) code = srv_catalog_write(server->catalog, put_first, &first, err);
    if (code || first.there) (void)unlink(path.data);
    if (!code && !first.there)
        cairn_log(WARN, "token.first", "file=%s token=%s", path.data, first.token.key.id);
    return code;
}
