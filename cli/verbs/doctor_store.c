/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the store: the bucket's settings, whether requests arrive unchanged, and operations. */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/shell/output.h"
#include "cli/verbs/doctor.h"
#include "common/clock.h"
#include "common/crc.h"
#include "common/file.h"
#include "common/http/http.h"
#include "common/text.h"
#include "common/trace.h"
#include "store/multipart.h"
#include "store/open.h"
#include "store/s3/probe.h"
#include "store/s3/s3.h"
#include "store/store.h"

#define KEY_BYTES 96

struct trial {
    struct cli_doctor *doctor;
    struct cairn_store *store;
    struct cairn_store_worker *worker;
    const struct cairn_store_s3_options *options; /* the open store's */
    char key[KEY_BYTES], token[CAIRN_UUID_TEXT_BYTES];
    struct cairn_error err;
};

/* A new key: .cairn/doctor/UUID + what. */
static void name_key(char ret[KEY_BYTES], const char *what) {
    char id[CAIRN_UUID_TEXT_BYTES];
    cairn_uuid_random(id);
    snprintf(ret, KEY_BYTES, ".cairn/doctor/%s%s", id, what);
}

/* ---- bucket settings: clock, life cycle, versioning, object lock ---- */

#define CLOCK_WARN_MS 60000
#define CLOCK_FAIL_MS 900000 /* S3 refuses larger differences */

static void check_clock(struct cli_doctor *doctor, struct cairn_store *store) {
    struct cairn_store_s3_answer answer = {0};
    struct cairn_error unused = {0};
    enum cairn_code code = cairn_store_s3_query(store, "versioning", &answer, &unused);
    cairn_buf_release(&answer.document);
    if (code || !answer.has_clock) return; /* later checks report failing requests */
    int64_t ahead = answer.clock_ahead_ms, off = ahead < 0 ? -ahead : ahead;
    bool late = off > CLOCK_WARN_MS;
    cli_doctor_say(doctor,
                   off > CLOCK_FAIL_MS ? CLI_FAIL
                   : late              ? CLI_WARN
                                       : CLI_FINE,
                   "clock", late ? "let this machine's clock be set (chrony, ntpd)" : "",
                   "the store's clock is %lld s %s this machine's", (long long)(off / 1000),
                   ahead < 0 ? "behind" : "ahead of");
}

static void report_rules(struct cli_doctor *doctor, const struct cairn_store_s3_lifecycle *rules,
                         const char *hint) {
    if (rules->aborts)
        cli_doctor_say(doctor, CLI_FINE, "life cycle", "",
                       "incomplete uploads are aborted after %llu days",
                       (unsigned long long)rules->abort_days);
    else
        cli_doctor_say(doctor, CLI_WARN, "life cycle", hint,
                       "no rule that is on aborts incomplete uploads below this prefix");
    if (rules->archives)
        cli_doctor_say(
            doctor, CLI_WARN, "transition",
            "keep it from this prefix: an archived checkpoint is read by nobody before each of its "
            "objects was restored (RestoreObject)",
            "rule \"%s\" moves objects below this prefix to an archive class",
            rules->archiving_rule);
    if (rules->expires)
        cli_doctor_say(
            doctor, CLI_WARN, "expiration", "keep it from this prefix, or checkpoints vanish",
            "rule \"%s\" deletes objects below this prefix by age", rules->expiring_rule);
}

static struct cairn_store_s3_lifecycle check_lifecycle(struct cli_doctor *doctor,
                                                       struct cairn_store *store) {
    static const char hint[] = "let the bucket abort incomplete uploads after 1 to 7 days: what a "
                               "lost node began is removed by nobody else";
    struct cairn_store_s3_answer answer = {0};
    struct cairn_store_s3_lifecycle rules = {0};
    struct cairn_error why = {0};
    enum cairn_code code = cairn_store_s3_query(store, "lifecycle", &answer, &why);
    bool none = code == CAIRN_OK && answer.status == 404;
    if (code == CAIRN_OK && answer.status == 200)
        code = cairn_store_s3_lifecycle(store, cairn_buf_view(&answer.document), &rules, &why);
    if (code)
        cli_doctor_say(doctor, CLI_WARN, "life cycle", hint, "%s", why.message);
    else if (answer.status == 200 || none)
        report_rules(doctor, &rules, hint);
    else
        cli_doctor_say(doctor, CLI_FINE, "life cycle", hint,
                       answer.status == 403 ? "these keys may not ask for it (status %d)"
                                            : "the store has none (status %d)",
                       answer.status);
    cairn_buf_release(&answer.document);
    return rules;
}

/* ---- settings that keep deleted objects ---- */

/* Puts, deletes and purges an object, as the server's sweep does. */
static enum cairn_code try_to_free(struct cairn_store *store, struct cairn_store_purge *ret,
                                   struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    char key[KEY_BYTES];
    name_key(key, "");
    *ret = (struct cairn_store_purge){.prefix = key, .is_key = true};
    CAIRN_TRY(cairn_store_worker_new(store, &worker, err));
    CAIRN_TRY(cairn_store_put_small(worker, key, CAIRN_VIEW("x"), false, err));
    CAIRN_TRY(cairn_store_delete(worker, key, err));
    enum cairn_code code = cairn_store_purge(worker, ret, err);
    ret->prefix = NULL; /* key ends with this function */
    return code;
}

/* With an uploader's keys, which lack delete rights, no deletion is tried. */
static void check_versioning(struct cli_doctor *doctor, struct cairn_store *store,
                             bool removes_noncurrent) {
    struct cairn_store_s3_answer answer = {0};
    struct cairn_store_purge purge;
    struct cairn_error why = {0};
    enum cairn_code code = cairn_store_s3_query(store, "versioning", &answer, &why);
    bool told = code == CAIRN_OK && answer.status == 200;
    bool on =
        told && cairn_store_s3_answer_has(&answer, "VersioningConfiguration/Status", "Enabled");
    cairn_buf_release(&answer.document);
    if (doctor->for_uploader) {
        if (told) cli_doctor_say(doctor, CLI_FINE, "versioning", "", on ? "on" : "off");
        return;
    }
    code = try_to_free(store, &purge, &why);
    if (!cairn_store_keeps_versions(store)) {
        if (told) cli_doctor_say(doctor, CLI_FINE, "versioning", "", "off");
    } else if (code || purge.why) {
        const char *reason = code ? why.message : purge.reason;
        if (removes_noncurrent)
            cli_doctor_say(doctor, CLI_FINE, "versioning", "",
                           "on, and a rule removes noncurrent versions; these keys do not: %s",
                           reason);
        else
            cli_doctor_say(doctor, CLI_WARN, "versioning",
                           "deleted checkpoints keep costing: allow s3:ListBucketVersions and "
                           "s3:DeleteObjectVersion, or add a rule that removes noncurrent "
                           "versions",
                           "the bucket keeps deleted objects: %s", reason);
    } else {
        cli_doctor_say(doctor, CLI_FINE, "versioning", "",
                       "on; what is deleted is freed by its version id");
    }
}

static void check_object_lock(struct cli_doctor *doctor, struct cairn_store *store) {
    struct cairn_store_s3_answer answer = {0};
    struct cairn_error unused = {0};
    enum cairn_code code = cairn_store_s3_query(store, "object-lock", &answer, &unused);
    bool locked =
        code == CAIRN_OK &&
        cairn_store_s3_answer_has(&answer, "ObjectLockConfiguration/Rule/DefaultRetention", NULL);
    if (locked)
        cli_doctor_say(doctor, CLI_WARN, "object lock",
                       "deleted and aborted checkpoints are kept until it ends: the server "
                       "tries again (cairn gc --not-freed); choose a shorter one",
                       "the bucket has a default retention");
    else if (code == CAIRN_OK && (answer.status == 200 || answer.status == 404))
        cli_doctor_say(doctor, CLI_FINE, "object lock", "", "no default retention");
    cairn_buf_release(&answer.document);
}

/* ---- do requests reach the store unchanged? ---- */

/* Proxies limit bodies (nginx: 1 MiB by default), drop or rewrite headers, or change the signed
 * host; a small put shows none of that. So a part of a save's size is sent; if it is refused,
 * variants that each lack one feature are sent, until one passes and so names the feature. */

#define SEND_MS 15000
#define PUT_BYTES_MAX (64 * CAIRN_KIB) /* larger bodies go as parts, as in a save */

struct body {
    char key[KEY_BYTES];
    struct cairn_view bytes;
};

static struct cairn_store_request body_request(const struct cli_doctor *doctor,
                                               const struct body *body, enum cairn_store_op op) {
    return (struct cairn_store_request){
        .op = op, .key = body->key, .deadline_ms = cli_doctor_deadline(doctor, SEND_MS)};
}

static enum cairn_code send_with(const struct cli_doctor *doctor, struct cairn_store_worker *worker,
                                 const struct body *body, struct cairn_error *err) {
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

/* ---- finding the feature that breaks ---- */

struct other {
    const char *with, *hint;
    enum cairn_store_s3_checksum checksum;
    bool sign_payload;
    const char *acl, *request_payer, *sse;
};

static bool passes_with(const struct trial *trial, const struct body *body,
                        const struct other *other) {
    CAIRN_AUTO_PTR(store) store = NULL;
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    struct cairn_error unused = {0};
    struct cairn_store_s3_options changed = *trial->options;
    if (other->checksum) changed.checksum = other->checksum;
    changed.sign_payload |= other->sign_payload;
    if (other->acl) changed.acl = other->acl;
    if (other->request_payer) changed.request_payer = other->request_payer;
    if (other->sse) changed.sse = other->sse;
    struct cairn_store_options options = {.url = trial->doctor->url, .s3 = &changed};
    return cairn_store_open(&options, &store, &unused) == CAIRN_OK &&
           cairn_store_worker_new(store, &worker, &unused) == CAIRN_OK &&
           send_with(trial->doctor, worker, body, &unused) == CAIRN_OK;
}

static const struct other *find_other(const struct trial *trial, const struct body *body) {
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
        if (passes_with(trial, body, &others[i])) return &others[i];
    return NULL;
}

/* Halves the body until it passes; 0: never. */
static uint64_t size_that_passes(const struct trial *trial, const struct body *body) {
    struct body smaller = *body;
    struct cairn_error unused = {0};
    for (smaller.bytes.size /= 2; smaller.bytes.size >= CAIRN_KIB; smaller.bytes.size /= 2)
        if (send_with(trial->doctor, trial->worker, &smaller, &unused) == CAIRN_OK)
            return smaller.bytes.size;
    return 0;
}

/* The size was refused, or the connection broke during a large body. */
static bool is_of_size(const struct cairn_error *err, const struct body *body) {
    return err->http_status == 413 || err->code == CAIRN_TOO_LARGE ||
           (!err->http_status && body->bytes.size > PUT_BYTES_MAX);
}

/* With a signed payload hash, a changed body is refused. */
static bool arrives_whole(const struct trial *trial, const struct body *body) {
    static const struct other hashed = {.checksum = CAIRN_S3_CHECKSUM_NONE, .sign_payload = true};
    return passes_with(trial, body, &hashed);
}

/* A 403 never says what the policy wants, so these are the usual causes. */
static const char *hint_of(const struct cairn_error *err) {
    if (err->code == CAIRN_NO_SPACE)
        return "make room, or have the quota or cap of the bucket or account raised";
    if (err->http_status != 403)
        return "check endpoint, region, bucket and the rights of these keys";
    return "the keys lack a right, or the bucket's policy asks for more: sse = aws:kms (and "
           "kms:GenerateDataKey, kms:Decrypt), acl = bucket-owner-full-control, request_payer, "
           "object_tags, bucket_owner, sign_payload, an endpoint within a network";
}

static void say_changed(struct cli_doctor *doctor, const struct body *body, bool whole,
                        const struct cairn_error *why) {
    cli_doctor_say(
        doctor, CLI_FAIL, "part of a save",
        whole ? "have the way pass on x-amz-checksum-* unchanged, or set checksum = md5"
              : "have what stands before the store pass on bodies unchanged (no filter, scanner or "
                "compression); without that nothing can be saved through it",
        "%s are refused, since %s: %.220s", cli_size(body->bytes.size).text,
        whole ? "their checksum header is changed on the way (the body is not)"
              : "the body is changed on the way",
        why->message);
}

static void say_refused(const struct trial *trial, const struct body *body,
                        const struct cairn_error *why) {
    uint64_t passes = is_of_size(why, body) ? size_that_passes(trial, body) : 0;
    const struct cli_size size = cli_size(body->bytes.size);
    if (passes) {
        cli_doctor_say(trial->doctor, CLI_FAIL, "part of a save",
                       "let what stands before the store take larger bodies (nginx: "
                       "client_max_body_size 0); parts have 8 MiB and more",
                       "%s are refused, %s pass: %.250s", size.text, cli_size(passes).text,
                       why->message);
        return;
    }
    if (why->code == CAIRN_CORRUPT) { /* the store computed another checksum */
        say_changed(trial->doctor, body, arrives_whole(trial, body), why);
        return;
    }
    const struct other *other = find_other(trial, body);
    bool sumless = other && other->checksum == CAIRN_S3_CHECKSUM_NONE;
    if (sumless && !arrives_whole(trial, body)) { /* accepted, but changed */
        say_changed(trial->doctor, body, false, why);
        return;
    }
    cli_doctor_say(
        trial->doctor, CLI_FAIL, "part of a save",
        other                         ? other->hint
        : why->code == CAIRN_NO_SPACE ? hint_of(why)
        : why->code == CAIRN_FORBIDDEN && why->http_status == 403
            ? "allow s3:PutObject, and kms:GenerateDataKey where the bucket encrypts; none of "
              "sse, acl, request_payer and sign_payload alone makes it pass"
            : "see that the secret key is right, and that what stands before the store passes on "
              "Host, path, query, x-amz-* and Content-MD5 as they come",
        "%s are refused%s%s: %.250s", size.text, other ? ", and pass " : "",
        other ? other->with : "", why->message);
}

/* Tests a body of `count` bytes; a finding names what breaks it. */
static void try_way(const struct trial *trial, uint64_t count) {
    CAIRN_AUTO_HEAP char *bytes = calloc(1, (size_t)count);
    struct body body = {.bytes = {bytes, (size_t)count}};
    struct cairn_error why = {0};
    if (!bytes) return;
    name_key(body.key, "");
    if (send_with(trial->doctor, trial->worker, &body, &why) == CAIRN_OK)
        cli_doctor_say(trial->doctor, CLI_FINE, "part of a save", "", "%s pass",
                       cli_size(count).text);
    else
        say_refused(trial, &body, &why);
}

/* ---- operations on the store ---- */

#define TEST_MS 15000
#define PLAIN_MS 3000
#define SMALL_BODY_BYTES 512
#define SMALL_PART_BYTES CAIRN_MIB /* below S3's minimum for all but the last part */

static struct cairn_store_request request_of(const struct trial *trial, enum cairn_store_op op) {
    return (struct cairn_store_request){
        .op = op,
        .key = trial->key,
        .token = trial->token,
        .deadline_ms = cli_doctor_deadline(trial->doctor, TEST_MS),
    };
}

static struct cairn_store_request sending(const struct trial *trial, enum cairn_store_op op,
                                          struct cairn_view body) {
    struct cairn_store_request request = request_of(trial, op);
    request.body = body;
    request.has_crc32c = true;
    request.crc32c = cairn_crc32c(0, body.data, body.size);
    return request;
}

/* The certificate or CA file is wrong; the peer does speak TLS. */
static bool is_of_certificates(const struct trial *trial) {
    enum cairn_http_tls_fault fault =
        trial->store ? cairn_store_s3_tls_fault(trial->store) : CAIRN_HTTP_TLS_FINE;
    return !trial->err.http_status && fault != CAIRN_HTTP_TLS_FINE && fault != CAIRN_HTTP_TLS_CLEAR;
}

/* Tells a plain HTTP port behind an https URL. Such a port may wait for the end of a line for ever,
 * so the TLS error alone proves nothing; a TLS port answers plain text with 400 or a redirect to
 * https, so neither does that. Sends no credentials. */
static bool is_plain_http(const struct trial *trial) {
    struct cairn_store_s3_place place;
    struct cairn_http_engine *engine = NULL;
    struct cairn_http_options options = {.connect_ms = PLAIN_MS};
    bool in_the_clear =
        trial->store && cairn_store_s3_tls_fault(trial->store) == CAIRN_HTTP_TLS_CLEAR;
    if (trial->err.http_status || is_of_certificates(trial) || !trial->store ||
        !cairn_store_s3_place(trial->store, &place) ||
        strncmp(place.endpoint, "https://", 8) != 0 ||
        cairn_http_engine_new(&options, &engine, NULL) != CAIRN_OK)
        return false;
    char url[sizeof place.endpoint + 1];
    CAIRN_AUTO(buf) reply = {.limit = CAIRN_MIB};
    snprintf(url, sizeof url, "http%.690s", place.endpoint + 5);
    url[strcspn(url + 7, "/") + 7] = '\0';
    struct cairn_http_request request = {
        .method = "GET", .url = url, .reply_buf = &reply, .total_ms = PLAIN_MS};
    (void)!cairn_http_perform(engine, &request, NULL);
    cairn_http_engine_free(engine);
    bool led_away = request.status >= 300 && request.status < 400;
    return request.status && (in_the_clear || (request.status != 400 && !led_away));
}

/* Reports ok, or the failure at this level. */
static bool report(struct trial *trial, enum cairn_code code, enum cli_level level,
                   const char *check, const char *hint, const char *good) {
    bool works = code == CAIRN_OK;
    if (!works && is_plain_http(trial))
        cli_doctor_say(trial->doctor, level, check,
                       "name the port that speaks TLS, or give the store a certificate",
                       "the port speaks plain http, not https");
    else if (!works && is_of_certificates(trial))
        cli_doctor_say(trial->doctor, level, check,
                       "give the file of the store's certificate authority as ca_bundle "
                       "(AWS_CA_BUNDLE); the certificate must be in its time and name this "
                       "endpoint, with the bucket before it where addressing is by host "
                       "(else set addressing = path)",
                       "%s", trial->err.message);
    else
        cli_doctor_say(trial->doctor, works ? CLI_FINE : level, check, works ? "" : hint, "%s",
                       works ? good : trial->err.message);
    return works;
}

/* ---- S3: the client's settings in words ---- */

static void report_check(void *owner, enum cairn_store_s3_check which, bool holds) {
    enum no { FINE, WARN, FAIL, ELSEWHERE };
    static const struct {
        const char *name, *hint;
        enum no no;
    } rows[] = {
#define CHECK(id, name, sentence, no, hint) {name, hint, no},
#include "store/s3/checks.def"
#undef CHECK
    };
    static const enum cli_level levels[] = {
        [FINE] = CLI_FINE, [WARN] = CLI_WARN, [FAIL] = CLI_FAIL};
    struct trial *trial = owner;
    if (rows[which].no == ELSEWHERE) return;
    cli_doctor_say(trial->doctor, holds ? CLI_FINE : levels[rows[which].no], rows[which].name,
                   holds ? "" : rows[which].hint, "%s%s", cairn_store_s3_check_text(which),
                   holds ? "" : ": no");
}

static bool probe(struct trial *trial) {
    struct cairn_store_s3_probe_options options = {.by = "doctor",
                                                   .may_list = !trial->doctor->for_uploader,
                                                   .anew = true,
                                                   .found = report_check,
                                                   .owner = trial};
    enum cairn_code code = cairn_store_s3_probe(trial->store, &options, NULL, &trial->err);
    if (code == CAIRN_OK) return true;
    return report(trial, code, CLI_FAIL, "requests", hint_of(&trial->err), "");
}

static void report_endpoint(struct trial *trial) {
    struct cairn_store_s3_place place;
    if (!cairn_store_s3_place(trial->store, &place)) return;
    cli_doctor_say(trial->doctor, CLI_FINE, "endpoint", "", "%.200s, region %s, addressing by %s",
                   place.endpoint, place.region,
                   strcmp(place.addressing, "path") ? "host (BUCKET.HOST)" : "path");
}

static bool check_keys(struct trial *trial) {
    char from[224], text[240] = "", exposed[540];
    enum cairn_code code = cairn_store_keys(trial->store, from, &trial->err);
    if (!code) snprintf(text, sizeof text, "from: %s", from);
    if (!code && cairn_store_keys_exposed(trial->store, exposed))
        cli_doctor_say(trial->doctor, CLI_WARN, "keys' file", "chmod 600 that file",
                       "others on this machine may read it: %s", exposed);
    return report(trial, code, CLI_FAIL, "keys",
                  "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or a role",
                  text);
}

/* ---- checks for S3 and folders ---- */

static enum cairn_code put_and_get(struct trial *trial) {
    char into[4] = "";
    struct cairn_store_request put =
        sending(trial, CAIRN_STORE_PUT, CAIRN_VIEW("cairn doctor was here"));
    put.create = true;
    CAIRN_TRY(cairn_store_perform(trial->worker, &put, &trial->err));
    struct cairn_store_request get = request_of(trial, CAIRN_STORE_GET);
    get.offset = 6;
    get.length = sizeof into;
    get.into = into;
    CAIRN_TRY(cairn_store_perform(trial->worker, &get, &trial->err));
    if (memcmp(into, "doct", sizeof into) != 0)
        return cairn_fail(&trial->err, CAIRN_CORRUPT, "a range came back with other bytes");
    return CAIRN_OK;
}

static void check_folder(struct trial *trial) {
    const struct cairn_store_profile *profile = cairn_store_profile(trial->store);
    if (!report(trial, put_and_get(trial), CLI_FAIL, "put and range",
                "see that this user may write here, and that there is room",
                "written, synced, and a range of it read"))
        return;
    struct cairn_store_request again = sending(trial, CAIRN_STORE_PUT, CAIRN_VIEW("other"));
    again.create = true;
    struct cairn_error refused = {0};
    enum cairn_code code = cairn_store_perform(trial->worker, &again, &refused);
    if (code == CAIRN_OK)
        code = cairn_fail(&trial->err, CAIRN_STORE, "a second put replaced the first");
    report(trial, code == CAIRN_PRECONDITION ? CAIRN_OK : code, CLI_FAIL, "conditional put",
           "this file system has no link(); use another", "nothing is replaced");
    cli_doctor_say(trial->doctor, profile->head_has_token ? CLI_FINE : CLI_WARN, "attributes",
                   profile->head_has_token
                       ? ""
                       : "mount it with user_xattr; without, a restart reads objects back",
                   "extended attributes are %s", profile->head_has_token ? "kept" : "not kept");
    if (profile->note[0])
        cli_doctor_say(trial->doctor, CLI_WARN, "file system", "", "%s", profile->note);
}

static enum cairn_code send_part(struct trial *trial, const char *upload_id, uint32_t number,
                                 struct cairn_view body, struct cairn_store_part *ret) {
    struct cairn_store_request part = sending(trial, CAIRN_STORE_UPLOAD_PART, body);
    part.upload_id_in = upload_id;
    part.part_number = number;
    part.offset = number == 1 ? 0 : SMALL_PART_BYTES;
    CAIRN_TRY(cairn_store_perform(trial->worker, &part, &trial->err));
    *ret = (struct cairn_store_part){
        .number = number, .size_bytes = body.size, .has_crc32c = true, .crc32c = part.crc32c};
    memcpy(ret->etag, part.etag, sizeof ret->etag);
    return CAIRN_OK;
}

/* A restarted uploader recognizes a part by its listed checksum, else by its noted ETag. */
static bool is_same_part(const struct cairn_store_part *sent,
                         const struct cairn_store_part *found) {
    if (found->number != sent->number || found->size_bytes != sent->size_bytes) return false;
    if (found->has_crc32c) return found->crc32c == sent->crc32c;
    return sent->etag[0] && !strcmp(found->etag, sent->etag);
}

static enum cairn_code list_parts(struct trial *trial, const char *upload_id,
                                  const struct cairn_store_part sent[2]) {
    struct cairn_store_part found[4] = {{0}};
    struct cairn_store_request list = request_of(trial, CAIRN_STORE_UPLOAD_PARTS);
    list.upload_id_in = upload_id;
    list.length = SMALL_PART_BYTES;
    list.parts = found;
    list.part_count = CAIRN_COUNT(found);
    CAIRN_TRY(cairn_store_perform(trial->worker, &list, &trial->err));
    if (list.part_count < 2)
        return cairn_fail(&trial->err, CAIRN_STORE, "%zu of 2 parts are listed", list.part_count);
    for (size_t i = 0; i < 2; i++)
        if (!is_same_part(&sent[i], &found[i]))
            return cairn_fail(&trial->err, CAIRN_STORE,
                              "part %zu is listed with neither its checksum nor its ETag", i + 1);
    return CAIRN_OK;
}

static enum cairn_code upload(struct trial *trial, char upload_id[CAIRN_UPLOAD_ID_BYTES_MAX]) {
    struct cairn_store_part parts[2];
    struct cairn_store_request create = request_of(trial, CAIRN_STORE_UPLOAD_CREATE);
    create.length = SMALL_PART_BYTES + 1;
    CAIRN_TRY(cairn_store_perform(trial->worker, &create, &trial->err));
    memcpy(upload_id, create.upload_id, CAIRN_UPLOAD_ID_BYTES_MAX);
    CAIRN_AUTO_HEAP char *bytes = calloc(1, SMALL_PART_BYTES);
    if (!bytes) return cairn_fail(&trial->err, CAIRN_NO_MEMORY, "no memory for a part");
    struct cairn_view whole = {bytes, SMALL_PART_BYTES};
    CAIRN_TRY(send_part(trial, upload_id, 1, whole, &parts[0]));
    CAIRN_TRY(send_part(trial, upload_id, 2, CAIRN_VIEW("z"), &parts[1]));
    report(trial, list_parts(trial, upload_id, parts), CLI_WARN, "list parts",
           "allow s3:ListMultipartUploadParts; else a restarted uploader sends all parts again",
           "finished parts are found again after a restart");
    /* The first of two parts is below S3's minimum: the refusal shows whether the store enforces
     * it. */
    struct cairn_store_request request = request_of(trial, CAIRN_STORE_UPLOAD_COMPLETE);
    request.upload_id_in = upload_id;
    request.parts = parts;
    request.part_count = 2;
    request.length = parts[0].size_bytes + parts[1].size_bytes;
    request.has_crc32c = true;
    request.crc32c = cairn_crc32c_combine(parts[0].crc32c, parts[1].crc32c, parts[1].size_bytes);
    enum cairn_code code = cairn_store_perform(trial->worker, &request, &trial->err);
    bool too_small = code == CAIRN_INVALID; /* store/s3/reply.c: EntityTooSmall */
    if (code == CAIRN_OK || too_small)
        cli_doctor_say(trial->doctor, CLI_FINE, "part limits", "",
                       too_small ? "parts below 5 MiB are refused, as S3 does; Cairn's are "
                                   "larger"
                                 : "small parts are taken, too");
    else
        report(trial, code, CLI_FAIL, "multipart", "large shards cannot be saved here", "");
    return CAIRN_OK;
}

static void check_upload(const struct trial *whole) {
    struct trial own = *whole, *trial = &own;
    char upload_id[CAIRN_UPLOAD_ID_BYTES_MAX] = "";
    name_key(own.key, "-parts");
    report(trial, upload(trial, upload_id), CLI_FAIL, "multipart",
           "allow s3:PutObject and s3:AbortMultipartUpload", "an upload of two parts");
    if (*upload_id) {
        struct cairn_store_request stop = request_of(trial, CAIRN_STORE_UPLOAD_ABORT);
        stop.upload_id_in = upload_id;
        report(trial, cairn_store_perform(trial->worker, &stop, &trial->err), CLI_FAIL, "abort",
               "allow s3:AbortMultipartUpload", "uploads can be aborted");
    }
    struct cairn_store_request remove = request_of(trial, CAIRN_STORE_DELETE);
    (void)!cairn_store_perform(trial->worker, &remove, &trial->err);
}

/* Server rights that an uploader should lack: an intruder on a node would have them. */
static void report_right(struct trial *trial, const char *right, const char *policy,
                         enum cli_level without, enum cairn_code code) {
    bool has = code == CAIRN_OK, uploader = trial->doctor->for_uploader;
    if (!has && code != CAIRN_FORBIDDEN && code != CAIRN_UNAUTHORIZED) {
        cli_doctor_say(trial->doctor, CLI_FAIL, right,
                       "it is no right that is missing: see what the store answers", "%s",
                       trial->err.message);
        return;
    }
    struct cairn_store_s3_place place; /* folders have no policies */
    bool bad = cairn_store_s3_place(trial->store, &place) && has == uploader;
    char hint[200] = "";
    if (bad)
        snprintf(hint, sizeof hint,
                 uploader ? "take %s from the uploaders' keys: they need none of it"
                          : "allow %s, which the server needs",
                 policy);
    cli_doctor_say(trial->doctor,
                   !bad       ? CLI_FINE
                   : uploader ? CLI_WARN
                              : without,
                   right, hint, has ? "these keys may %s" : "these keys may not %s", right);
}

static void check_listing(struct trial *trial, enum cairn_store_op op, const char *right,
                          const char *policy, enum cli_level without) {
    struct cairn_store_listing listing = {0};
    struct cairn_store_request list = request_of(trial, op);
    list.key = ".cairn/doctor/";
    list.listing = &listing;
    enum cairn_code code = cairn_store_perform(trial->worker, &list, &trial->err);
    report_right(trial, right, policy, without, code);
    cairn_store_listing_release(&listing);
}

static void check_rights(struct trial *trial) {
    check_listing(trial, CAIRN_STORE_LIST, "list", "s3:ListBucket", CLI_FAIL);
    /* Some stores cannot list uploads; that only wastes space. */
    check_listing(trial, CAIRN_STORE_UPLOADS, "list uploads", "s3:ListBucketMultipartUploads",
                  CLI_WARN);
    struct cairn_store_request remove = request_of(trial, CAIRN_STORE_DELETE);
    enum cairn_code code = cairn_store_perform(trial->worker, &remove, &trial->err);
    report_right(trial, "delete", "s3:DeleteObject", CLI_FAIL, code);
    if (code)
        cli_doctor_say(trial->doctor, CLI_FINE, "left behind", "",
                       "small objects below .cairn/doctor/, which the server's sweep removes "
                       "after an hour");
}

static void check_presigned(struct trial *trial) {
    CAIRN_AUTO(buf) url = {0};
    uint32_t lives_s = 0;
    enum cairn_code code =
        cairn_store_presign(trial->store, trial->key, 300, &url, &lives_s, &trial->err);
    char text[64];
    snprintf(text, sizeof text, "URLs for one object live %u s", lives_s);
    report(trial, code, CLI_WARN, "presigned",
           "redirects to the store will not work; the server passes the bytes on", text);
}

/* Saves the measured capabilities, with which servers and uploaders then start. */
static void save_profile(struct trial *trial) {
    bool written = false;
    if (trial->doctor->for_uploader) return; /* uploader keys may see less */
    report(trial, cairn_store_profile_save(trial->store, &written, &trial->err), CLI_WARN,
           "profile", "server and uploaders find out for themselves at each start",
           "written to .cairn/profile.json, for servers and uploaders that start within a week");
}

/* Writes and reads as the server does its records: twice create-only, then overwriting. */
static enum cairn_code write_documents(struct trial *trial) {
    CAIRN_AUTO(buf) there = {.limit = CAIRN_KIB};
    struct cairn_view first = CAIRN_VIEW("{\"doctor\":1}"), second = CAIRN_VIEW("{\"doctor\":2}");
    CAIRN_TRY(cairn_store_put_same(trial->worker, trial->key, first, &trial->err));
    CAIRN_TRY(cairn_store_put_same(trial->worker, trial->key, first, &trial->err));
    CAIRN_TRY(cairn_store_put_small(trial->worker, trial->key, second, false, &trial->err));
    CAIRN_TRY(cairn_store_get_small(trial->worker, trial->key, &there, &trial->err));
    if (there.size != second.size || memcmp(there.data, second.data, second.size) != 0)
        return cairn_fail(&trial->err, CAIRN_CORRUPT,
                          "an object that was written over came back as it was before");
    return CAIRN_OK;
}

static void check_documents(const struct trial *whole) {
    struct trial own = *whole, *trial = &own;
    name_key(own.key, "-record");
    report(trial, write_documents(trial), CLI_FAIL, "records",
           "allow s3:GetObject and s3:PutObject",
           "written once, written over and read, as the server does with its own");
    struct cairn_store_request remove = request_of(trial, CAIRN_STORE_DELETE);
    (void)!cairn_store_perform(trial->worker, &remove, &trial->err);
}

/* Refuses a store of a later release. A missing or damaged store.json is the server's concern. */
static bool check_number(struct trial *trial) {
    struct cairn_store_record record;
    struct cairn_error why = {0};
    enum cairn_code code = cairn_store_record_get(trial->worker, 0, &record, &why);
    if (code != CAIRN_UNSUPPORTED) return true;
    trial->err = why;
    return report(trial, code, CLI_FAIL, "release", "use the release that wrote it", "");
}

static void check_s3(struct trial *trial) {
    report_endpoint(trial);
    if (!check_keys(trial)) return;
    check_clock(trial->doctor, trial->store);
    if (!probe(trial)) {
        /* A signature, checksum or unknown error: look for what a proxy breaks. */
        if (trial->err.http_status >= 400 && trial->err.http_status < 500)
            try_way(trial, SMALL_BODY_BYTES);
        return;
    }
    if (!check_number(trial)) return;
    report(trial, put_and_get(trial), CLI_FAIL, "put below .cairn", "", "written and read");
    check_documents(trial);
    try_way(trial, CAIRN_MULTIPART_LEAST_BYTES);
    check_upload(trial);
    check_presigned(trial);
    struct cairn_store_s3_lifecycle rules = check_lifecycle(trial->doctor, trial->store);
    if (cairn_store_s3_writes_cold(trial->store))
        cli_doctor_say(trial->doctor, CLI_WARN, "storage class",
                       "take one that is read at once, such as STANDARD_IA or GLACIER_IR",
                       "storage_class is an archive class: what is saved cannot be read back "
                       "before it was restored");
    check_versioning(trial->doctor, trial->store, rules.removes_noncurrent);
    check_object_lock(trial->doctor, trial->store);
    check_rights(trial);
    save_profile(trial);
    struct cairn_store_health health;
    cairn_store_health(trial->store, &health);
    bool less = health.degraded;
    cli_doctor_say(trial->doctor, less ? CLI_WARN : CLI_FINE, "degraded",
                   less ? "nothing is lost; a hash of each body costs a core per 0.6 GB/s, "
                          "and two servers must never share the prefix"
                        : "",
                   "%s", less ? health.text : "the store refused nothing that it was asked to do");
}

static void check_store(struct trial *trial) {
    struct cairn_store_s3_place place;
    if (cairn_store_s3_place(trial->store, &place)) {
        check_s3(trial);
        return;
    }
    if (!check_number(trial)) return;
    check_folder(trial);
    check_upload(trial);
    check_rights(trial);
}

/* Opening a store creates its folder, but a missing one here is a typo or not mounted. */
static enum cairn_code require_folder(const char *url, struct cairn_error *err) {
    CAIRN_AUTO(buf) path = {0};
    enum cairn_code code = cairn_store_folder_of(url, &path, err);
    if (code == CAIRN_UNSUPPORTED || (code == CAIRN_OK && !access(path.data, F_OK)))
        return CAIRN_OK;
    CAIRN_TRY(code);
    return cairn_fail(err, CAIRN_NOT_FOUND, "there is no folder %s", path.data);
}

/* Checks who can write to the folder. As root, checks other users' folders, too. */
static void check_writers(struct trial *trial) {
    CAIRN_AUTO(buf) path = {0};
    if (cairn_store_folder_of(trial->doctor->url, &path, NULL)) return;
    enum cairn_code code = geteuid() ? cairn_dir_check_own(path.data, "the store", &trial->err)
                                     : cairn_dir_check_writers(path.data, "the store", &trial->err);
    (void)report(trial, code, CLI_FAIL, "folder",
                 "let the user of server and uploaders own it, and nobody else write to it",
                 "nobody but its owner can replace what is in it");
}

void cli_doctor_store(struct cli_doctor *doctor) {
    struct cairn_store_s3_environment said;
    struct trial trial = {.doctor = doctor};
    name_key(trial.key, "");
    cairn_uuid_random(trial.token);
    enum cairn_code code = cairn_store_s3_environment_load(&said, &trial.err);
    if (!report(&trial, code, CLI_FAIL, "settings", "see CAIRN_ variables in docs/s3.md",
                "the CAIRN_ variables make sense"))
        return;
    said.choice.options.probe_ms = TEST_MS;
    said.choice.options.probe_until_ms = doctor->until_ms;
    trial.options = &said.choice.options;
    struct cairn_store_options options = {.url = doctor->url, .s3 = &said.choice.options};
    code = require_folder(doctor->url, &trial.err);
    if (code == CAIRN_OK) code = cairn_store_open(&options, &trial.store, &trial.err);
    if (code == CAIRN_OK) code = cairn_store_worker_new(trial.store, &trial.worker, &trial.err);
    if (report(&trial, code, CLI_FAIL, "store", "give a folder that is there, or s3://bucket",
               trial.store ? cairn_store_url(trial.store) : "")) {
        check_writers(&trial);
        check_store(&trial);
    }
    if (trial.worker) cairn_store_worker_free(trial.worker);
    if (trial.store) cairn_store_free(trial.store);
    cairn_store_s3_environment_release(&said);
}
