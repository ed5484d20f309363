/* SPDX-License-Identifier: Apache-2.0 */
/* intake: receive, digest, cut. */
#include "tests/support/s3fault/intake.h"

#include <openssl/evp.h>

#include "common/crc.h"

#define DISCARD_ABOVE CAIRN_MIB

struct taking {
    struct s3f_connection *connection;
    const struct s3f_plan *plan;
    struct s3f_intake *intake;
    uint64_t size, stalled; /* stalled: the place of a stall that is over */
    EVP_MD_CTX *sha, *md5;
};

void s3f_checksum_text(uint32_t crc32c, char ret_text[16]) {
    unsigned char bytes[4];
    for (int i = 0; i < 4; i++) bytes[i] = (unsigned char)(crc32c >> (24 - 8 * i));
    EVP_EncodeBlock((unsigned char *)ret_text, bytes, 4);
}

static EVP_MD_CTX *digest_new(const EVP_MD *kind) {
    EVP_MD_CTX *digest = EVP_MD_CTX_new();
    if (!digest || !EVP_DigestInit_ex(digest, kind, NULL)) abort();
    return digest;
}

/* The nearest place at which a rule does something to the body. */
static const struct s3f_action *next_event(const struct taking *taking, uint64_t *ret_at) {
    const struct s3f_action *found = NULL;
    for (size_t i = 0; i < taking->plan->count; i++) {
        const struct s3f_action *action = &taking->plan->actions[i];
        if (action->kind != S3F_DO_REQ_STALL && action->kind != S3F_DO_REQ_RST &&
            action->kind != S3F_DO_REQ_FIN && action->kind != S3F_DO_EARLY &&
            action->kind != S3F_DO_REQ_FLIP)
            continue;
        uint64_t at = s3f_place(action, taking->size);
        if (at < taking->intake->received || (found && at >= *ret_at)) continue;
        if (at == taking->stalled && action->kind == S3F_DO_REQ_STALL) continue;
        found = action;
        *ret_at = at;
    }
    return found;
}

/* Receives `size` bytes, the first of them flipped where that is wanted. */
static bool receive(struct taking *taking, uint64_t size, bool flip) {
    struct s3f_body *body = taking->intake->body;
    while (size) {
        size_t piece = size > S3F_SCRAP_BYTES ? S3F_SCRAP_BYTES : (size_t)size;
        uint8_t *to = body && body->bytes ? body->bytes + taking->intake->received
                                          : taking->connection->scrap;
        ssize_t got = s3f_wire_receive(&taking->connection->wire, to, piece);
        if (got <= 0) return false;
        if (flip) *to ^= 1;
        flip = false;
        if (body) body->crc32c = cairn_crc32c(body->crc32c, to, (size_t)got);
        if (taking->sha) EVP_DigestUpdate(taking->sha, to, (size_t)got);
        if (taking->md5) EVP_DigestUpdate(taking->md5, to, (size_t)got);
        taking->intake->received += (uint64_t)got;
        size -= (uint64_t)got;
    }
    return true;
}

static void run_out(struct taking *taking) {
    uint64_t at = 0;
    struct s3f_intake *intake = taking->intake;
    intake->end = S3F_WHOLE;
    while (intake->end == S3F_WHOLE) {
        const struct s3f_action *event = next_event(taking, &at);
        uint64_t until = event ? at : taking->size;
        if (!receive(taking, until - intake->received, false)) intake->end = S3F_LEFT;
        if (!event || intake->end) return;
        if (event->kind == S3F_DO_REQ_FLIP) {
            if (at == taking->size) return;
            if (!receive(taking, 1, true)) intake->end = S3F_LEFT;
        } else if (event->kind == S3F_DO_REQ_STALL) {
            taking->stalled = at;
            if (!s3f_wire_hold(&taking->connection->wire, event->ms)) intake->end = S3F_LEFT;
        } else if (event->kind == S3F_DO_EARLY) {
            intake->end = S3F_EARLY;
        } else {
            intake->end = S3F_ENDED;
            if (event->kind == S3F_DO_REQ_RST)
                s3f_wire_reset(&taking->connection->wire);
            else
                s3f_wire_finish(&taking->connection->wire, false);
        }
    }
}

static void end_digests(struct taking *taking) {
    struct s3f_body *body = taking->intake->body;
    uint8_t digest[32];
    if (taking->sha && EVP_DigestFinal_ex(taking->sha, digest, NULL))
        for (int i = 0; i < 32; i++) snprintf(taking->intake->sha256 + 2 * i, 3, "%02x", digest[i]);
    if (taking->md5 && EVP_DigestFinal_ex(taking->md5, body->md5, NULL)) body->has_md5 = true;
    EVP_MD_CTX_free(taking->sha);
    EVP_MD_CTX_free(taking->md5);
}

bool s3f_take_in(struct s3f_connection *connection, const struct s3f_request *request,
                 const struct s3f_plan *plan, struct s3f_intake *ret) {
    struct s3f_server *server = connection->server;
    bool bulk = request->op == S3F_PUT || request->op == S3F_PART;
    bool keep = !(server->options.discard && bulk && request->content_length > DISCARD_ABOVE);
    *ret = (struct s3f_intake){0};
    if (!request->content_length && !bulk) return true;
    cairn_lock_take(&server->lock);
    ret->body = s3f_body_new(&server->state, request->content_length, keep);
    cairn_lock_give(&server->lock);
    if (!ret->body) return false;
    struct taking taking = {.connection = connection,
                            .plan = plan,
                            .intake = ret,
                            .size = request->content_length,
                            .stalled = UINT64_MAX};
    if (request->payload && strcmp(request->payload, "UNSIGNED-PAYLOAD") != 0)
        taking.sha = digest_new(EVP_sha256());
    if (s3f_header(request, "content-md5") || (bulk && server->options.md5_etags))
        taking.md5 = digest_new(EVP_md5());
    uint64_t cap = connection->wire.cap_bytes_per_s;
    const struct s3f_action *slow = s3f_plan_find(plan, S3F_DO_REQ_SLOW);
    if (slow && slow->number > 0) connection->wire.cap_bytes_per_s = (uint64_t)slow->number;
    run_out(&taking);
    connection->wire.cap_bytes_per_s = cap;
    end_digests(&taking);
    return true;
}

/* ---- what the request says of its body ---- */

/* CRC-32 of zip; short bodies only. */
static uint32_t crc32_of(const uint8_t *bytes, uint64_t size) {
    uint32_t crc = UINT32_MAX;
    for (uint64_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
    }
    return ~crc;
}

static bool checksum_holds(const char *told, uint32_t seen, struct s3f_reply *reply) {
    char text[16];
    s3f_checksum_text(seen, text);
    if (!strcmp(told, text)) return true;
    if (strlen(told) != 8)
        s3f_refuse(reply, 400, "InvalidRequest", "the checksum header is malformed");
    else
        s3f_refuse(reply, 400, "BadDigest",
                   "The checksum you specified did not match the calculated checksum.");
    return false;
}

static bool md5_holds(const struct s3f_request *request, const struct s3f_body *body,
                      struct s3f_reply *reply) {
    const char *told = s3f_header(request, "content-md5");
    if (!told) return true;
    char seen[32];
    EVP_EncodeBlock((unsigned char *)seen, body->md5, 16);
    if (strlen(told) != 24 || !body->has_md5) {
        s3f_refuse(reply, 400, "InvalidDigest", "The Content-MD5 you specified is not valid.");
        return false;
    }
    if (!strcmp(told, seen)) return true;
    s3f_refuse(reply, 400, "BadDigest",
               "The Content-MD5 you specified did not match what we received.");
    return false;
}

/* A bucket with a default retention takes no object or part without Content-MD5 or a checksum. */
static bool names_checksum_where_locked(struct s3f_server *server,
                                        const struct s3f_request *request,
                                        struct s3f_reply *reply) {
    bool named = s3f_header(request, "content-md5") != NULL;
    if (request->op != S3F_PUT && request->op != S3F_PART) return true;
    cairn_lock_take(&server->lock);
    const struct cairn_buf *lock = &server->state.object_lock;
    bool locked = lock->size && strstr(lock->data, "<DefaultRetention>");
    cairn_lock_give(&server->lock);
    for (size_t i = 0; i < request->header_count; i++)
        named = named || !strncmp(request->headers[i].name, "x-amz-checksum-", 15);
    if (locked && !named)
        s3f_refuse(reply, 400, "InvalidRequest",
                   "Content-MD5 OR x-amz-checksum- HTTP header is required for Put %s "
                   "requests with Object Lock parameters",
                   request->op == S3F_PART ? "Part" : "Object");
    return named || !locked;
}

#define UPLOADER "uploader "

/* A presigned request says in its query who pays. */
static bool is_denied(const struct s3f_request *request, const char *policy) {
    const char *acl = s3f_header(request, "x-amz-acl");
    const char *payer = s3f_header(request, "x-amz-request-payer");
    bool writes = request->op == S3F_PUT || request->op == S3F_CREATE;
    bool is_unsigned = request->payload && !strcmp(request->payload, "UNSIGNED-PAYLOAD");
    if (!payer) payer = s3f_query(request, "x-amz-request-payer");
    if (!strcmp(policy, "acl"))
        return writes && (!acl || strcmp(acl, "bucket-owner-full-control") != 0);
    if (!strcmp(policy, "payer")) return !payer || strcmp(payer, "requester") != 0;
    return !strcmp(policy, "signed") && is_unsigned && request->content_length > 0;
}

/* To keys without s3:ListBucket what is not there is forbidden. */
static bool is_kept_from(const struct s3f_state *state, const struct s3f_request *request,
                         const char *access_key) {
    if (strcmp(request->access_key, access_key) != 0) return false;
    switch (request->op) {
    case S3F_LIST:
    case S3F_UPLOADS:
    case S3F_VERSIONS:
    case S3F_DELETE:
    case S3F_DELETE_MANY:
        return true;
    case S3F_HEAD:
    case S3F_GET:
        return !s3f_object_find(state, request->bucket, request->key);
    default:
        return false;
    }
}

static bool policy_allows(struct s3f_server *server, const struct s3f_request *request,
                          struct s3f_reply *reply) {
    cairn_lock_take(&server->lock);
    const struct cairn_buf *policy = &server->state.policy;
    const char *text = policy->size ? policy->data : "";
    bool denied = !strncmp(text, UPLOADER, strlen(UPLOADER))
                      ? is_kept_from(&server->state, request, text + strlen(UPLOADER))
                      : is_denied(request, text);
    cairn_lock_give(&server->lock);
    if (denied) s3f_refuse(reply, 403, "AccessDenied", "Access Denied");
    return !denied;
}

bool s3f_body_holds(struct s3f_server *server, const struct s3f_request *request,
                    const struct s3f_intake *intake, struct s3f_reply *reply) {
    const struct s3f_body *body = intake->body;
    static const char of_nothing[] =
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const char *seen = body ? intake->sha256 : of_nothing;
    if (request->payload && strcmp(request->payload, "UNSIGNED-PAYLOAD") != 0 &&
        strcmp(request->payload, seen) != 0) {
        s3f_refuse(reply, 400, "XAmzContentSHA256Mismatch",
                   "The provided 'x-amz-content-sha256' header does not match what was "
                   "computed.");
        return false;
    }
    if (!policy_allows(server, request, reply)) return false;
    if (!names_checksum_where_locked(server, request, reply)) return false;
    if (!body) return true;
    if (!md5_holds(request, body, reply)) return false;
    const char *crc32 = s3f_header(request, "x-amz-checksum-crc32");
    const char *crc32c = s3f_header(request, "x-amz-checksum-crc32c");
    if (crc32 && (!body->bytes || request->op != S3F_DELETE_MANY)) {
        s3f_refuse(reply, 501, "NotImplemented", "of checksums only CRC32C is taken");
        return false;
    }
    if (crc32 && !checksum_holds(crc32, crc32_of(body->bytes, body->size), reply)) return false;
    bool of_body = request->op != S3F_COMPLETE && server->options.profile->checksums;
    return !crc32c || !of_body || checksum_holds(crc32c, body->crc32c, reply);
}
