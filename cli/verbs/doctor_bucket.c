/* SPDX-License-Identifier: Apache-2.0 */
/* What doctor asks a bucket about itself: its clock, life cycle, versioning and object lock. */
#include <stdio.h>

#include "cli/verbs/doctor.h"
#include "common/trace.h"
#include "store/s3/s3.h"
#include "store/store.h"

#define CLOCK_WARN_MS 60000
#define CLOCK_FAIL_MS 900000 /* S3 refuses beyond it */

void cairn_cli_doctor_clock(struct cairn_cli_doctor *doctor, struct cairn_store *store) {
    struct cairn_store_s3_answer answer = {0};
    struct cairn_error unused = {0};
    enum cairn_code code = cairn_store_s3_query(store, "versioning", &answer, &unused);
    cairn_buf_release(&answer.document);
    if (code || !answer.has_clock) return; /* what is wrong with requests is told by the next */
    int64_t ahead = answer.clock_ahead_ms, off = ahead < 0 ? -ahead : ahead;
    bool late = off > CLOCK_WARN_MS;
    cairn_cli_doctor_say(doctor,
                         off > CLOCK_FAIL_MS ? CAIRN_CLI_FAIL
                         : late              ? CAIRN_CLI_WARN
                                             : CAIRN_CLI_FINE,
                         "clock", late ? "let this machine's clock be set (chrony, ntpd)" : "",
                         "the store's clock is %lld s %s this machine's", (long long)(off / 1000),
                         ahead < 0 ? "behind" : "ahead of");
}

/* ---- life cycle ---- */

static void report_rules(struct cairn_cli_doctor *doctor,
                         const struct cairn_store_s3_lifecycle *rules, const char *hint) {
    if (rules->aborts)
        cairn_cli_doctor_say(doctor, CAIRN_CLI_FINE, "life cycle", "",
                             "incomplete uploads are aborted after %llu days",
                             (unsigned long long)rules->abort_days);
    else
        cairn_cli_doctor_say(doctor, CAIRN_CLI_WARN, "life cycle", hint,
                             "no rule that is on aborts incomplete uploads below this prefix");
    if (rules->archives)
        cairn_cli_doctor_say(
            doctor, CAIRN_CLI_WARN, "transition",
            "keep it from this prefix: an archived checkpoint is read by nobody before each of its "
            "objects was restored (RestoreObject)",
            "rule \"%s\" moves objects below this prefix to an archive class",
            rules->archiving_rule);
    if (rules->expires)
        cairn_cli_doctor_say(
            doctor, CAIRN_CLI_WARN, "expiration", "keep it from this prefix, or checkpoints vanish",
            "rule \"%s\" deletes objects below this prefix by age", rules->expiring_rule);
}

static struct cairn_store_s3_lifecycle check_lifecycle(struct cairn_cli_doctor *doctor,
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
        cairn_cli_doctor_say(doctor, CAIRN_CLI_WARN, "life cycle", hint, "%s", why.message);
    else if (answer.status == 200 || none)
        report_rules(doctor, &rules, hint);
    else
        cairn_cli_doctor_say(doctor, CAIRN_CLI_FINE, "life cycle", hint,
                             answer.status == 403 ? "these keys may not ask for it (status %d)"
                                                  : "the store has none (status %d)",
                             answer.status);
    cairn_buf_release(&answer.document);
    return rules;
}

/* ---- what keeps deleted objects ---- */

/* Puts an object, deletes it and frees it, as the server's sweep does. */
static enum cairn_code try_to_free(struct cairn_store *store, struct cairn_store_purge *ret,
                                   struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    char id[CAIRN_UUID_TEXT_BYTES];
    char key[64];
    cairn_uuid_random(id);
    snprintf(key, sizeof key, ".cairn/doctor/%s", id);
    *ret = (struct cairn_store_purge){.prefix = key, .is_key = true};
    CAIRN_TRY(cairn_store_worker_new(store, &worker, err));
    CAIRN_TRY(cairn_store_put_small(worker, key, CAIRN_VIEW("x"), false, err));
    CAIRN_TRY(cairn_store_delete(worker, key, err));
    enum cairn_code code = cairn_store_purge(worker, ret, err);
    ret->prefix = NULL; /* it was this function's */
    return code;
}

static void say_kept(struct cairn_cli_doctor *doctor, const char *why, bool removes_noncurrent) {
    if (removes_noncurrent)
        cairn_cli_doctor_say(doctor, CAIRN_CLI_FINE, "versioning", "",
                             "on, and a rule removes noncurrent versions; these keys do not: %s",
                             why);
    else
        cairn_cli_doctor_say(doctor, CAIRN_CLI_WARN, "versioning",
                             "deleted checkpoints keep costing: allow s3:ListBucketVersions and "
                             "s3:DeleteObjectVersion, or add a rule that removes noncurrent "
                             "versions",
                             "the bucket keeps deleted objects: %s", why);
}

/* An uploader's keys delete nothing, so nothing is tried with them. */
static void check_versioning(struct cairn_cli_doctor *doctor, struct cairn_store *store,
                             bool removes_noncurrent) {
    struct cairn_store_s3_answer answer = {0};
    struct cairn_store_purge purge;
    struct cairn_error why = {0};
    enum cairn_code code = cairn_store_s3_query(store, "versioning", &answer, &why);
    bool told = code == CAIRN_OK && answer.status == 200;
    bool on = told &&
              cairn_store_s3_answer_has(&answer, "VersioningConfiguration/Status", "Enabled");
    cairn_buf_release(&answer.document);
    if (doctor->for_uploader) {
        if (told)
            cairn_cli_doctor_say(doctor, CAIRN_CLI_FINE, "versioning", "", on ? "on" : "off");
        return;
    }
    code = try_to_free(store, &purge, &why);
    if (!cairn_store_keeps_versions(store)) {
        if (told) cairn_cli_doctor_say(doctor, CAIRN_CLI_FINE, "versioning", "", "off");
    } else if (code || purge.why) {
        say_kept(doctor, code ? why.message : purge.reason, removes_noncurrent);
    } else {
        cairn_cli_doctor_say(doctor, CAIRN_CLI_FINE, "versioning", "",
                             "on; what is deleted is freed by its version id");
    }
}

static void check_object_lock(struct cairn_cli_doctor *doctor, struct cairn_store *store) {
    struct cairn_store_s3_answer answer = {0};
    struct cairn_error unused = {0};
    enum cairn_code code = cairn_store_s3_query(store, "object-lock", &answer, &unused);
    bool locked =
        code == CAIRN_OK &&
        cairn_store_s3_answer_has(&answer, "ObjectLockConfiguration/Rule/DefaultRetention", NULL);
    if (locked)
        cairn_cli_doctor_say(doctor, CAIRN_CLI_WARN, "object lock",
                             "deleted and aborted checkpoints are kept until it ends: the server "
                             "tries again (cairn gc --not-freed); choose a shorter one",
                             "the bucket has a default retention");
    else if (code == CAIRN_OK && (answer.status == 200 || answer.status == 404))
        cairn_cli_doctor_say(doctor, CAIRN_CLI_FINE, "object lock", "", "no default retention");
    cairn_buf_release(&answer.document);
}

void cairn_cli_doctor_bucket(struct cairn_cli_doctor *doctor, struct cairn_store *store) {
    struct cairn_store_s3_lifecycle rules = check_lifecycle(doctor, store);
    if (cairn_store_s3_writes_cold(store))
        cairn_cli_doctor_say(doctor, CAIRN_CLI_WARN, "storage class",
                             "take one that is read at once, such as STANDARD_IA or GLACIER_IR",
                             "storage_class is an archive class: what is saved cannot be read back "
                             "before it was restored");
    check_versioning(doctor, store, rules.removes_noncurrent);
    check_object_lock(doctor, store);
}
