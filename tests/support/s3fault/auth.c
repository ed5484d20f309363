/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth: Signature Version 4 as a server checks it, for headers and for presigned URLs.
 *
 * It is written from AWS's description and shares no line with store/keys/sigv4.c, so that a
 * mistake there is not made here too.
 */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "tests/support/s3fault/server.h"

#define SKEW_MAX_S 900
#define EXPIRES_MAX_S 604800

struct claim {
    char access[128], day[9], region[64];
    const char *signed_names, *signature, *time, *token;
    bool presigned;
    uint64_t expires_s;
    char credential[256], names[2048], signature_text[80];
};

static bool refuse(struct s3f_reply *reply, int status, const char *code, const char *message) {
    s3f_refuse(reply, status, code, "%s", message);
    return false;
}

/* ---- taking the claim apart ---- */

/* "AKID/20240101/us-east-1/s3/aws4_request" */
static bool parse_credential(struct claim *claim) {
    char *rest = claim->credential, *piece[6];
    size_t count = 0;
    for (char *at = strsep(&rest, "/"); at && count < 6; at = strsep(&rest, "/"))
        piece[count++] = at;
    return count == 5 && cairn_text_copy(claim->access, sizeof claim->access, piece[0]) &&
           strlen(piece[1]) == 8 && cairn_text_copy(claim->day, sizeof claim->day, piece[1]) &&
           cairn_text_copy(claim->region, sizeof claim->region, piece[2]) &&
           !strcmp(piece[3], "s3") && !strcmp(piece[4], "aws4_request");
}

static bool claim_of_header(const struct s3f_request *request, struct claim *ret) {
    static const char algorithm[] = "AWS4-HMAC-SHA256 ";
    const char *text = s3f_header(request, "authorization");
    if (strncmp(text, algorithm, sizeof algorithm - 1) != 0) return false;
    char copy[4096];
    if (!cairn_text_copy(copy, sizeof copy, text + sizeof algorithm - 1)) return false;
    char *rest = copy;
    for (char *piece = strsep(&rest, ","); piece; piece = strsep(&rest, ",")) {
        piece += strspn(piece, " ");
        char *value = strchr(piece, '=');
        if (!value) return false;
        *value++ = '\0';
        bool fits = false;
        if (!strcmp(piece, "Credential"))
            fits = cairn_text_copy(ret->credential, sizeof ret->credential, value);
        if (!strcmp(piece, "SignedHeaders"))
            fits = cairn_text_copy(ret->names, sizeof ret->names, value);
        if (!strcmp(piece, "Signature"))
            fits = cairn_text_copy(ret->signature_text, sizeof ret->signature_text, value);
        if (!fits) return false;
    }
    ret->time = s3f_header(request, "x-amz-date");
    ret->token = s3f_header(request, "x-amz-security-token");
    return true;
}

static bool claim_of_query(const struct s3f_request *request, struct claim *ret) {
    const char *credential = s3f_query(request, "X-Amz-Credential");
    const char *names = s3f_query(request, "X-Amz-SignedHeaders");
    const char *signature = s3f_query(request, "X-Amz-Signature");
    const char *expires = s3f_query(request, "X-Amz-Expires");
    ret->presigned = true;
    ret->time = s3f_query(request, "X-Amz-Date");
    ret->token = s3f_query(request, "X-Amz-Security-Token");
    return credential && names && signature && expires &&
           !strcmp(s3f_query(request, "X-Amz-Algorithm"), "AWS4-HMAC-SHA256") &&
           cairn_text_copy(ret->credential, sizeof ret->credential, credential) &&
           cairn_text_copy(ret->names, sizeof ret->names, names) &&
           cairn_text_copy(ret->signature_text, sizeof ret->signature_text, signature) &&
           cairn_parse_u64(cairn_view_of(expires), &ret->expires_s, NULL) == CAIRN_OK &&
           ret->expires_s > 0 && ret->expires_s <= EXPIRES_MAX_S;
}

/* "20130524T000000Z" as seconds since 1970. */
static bool parse_time(const char *text, int64_t *ret) {
    struct tm parts = {0};
    if (!text || strlen(text) != 16) return false;
    const char *end = strptime(text, "%Y%m%dT%H%M%SZ", &parts);
    if (!end || *end) return false;
    *ret = timegm(&parts);
    return true;
}

/* ---- the canonical request ---- */

static void say_encoded(struct cairn_buf *buf, const char *text, bool keep_slash) {
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (isalnum(c) || strchr("-._~", c) || (c == '/' && keep_slash))
            s3f_say(buf, "%c", c);
        else
            s3f_say(buf, "%%%02X", c);
    }
}

static int compare_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void say_query(const struct s3f_request *request, struct cairn_buf *ret) {
    char *lines[S3F_PAIRS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < request->query_count; i++) {
        if (!strcmp(request->query[i].name, "X-Amz-Signature")) continue;
        CAIRN_AUTO(buf) line = {0};
        /* 0x01 sorts before every byte that an encoded name holds, as '=' does not. */
        say_encoded(&line, request->query[i].name, false);
        s3f_say(&line, "\x01");
        say_encoded(&line, request->query[i].value, false);
        lines[count++] = strdup(line.data);
    }
    qsort(lines, count, sizeof *lines, compare_text);
    for (size_t i = 0; i < count; i++) {
        char *bar = strchr(lines[i], '\x01');
        *bar = '=';
        s3f_say(ret, "%s%s", i ? "&" : "", lines[i]);
        free(lines[i]);
    }
}

/* Runs of blanks count as one. */
static void say_header_value(struct cairn_buf *ret, const char *value) {
    for (; *value; value++)
        if (*value != ' ' || value[1] != ' ') s3f_say(ret, "%c", *value);
}

/* False: a header that must be signed is not, or one that was signed is not there. */
static bool say_headers(const struct s3f_request *request, const struct claim *claim,
                        struct cairn_buf *ret, struct s3f_reply *reply) {
    char names[2048], last[256] = "";
    cairn_text_copy(names, sizeof names, claim->names);
    char *rest = names;
    bool host = false;
    for (char *name = strsep(&rest, ";"); name; name = strsep(&rest, ";")) {
        const char *value = s3f_header(request, name);
        if (!value || strcmp(last, name) >= 0)
            return refuse(reply, 400, "AuthorizationHeaderMalformed",
                          "a signed header is absent or out of order");
        cairn_text_copy(last, sizeof last, name);
        host = host || !strcmp(name, "host");
        s3f_say(ret, "%s:", name);
        say_header_value(ret, value);
        s3f_say(ret, "\n");
    }
    if (!host) return refuse(reply, 403, "AccessDenied", "Host is not signed");
    for (size_t i = 0; i < request->header_count; i++) {
        const char *name = request->headers[i].name;
        if (strncmp(name, "x-amz-", 6) != 0) continue;
        const char *at = strstr(claim->names, name);
        size_t size = strlen(name);
        while (at && ((at > claim->names && at[-1] != ';') || (at[size] && at[size] != ';')))
            at = strstr(at + 1, name);
        if (!at)
            return refuse(reply, 403, "AccessDenied",
                          "There were headers present in the request which were not signed");
    }
    return true;
}

static void hex(const uint8_t *bytes, size_t size, char *ret) {
    for (size_t i = 0; i < size; i++) snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

static void mac(const void *key, size_t key_size, const char *text, uint8_t ret[32]) {
    unsigned size = 32;
    if (!HMAC(EVP_sha256(), key, (int)key_size, (const unsigned char *)text, strlen(text), ret,
              &size))
        abort();
}

static void sign(const struct claim *claim, const char *secret, const char *canonical,
                 char ret[65]) {
    uint8_t digest[32], key[32];
    char text[400], start[160];
    if (!EVP_Digest(canonical, strlen(canonical), digest, NULL, EVP_sha256(), NULL)) abort();
    hex(digest, sizeof digest, ret);
    snprintf(text, sizeof text, "AWS4-HMAC-SHA256\n%s\n%s/%s/s3/aws4_request\n%s", claim->time,
             claim->day, claim->region, ret);
    snprintf(start, sizeof start, "AWS4%s", secret);
    mac(start, strlen(start), claim->day, key);
    mac(key, sizeof key, claim->region, key);
    mac(key, sizeof key, "s3", key);
    mac(key, sizeof key, "aws4_request", key);
    mac(key, sizeof key, text, digest);
    hex(digest, sizeof digest, ret);
}

static bool judge_signature(struct s3f_request *request, const struct claim *claim,
                            const char *secret, struct s3f_reply *reply) {
    CAIRN_AUTO(buf) canonical = {0};
    s3f_say(&canonical, "%s\n", request->method);
    say_encoded(&canonical, request->path, true);
    s3f_say(&canonical, "\n");
    say_query(request, &canonical);
    s3f_say(&canonical, "\n");
    if (!say_headers(request, claim, &canonical, reply)) return false;
    s3f_say(&canonical, "\n%s\n%s", claim->names, request->payload);
    char wanted[65];
    sign(claim, secret, canonical.data, wanted);
    if (strlen(claim->signature_text) == 64 &&
        CRYPTO_memcmp(wanted, claim->signature_text, 64) == 0)
        return true;
    return refuse(reply, 403, "SignatureDoesNotMatch",
                  "The request signature we calculated does not match the signature you provided.");
}

/* ---- the rest ---- */

static bool judge_time(const struct s3f_server *server, const struct claim *claim,
                       struct s3f_reply *reply) {
    int64_t sent, now = s3f_now_ms(&server->state) / 1000;
    if (!parse_time(claim->time, &sent) || strncmp(claim->time, claim->day, 8) != 0)
        return refuse(reply, 403, "AccessDenied",
                      "the date is absent, malformed or of another day");
    if (claim->presigned && sent <= now + SKEW_MAX_S) {
        if (now < sent + (int64_t)claim->expires_s) return true;
        return refuse(reply, 403, "AccessDenied", "Request has expired");
    }
    if (sent <= now + SKEW_MAX_S && sent >= now - SKEW_MAX_S) return true;
    return refuse(reply, 403, "RequestTimeTooSkewed",
                  "The difference between the request time and the current time is too large.");
}

static bool judge_key(const struct s3f_server *server, const struct claim *claim,
                      struct s3f_reply *reply, const char **ret_secret) {
    const struct s3f_key *key = NULL;
    for (size_t i = 0; i < server->key_count; i++)
        if (!strcmp(server->keys[i].access, claim->access)) key = &server->keys[i];
    if (!key)
        return refuse(reply, 403, "InvalidAccessKeyId", "The access key does not exist here.");
    if (key->expired) return refuse(reply, 400, "ExpiredToken", "The provided token has expired.");
    if (strcmp(key->token, claim->token ? claim->token : "") != 0)
        return refuse(reply, 400, "InvalidToken", "The provided token is malformed or invalid.");
    *ret_secret = key->secret;
    return true;
}

static bool judge_region(const struct s3f_server *server, const struct claim *claim,
                         struct s3f_reply *reply) {
    const char *region = server->options.region;
    if (!server->options.profile->region_checked || !strcmp(claim->region, region)) return true;
    refuse(reply, 400, "AuthorizationHeaderMalformed", "the region is wrong");
    s3f_say(&reply->headers, "x-amz-bucket-region: %s\r\n", region);
    cairn_buf_clear(&reply->body);
    s3f_say(&reply->body,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>"
            "AuthorizationHeaderMalformed</Code><Message>the region '%s' is wrong; expecting "
            "'%s'</Message><Region>%s</Region></Error>",
            claim->region, region, region);
    return false;
}

/* The payload's digest is told in a header, or is left open by a presigned URL. */
static bool take_payload(struct s3f_request *request, const struct claim *claim,
                         struct s3f_reply *reply) {
    const char *payload = s3f_header(request, "x-amz-content-sha256");
    if (claim->presigned && !payload) payload = "UNSIGNED-PAYLOAD";
    if (!payload) return refuse(reply, 400, "InvalidRequest", "x-amz-content-sha256 is missing");
    if (!strncmp(payload, "STREAMING-", 10))
        return refuse(reply, 501, "NotImplemented", "aws-chunked bodies are not taken");
    if (strcmp(payload, "UNSIGNED-PAYLOAD") != 0 && strlen(payload) != 64)
        return refuse(reply, 400, "InvalidArgument", "x-amz-content-sha256 is malformed");
    request->payload = payload;
    return true;
}

bool s3f_authenticate(struct s3f_server *server, struct s3f_request *request,
                      struct s3f_reply *reply) {
    struct claim claim = {0};
    bool header = s3f_header(request, "authorization") != NULL;
    bool query = s3f_query(request, "X-Amz-Algorithm") != NULL;
    if (!header && !query) return refuse(reply, 403, "AccessDenied", "the request is not signed");
    if (header && query)
        return refuse(reply, 400, "InvalidArgument", "Only one auth mechanism allowed");
    if (!(header ? claim_of_header(request, &claim) : claim_of_query(request, &claim)) ||
        !parse_credential(&claim))
        return refuse(reply, 400, "AuthorizationHeaderMalformed", "the signature is malformed");
    cairn_text_copy(request->access_key, sizeof request->access_key, claim.access);
    if (!take_payload(request, &claim, reply)) return false;
    const char *secret = NULL;
    CAIRN_HOLD(&server->lock);
    return judge_key(server, &claim, reply, &secret) && judge_time(server, &claim, reply) &&
           judge_region(server, &claim, reply) && judge_signature(request, &claim, secret, reply);
}
