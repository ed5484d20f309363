/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A header that a store ignores looks like success, so each check sends something that a store with
 * that capability must refuse.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/crc.h"
#include "common/trace.h"
#include "store/s3/capabilities.h"
#include "store/s3/probe.h"

#define TOKEN "00000000-0000-4000-8000-00000000d0c7"
#define CHECK_MS 30000
#define WRONG_MS 300 /* a store that checks is asked again and again until then */
#define PART_COUNT_SMALL 1000

struct check {
    struct cairn_s3_store *store;
    struct cairn_store_worker *worker;
    const struct cairn_store_s3_probe_options *options;
    struct cairn_store_profile *profile;
    bool may_list;
    bool misstates; /* a checksum that the store stated was not that of its bytes */
    char key[96];
};

const char *cairn_store_s3_check_text(enum cairn_store_s3_check check) {
    static const char *const sentences[] = {
#define CHECK(id, name, sentence, no, hint) sentence,
#include "store/s3/checks.def"
#undef CHECK
    };
    CAIRN_ASSERT(check < CAIRN_S3_CHECK_COUNT);
    return sentences[check];
}

static void say(const struct check *check, enum cairn_store_s3_check what, bool holds) {
    if (check->options->found) check->options->found(check->options->owner, what, holds);
}

uint64_t cairn_s3_probe_deadline_ms(const struct cairn_s3_store *store, uint64_t wanted_ms) {
    uint64_t until_ms = store->config.options.probe_until_ms;
    uint64_t deadline_ms = cairn_s3_mono_ms(store) + wanted_ms;
    return until_ms ? cairn_min_u64(until_ms, deadline_ms) : deadline_ms;
}

static uint32_t limit_ms(const struct check *check) {
    uint32_t asked = check->store->config.options.probe_ms;
    return asked ? asked : CHECK_MS;
}

static struct cairn_store_request request_of(const struct check *check, enum cairn_store_op op) {
    return (struct cairn_store_request){
        .op = op,
        .key = check->key,
        .token = TOKEN,
        .deadline_ms = cairn_s3_probe_deadline_ms(check->store, limit_ms(check)),
    };
}

static struct cairn_store_request put_of(const struct check *check) {
    struct cairn_store_request put = request_of(check, CAIRN_STORE_PUT);
    put.body = CAIRN_VIEW("123456789");
    put.has_crc32c = true;
    put.crc32c = cairn_crc32c(0, put.body.data, put.body.size);
    return put;
}

/* Some state a checksum of another kind, or of other bytes. From here on none is trusted. */
static void note_stated(struct check *check, bool stated, uint32_t crc32c) {
    struct cairn_store_request put = put_of(check);
    if (!stated || crc32c == put.crc32c) return;
    check->misstates = true;
    atomic_store(&check->store->misstates, true);
}

/* The store must be writable; everything else is a finding. */
static enum cairn_code check_put(struct check *check, struct cairn_error *err) {
    struct cairn_store_request put = put_of(check);
    put.settles = true; /* check_range reads it */
    CAIRN_TRY(cairn_store_perform(check->worker, &put, err));
    note_stated(check, put.disputed, ~put.crc32c);
    say(check, CAIRN_S3_CHECK_WRITES, true);
    put = put_of(check);
    put.create = true;
    enum cairn_code code = cairn_store_perform(check->worker, &put, err);
    if (code && code != CAIRN_PRECONDITION) return code;
    check->profile->create_only_put = code == CAIRN_PRECONDITION;
    say(check, CAIRN_S3_CHECK_CREATE_PUT, check->profile->create_only_put);
    return CAIRN_OK;
}

static enum cairn_code check_head(struct check *check, struct cairn_error *err) {
    struct cairn_store_request head = request_of(check, CAIRN_STORE_HEAD);
    CAIRN_TRY(cairn_store_perform(check->worker, &head, err));
    check->profile->head_has_token = !strcmp(head.object_token, TOKEN);
    say(check, CAIRN_S3_CHECK_KEEPS_TOKEN, check->profile->head_has_token);
    note_stated(check, head.object_has_crc32c, head.object_crc32c);
    say(check, CAIRN_S3_CHECK_HEAD_CRC32C, head.object_has_crc32c);
    return CAIRN_OK;
}

static enum cairn_code check_range(struct check *check, struct cairn_error *err) {
    char into[7] = "";
    struct cairn_store_request get = request_of(check, CAIRN_STORE_GET);
    get.offset = 2;
    get.length = sizeof into;
    get.into = into;
    CAIRN_TRY(cairn_store_perform(check->worker, &get, err));
    bool right = !memcmp(into, "3456789", sizeof into);
    if (!right) return cairn_fail(err, CAIRN_CORRUPT, "a range came back with other bytes");
    say(check, CAIRN_S3_CHECK_RANGES, right);
    return CAIRN_OK;
}

/* A put whose checksum is wrong on purpose: a store that takes it does not check. */
static enum cairn_code check_checksum(struct check *check, struct cairn_error *err) {
    static const uint8_t wrong_md5[CAIRN_MD5_BYTES] = {1};
    struct cairn_store_request put = put_of(check);
    struct cairn_error why = {0};
    put.crc32c ^= 1;
    put.md5 = wrong_md5;
    put.deadline_ms = cairn_s3_mono_ms(check->store) + WRONG_MS;
    enum cairn_code code = cairn_store_perform(check->worker, &put, &why);
    /* With a status of success it was noticed here, and the store took it. */
    bool taken = code == CAIRN_SOURCE_CHANGED && why.http_status && why.http_status < 300;
    bool refused =
        !taken && (code == CAIRN_SOURCE_CHANGED || code == CAIRN_CORRUPT || code == CAIRN_TIMEOUT);
    if (code && !refused && !taken) {
        if (err) *err = why;
        return code;
    }
    check->profile->part_checksum = refused;
    say(check, CAIRN_S3_CHECK_CHECKS_BODY, refused);
    return CAIRN_OK;
}

/* Below a prefix that nothing has: whatever is listed there was not asked for. CAIRN_STORE then. */
static enum cairn_code list_nothing(struct check *check, enum cairn_store_op op,
                                    struct cairn_error *err) {
    char prefix[sizeof check->key + 8];
    struct cairn_store_listing listing = {0};
    struct cairn_store_request list = request_of(check, op);
    snprintf(prefix, sizeof prefix, "%s/none/", check->key);
    list.key = prefix;
    list.listing = &listing;
    enum cairn_code code = cairn_store_perform(check->worker, &list, err);
    cairn_store_listing_release(&listing);
    return code;
}

/* A sweep deletes what a listing returns, so a store that lists what it likes is not used. */
static enum cairn_code check_listing(struct check *check, struct cairn_error *err) {
    struct cairn_error why = {0};
    if (!check->may_list) return CAIRN_OK; /* nothing is found out by being refused */
    enum cairn_code code = list_nothing(check, CAIRN_STORE_LIST, &why);
    if (code != CAIRN_OK && code != CAIRN_STORE) return CAIRN_OK; /* doctor tells of that right */
    say(check, CAIRN_S3_CHECK_LISTS_RIGHT, code == CAIRN_OK);
    if (code && err) *err = why;
    return code;
}

/* Of two objects with one on a page: a store that cuts a listing off must say where it goes on,
 * else a version of more than 1,000 objects can be neither committed nor removed. */
static enum cairn_code check_pages(struct check *check, struct cairn_error *err) {
    CAIRN_AUTO_HEAP char *page = NULL;
    size_t seen = 0;
    enum cairn_code code = CAIRN_OK;
    for (int i = 0; i < 4 && !code; i++) {
        struct cairn_store_listing listing = {0};
        struct cairn_store_request list = request_of(check, CAIRN_STORE_LIST);
        list.page = page;
        list.page_entries = 1;
        list.listing = &listing;
        code = cairn_store_perform(check->worker, &list, err);
        seen += listing.count;
        free(page);
        page = CAIRN_TAKE(listing.next_page);
        cairn_store_listing_release(&listing);
        if (!page) break;
    }
    if (!code && seen < 2)
        code = cairn_fail(err, CAIRN_STORE, "of two objects %zu are listed, a page each", seen);
    return code;
}

/* Where these keys may list at all; a second object makes the listing longer than its page. */
static enum cairn_code check_paging(struct check *check, struct cairn_error *err) {
    struct cairn_error why = {0}, unused = {0};
    char first[sizeof check->key];
    if (!check->may_list) return CAIRN_OK;
    memcpy(first, check->key, sizeof first);
    snprintf(check->key, sizeof check->key, "%.90s-two", first);
    struct cairn_store_request put = put_of(check);
    put.settles = true;
    CAIRN_TRY(cairn_store_perform(check->worker, &put, err));
    memcpy(check->key, first, sizeof first);
    enum cairn_code code = check_pages(check, &why);
    snprintf(check->key, sizeof check->key, "%.90s-two", first);
    struct cairn_store_request remove = request_of(check, CAIRN_STORE_DELETE);
    (void)!cairn_store_perform(check->worker, &remove, &unused);
    memcpy(check->key, first, sizeof first);
    if (code == CAIRN_FORBIDDEN) return CAIRN_OK; /* doctor tells of that right */
    say(check, CAIRN_S3_CHECK_PAGES, code == CAIRN_OK);
    if (code && err) *err = why;
    return code;
}

static void check_uploads_listed(struct check *check, const char *upload_id) {
    struct cairn_store_listing listing = {0};
    struct cairn_store_request list = request_of(check, CAIRN_STORE_UPLOADS);
    if (!check->may_list) return; /* nothing is found out by being refused */
    list.key = CAIRN_S3_TEST_PREFIX;
    list.listing = &listing;
    bool listed = false;
    struct cairn_error why = {0};
    if (cairn_store_perform(check->worker, &list, &why) == CAIRN_OK)
        for (size_t i = 0; i < listing.count; i++)
            listed = listed || !strcmp(listing.entries[i].upload_id, upload_id);
    cairn_store_listing_release(&listing);
    if (listed) listed = list_nothing(check, CAIRN_STORE_UPLOADS, &why) == CAIRN_OK;
    check->profile->lists_uploads = listed;
    say(check, CAIRN_S3_CHECK_LISTS_UPLOADS, listed);
}

/* Without them a restart knows a part again only by the ETag that was noted. */
static void check_parts_listed(struct check *check, const char *upload_id) {
    struct cairn_store_part found[1] = {{0}};
    struct cairn_store_request list = request_of(check, CAIRN_STORE_UPLOAD_PARTS);
    struct cairn_error why = {0};
    list.upload_id_in = upload_id;
    list.parts = found;
    list.part_count = CAIRN_COUNT(found);
    bool listed = cairn_store_perform(check->worker, &list, &why) == CAIRN_OK;
    bool stated = listed && list.part_count && found[0].has_crc32c;
    note_stated(check, stated, found[0].crc32c);
    check->profile->lists_part_checksums = stated && !check->misstates;
    say(check, CAIRN_S3_CHECK_PART_CRC32C, check->profile->lists_part_checksums);
}

/* Some stores take no part above 1,000. */
static enum cairn_code check_part_count(struct check *check, struct cairn_error *err) {
    struct cairn_error why = {0};
    struct cairn_store_request create = request_of(check, CAIRN_STORE_UPLOAD_CREATE);
    CAIRN_TRY(cairn_store_perform(check->worker, &create, err));
    struct cairn_store_request part = put_of(check);
    part.op = CAIRN_STORE_UPLOAD_PART;
    part.upload_id_in = create.upload_id;
    part.part_number = check->profile->part_count_max;
    enum cairn_code code = cairn_store_perform(check->worker, &part, &why);
    struct cairn_store_request abort_it = request_of(check, CAIRN_STORE_UPLOAD_ABORT);
    abort_it.upload_id_in = create.upload_id;
    CAIRN_TRY(cairn_store_perform(check->worker, &abort_it, err));
    bool refused = why.http_status >= 400 && why.http_status < 500;
    if (code && !refused) {
        if (err) *err = why;
        return code;
    }
    if (refused) check->profile->part_count_max = PART_COUNT_SMALL;
    say(check, CAIRN_S3_CHECK_PART_COUNT, !refused);
    return CAIRN_OK;
}

/* Of an object made of parts: what HEAD states is what a save is compared with. */
static enum cairn_code check_joined(struct check *check, struct cairn_error *err) {
    struct cairn_store_request head = request_of(check, CAIRN_STORE_HEAD);
    CAIRN_TRY(cairn_store_perform(check->worker, &head, err));
    note_stated(check, head.object_has_crc32c, head.object_crc32c);
    return CAIRN_OK;
}

/* A complete that was refused because the key is taken, once more without asking for that. Some
 * have forgotten the upload by then. */
static enum cairn_code complete_again(struct check *check, struct cairn_store_request *complete,
                                      struct cairn_error *err) {
    struct cairn_error ignored = {0};
    complete->create = false;
    if (cairn_store_perform(check->worker, complete, &ignored) == CAIRN_OK)
        return check_joined(check, err);
    struct cairn_store_request abort_it = request_of(check, CAIRN_STORE_UPLOAD_ABORT);
    abort_it.upload_id_in = complete->upload_id_in;
    return cairn_store_perform(check->worker, &abort_it, err);
}

/* One part, completed onto a key that is taken. */
static enum cairn_code check_multipart(struct check *check, struct cairn_error *err) {
    struct cairn_store_request create = request_of(check, CAIRN_STORE_UPLOAD_CREATE);
    CAIRN_TRY(cairn_store_perform(check->worker, &create, err));
    check_uploads_listed(check, create.upload_id);
    struct cairn_store_request part = put_of(check);
    part.op = CAIRN_STORE_UPLOAD_PART;
    part.upload_id_in = create.upload_id;
    part.part_number = 1;
    CAIRN_TRY(cairn_store_perform(check->worker, &part, err));
    check_parts_listed(check, create.upload_id);
    struct cairn_store_part parts[1] = {{1, part.body.size, true, part.crc32c, ""}};
    memcpy(parts[0].etag, part.etag, sizeof parts[0].etag);
    struct cairn_store_request complete = request_of(check, CAIRN_STORE_UPLOAD_COMPLETE);
    complete.upload_id_in = create.upload_id;
    complete.parts = parts;
    complete.part_count = 1;
    complete.length = part.body.size;
    complete.has_crc32c = true;
    complete.crc32c = part.crc32c;
    complete.create = true;
    enum cairn_code code = cairn_store_perform(check->worker, &complete, err);
    if (code && code != CAIRN_PRECONDITION) return code;
    check->profile->create_only_complete = code == CAIRN_PRECONDITION;
    CAIRN_TRY(code ? complete_again(check, &complete, err) : check_joined(check, err));
    say(check, CAIRN_S3_CHECK_CREATE_COMPLETE, check->profile->create_only_complete);
    return CAIRN_OK;
}

/* A store that states wrong checksums is no judge of CRC32C. Perhaps it is one of Content-MD5. */
static enum cairn_code check_stated(struct check *check, struct cairn_error *err) {
    struct cairn_s3_store *store = check->store;
    bool choose = check->misstates && store->config.options.checksum == CAIRN_S3_CHECKSUM_AUTO;
    say(check, CAIRN_S3_CHECK_STATES_RIGHT, !check->misstates);
    if (check->misstates) check->profile->lists_part_checksums = false;
    if (choose) atomic_store(&store->checksum, CAIRN_S3_CHECKSUM_MD5);
    CAIRN_TRY(check_checksum(check, err));
    if (choose && !check->profile->part_checksum)
        atomic_store(&store->checksum, CAIRN_S3_CHECKSUM_NONE);
    return CAIRN_OK;
}

static enum cairn_code check_all(struct check *check, struct cairn_error *err) {
    CAIRN_TRY(check_put(check, err));
    CAIRN_TRY(check_head(check, err));
    CAIRN_TRY(check_range(check, err));
    CAIRN_TRY(check_listing(check, err));
    CAIRN_TRY(check_paging(check, err));
    CAIRN_TRY(check_multipart(check, err));
    CAIRN_TRY(check_part_count(check, err));
    CAIRN_TRY(check_stated(check, err));
    return CAIRN_OK;
}

enum cairn_code cairn_s3_probe_run(struct cairn_s3_store *store,
                                   const struct cairn_s3_probe_scope *how,
                                   struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    CAIRN_TRY(cairn_store_worker_new(&store->base, &worker, err));
    struct cairn_store_profile found = store->base.profile;
    struct check check = {.store = store,
                          .worker = worker,
                          .options = how->options,
                          .profile = &found,
                          .may_list = how->may_list};
    char id[CAIRN_UUID_TEXT_BYTES];
    cairn_uuid_random(id);
    snprintf(check.key, sizeof check.key, CAIRN_S3_TEST_PREFIX "%s", id);
    enum cairn_code code = how->check_alone ? check_checksum(&check, err) : check_all(&check, err);
    /* Without the right to delete the object stays; the server's sweep removes it. */
    struct cairn_store_request remove = request_of(&check, CAIRN_STORE_DELETE);
    say(&check, CAIRN_S3_CHECK_DELETES, cairn_store_perform(worker, &remove, NULL) == CAIRN_OK);
    if (code) return cairn_within(err, code, "testing the store");
    cairn_s3_profile_note(&found);
    store->base.profile = found;
    return CAIRN_OK;
}
