/* SPDX-License-Identifier: Apache-2.0 */
/* Records prove manifests, manifests prove checksums and layouts; nothing is handed out before. */
#include "uploader/fetch/version.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/table.h"
#include "common/encode.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/text.h"
#include "common/utf8.h"
#include "uploader/fetch/inside.h"

#define BLOCKS_MAX (UINT64_C(1) << 26) /* 64 TiB: 256 MiB of checksums */

void cairn_up_version_shard_text(const struct cairn_up_version *version, uint32_t shard,
                                 char ret_text[900]) {
    snprintf(ret_text, 900, "%s/%s step %" PRIu64 " shard %s", version->place.name.project,
             version->place.name.run, version->place.step,
             cairn_short(version->manifest.shards[shard].name).text);
}

static enum cairn_code damaged(const struct cairn_up_version *version, const char *what,
                               struct cairn_error *err) {
    return cairn_fail(err, CAIRN_CORRUPT, "%s/%s step %" PRIu64 " (%s): %s",
                      version->place.name.project, version->place.name.run, version->place.step,
                      version->place.id.text, what);
}

/* ---- which version ---- */

static bool digits_only(const char *text) {
    return *text && !text[strspn(text, "0123456789")];
}

static enum cairn_code ask_server(struct cairn_up_helper *helper,
                                  const struct cairn_up_version_wish *wish,
                                  struct cairn_version_place *ret, struct cairn_error *err) {
    struct cairn_rest *rest = NULL;
    const char *version = NULL, *state = NULL;
    bool recorded = false;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO(buf) path = {0};
    if (strcmp(wish->ref, "latest") != 0 && !digits_only(wish->ref) &&
        !cairn_version_id_valid(cairn_view_of(wish->ref)))
        return cairn_fail(err, CAIRN_INVALID,
                          "\"%s\" is neither \"latest\" nor a step nor a version id", wish->ref);
    CAIRN_TRY(cairn_up_helper_rest(helper, &rest, err));
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/%s/checkpoints/%s", wish->name->project,
                               wish->name->run, wish->ref));
    CAIRN_TRY(cairn_rest_call(rest, "GET", path.data, NULL, 0, &reply, err));
    const struct cairn_json_field fields[] = {
        {"version", CAIRN_JSON_TEXT, true, &version, CAIRN_VERSION_ID_BYTES - 1},
        {"state", CAIRN_JSON_TEXT, true, &state, 32},
        {"recorded", CAIRN_JSON_BOOL, false, &recorded, 0},
        {"step", CAIRN_JSON_U64, true, &ret->step, CAIRN_STEP_MAX},
    };
    CAIRN_TRY(cairn_json_read(reply, "", fields, CAIRN_COUNT(fields), true, err));
    if (strcmp(state, "committed") != 0 || !recorded)
        return cairn_fail(err, CAIRN_NOT_COMMITTED, "%s is %s, not committed", version, state);
    if (!cairn_version_id_valid(cairn_view_of(version)))
        return cairn_fail(err, CAIRN_PROTOCOL, "the server named the version \"%s\"", version);
    (void)cairn_text_copy(ret->id.text, sizeof(ret->id.text), version);
    return CAIRN_OK;
}

static enum cairn_code find_place(struct cairn_up_helper *helper,
                                  const struct cairn_up_version_wish *wish,
                                  struct cairn_version_place *ret, struct cairn_error *err) {
    ret->name = *wish->name;
    /* What the attempt resumes is known; it is found also while the server is away. */
    if (wish->known_version[0] && !strcmp(wish->ref, wish->known_version)) {
        ret->step = wish->known_step;
        (void)cairn_text_copy(ret->id.text, sizeof(ret->id.text), wish->known_version);
        return CAIRN_OK;
    }
    return ask_server(helper, wish, ret, err);
}

/* ---- reading and proving ---- */

static enum cairn_code get(struct cairn_store_worker *store, const struct cairn_up_version *version,
                           const struct cairn_key *key, struct cairn_buf *ret,
                           struct cairn_error *err) {
    enum cairn_code code = cairn_store_get_small(store, key->text, ret, err);
    if (code == CAIRN_NOT_FOUND) {
        char what[160];
        snprintf(what, sizeof(what), "%s is missing from the store", cairn_short(key->text).text);
        return damaged(version, what, err);
    }
    return code;
}

static enum cairn_code load_manifest(struct cairn_store_worker *store,
                                     struct cairn_up_version *version, struct cairn_buf *ret_text,
                                     struct cairn_error *err) {
    struct cairn_key key;
    struct cairn_record record;
    CAIRN_AUTO(buf) text = {.limit = CAIRN_MIB};
    cairn_key_committed(&version->place, &key);
    enum cairn_code code = cairn_store_get_small(store, key.text, &text, err);
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          "%s has no committed record: it was deleted, or never committed",
                          version->place.id.text);
    CAIRN_TRY(code);
    if (cairn_record_decode(cairn_buf_view(&text), &record, err) != CAIRN_OK)
        return damaged(version, "committed.json is malformed", err);
    if (strcmp(record.id.text, version->place.id.text) != 0)
        return damaged(version, "committed.json is of another version", err);
    cairn_key_manifest(&version->place, &key);
    ret_text->limit = CAIRN_MANIFEST_BYTES_MAX;
    CAIRN_TRY(get(store, version, &key, ret_text, err));
    uint8_t digest[32];
    cairn_sha256_of(cairn_buf_view(ret_text), digest);
    if (memcmp(digest, record.manifest_sha256, sizeof(digest)) != 0)
        return damaged(version, "manifest.json does not match the digest in committed.json", err);
    CAIRN_TRY(cairn_manifest_decode(cairn_buf_view(ret_text), &version->manifest, err));
    if (strcmp(version->manifest.id.text, version->place.id.text) != 0)
        return damaged(version, "manifest.json is of another version", err);
    return CAIRN_OK;
}

static enum cairn_code load_checksums(struct cairn_store_worker *store,
                                      struct cairn_up_version *version, struct cairn_error *err) {
    struct cairn_key key;
    uint64_t bytes = 4 * version->manifest.block_count;
    if (version->manifest.block_count > BLOCKS_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "%" PRIu64 " blocks",
                          version->manifest.block_count);
    CAIRN_AUTO(buf) text = {.limit = bytes + 1};
    cairn_key_checksums(&version->place, &key);
    CAIRN_TRY(get(store, version, &key, &text, err));
    uint8_t digest[32];
    cairn_sha256_of(cairn_buf_view(&text), digest);
    if (text.size != bytes ||
        memcmp(digest, version->manifest.checksums_sha256, sizeof(digest)) != 0)
        return damaged(version, "checksums.bin does not match the digest in manifest.json", err);
    version->checksums = (uint8_t *)CAIRN_TAKE(text.data);
    return CAIRN_OK;
}

static enum cairn_code prove_layout(const struct cairn_up_version *version, struct cairn_view bytes,
                                    struct cairn_error *err) {
    struct cairn_layout layout = {0};
    enum cairn_code code = cairn_layout_open(bytes, &layout, err);
    if (code != CAIRN_OK) return damaged(version, "the layout object is malformed", err);
    uint32_t *ranks = calloc(layout.table_count + 1, sizeof(*ranks));
    uint8_t(*digests)[32] = calloc(layout.table_count + 1, sizeof(*digests));
    uint8_t digest[32];
    if (ranks && digests) {
        for (uint32_t i = 0; i < layout.table_count; i++) {
            ranks[i] = layout.tables[i].rank;
            cairn_table_digest(layout.tables[i].bytes, digests[i]);
        }
        cairn_layout_digest(ranks, (const uint8_t(*)[32])digests, layout.table_count, digest);
        if (memcmp(digest, version->manifest.layout_digest, sizeof(digest)) != 0)
            code = damaged(version, "the layout object does not match the digest in manifest.json",
                           err);
    } else {
        code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a layout");
    }
    free(ranks);
    free(digests);
    cairn_layout_release(&layout);
    return code;
}

static enum cairn_code load_layout(struct cairn_store_worker *store,
                                   const struct cairn_up_version *version, struct cairn_buf *ret,
                                   struct cairn_error *err) {
    if (!version->manifest.has_layout) return CAIRN_OK;
    struct cairn_key key;
    cairn_key_layout(&version->place.name, version->manifest.layout_digest,
                     &version->manifest.layout_writer, &key);
    ret->limit = CAIRN_LAYOUT_BYTES_MAX;
    CAIRN_TRY(get(store, version, &key, ret, err));
    return prove_layout(version, cairn_buf_view(ret), err);
}

static enum cairn_code write_all(int fd, struct cairn_view bytes, struct cairn_error *err) {
    const char *at = bytes.data;
    for (size_t left = bytes.size; left;) {
        ssize_t wrote = write(fd, at, left);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return cairn_fail_errno(err, "memory for the manifest");
        at += wrote;
        left -= (size_t)wrote;
    }
    return CAIRN_OK;
}

static enum cairn_code hand_out(struct cairn_up_version *version, struct cairn_view manifest,
                                struct cairn_view layout, struct cairn_error *err) {
    CAIRN_AUTO_FD fd = memfd_create("cairn-documents", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return cairn_fail_errno(err, "memory for the manifest");
    CAIRN_TRY(write_all(fd, manifest, err));
    CAIRN_TRY(write_all(fd, layout, err));
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL))
        return cairn_fail_errno(err, "sealing the manifest's memory");
    version->manifest_bytes = manifest.size;
    version->layout_bytes = layout.size;
    version->documents_fd = fd;
    fd = -1;
    return CAIRN_OK;
}

static enum cairn_code load_from(struct cairn_store_worker *store, struct cairn_up_version *version,
                                 struct cairn_error *err) {
    CAIRN_AUTO(buf) manifest = {0};
    CAIRN_AUTO(buf) layout = {0};
    CAIRN_TRY(load_manifest(store, version, &manifest, err));
    CAIRN_TRY(cairn_store_tags_new(version->manifest.shard_count, &version->tags, err));
    CAIRN_TRY(load_checksums(store, version, err));
    CAIRN_TRY(load_layout(store, version, &layout, err));
    return hand_out(version, cairn_buf_view(&manifest), cairn_buf_view(&layout), err);
}

static void forget_documents(struct cairn_up_version *version) {
    cairn_manifest_release(&version->manifest);
    free(version->checksums);
    cairn_store_tags_free(version->tags);
    version->manifest = (struct cairn_manifest){0};
    version->checksums = NULL;
    version->tags = NULL;
}

static enum cairn_code load_all(struct cairn_up_helper *helper, struct cairn_up_version *version,
                                struct cairn_error *err) {
    struct cairn_store_worker *store = NULL;
    struct cairn_error why = {0};
    CAIRN_TRY(cairn_up_helper_store(helper, &store, err));
    enum cairn_code code = load_from(store, version, &why);
    if (code == CAIRN_CORRUPT) { /* S17: once more, over connections of its own */
        CAIRN_AUTO_PTR(store_worker) other = NULL;
        cairn_log(WARN, "fetch.again", "cause=\"%s\"", why.message);
        forget_documents(version);
        code = cairn_store_worker_new(helper->up->store, &other, &why);
        if (code == CAIRN_OK) code = load_from(other, version, &why);
    }
    if (code != CAIRN_OK && err) *err = why;
    return code;
}

/* ---- sharing ---- */

static void version_free(struct cairn_up_version *version) {
    forget_documents(version);
    if (version->documents_fd >= 0) close(version->documents_fd);
    free(version);
}

static struct cairn_up_version *find_loaded(struct cairn_up_fetch *fetch,
                                            const struct cairn_version_place *place) {
    CAIRN_HOLD(&fetch->lock);
    for (struct cairn_up_version *at = fetch->locked.versions; at; at = at->next) {
        if (strcmp(at->place.id.text, place->id.text) != 0 ||
            memcmp(&at->place.name, &place->name, sizeof(place->name)) != 0)
            continue;
        at->users++;
        return at;
    }
    return NULL;
}

enum cairn_code cairn_up_version_load(struct cairn_up_helper *helper,
                                      const struct cairn_up_version_wish *wish,
                                      struct cairn_up_version **ret, struct cairn_error *err) {
    struct cairn_up_fetch *fetch = helper->up->fetch;
    struct cairn_version_place place;
    memset(&place, 0, sizeof(place)); /* compared by bytes above */
    CAIRN_TRY(find_place(helper, wish, &place, err));
    struct cairn_up_version *version = find_loaded(fetch, &place);
    if (version) {
        *ret = version;
        return CAIRN_OK;
    }
    version = calloc(1, sizeof(*version));
    if (!version) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a version");
    version->fetch = fetch;
    version->place = place;
    version->documents_fd = -1;
    version->users = 1;
    enum cairn_code code = load_all(helper, version, err);
    if (code != CAIRN_OK) {
        version_free(version);
        return code;
    }
    CAIRN_HOLD(&fetch->lock);
    version->next = fetch->locked.versions;
    fetch->locked.versions = version;
    *ret = version;
    return CAIRN_OK;
}

void cairn_up_version_leave(struct cairn_up_version *version) {
    if (!version) return;
    struct cairn_up_fetch *fetch = version->fetch;
    cairn_lock_take(&fetch->lock);
    bool last = --version->users == 0;
    if (last) {
        struct cairn_up_version **at = &fetch->locked.versions;
        while (*at != version) at = &(*at)->next;
        *at = version->next;
    }
    cairn_lock_give(&fetch->lock);
    if (last) version_free(version);
}
