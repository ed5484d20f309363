/* SPDX-License-Identifier: Apache-2.0 */
/* Records prove manifests, manifests prove checksums and layouts; nothing is handed out before. */
#include "uploader/fetch/version.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/text.h"
#include "store/documents.h"
#include "uploader/fetch/inside.h"

#define OTHERS_MS 1000 /* how long a list of nodes is awaited */

void cairn_up_version_shard_text(const struct cairn_up_version *version, uint32_t shard,
                                 char ret_text[900]) {
    snprintf(ret_text, 900, "%s/%s step %" PRIu64 " shard %s", version->place.name.project,
             version->place.name.run, version->place.step,
             cairn_short(version->manifest.shards[shard].name).text);
}

/* ---- which version ---- */

static bool digits_only(const char *text) {
    return *text && !text[strspn(text, "0123456789")];
}

/* latest, best, or an alias that people gave. */
static bool is_word(const char *text) {
    return *text >= 'a' && *text <= 'z' && !cairn_text_starts(text, "ckpt_") &&
           !text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-")];
}

static enum cairn_code ask_server(struct cairn_up_helper *helper,
                                  const struct cairn_up_version_request *request,
                                  struct cairn_version_place *ret, struct cairn_error *err) {
    struct cairn_rest *rest = NULL;
    struct cairn_msg_checkpoint told = {0};
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO(buf) path = {0};
    if (!is_word(request->ref) && !digits_only(request->ref) &&
        !cairn_version_id_valid(cairn_view_of(request->ref)))
        return cairn_fail(err, CAIRN_INVALID,
                          "\"%s\" is neither a step nor an alias nor a version id", request->ref);
    CAIRN_TRY(cairn_up_helper_rest(helper, &rest, err));
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/%s/checkpoints/%s", request->name->project,
                               request->name->run, request->ref));
    enum cairn_code code;
    do code = cairn_rest_call(rest, "GET", path.data, NULL,
                              cairn_up_call_ms(request->answer_by_ms, 0), &reply, err);
    while (cairn_up_helper_again(helper, code, request->answer_by_ms));
    CAIRN_TRY(code);
    CAIRN_TRY(cairn_msg_checkpoint_read(reply, "", &told, err));
    if (strcmp(told.state, "committed") != 0 || !told.recorded)
        return cairn_fail(err, CAIRN_NOT_COMMITTED, "%s is %s, not committed", told.version,
                          told.state);
    if (!cairn_version_id_valid(cairn_view_of(told.version)))
        return cairn_fail(err, CAIRN_PROTOCOL, "the server named the version \"%s\"", told.version);
    ret->step = told.step;
    (void)cairn_text_copy(ret->id.text, sizeof(ret->id.text), told.version);
    return CAIRN_OK;
}

static enum cairn_code find_place(struct cairn_up_helper *helper,
                                  const struct cairn_up_version_request *request,
                                  struct cairn_version_place *ret, bool *ret_asked,
                                  struct cairn_error *err) {
    ret->name = *request->name;
    *ret_asked = false;
    /* What the attempt resumes is known; it is found also while the server is away. */
    if (request->known_version[0] && !strcmp(request->ref, request->known_version)) {
        ret->step = request->known_step;
        (void)cairn_text_copy(ret->id.text, sizeof(ret->id.text), request->known_version);
        return CAIRN_OK;
    }
    *ret_asked = true;
    return ask_server(helper, request, ret, err);
}

/* ---- reading and proving ---- */

void cairn_up_fetch_tell_again(const char *key, const struct cairn_error *why) {
    cairn_log(WARN, "fetch.again", "key=%s cause=\"%s\"", key, why->message);
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

static enum cairn_code load_documents(struct cairn_store_worker *store,
                                      struct cairn_committed *committed, struct cairn_error *err) {
    struct cairn_document_source source = cairn_store_documents(store, cairn_up_fetch_tell_again);
    unsigned rest =
        CAIRN_DOCUMENT_BIT(MANIFEST) | CAIRN_DOCUMENT_BIT(CHECKSUMS) | CAIRN_DOCUMENT_BIT(LAYOUT);
    enum cairn_code code =
        cairn_committed_load(committed, &source, CAIRN_DOCUMENT_BIT(RECORD), err);
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          "%s has no committed record: it was deleted, or never committed",
                          committed->place.id.text);
    CAIRN_TRY(code);
    return cairn_committed_load(committed, &source, rest, err);
}

/* version.h#2: what the first store said is the answer where none has it. */
static enum cairn_code load_from_any(struct cairn_up_helper *helper,
                                     struct cairn_up_version *version,
                                     struct cairn_committed *committed, struct cairn_error *err) {
    struct cairn_up *up = helper->up;
    struct cairn_error first = {0};
    enum cairn_code told = CAIRN_OK, code = CAIRN_OK;
    for (size_t i = 0; i < up->read_count; i++) {
        CAIRN_AUTO_PTR(store_worker) worker = NULL;
        struct cairn_error why = {0};
        cairn_committed_release(committed);
        *committed = (struct cairn_committed){.place = version->place};
        code = cairn_store_worker_new(up->reads[i], &worker, &why);
        if (!code && i + 1 < up->read_count) worker->patience_ms = CAIRN_STORE_ELSEWHERE_MS;
        if (!code) code = load_documents(worker, committed, &why);
        version->store = i;
        if (!code) return CAIRN_OK;
        if (i + 1 < up->read_count)
            cairn_log(WARN, "fetch.documents_elsewhere", "version=%s store=%s cause=\"%s\"",
                      version->place.id.text, cairn_store_url(up->reads[i]), why.message);
        if (told && (told != CAIRN_NOT_FOUND || code == CAIRN_NOT_FOUND)) continue;
        told = code;
        first = why;
    }
    if (err) *err = first;
    return told;
}

static enum cairn_code load_all(struct cairn_up_helper *helper, struct cairn_up_version *version,
                                struct cairn_error *err) {
    CAIRN_AUTO(committed) committed = {.place = version->place};
    enum cairn_code code = load_from_any(helper, version, &committed, err);
    if (code)
        return cairn_within(err, code, "%s/%s step %" PRIu64 " (%s)", version->place.name.project,
                            version->place.name.run, version->place.step, version->place.id.text);
    CAIRN_TRY(hand_out(version, cairn_buf_view(&committed.manifest_text),
                       cairn_buf_view(&committed.layout_text), err));
    CAIRN_TRY(cairn_store_tags_new(helper->up->read_count * committed.manifest.shard_count,
                                   &version->tags, err));
    version->manifest = committed.manifest;
    version->checksums = (uint8_t *)CAIRN_TAKE(committed.checksums.data);
    committed.manifest = (struct cairn_manifest){0};
    return CAIRN_OK;
}

/* ---- sharing ---- */

static void version_free(struct cairn_up_version *version) {
    cairn_up_lease_end(version->fetch, version->lease);
    cairn_manifest_release(&version->manifest);
    free(version->checksums);
    cairn_store_tags_free(version->tags);
    cairn_up_roster_release(&version->division.roster);
    free(version->division.hashes);
    if (version->documents_fd >= 0) close(version->documents_fd);
    free(version);
}

/* The lock is held. */
static struct cairn_up_version *find(struct cairn_up_fetch *fetch,
                                     const struct cairn_version_place *place) {
    struct cairn_up_version *at = fetch->locked.versions;
    while (at && (strcmp(at->place.id.text, place->id.text) != 0 ||
                  memcmp(&at->place.name, &place->name, sizeof(place->name)) != 0))
        at = at->next;
    return at;
}

struct cairn_up_version *cairn_up_version_find_locked(struct cairn_up_fetch *fetch,
                                                      const struct cairn_version_place *place,
                                                      bool *ret_loading) {
    struct cairn_up_version *found = find(fetch, place);
    *ret_loading = found && found->loading;
    if (!found || found->loading) return NULL;
    found->users++;
    return found;
}

/* The loaded one, held once more; or take_fresh, which the caller is to load and others await. */
static struct cairn_up_version *join(struct cairn_up_fetch *fetch,
                                     struct cairn_up_version *take_fresh) {
    struct cairn_up_version *found = NULL;
    {
        CAIRN_HOLD(&fetch->lock);
        while ((found = find(fetch, &take_fresh->place)) && found->loading)
            (void)cairn_condition_wait(&fetch->changed, &fetch->lock, UINT64_MAX);
        if (!found) {
            take_fresh->next = fetch->locked.versions;
            fetch->locked.versions = take_fresh;
            return take_fresh;
        }
        found->users++;
        found->holders++;
    }
    free(take_fresh);
    return found;
}

static const char *choice_of(const struct cairn_up_version *version) {
    const struct cairn_up *up = version->fetch->up;
    if (!up->peers) return "by this node alone: peer_listen is not set";
    if (!strcmp(up->settings.peer_restore, "off")) return "by this node alone: peer_restore is off";
    return cairn_plan_choice_text(version->division.choice);
}

/* What came since the last note. The lock is held. */
static void note_restore(struct cairn_up_version *version) {
    struct cairn_up_restore_note note = {
        .version = version->place.id,
        .choice = choice_of(version),
        .store_bytes = version->counts.store_bytes - version->told.store_bytes,
        .shared_bytes = version->counts.shared_bytes - version->told.shared_bytes,
        .peer_bytes = version->counts.peer_bytes - version->told.peer_bytes,
        .memory_bytes = version->counts.memory_bytes - version->told.memory_bytes};
    if (!note.store_bytes && !note.shared_bytes && !note.peer_bytes && !note.memory_bytes) return;
    snprintf(note.run, sizeof(note.run), "%s/%s", version->place.name.project,
             version->place.name.run);
    version->told = version->counts;
    cairn_up_restores_note(&version->fetch->up->restores, &note);
}

/* The lock is held. */
static void forget(struct cairn_up_fetch *fetch, struct cairn_up_version *version) {
    struct cairn_up_version **at = &fetch->locked.versions;
    while (*at != version) at = &(*at)->next;
    *at = version->next;
    note_restore(version);
    cairn_up_cells_forget(&fetch->locked.cells, version);
    if (!fetch->locked.versions) cairn_up_cells_shrink(&fetch->locked.cells);
}

/* Nodes of an attempt that begins come one after another; who looks too early divides with few. */
static void await_others(struct cairn_up *up, const struct cairn_up_version *version) {
    const struct cairn_version_origin *origin = &version->manifest.origin;
    if (!up->peers || !strcmp(up->settings.peer_restore, "off")) return;
    /* Of what it saved itself: what nodes keep has changed since its list came. */
    cairn_up_members_outdate_attempt(&up->peers->members, &version->place.name, origin->attempt);
    cairn_up_members_await(&up->peers->members, &version->place.name, cairn_mono_ms() + OTHERS_MS);
}

static enum cairn_code load(struct cairn_up_helper *helper, struct cairn_up_version *version,
                            bool asked, struct cairn_error *err) {
    struct cairn_up_fetch *fetch = version->fetch;
    enum cairn_code code = cairn_up_lease_begin(fetch, &version->place, asked ? helper->rest : NULL,
                                                &version->lease, err);
    if (code == CAIRN_OK) code = load_all(helper, version, err);
    if (code == CAIRN_OK) await_others(fetch->up, version);
    {
        CAIRN_HOLD(&fetch->lock);
        version->loading = false;
        if (code) forget(fetch, version);
        cairn_condition_broadcast(&fetch->changed);
    }
    if (code) version_free(version);
    return code;
}

enum cairn_code cairn_up_version_load(struct cairn_up_helper *helper,
                                      const struct cairn_up_version_request *request,
                                      struct cairn_up_version **ret, struct cairn_error *err) {
    struct cairn_version_place place;
    bool asked = false;
    memset(&place, 0, sizeof(place)); /* compared by bytes above */
    CAIRN_TRY(find_place(helper, request, &place, &asked, err));
    struct cairn_up_version *fresh = calloc(1, sizeof(*fresh));
    if (!fresh) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a version");
    fresh->fetch = helper->up->fetch;
    fresh->place = place;
    fresh->documents_fd = -1;
    fresh->users = fresh->holders = 1;
    fresh->loading = true;
    struct cairn_up_version *version = join(fresh->fetch, fresh);
    if (version == fresh) CAIRN_TRY(load(helper, version, asked, err));
    *ret = version;
    return CAIRN_OK;
}

void cairn_up_version_unuse(struct cairn_up_version *version) {
    struct cairn_up_fetch *fetch = version->fetch;
    cairn_lock_take(&fetch->lock);
    bool last = --version->users == 0;
    if (last) forget(fetch, version);
    cairn_lock_give(&fetch->lock);
    if (last) version_free(version);
}

/* This node's share of it is in its cells, and a node whose ranks are late has yet to ask for it.
 * The lock is held. */
static void keep_for_others(struct cairn_up_version *version) {
    if (!version->peers_until_ms) version->users++;
    version->peers_until_ms = cairn_mono_ms() + CAIRN_UP_VERSION_KEPT_MS;
}

void cairn_up_version_leave(struct cairn_up_version *version) {
    if (!version) return;
    {
        CAIRN_HOLD(&version->fetch->lock);
        CAIRN_ASSERT(version->holders > 0);
        version->holders--;
        if (!version->holders && version->division.count) keep_for_others(version);
    }
    cairn_up_version_unuse(version);
}

void cairn_up_version_let_go(struct cairn_up_fetch *fetch, const char *version) {
    struct cairn_up_version *kept;
    {
        CAIRN_HOLD(&fetch->lock);
        for (kept = fetch->locked.versions; kept; kept = kept->next)
            if (kept->peers_until_ms && kept->users == 1 && !strcmp(kept->place.id.text, version))
                break;
        if (kept) kept->peers_until_ms = 0;
    }
    if (kept) cairn_up_version_unuse(kept);
}

void cairn_up_version_tick(struct cairn_up_fetch *fetch, bool all) {
    for (;;) {
        struct cairn_up_version *kept = NULL;
        {
            CAIRN_HOLD(&fetch->lock);
            uint64_t now_ms = cairn_mono_ms();
            for (kept = fetch->locked.versions; kept; kept = kept->next) note_restore(kept);
            for (kept = fetch->locked.versions; kept; kept = kept->next)
                if (kept->peers_until_ms && (all || kept->peers_until_ms <= now_ms)) break;
            if (!kept) return;
            kept->peers_until_ms = 0;
        }
        cairn_up_version_unuse(kept);
    }
}
