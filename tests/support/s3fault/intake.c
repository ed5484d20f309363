/* SPDX-License-Identifier: Apache-2.0 */
/* intake: receive, digest, cut. */
#include "tests/support/s3fault/intake.h"

#include <openssl/evp.h>
#include <stdlib.h>

#include "common/crc.h"

#define DISCARD_ABOVE CAIRN_MIB

struct taking {
    struct cairn_s3f_connection *connection;
    const struct cairn_s3f_plan *plan;
    struct cairn_s3f_intake *intake;
    uint64_t size, stalled; /* stalled: the place of a stall that is over */
    EVP_MD_CTX *sha, *md5;
};

void cairn_s3f_checksum_text(uint32_t crc32c, char ret_text[16]) {
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
static const struct cairn_s3f_action *next_event(const struct taking *taking, uint64_t *ret_at) {
    const struct cairn_s3f_action *found = NULL;
    for (size_t i = 0; i < taking->plan->count; i++) {
        const struct cairn_s3f_action *action = &taking->plan->actions[i];
        if (action->kind != CAIRN_S3F_DO_REQ_STALL && action->kind != CAIRN_S3F_DO_REQ_RST &&
            action->kind != CAIRN_S3F_DO_REQ_FIN && action->kind != CAIRN_S3F_DO_EARLY &&
            action->kind != CAIRN_S3F_DO_REQ_FLIP)
            continue;
        uint64_t at = cairn_s3f_place(action, taking->size);
        if (at < taking->intake->received || (found && at >= *ret_at)) continue;
        if (at == taking->stalled && action->kind == CAIRN_S3F_DO_REQ_STALL) continue;
        found = action;
        *ret_at = at;
    }
    return found;
}

/* Receives `size` bytes, the first of them flipped where that is wanted. */
static bool receive(struct taking *taking, uint64_t size, bool flip) {
    struct cairn_s3f_body *body = taking->intake->body;
    while (size) {
        size_t piece = size > CAIRN_S3F_SCRAP_BYTES ? CAIRN_S3F_SCRAP_BYTES : (size_t)size;
        uint8_t *to = body && body->bytes ? body->bytes + taking->intake->received
                                          : taking->connection->scrap;
        ssize_t got = cairn_s3f_wire_receive(&taking->connection->wire, to, piece);
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
    struct cairn_s3f_intake *intake = taking->intake;
    intake->end = CAIRN_S3F_WHOLE;
    while (intake->end == CAIRN_S3F_WHOLE) {
        const struct cairn_s3f_action *event = next_event(taking, &at);
        uint64_t until = event ? at : taking->size;
        if (!receive(taking, until - intake->received, false)) intake->end = CAIRN_S3F_LEFT;
        if (!event || intake->end) return;
        if (event->kind == CAIRN_S3F_DO_REQ_FLIP) {
            if (at == taking->size) return;
            if (!receive(taking, 1, true)) intake->end = CAIRN_S3F_LEFT;
        } else if (event->kind == CAIRN_S3F_DO_REQ_STALL) {
            taking->stalled = at;
            if (!cairn_s3f_wire_hold(&taking->connection->wire, event->ms))
                intake->end = CAIRN_S3F_LEFT;
        } else if (event->kind == CAIRN_S3F_DO_EARLY) {
            intake->end = CAIRN_S3F_EARLY;
        } else {
            intake->end = CAIRN_S3F_ENDED;
            if (event->kind == CAIRN_S3F_DO_REQ_RST)
                cairn_s3f_wire_reset(&taking->connection->wire);
            else
                cairn_s3f_wire_finish(&taking->connection->wire, false);
        }
    }
}

static void end_digests(struct taking *taking) {
    struct cairn_s3f_body *body = taking->intake->body;
    uint8_t digest[32];
    if (taking->sha && EVP_DigestFinal_ex(taking->sha, digest, NULL))
        for (int i = 0; i < 32; i++) snprintf(taking->intake->sha256 + 2 * i, 3, "%02x", digest[i]);
    if (taking->md5 && EVP_DigestFinal_ex(taking->md5, body->md5, NULL)) body->has_md5 = true;
    EVP_MD_CTX_free(taking->sha);
    EVP_MD_CTX_free(taking->md5);
}

bool cairn_s3f_take_in(struct cairn_s3f_connection *connection,
                       const struct cairn_s3f_request *request, const struct cairn_s3f_plan *plan,
                       struct cairn_s3f_intake *ret) {
    struct cairn_s3f_server *server = connection->server;
    bool bulk = request->op == CAIRN_S3F_PUT || request->op == CAIRN_S3F_PART;
    bool keep = !(server->options.discard && bulk && request->content_length > DISCARD_ABOVE);
    *ret = (struct cairn_s3f_intake){0};
    if (!request->content_length && !bulk) return true;
    cairn_lock_take(&server->lock);
    ret->body = cairn_s3f_body_new(&server->state, request->content_length, keep);
    cairn_lock_give(&server->lock);
    if (!ret->body) return false;
    struct taking taking = {.connection = connection,
                            .plan = plan,
                            .intake = ret,
                            .size = request->content_length,
                            .stalled = UINT64_MAX};
    if (request->payload && strcmp(request->payload, "UNSIGNED-PAYLOAD") != 0)
        taking.sha = digest_new(EVP_sha256());
    if (cairn_s3f_header(request, "content-md5") || (bulk && server->options.md5_etags))
        taking.md5 = digest_new(EVP_md5());
    uint64_t cap = connection->wire.cap_bytes_per_s;
    const struct cairn_s3f_action *slow = cairn_s3f_plan_find(plan, CAIRN_S3F_DO_REQ_SLOW);
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

static bool checksum_holds(const char *told, uint32_t seen, struct cairn_s3f_reply *reply) {
    char text[16];
    cairn_s3f_checksum_text(seen, text);
    if (!strcmp(told, text)) return true;
    if (strlen(told) != 8)
        cairn_s3f_refuse(reply, 400, "InvalidRequest", "the checksum header is malformed");
    else
        cairn_s3f_refuse(reply, 400, "BadDigest",
                         "The checksum you specified did not match the calculated checksum.");
    return false;
}

static bool md5_holds(const struct cairn_s3f_request *request, const struct cairn_s3f_body *body,
                      struct cairn_s3f_reply *reply) {
    const char *told = cairn_s3f_header(request, "content-md5");
    if (!told) return true;
    char seen[32];
    EVP_EncodeBlock((unsigned char *)seen, body->md5, 16);
    if (strlen(told) != 24 || !body->has_md5) {
        cairn_s3f_refuse(reply, 400, "InvalidDigest",
                         "The Content-MD5 you specified is not valid.");
        return false;
    }
    if (!strcmp(told, seen)) return true;
    cairn_s3f_refuse(reply, 400, "BadDigest",
                     "The Content-MD5 you specified did not match what we received.");
    return false;
}

/* A bucket with a default retention takes no object or part without Content-MD5 or a checksum. */
static bool names_checksum_where_locked(struct cairn_s3f_server *server,
                                        const struct cairn_s3f_request *request,
                                        struct cairn_s3f_reply *reply) {
    bool named = cairn_s3f_header(request, "content-md5") != NULL;
    if (request->op != CAIRN_S3F_PUT && request->op != CAIRN_S3F_PART) return true;
    cairn_lock_take(&server->lock);
    const struct cairn_buf *lock = &server->state.object_lock;
    bool locked = lock->size && strstr(lock->data, "<DefaultRetention>");
    cairn_lock_give(&server->lock);
    for (size_t i = 0; i < request->header_count; i++)
        named = named || !strncmp(request->headers[i].name, "x-amz-checksum-", 15);
    if (locked && !named)
        cairn_s3f_refuse(reply, 400, "InvalidRequest",
                         "Content-MD5 OR x-amz-checksum- HTTP header is required for Put %s "
                         "requests with Object Lock parameters",
                         request->op == CAIRN_S3F_PART ? "Part" : "Object");
    return named || !locked;
}

#define UPLOADER "uploader "

/* A presigned request says in its query who pays. */
static bool is_denied(const struct cairn_s3f_request *request, const char *policy) {
    const char *acl = cairn_s3f_header(request, "x-amz-acl");
    const char *payer = cairn_s3f_header(request, "x-amz-request-payer");
    bool writes = request->op == CAIRN_S3F_PUT || request->op == CAIRN_S3F_CREATE;
    bool is_unsigned = request->payload && !strcmp(request->payload, "UNSIGNED-PAYLOAD");
    if (!payer) payer = cairn_s3f_query(request, "x-amz-request-payer");
    if (!strcmp(policy, "acl"))
        return writes && (!acl || strcmp(acl, "bucket-owner-full-control") != 0);
    if (!strcmp(policy, "payer")) return !payer || strcmp(payer, "requester") != 0;
    return !strcmp(policy, "signed") && is_unsigned && request->content_length > 0;
}

/* To keys without s3:ListBucket what is not there is forbidden. */
static bool is_kept_from(const struct cairn_s3f_state *state,
                         const struct cairn_s3f_request *request, const char *access_key) {
    if (strcmp(request->access_key, access_key) != 0) return false;
    switch (request->op) {
    case CAIRN_S3F_LIST:
    case CAIRN_S3F_UPLOADS:
    case CAIRN_S3F_VERSIONS:
    case CAIRN_S3F_DELETE:
    case CAIRN_S3F_DELETE_MANY:
        return true;
    case CAIRN_S3F_HEAD:
    case CAIRN_S3F_GET:
        return !cairn_s3f_object_find(state, request->bucket, request->key);
    default:
        return false;
    }
}

static bool policy_allows(struct cairn_s3f_server *server, const struct cairn_s3f_request *request,
                          struct cairn_s3f_reply *reply) {
    cairn_lock_take(&server->lock);
    const struct cairn_buf *policy = &server->state.policy;
    const char *text = policy->size ? policy->data : "";
    bool denied = !strncmp(text, UPLOADER, strlen(UPLOADER))
                      ? is_kept_from(&server->state, request, text + strlen(UPLOADER))
                      : is_denied(request, text);
    cairn_lock_give(&server->lock);
    if (denied) cairn_s3f_refuse(reply, 403, "AccessDenied", "Access Denied");
    return !denied;
}

bool cairn_s3f_body_holds(struct cairn_s3f_server *server, const struct cairn_s3f_request *request,
                          const struct cairn_s3f_intake *intake, struct cairn_s3f_reply *reply) {
    const struct cairn_s3f_body *body = intake->body;
    static const char of_nothing[] =
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const char *seen = body ? intake->sha256 : of_nothing;
    if (request->payload && strcmp(request->payload, "UNSIGNED-PAYLOAD") != 0 &&
        strcmp(request->payload, seen) != 0) {
        cairn_s3f_refuse(reply, 400, "XAmzContentSHA256Mismatch",
                         "The provided 'x-amz-content-sha256' header does not match what was "
                         "computed.");
        return false;
    }
    if (!policy_allows(server, request, reply)) return false;
    if (!names_checksum_where_locked(server, request, reply)) return false;
    if (!body) return true;
    if (!md5_holds(request, body, reply)) return false;
    const char *crc32 = cairn_s3f_header(request, "x-amz-checksum-crc32");
    const char *crc32c = cairn_s3f_header(request, "x-amz-checksum-crc32c");
    if (crc32 && (!body->bytes || request->op != CAIRN_S3F_DELETE_MANY)) {
        cairn_s3f_refuse(reply, 501, "NotImplemented", "of checksums only CRC32C is taken");
        return false;
    }
    if (crc32 && !checksum_holds(crc32, crc32_of(body->bytes, body->size), reply)) return false;
    bool of_body = request->op != CAIRN_S3F_COMPLETE && server->options.profile->checksums;
    return !crc32c || !of_body || checksum_holds(crc32c, body->crc32c, reply);
}
