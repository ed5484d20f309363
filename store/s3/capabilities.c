/* SPDX-License-Identifier: Apache-2.0 */
/* The findings of a probe are kept in profile.json: whether it is recent and of this endpoint
 * decides whether a start probes. Also removes what interrupted probes left in the store. */
#include "store/s3/capabilities.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/text.h"
#include "store/purge.h"
#include "store/s3/bucket.h"
#include "store/s3/place.h"
#include "store/s3/probe.h"

#define READ_MS 30000
#define DOCUMENT_BYTES_MAX (64 * CAIRN_KIB)
#define AHEAD_MS_MAX 3600000 /* of a document that says that it was written in our future */
#define LEFT_OVER_MS 3600000 /* by the store's clock, which ours is held against */
#define PAGES_MAX 10000

/* The wall clock, corrected by the `Date` of the store's replies. */
static int64_t now_ms(const struct cairn_s3_store *store) {
    return store->clock->wall_ms(store->clock) + atomic_load(&store->clock_offset_ms);
}

static uint64_t deadline_ms(const struct cairn_s3_store *store) {
    uint32_t asked = store->config.options.probe_ms;
    return cairn_s3_probe_deadline_ms(store, asked ? asked : READ_MS);
}

/* ---- reading ---- */

static enum cairn_code read_document(struct cairn_s3_store *store, struct cairn_buf *ret,
                                     struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    CAIRN_TRY(cairn_store_worker_new(&store->base, &worker, err));
    struct cairn_store_request head = {
        .op = CAIRN_STORE_HEAD, .key = CAIRN_S3_PROFILE_KEY, .deadline_ms = deadline_ms(store)};
    CAIRN_TRY(cairn_store_perform(worker, &head, err));
    if (!head.object_bytes || head.object_bytes > DOCUMENT_BYTES_MAX)
        return cairn_fail(err, CAIRN_CORRUPT, "profile.json has %" PRIu64 " bytes",
                          head.object_bytes);
    CAIRN_TRY(cairn_buf_reserve(ret, (size_t)head.object_bytes, err));
    struct cairn_store_request get = {.op = CAIRN_STORE_GET,
                                      .key = CAIRN_S3_PROFILE_KEY,
                                      .length = head.object_bytes,
                                      .into = ret->data,
                                      .deadline_ms = deadline_ms(store)};
    memcpy(get.etag, head.etag, sizeof get.etag);
    CAIRN_TRY(cairn_store_perform(worker, &get, err));
    ret->size = (size_t)head.object_bytes;
    ret->data[ret->size] = '\0';
    return CAIRN_OK;
}

static enum cairn_code trust(const struct cairn_s3_store *store,
                             const struct cairn_s3_findings *findings,
                             const struct cairn_store_s3_place *place, struct cairn_error *err) {
    int64_t age_ms = now_ms(store) - findings->tested_ms;
    if (strcmp(findings->endpoint, place->endpoint) != 0)
        return cairn_fail(err, CAIRN_NOT_FOUND, "profile.json is of %.100s", findings->endpoint);
    if (age_ms > CAIRN_S3_PROFILE_AGE_MS_MAX || age_ms < -AHEAD_MS_MAX)
        return cairn_fail(err, CAIRN_NOT_FOUND, "profile.json is too old or from the future");
    return CAIRN_OK;
}

/* NOT_FOUND: there is no profile.json that can be trusted, and why. A key that may not list gets
 * 403 instead of 404 for a missing object, so FORBIDDEN means absent here. */
static enum cairn_code load(struct cairn_s3_store *store, struct cairn_s3_findings *ret,
                            struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = DOCUMENT_BYTES_MAX};
    struct cairn_store_s3_place place;
    struct cairn_error why = {0};
    enum cairn_code code = read_document(store, &text, &why);
    bool refused = code == CAIRN_FORBIDDEN && why.http_status == 403; /* not a certificate */
    if (code == CAIRN_NOT_FOUND || refused)
        return cairn_fail(err, CAIRN_NOT_FOUND, "there is no profile.json");
    if (code == CAIRN_OK) code = cairn_s3_profile_decode(cairn_buf_view(&text), ret, &why);
    store->findings_foreign = code == CAIRN_UNSUPPORTED;
    if (code == CAIRN_UNSUPPORTED || code == CAIRN_CORRUPT || code == CAIRN_PRECONDITION)
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s", why.message);
    if (code) {
        if (err) *err = why;
        return code;
    }
    (void)cairn_store_s3_place(&store->base, &place); /* after a region was corrected */
    return trust(store, ret, &place, err);
}

/* ---- probing ---- */

static enum cairn_code probe(struct cairn_s3_store *store,
                             const struct cairn_store_s3_probe_options *options, bool check_alone,
                             struct cairn_error *err) {
    struct cairn_s3_probe_scope how = {
        .may_list = options->may_list, .check_alone = check_alone, .options = options};
    CAIRN_TRY(cairn_s3_probe_run(store, &how, err));
    if (check_alone) return CAIRN_OK;
    store->findings = (struct cairn_s3_findings){.tested_ms = now_ms(store)};
    (void)cairn_text_copy(store->findings.by, sizeof store->findings.by, options->by);
    store->findings_stored = false;
    return CAIRN_OK;
}

enum cairn_code cairn_store_s3_probe(struct cairn_store *base,
                                     const struct cairn_store_s3_probe_options *options,
                                     char ret_from[160], struct cairn_error *err) {
    struct cairn_s3_store *store = NULL;
    struct cairn_s3_findings findings = {0};
    struct cairn_error why = {0};
    char unused[160], at[32], *from = ret_from ? ret_from : unused;
    CAIRN_TRY(cairn_s3_of(base, &store, err));
    /* Also where all is tested anew: what refuses the first request of a daemon must show here. */
    enum cairn_code code = load(store, &findings, &why);
    if (!code && options->anew) code = cairn_fail(&why, CAIRN_NOT_FOUND, "asked for");
    if (code && code != CAIRN_NOT_FOUND) {
        if (err) *err = why;
        return code;
    }
    if (code) {
        snprintf(from, 160, "a test now: %.120s", why.message);
        return probe(store, options, false, err);
    }
    bool check_known = false;
    cairn_s3_profile_adopt(store, &findings, &check_known);
    store->findings = findings;
    store->findings_stored = true;
    cairn_time_text(findings.tested_ms, false, at);
    snprintf(from, 160, "profile.json, tested by %s at %s", findings.by, at);
    return check_known ? CAIRN_OK : probe(store, options, true, err);
}

static void write_line(void *owner, enum cairn_store_s3_check check, bool holds) {
    (void)!cairn_buf_printf(owner, NULL, "%s: %s\n", cairn_store_s3_check_text(check),
                            holds ? "yes" : "no");
}

enum cairn_code cairn_store_s3_probe_all(struct cairn_store *base, struct cairn_buf *ret_report,
                                         struct cairn_error *err) {
    struct cairn_store_s3_probe_options all = {.by = "doctor", .may_list = true, .anew = true};
    if (ret_report) all.found = write_line;
    all.owner = ret_report;
    return cairn_store_s3_probe(base, &all, NULL, err);
}

/* Versioning may be switched on at any time, so a start asks even where profile.json is trusted.
 * Where the keys may not ask, what the replies to puts and deletes have said holds. */
static void ask_versioning(struct cairn_s3_store *store) {
    static const char status[] = "VersioningConfiguration/Status";
    struct cairn_store_s3_answer answer = {0};
    struct cairn_error unused = {0};
    enum cairn_code code = cairn_store_s3_query(&store->base, "versioning", &answer, &unused);
    if (code == CAIRN_OK && cairn_store_s3_answer_has(&answer, "VersioningConfiguration", NULL))
        atomic_store(&store->keeps_versions,
                     cairn_store_s3_answer_has(&answer, status, "Enabled") ||
                         cairn_store_s3_answer_has(&answer, status, "Suspended"));
    cairn_buf_release(&answer.document);
}

enum cairn_code cairn_s3_probe(struct cairn_store *base, const char *by, bool may_list,
                               char ret_from[160], struct cairn_error *err) {
    struct cairn_store_s3_probe_options options = {.by = by, .may_list = may_list};
    CAIRN_TRY(cairn_store_s3_probe(base, &options, ret_from, err));
    if (may_list) ask_versioning((struct cairn_s3_store *)base);
    return CAIRN_OK;
}

/* ---- writing ---- */

/* Whether replies contradicted the findings. That a store no longer compares checksums shows in no
 * reply, so only a probe finds that. */
bool cairn_s3_profile_wrong(struct cairn_s3_store *store) {
    struct cairn_s3_findings now;
    if (!store->findings_stored) return false;
    cairn_s3_profile_take(store, &now);
    bool md5 = now.method == CAIRN_S3_CHECKSUM_MD5 && store->findings.method != now.method;
    bool refused =
        now.create_put == CAIRN_S3_REFUSED && store->findings.create_put != now.create_put;
    return md5 || refused || (now.misstates && !store->findings.misstates);
}

static enum cairn_code put_document(struct cairn_s3_store *store, struct cairn_view text,
                                    struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    CAIRN_TRY(cairn_store_worker_new(&store->base, &worker, err));
    struct cairn_store_request put = {.op = CAIRN_STORE_PUT,
                                      .key = CAIRN_S3_PROFILE_KEY,
                                      .body = text,
                                      .deadline_ms = deadline_ms(store)};
    return cairn_store_perform(worker, &put, err);
}

enum cairn_code cairn_s3_profile_save(struct cairn_store *base, bool *ret_written,
                                      struct cairn_error *err) {
    struct cairn_s3_store *store = (struct cairn_s3_store *)base;
    struct cairn_s3_findings findings;
    CAIRN_AUTO(buf) text = {0};
    *ret_written = false;
    bool versions = atomic_load(&store->keeps_versions) != store->findings.keeps_versions;
    bool worth = !store->findings_stored || versions || cairn_s3_profile_wrong(store);
    if (!worth || store->findings_foreign || !store->findings.tested_ms) return CAIRN_OK;
    cairn_s3_profile_take(store, &findings);
    /* A method that a setting kept from being probed here stays as profile.json has it. */
    if (store->findings_stored && findings.method == CAIRN_S3_CHECKSUM_AUTO)
        findings.method = store->findings.method;
    CAIRN_TRY(cairn_s3_profile_encode(&findings, &text, err));
    CAIRN_TRY(put_document(store, cairn_buf_view(&text), err));
    store->findings = findings;
    store->findings_stored = true;
    *ret_written = true;
    return CAIRN_OK;
}

/* ---- what interrupted probes left ---- */

struct tidying {
    struct cairn_s3_store *store;
    struct cairn_store_worker *worker;
    int64_t before_ms;
};

static enum cairn_code remove_old(struct tidying *tidying,
                                  const struct cairn_store_listing *listing,
                                  struct cairn_error *err) {
    for (size_t i = 0; i < listing->count; i++) {
        const struct cairn_store_entry *entry = &listing->entries[i];
        if (!entry->modified_ms || entry->modified_ms >= tidying->before_ms) continue;
        struct cairn_store_request remove = {.op = entry->upload_id ? CAIRN_STORE_UPLOAD_ABORT
                                                                    : CAIRN_STORE_DELETE,
                                             .key = entry->key,
                                             .upload_id_in = entry->upload_id,
                                             .deadline_ms = deadline_ms(tidying->store)};
        CAIRN_TRY(cairn_store_perform(tidying->worker, &remove, err));
    }
    return CAIRN_OK;
}

static enum cairn_code tidy_all(struct tidying *tidying, enum cairn_store_op op,
                                struct cairn_error *err) {
    CAIRN_AUTO_HEAP char *page = NULL;
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < PAGES_MAX && !code; i++) {
        struct cairn_store_listing listing = {0};
        struct cairn_store_request list = {.op = op,
                                           .key = CAIRN_S3_TEST_PREFIX,
                                           .page = page,
                                           .listing = &listing,
                                           .deadline_ms = deadline_ms(tidying->store)};
        code = cairn_store_perform(tidying->worker, &list, err);
        if (!code) code = remove_old(tidying, &listing, err);
        free(page);
        page = CAIRN_TAKE(listing.next_page);
        cairn_store_listing_release(&listing);
        if (!page) break;
    }
    if (!code && page)
        code = cairn_fail(err, CAIRN_TOO_LARGE, "%s has more than %d pages", CAIRN_S3_TEST_PREFIX,
                          PAGES_MAX);
    return code;
}

enum cairn_code cairn_s3_tidy(struct cairn_store *base, struct cairn_error *err) {
    struct tidying tidying = {.store = (struct cairn_s3_store *)base};
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    CAIRN_TRY(cairn_store_worker_new(base, &worker, err));
    tidying.worker = worker;
    tidying.before_ms = now_ms(tidying.store) - LEFT_OVER_MS;
    struct cairn_store_purge purge = {.prefix = CAIRN_S3_TEST_PREFIX,
                                      .before_ms = tidying.before_ms};
    CAIRN_TRY(tidy_all(&tidying, CAIRN_STORE_LIST, err));
    CAIRN_TRY(tidy_all(&tidying, CAIRN_STORE_UPLOADS, err));
    return cairn_store_purge(worker, &purge, err);
}
