/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether requests reach the store as they were sent. Proxies bound bodies (nginx: 1 MiB by
 * default), drop or rewrite headers, and sign for other names; a small put shows none of that. So a
 * part as large as a save's is sent, and where it is refused the same one with less, until one
 * passes: then it is known what the way does not bear.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli/shell/sizes.h"
#include "cli/verbs/doctor.h"
#include "common/crc32c.h"
#include "common/id.h"
#include "store/open.h"

#define SEND_MS 15000
#define PUT_BYTES_MAX (64 * CAIRN_KIB) /* what is larger goes as a part, as in a save */

struct body {
    char key[96];
    struct cairn_view bytes;
};

static struct cairn_store_request body_request(const struct cairn_cli_doctor *doctor,
                                               const struct body *body, enum cairn_store_op op) {
    return (struct cairn_store_request){
        .op = op, .key = body->key, .deadline_ms = cairn_cli_doctor_deadline(doctor, SEND_MS)};
}

static enum cairn_code send_with(const struct cairn_cli_doctor *doctor,
                                 struct cairn_store_worker *worker, const struct body *body,
                                 struct cairn_error *err) {
    bool parts = body->bytes.size > PUT_BYTES_MAX;
    struct cairn_store_request create = body_request(doctor, body, CAIRN_STORE_UPLOAD_CREATE);
    struct cairn_store_request last =
        body_request(doctor, body, parts ? CAIRN_STORE_UPLOAD_ABORT : CAIRN_STORE_DELETE);
    struct cairn_store_request put =
        body_request(doctor, body, parts ? CAIRN_STORE_UPLOAD_PART : CAIRN_STORE_PUT);
    struct cairn_error unused = {0};
    create.length = body->bytes.size;
    if (parts) CAIRN_TRY(cairn_store_perform(worker, &create, err));
    put.upload_id_in = last.upload_id_in = create.upload_id;
    put.part_number = 1;
    put.body = body->bytes;
    put.has_crc32c = true;
    put.crc32c = cairn_crc32c(0, body->bytes.data, body->bytes.size);
    enum cairn_code code = cairn_store_perform(worker, &put, err);
    (void)!cairn_store_perform(worker, &last, &unused);
    return code;
}

/* ---- what is it that does not pass? ---- */

struct other {
    const char *with, *hint;
    enum cairn_store_s3_checksum checksum;
    bool sign_payload;
    const char *acl, *request_payer, *sse;
};

static bool passes_with(const struct cairn_cli_doctor *doctor, const struct cairn_cli_way *way,
                        const struct body *body, const struct other *other) {
    CAIRN_AUTO_PTR(store) store = NULL;
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    struct cairn_error unused = {0};
    struct cairn_store_s3_options changed = *way->options;
    if (other->checksum) changed.checksum = other->checksum;
    changed.sign_payload |= other->sign_payload;
    if (other->acl) changed.acl = other->acl;
    if (other->request_payer) changed.request_payer = other->request_payer;
    if (other->sse) changed.sse = other->sse;
    struct cairn_store_options options = {.url = doctor->url, .s3 = &changed};
    return cairn_store_open(&options, &store, &unused) == CAIRN_OK &&
           cairn_store_worker_new(store, &worker, &unused) == CAIRN_OK &&
           send_with(doctor, worker, body, &unused) == CAIRN_OK;
}

static const struct other *find_other(const struct cairn_cli_doctor *doctor,
                                      const struct cairn_cli_way *way, const struct body *body) {
    static const struct other others[] = {
        {.with = "with sign_payload = true",
         .hint = "set sign_payload = true: the way or a policy wants each body signed",
         .sign_payload = true},
        {.with = "with acl = bucket-owner-full-control",
         .hint = "set acl = bucket-owner-full-control: the bucket's policy asks for it",
         .acl = "bucket-owner-full-control"},
        {.with = "with sse = aws:kms",
         .hint = "set sse = aws:kms, and sse_kms_key_id where a key is asked for",
         .sse = "aws:kms"},
        {.with = "with sse = AES256",
         .hint = "set sse = AES256: the bucket's policy asks for it",
         .sse = "AES256"},
        {.with = "with request_payer = requester",
         .hint = "set request_payer = requester; your account then pays for all requests",
         .request_payer = "requester"},
        {.with = "without the header x-amz-checksum-crc32c, and with Content-MD5",
         .hint = "have the way pass on x-amz-checksum-* unchanged, or set checksum = md5",
         .checksum = CAIRN_S3_CHECKSUM_MD5},
        {.with = "without any checksum header",
         .hint = "have the way pass on x-amz-checksum-* and Content-MD5 unchanged; until then "
                 "checksum = none, over https, and `cairn verify` for what was damaged on the way",
         .checksum = CAIRN_S3_CHECKSUM_NONE},
    };
    for (size_t i = 0; i < CAIRN_COUNT(others); i++)
        if (passes_with(doctor, way, body, &others[i])) return &others[i];
    return NULL;
}

/* The largest half, quarter ... that passes; 0: none. */
static uint64_t size_that_passes(const struct cairn_cli_doctor *doctor,
                                 const struct cairn_cli_way *way, const struct body *body) {
    struct body smaller = *body;
    struct cairn_error unused = {0};
    for (smaller.bytes.size /= 2; smaller.bytes.size >= CAIRN_KIB; smaller.bytes.size /= 2)
        if (send_with(doctor, way->worker, &smaller, &unused) == CAIRN_OK)
            return smaller.bytes.size;
    return 0;
}

/* A refusal of the size, or a connection that ends while a large body is sent. */
static bool is_of_size(const struct cairn_error *err, const struct body *body) {
    return err->http_status == 413 || err->code == CAIRN_TOO_LARGE ||
           (!err->http_status && body->bytes.size > PUT_BYTES_MAX);
}

/* A body whose hash is in the signature arrives as it was sent, or is refused. */
static bool arrives_whole(const struct cairn_cli_doctor *doctor, const struct cairn_cli_way *way,
                          const struct body *body) {
    static const struct other hashed = {.checksum = CAIRN_S3_CHECKSUM_NONE, .sign_payload = true};
    return passes_with(doctor, way, body, &hashed);
}

static void say_changed(struct cairn_cli_doctor *doctor, const struct body *body, bool whole,
                        const struct cairn_error *why) {
    char size[24];
    cairn_cli_size(body->bytes.size, size);
    cairn_cli_doctor_say(
        doctor, CAIRN_CLI_FAIL, "part of a save",
        whole ? "have the way pass on x-amz-checksum-* unchanged, or set checksum = md5"
              : "have what stands before the store pass on bodies unchanged (no filter, scanner or "
                "compression); without that nothing can be saved through it",
        "%s are refused, since %s: %.220s", size,
        whole ? "their checksum header is changed on the way (the body is not)"
              : "the body is changed on the way",
        why->message);
}

static void say_refused(struct cairn_cli_doctor *doctor, const struct cairn_cli_way *way,
                        const struct body *body, const struct cairn_error *why) {
    char size[24], smaller[24];
    uint64_t passes = is_of_size(why, body) ? size_that_passes(doctor, way, body) : 0;
    cairn_cli_size(body->bytes.size, size);
    cairn_cli_size(passes, smaller);
    if (passes) {
        cairn_cli_doctor_say(doctor, CAIRN_CLI_FAIL, "part of a save",
                             "let what stands before the store take larger bodies (nginx: "
                             "client_max_body_size 0); parts have 8 MiB and more",
                             "%s are refused, %s pass: %.250s", size, smaller, why->message);
        return;
    }
    if (why->code == CAIRN_CORRUPT) { /* the store has summed other bytes than were sent */
        say_changed(doctor, body, arrives_whole(doctor, way, body), why);
        return;
    }
    const struct other *other = find_other(doctor, way, body);
    bool sumless = other && other->checksum == CAIRN_S3_CHECKSUM_NONE;
    if (sumless && !arrives_whole(doctor, way, body)) { /* taken, but not as it was sent */
        say_changed(doctor, body, false, why);
        return;
    }
    cairn_cli_doctor_say(
        doctor, CAIRN_CLI_FAIL, "part of a save",
        other ? other->hint
        : why->code == CAIRN_FORBIDDEN && why->http_status == 403
            ? "allow s3:PutObject, and kms:GenerateDataKey where the bucket encrypts; none of "
              "sse, acl, request_payer and sign_payload alone makes it pass"
            : "see that the secret key is right, and that what stands before the store passes on "
              "Host, path, query, x-amz-* and Content-MD5 as they come",
        "%s are refused%s%s: %.250s", size, other ? ", and pass " : "", other ? other->with : "",
        why->message);
}

void cairn_cli_doctor_way(struct cairn_cli_doctor *doctor, const struct cairn_cli_way *way) {
    CAIRN_AUTO_HEAP char *bytes = calloc(1, (size_t)way->bytes);
    struct body body = {.bytes = {bytes, (size_t)way->bytes}};
    struct cairn_error why = {0};
    char id[CAIRN_UUID_TEXT_BYTES], size[24];
    if (!bytes) return;
    cairn_uuid_random(id);
    snprintf(body.key, sizeof body.key, ".cairn/doctor/%s", id);
    cairn_cli_size(way->bytes, size);
    if (send_with(doctor, way->worker, &body, &why) == CAIRN_OK)
        cairn_cli_doctor_say(doctor, CAIRN_CLI_FINE, "part of a save", "", "%s pass", size);
    else
        say_refused(doctor, way, &body, &why);
}
