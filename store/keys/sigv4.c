/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Canonical request -> string to sign -> signature. Pairs are encoded into one buffer and sorted by
 * their place in it, so nothing is allocated per pair.
 */
#include "store/keys/sigv4.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/text.h"

#define ALGORITHM "AWS4-HMAC-SHA256"

struct entry {
    size_t name_at, name_size, value_at, value_size;
    size_t order;
    const char *text; /* set before sorting */
};

static int compare_texts(const char *a, size_t a_size, const char *b, size_t b_size) {
    int compared = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return compared ? compared : (a_size > b_size) - (a_size < b_size);
}

/* By name, then value: comparing "name=value" texts would put "a-b" before "a". */
static int by_name_and_value(const void *left, const void *right) {
    const struct entry *a = left, *b = right;
    int names =
        compare_texts(a->text + a->name_at, a->name_size, b->text + b->name_at, b->name_size);
    if (names) return names;
    return compare_texts(a->text + a->value_at, a->value_size, b->text + b->value_at,
                         b->value_size);
}

static int by_name_and_order(const void *left, const void *right) {
    const struct entry *a = left, *b = right;
    int names =
        compare_texts(a->text + a->name_at, a->name_size, b->text + b->name_at, b->name_size);
    return names ? names : (a->order > b->order) - (a->order < b->order);
}

static enum cairn_code append_view(struct cairn_buf *ret, struct cairn_view view,
                                   struct cairn_error *err) {
    return cairn_buf_append(ret, view.data, view.size, err);
}

enum cairn_code cairn_sigv4_path(const char *path, struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_ASSERT(path[0] == '/');
    return cairn_percent_encode(cairn_view_of(path), true, ret, err);
}

static enum cairn_code check_count(size_t count, struct cairn_error *err) {
    if (count <= CAIRN_SIGV4_PAIRS_MAX) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "more than %d headers or parameters to sign",
                      CAIRN_SIGV4_PAIRS_MAX);
}

enum cairn_code cairn_sigv4_query(const struct cairn_sigv4_pair *pairs, size_t count,
                                  struct cairn_buf *ret, struct cairn_error *err) {
    struct entry entries[CAIRN_SIGV4_PAIRS_MAX] = {0};
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(check_count(count, err));
    for (size_t i = 0; i < count; i++) {
        struct entry *entry = &entries[i];
        entry->name_at = text.size;
        CAIRN_TRY(cairn_percent_encode(cairn_view_of(pairs[i].name), false, &text, err));
        entry->name_size = text.size - entry->name_at;
        entry->value_at = text.size;
        CAIRN_TRY(cairn_percent_encode(cairn_view_of(pairs[i].value), false, &text, err));
        entry->value_size = text.size - entry->value_at;
    }
    for (size_t i = 0; i < count; i++) entries[i].text = text.data ? text.data : "";
    if (count) qsort(entries, count, sizeof entries[0], by_name_and_value);
    for (size_t i = 0; i < count; i++) {
        const struct entry *e = &entries[i];
        if (i) CAIRN_TRY(cairn_buf_append_text(ret, "&", err));
        CAIRN_TRY(cairn_buf_append(ret, e->text + e->name_at, e->name_size, err));
        CAIRN_TRY(cairn_buf_append_text(ret, "=", err));
        CAIRN_TRY(cairn_buf_append(ret, e->text + e->value_at, e->value_size, err));
    }
    return CAIRN_OK;
}

static enum cairn_code append_lower(struct cairn_buf *ret, const char *name,
                                    struct cairn_error *err) {
    for (; *name; name++) {
        char letter = (char)tolower((unsigned char)*name);
        CAIRN_TRY(cairn_buf_append(ret, &letter, 1, err));
    }
    return CAIRN_OK;
}

static enum cairn_code sort_headers(const struct cairn_sigv4_request *request,
                                    struct entry entries[CAIRN_SIGV4_PAIRS_MAX],
                                    struct cairn_buf *text, struct cairn_error *err) {
    CAIRN_TRY(check_count(request->header_count, err));
    for (size_t i = 0; i < request->header_count; i++) {
        struct entry *entry = &entries[i];
        entry->order = i;
        entry->name_at = text->size;
        CAIRN_TRY(append_lower(text, request->headers[i].name, err));
        entry->name_size = text->size - entry->name_at;
        entry->value_at = text->size;
        /* Trims, and joins runs of blanks into one space. */
        const char *value = request->headers[i].value;
        size_t start = text->size;
        while (*value) {
            size_t blanks = strspn(value, " \t\r\n"), word = strcspn(value + blanks, " \t\r\n");
            if (blanks && word && text->size > start)
                CAIRN_TRY(cairn_buf_append_text(text, " ", err));
            CAIRN_TRY(cairn_buf_append(text, value + blanks, word, err));
            value += blanks + word;
        }
        entry->value_size = text->size - entry->value_at;
    }
    for (size_t i = 0; i < request->header_count; i++)
        entries[i].text = text->data ? text->data : "";
    if (request->header_count)
        qsort(entries, request->header_count, sizeof entries[0], by_name_and_order);
    return CAIRN_OK;
}

static bool same_name(const struct entry *a, const struct entry *b) {
    return a->name_size == b->name_size &&
           !memcmp(a->text + a->name_at, b->text + b->name_at, a->name_size);
}

static enum cairn_code append_headers(const struct cairn_sigv4_request *request,
                                      struct cairn_buf *ret, struct cairn_buf *ret_names,
                                      struct cairn_error *err) {
    struct entry entries[CAIRN_SIGV4_PAIRS_MAX] = {0};
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(sort_headers(request, entries, &text, err));
    for (size_t i = 0; i < request->header_count; i++) {
        const struct entry *e = &entries[i];
        bool repeated = i && same_name(e, e - 1);
        struct cairn_view name = {e->text + e->name_at, e->name_size};
        struct cairn_view value = {e->text + e->value_at, e->value_size};
        if (i) CAIRN_TRY(cairn_buf_append_text(ret, repeated ? "," : "\n", err));
        if (!repeated) {
            if (i) CAIRN_TRY(cairn_buf_append_text(ret_names, ";", err));
            CAIRN_TRY(append_view(ret_names, name, err));
            CAIRN_TRY(append_view(ret, name, err));
            CAIRN_TRY(cairn_buf_append_text(ret, ":", err));
        }
        CAIRN_TRY(append_view(ret, value, err));
    }
    return cairn_buf_append_text(ret, "\n", err);
}

void cairn_sigv4_time(int64_t wall_ms, char ret_text[CAIRN_SIGV4_TIME_BYTES]) {
    char text[32]; /* "2013-05-24T00:00:00Z" */
    cairn_time_text(wall_ms, false, text);
    size_t size = 0;
    for (const char *at = text; *at && size + 1 < CAIRN_SIGV4_TIME_BYTES; at++)
        if (*at != '-' && *at != ':') ret_text[size++] = *at;
    ret_text[size] = '\0';
}

enum cairn_code cairn_sigv4_canonical(const struct cairn_sigv4_request *request,
                                      struct cairn_buf *ret_canonical, struct cairn_buf *ret_names,
                                      struct cairn_error *err) {
    struct cairn_buf *ret = ret_canonical;
    CAIRN_TRY(cairn_buf_printf(ret, err, "%s\n", request->method));
    CAIRN_TRY(cairn_sigv4_path(request->path, ret, err));
    CAIRN_TRY(cairn_buf_append_text(ret, "\n", err));
    CAIRN_TRY(cairn_sigv4_query(request->query, request->query_count, ret, err));
    CAIRN_TRY(cairn_buf_append_text(ret, "\n", err));
    CAIRN_TRY(append_headers(request, ret, ret_names, err));
    CAIRN_TRY(cairn_buf_append_text(ret, "\n", err));
    CAIRN_TRY(append_view(ret, cairn_buf_view(ret_names), err));
    return cairn_buf_printf(ret, err, "\n%s", request->payload);
}

static enum cairn_code append_scope(const struct cairn_sigv4_scope *scope, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    return cairn_buf_printf(ret, err, "%.8s/%s/%s/aws4_request", scope->time, scope->region,
                            scope->service);
}

enum cairn_code cairn_sigv4_string_to_sign(const struct cairn_sigv4_scope *scope,
                                           struct cairn_view canonical, struct cairn_buf *ret,
                                           struct cairn_error *err) {
    uint8_t digest[CAIRN_SHA256_BYTES];
    char hex[2 * CAIRN_SHA256_BYTES + 1];
    cairn_sha256_of(canonical, digest);
    cairn_hex_encode(digest, sizeof digest, hex);
    CAIRN_TRY(cairn_buf_printf(ret, err, ALGORITHM "\n%s\n", scope->time));
    CAIRN_TRY(append_scope(scope, ret, err));
    return cairn_buf_printf(ret, err, "\n%s", hex);
}

void cairn_sigv4_key(const struct cairn_sigv4_scope *scope, struct cairn_view secret,
                     uint8_t ret_key[CAIRN_SHA256_BYTES]) {
    char start[4 + CAIRN_SIGV4_SECRET_KEY_BYTES_MAX] = "AWS4";
    uint8_t key[CAIRN_SHA256_BYTES];
    CAIRN_ASSERT(secret.size <= CAIRN_SIGV4_SECRET_KEY_BYTES_MAX);
    memcpy(start + 4, secret.data, secret.size);
    struct cairn_view view = {key, sizeof key}, first = {start, 4 + secret.size};
    cairn_hmac_sha256(first, (struct cairn_view){scope->time, 8}, key);
    cairn_hmac_sha256(view, cairn_view_of(scope->region), key);
    cairn_hmac_sha256(view, cairn_view_of(scope->service), key);
    cairn_hmac_sha256(view, CAIRN_VIEW("aws4_request"), ret_key);
    cairn_wipe(key, sizeof key);
    cairn_wipe(start, sizeof start);
}

void cairn_sigv4_signature(const uint8_t key[CAIRN_SHA256_BYTES], struct cairn_view string_to_sign,
                           char ret_hex[2 * CAIRN_SHA256_BYTES + 1]) {
    uint8_t mac[CAIRN_SHA256_BYTES];
    cairn_hmac_sha256((struct cairn_view){key, CAIRN_SHA256_BYTES}, string_to_sign, mac);
    cairn_hex_encode(mac, sizeof mac, ret_hex);
}

void cairn_sigv4_signer_release(struct cairn_sigv4_signer *signer) {
    cairn_secret_release(&signer->secret);
    cairn_secret_release(&signer->token);
    cairn_wipe(signer->key, sizeof signer->key);
    signer->day[0] = '\0';
}

static struct cairn_sigv4_scope scope_of(const struct cairn_sigv4_signer *signer,
                                         const char *time) {
    struct cairn_sigv4_scope scope = {.region = signer->region, .service = signer->service};
    CAIRN_ASSERT(strlen(time) == CAIRN_SIGV4_TIME_BYTES - 1);
    memcpy(scope.time, time, CAIRN_SIGV4_TIME_BYTES);
    return scope;
}

static enum cairn_code
sign_request(struct cairn_sigv4_signer *signer, const struct cairn_sigv4_scope *scope,
             const struct cairn_sigv4_request *request, struct cairn_buf *ret_names,
             char ret_hex[2 * CAIRN_SHA256_BYTES + 1], struct cairn_error *err) {
    CAIRN_AUTO(buf) canonical = {0};
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_sigv4_canonical(request, &canonical, ret_names, err));
    CAIRN_TRY(cairn_sigv4_string_to_sign(scope, cairn_buf_view(&canonical), &text, err));
    if (strncmp(signer->day, scope->time, 8)) {
        cairn_sigv4_key(scope, cairn_secret_view(&signer->secret), signer->key);
        memcpy(signer->day, scope->time, 8);
        signer->day[8] = '\0';
    }
    cairn_sigv4_signature(signer->key, cairn_buf_view(&text), ret_hex);
    return CAIRN_OK;
}

enum cairn_code cairn_sigv4_authorize(struct cairn_sigv4_signer *signer, const char *time,
                                      const struct cairn_sigv4_request *request,
                                      struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) names = {0};
    char hex[2 * CAIRN_SHA256_BYTES + 1];
    struct cairn_sigv4_scope scope = scope_of(signer, time);
    CAIRN_TRY(sign_request(signer, &scope, request, &names, hex, err));
    CAIRN_TRY(cairn_buf_printf(ret, err, ALGORITHM " Credential=%s/", signer->access_key));
    CAIRN_TRY(append_scope(&scope, ret, err));
    return cairn_buf_printf(ret, err, ", SignedHeaders=%s, Signature=%s", names.data, hex);
}

static enum cairn_code presign_pairs(const struct cairn_sigv4_signer *signer,
                                     const struct cairn_sigv4_request *request,
                                     struct cairn_sigv4_pair pairs[CAIRN_SIGV4_PAIRS_MAX],
                                     size_t *ret_count, struct cairn_error *err) {
    size_t count = 0;
    CAIRN_TRY(check_count(request->query_count + 6, err));
    for (size_t i = 0; i < request->query_count; i++) pairs[count++] = request->query[i];
    pairs[count++] = (struct cairn_sigv4_pair){"X-Amz-Algorithm", ALGORITHM};
    if (signer->token.size)
        pairs[count++] = (struct cairn_sigv4_pair){"X-Amz-Security-Token",
                                                   cairn_secret_view(&signer->token).data};
    *ret_count = count;
    return CAIRN_OK;
}

enum cairn_code cairn_sigv4_presign(struct cairn_sigv4_signer *signer, const char *time,
                                    uint32_t expires_s, const struct cairn_sigv4_request *request,
                                    struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_ASSERT(expires_s > 0);
    CAIRN_ASSERT(expires_s <= CAIRN_SIGV4_EXPIRES_S_MAX);
    struct cairn_sigv4_pair pairs[CAIRN_SIGV4_PAIRS_MAX];
    struct cairn_sigv4_scope scope = scope_of(signer, time);
    CAIRN_AUTO(buf) credential = {0};
    CAIRN_AUTO(buf) names = {0}, names_again = {0}, lines = {0};
    char seconds[16], hex[2 * CAIRN_SHA256_BYTES + 1];
    size_t count = 0;
    CAIRN_TRY(cairn_buf_printf(&credential, err, "%s/", signer->access_key));
    CAIRN_TRY(append_scope(&scope, &credential, err));
    CAIRN_TRY(append_headers(request, &lines, &names, err));
    snprintf(seconds, sizeof seconds, "%" PRIu32, expires_s);
    CAIRN_TRY(presign_pairs(signer, request, pairs, &count, err));
    pairs[count++] = (struct cairn_sigv4_pair){"X-Amz-Credential", credential.data};
    pairs[count++] = (struct cairn_sigv4_pair){"X-Amz-Date", time};
    pairs[count++] = (struct cairn_sigv4_pair){"X-Amz-Expires", seconds};
    pairs[count++] = (struct cairn_sigv4_pair){"X-Amz-SignedHeaders", names.data};
    struct cairn_sigv4_request whole = *request;
    whole.query = pairs;
    whole.query_count = count;
    CAIRN_TRY(sign_request(signer, &scope, &whole, &names_again, hex, err));
    CAIRN_TRY(cairn_sigv4_query(pairs, count, ret, err));
    return cairn_buf_printf(ret, err, "&X-Amz-Signature=%s", hex);
}
