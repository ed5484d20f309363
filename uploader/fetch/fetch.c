/* SPDX-License-Identifier: Apache-2.0 */
/* Versions: the server's choice, lease, proven documents; windows, and reads into them. */
#include "uploader/fetch/fetch.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/buf.h"
#include "common/memory.h"
#include "common/text.h"
#include "plan/reads.h"
#include "store/whole.h"
#include "uploader/fetch/inside.h"
#include "uploader/saves/slabs.h"

/* ---- leases ---- */

#define AGAIN_MS 5000 /* after a failure */
#define OVER_MAX 1000

static bool is_too_late(enum cairn_code code) {
    return code == CAIRN_DELETED || code == CAIRN_ABORTED;
}

static enum cairn_code connect_server(struct cairn_up_fetch *fetch, struct cairn_error *err) {
    struct cairn_up_leases *leases = &fetch->leases;
    return leases->rest ? CAIRN_OK : cairn_up_rest_new(fetch->up, 0, &leases->rest, err);
}

static void log_once(struct cairn_up_lease *lease, const struct cairn_error *why) {
    if (!lease->logged)
        cairn_log(WARN, "restore.unleased", "version=%s cause=\"%s\"", lease->lease.version.text,
                  why->message);
    lease->logged = true;
}

/* Gives an ended lease back once; after a failure it expires by itself. */
static void call_lease(struct cairn_up_fetch *fetch, struct cairn_up_lease *lease, bool over,
                       bool asks) {
    struct cairn_error why = {0};
    enum cairn_code code = asks ? connect_server(fetch, &why) : CAIRN_OK;
    if (!code && over && asks)
        code = cairn_read_lease_give(&lease->lease, fetch->leases.rest, &why);
    uint64_t asked_ms = cairn_mono_ms(); /* the server's clock starts no earlier */
    if (!code && !over) code = cairn_read_lease_keep(&lease->lease, fetch->leases.rest, &why);
    if (code && !over) log_once(lease, &why);
    if (!code) lease->logged = false;
    CAIRN_HOLD(&fetch->lock);
    uint64_t wait_ms = !code               ? cairn_read_lease_every_ms(&lease->lease)
                       : is_too_late(code) ? UINT32_MAX
                                           : AGAIN_MS;
    if (over) {
        struct cairn_up_lease **at = &fetch->leases.first;
        while (*at != lease) at = &(*at)->next;
        *at = lease->next;
        fetch->leases.over_count -= lease->over;
        free(lease);
        cairn_condition_broadcast(&fetch->changed);
    } else {
        lease->due_ms = lease->over ? 0 : (code ? cairn_mono_ms() : asked_ms) + wait_ms;
    }
}

static void lease_main(struct cairn_thread *thread, void *owner) {
    struct cairn_up_fetch *fetch = owner;
    uint64_t until_ms = 0;
    bool asks = true;
    while (cairn_thread_wait(thread, until_ms)) {
        cairn_lock_take(&fetch->lock);
        struct cairn_up_lease *lease = NULL;
        for (struct cairn_up_lease *at = fetch->leases.first; at; at = at->next)
            if (!lease || at->due_ms < lease->due_ms) lease = at;
        bool over = lease && lease->over;
        asks = !over || fetch->leases.over_count <= OVER_MAX;
        until_ms = lease ? lease->due_ms : UINT64_MAX;
        cairn_lock_give(&fetch->lock);
        if (!lease || until_ms > cairn_mono_ms()) continue;
        call_lease(fetch, lease, over, asks);
        until_ms = 0;
    }
}

static void name_lease(struct cairn_up_fetch *fetch, struct cairn_up_lease *lease) {
    const struct cairn_up *up = fetch->up;
    cairn_lock_take(&fetch->lock);
    uint64_t number = ++fetch->leases.count;
    cairn_lock_give(&fetch->lock);
    /* A name of its own, so that no other restore's lease is given back. */
    snprintf(lease->lease.job, sizeof(lease->lease.job), "node %s %s/%" PRIu64, up->places.node,
             up->uuid, number);
}

/* Leases a version during its load, on a helper thread. rest NULL: the lease thread requests it
 * later. CAIRN_DELETED, CAIRN_ABORTED: too late. */
static enum cairn_code lease_begin(struct cairn_up_fetch *fetch,
                                   const struct cairn_version_place *place, struct cairn_rest *rest,
                                   struct cairn_up_lease **ret, struct cairn_error *err) {
    struct cairn_up_lease *lease = calloc(1, sizeof(*lease));
    if (!lease) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a lease");
    lease->lease.name = place->name;
    lease->lease.version = place->id;
    lease->lease.ttl_s = (uint32_t)(fetch->up->settings.restore_lease_ms / 1000);
    name_lease(fetch, lease);
    struct cairn_error why = {0};
    uint64_t asked_ms = cairn_mono_ms();
    enum cairn_code code = rest ? cairn_read_lease_keep(&lease->lease, rest, &why) : CAIRN_OK;
    if (is_too_late(code)) {
        free(lease);
        return cairn_pass(err, code, &why);
    }
    if (code) log_once(lease, &why);
    lease->due_ms = lease->lease.id[0] ? asked_ms + cairn_read_lease_every_ms(&lease->lease) : 0;
    *ret = lease;
    cairn_lock_take(&fetch->lock);
    lease->next = fetch->leases.first;
    fetch->leases.first = lease;
    cairn_lock_give(&fetch->lock);
    cairn_thread_wake(&fetch->leases.thread);
    return CAIRN_OK;
}

void cairn_up_leases_settle(struct cairn_up_fetch *fetch, const char *version, uint64_t until_ms) {
    CAIRN_HOLD(&fetch->lock);
    for (bool more = true; more;) {
        const struct cairn_up_lease *at = fetch->leases.first;
        while (at && (!at->over || strcmp(at->lease.version.text, version) != 0)) at = at->next;
        more = at && !fetch->locked.stopping &&
               cairn_condition_wait(&fetch->changed, &fetch->lock, until_ms);
    }
}

#define OTHERS_MS 1000 /* how long a list of nodes is awaited */

void cairn_up_version_shard_text(const struct cairn_up_version *version, uint32_t shard,
                                 char ret_text[900]) {
    snprintf(ret_text, 900, "%s/%s step %" PRIu64 " shard %s", version->place.name.project,
             version->place.name.run, version->place.step,
             cairn_short(version->manifest.shards[shard].name).text);
}

static bool digits_only(const char *text) {
    return *text && !text[strspn(text, "0123456789")];
}

/* latest, best, or an alias. */
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
    do
        code = cairn_rest_call(rest, "GET", path.data, NULL,
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
    /* The version that the attempt resumes is known, even without the server. */
    if (request->known_version[0] && !strcmp(request->ref, request->known_version)) {
        ret->step = request->known_step;
        (void)cairn_text_copy(ret->id.text, sizeof(ret->id.text), request->known_version);
        return CAIRN_OK;
    }
    *ret_asked = true;
    return ask_server(helper, request, ret, err);
}

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

static enum cairn_code load_documents(struct cairn_store_worker *store, bool look,
                                      struct cairn_committed *committed, struct cairn_error *err) {
    struct cairn_document_source source = cairn_store_documents(store, cairn_up_fetch_tell_again);
    unsigned rest = CAIRN_DOCUMENT_BIT(MANIFEST) | CAIRN_DOCUMENT_BIT(LAYOUT);
    if (!look) rest |= CAIRN_DOCUMENT_BIT(CHECKSUMS);
    enum cairn_code code =
        cairn_committed_load(committed, &source, CAIRN_DOCUMENT_BIT(RECORD), err);
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          "%s has no committed record: it was deleted, or never committed",
                          committed->place.id.text);
    CAIRN_TRY(code);
    return cairn_committed_load(committed, &source, rest, err);
}

/* fetch.h#6: when no store has the version, the first store's error is returned. */
static enum cairn_code load_from_any(struct cairn_up_helper *helper,
                                     struct cairn_up_version *version, bool look,
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
        if (!code) code = load_documents(worker, look, committed, &why);
        version->store = i;
        if (!code) return CAIRN_OK;
        if (i + 1 < up->read_count)
            cairn_log(WARN, "fetch.documents_elsewhere", "version=%s store=%s cause=\"%s\"",
                      version->place.id.text, cairn_store_url(up->reads[i]), why.message);
        if (told && (told != CAIRN_NOT_FOUND || code == CAIRN_NOT_FOUND)) continue;
        told = code;
        first = why;
    }
    return cairn_pass(err, told, &first);
}

static enum cairn_code load_all(struct cairn_up_helper *helper, struct cairn_up_version *version,
                                bool look, struct cairn_error *err) {
    CAIRN_AUTO(committed) committed = {.place = version->place};
    enum cairn_code code = load_from_any(helper, version, look, &committed, err);
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

static void version_free(struct cairn_up_version *version) {
    if (version->lease) {
        cairn_lock_take(&version->fetch->lock);
        version->lease->over = true;
        version->lease->due_ms = 0;
        version->fetch->leases.over_count++;
        cairn_lock_give(&version->fetch->lock);
        cairn_thread_wake(&version->fetch->leases.thread);
    }
    cairn_manifest_release(&version->manifest);
    free(version->checksums);
    cairn_store_tags_free(version->tags);
    cairn_up_roster_release(&version->division.roster);
    free(version->division.hashes);
    if (version->documents_fd >= 0) close(version->documents_fd);
    free(version);
}

/* The lock is held. */
static struct cairn_up_version *find_version(struct cairn_up_fetch *fetch,
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
    struct cairn_up_version *found = find_version(fetch, place);
    *ret_loading = found && found->loading;
    if (!found || found->loading) return NULL;
    found->users++;
    return found;
}

/* Returns the loaded version, held once more, or take_fresh for the caller to load. */
static struct cairn_up_version *join(struct cairn_up_fetch *fetch,
                                     struct cairn_up_version *take_fresh) {
    struct cairn_up_version *found = NULL;
    {
        CAIRN_HOLD(&fetch->lock);
        while ((found = find_version(fetch, &take_fresh->place)) && found->loading)
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

/* Notes bytes read since the last note. The lock is held. */
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
static void forget_version(struct cairn_up_fetch *fetch, struct cairn_up_version *version) {
    struct cairn_up_version **at = &fetch->locked.versions;
    if (version->apart) return;
    while (*at != version) at = &(*at)->next;
    *at = version->next;
    note_restore(version);
    cairn_up_cells_forget(&fetch->locked.cells, version);
    if (!fetch->locked.versions) cairn_up_cells_shrink(&fetch->locked.cells);
}

/* Waits for nodes of a new attempt, which arrive one by one; an early division would have few. */
static void await_others(struct cairn_up *up, const struct cairn_up_version *version) {
    const struct cairn_version_origin *origin = &version->manifest.origin;
    if (!up->peers || !strcmp(up->settings.peer_restore, "off")) return;
    /* The list predates the attempt's own saves, so nodes' memory has changed since. */
    cairn_up_members_outdate_attempt(&up->peers->members, &version->place.name, origin->attempt);
    cairn_up_members_await(&up->peers->members, &version->place.name, cairn_mono_ms() + OTHERS_MS);
}

static enum cairn_code load_version(struct cairn_up_helper *helper,
                                    struct cairn_up_version *version, bool asked,
                                    struct cairn_error *err) {
    struct cairn_up_fetch *fetch = version->fetch;
    enum cairn_code code =
        lease_begin(fetch, &version->place, asked ? helper->rest : NULL, &version->lease, err);
    if (code == CAIRN_OK) code = load_all(helper, version, false, err);
    if (code == CAIRN_OK) await_others(fetch->up, version);
    {
        CAIRN_HOLD(&fetch->lock);
        version->loading = false;
        if (code) forget_version(fetch, version);
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
    fresh->loading = !request->look;
    fresh->apart = request->look;
    if (request->look) {
        enum cairn_code code = load_all(helper, fresh, true, err);
        if (code)
            version_free(fresh);
        else
            *ret = fresh;
        return code;
    }
    struct cairn_up_version *version = join(fresh->fetch, fresh);
    if (version == fresh) CAIRN_TRY(load_version(helper, version, asked, err));
    *ret = version;
    return CAIRN_OK;
}

void cairn_up_version_unuse(struct cairn_up_version *version) {
    struct cairn_up_fetch *fetch = version->fetch;
    cairn_lock_take(&fetch->lock);
    bool last = --version->users == 0;
    if (last) forget_version(fetch, version);
    cairn_lock_give(&fetch->lock);
    if (last) version_free(version);
}

void cairn_up_version_leave(struct cairn_up_version *version) {
    if (!version) return;
    {
        CAIRN_HOLD(&version->fetch->lock);
        CAIRN_ASSERT(version->holders > 0);
        version->holders--;
        if (!version->holders && version->division.count) {
            /* Keeps this node's share in cells for nodes with late ranks. */
            if (!version->peers_until_ms) version->users++;
            version->peers_until_ms = cairn_mono_ms() + CAIRN_UP_VERSION_KEPT_MS;
        }
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

static uint64_t pool_bytes(const struct cairn_up_fetch *fetch) {
    return fetch->reader_count * CAIRN_UP_BOUNCES_PER_READER * CAIRN_BLOCK_BYTES;
}

/* The ranks of a node restore together: the first must not take what the last one needs. */
static uint64_t window_size(struct cairn_up *up, uint64_t bytes, uint32_t ranks) {
    uint64_t part = cairn_up_slabs_room(up) / ranks / CAIRN_SLAB_UNIT_BYTES * CAIRN_SLAB_UNIT_BYTES;
    return cairn_round_up(cairn_min_u64(bytes, cairn_max_u64(part, CAIRN_UP_WINDOW_BYTES_MIN)),
                          CAIRN_SLAB_UNIT_BYTES);
}

enum cairn_code cairn_up_window_new(struct cairn_up *up, uint64_t bytes, uint32_t ranks,
                                    bool writable, struct cairn_up_window **ret,
                                    struct cairn_error *err) {
    if (!bytes || bytes > UINT64_C(1) << 46)
        return cairn_fail(err, CAIRN_INVALID, "a window of %" PRIu64 " bytes", bytes);
    cairn_up_slabs_make_room(up, pool_bytes(up->fetch));
    CAIRN_TRY(cairn_up_fetch_run(up->fetch, err));
    struct cairn_up_window *window = calloc(1, sizeof(*window));
    if (!window) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a window");
    window->up = up;
    window->users = 1;
    window->writable = writable;
    uint64_t size = window_size(up, bytes, ranks);
    cairn_up_slabs_make_room(up, size);
    enum cairn_code code = cairn_budget_take(&up->budget, size, "a restore window", err);
    if (code == CAIRN_OK) {
        code = cairn_slab_create("cairn-window", size, !writable, &window->memory, err);
        if (code != CAIRN_OK) cairn_budget_give(&up->budget, size);
    }
    if (code != CAIRN_OK) {
        free(window);
        return code;
    }
    atomic_fetch_add(&up->restoring_bytes, size);
    *ret = window;
    return CAIRN_OK;
}

void cairn_up_window_leave(struct cairn_up_window *window) {
    if (!window) return;
    struct cairn_up *up = window->up;
    cairn_lock_take(&up->fetch->lock);
    bool last = --window->users == 0;
    cairn_lock_give(&up->fetch->lock);
    if (!last) return;
    uint64_t bytes = window->memory.size_bytes;
    cairn_slab_release(&window->memory);
    cairn_budget_give(&up->budget, bytes);
    atomic_fetch_sub(&up->restoring_bytes,
                     bytes); /* last: a request for slabs still waits for it */
    free(window);
}

static void reading_free(struct cairn_up_reading *reading) {
    cairn_up_version_unuse(reading->version);
    cairn_up_window_leave(reading->window);
    free(reading->pieces);
    free(reading->fragments);
    free(reading);
}

static void reading_end(struct cairn_up_reading *reading) {
    reading->done(reading->owner, reading->code, &reading->error);
    reading_free(reading);
}

/* Counts the run's ranks on this node, which mostly restore the same. Those that will connect
 * count as soon as one of them has said how many there are. Saves and slabs in memory do not
 * count: a lone rank would restore by way of cells, and pay for a second copy into fresh pages. */
static uint32_t ranks_of(struct cairn_up *up, const struct cairn_run_name *run) {
    uint32_t count = 0;
    CAIRN_HOLD(&up->lock);
    for (const struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next)
        if (!strcmp(at->grant.name.run, run->run) && !strcmp(at->grant.name.project, run->project))
            count += at->sessions < at->local_world_size && at->sessions ? at->local_world_size
                                                                         : at->sessions;
    return count;
}

void cairn_up_fetch_expect(struct cairn_up_fetch *fetch, struct cairn_up_version *version) {
    uint32_t ranks = ranks_of(fetch->up, &version->place.name);
    CAIRN_HOLD(&fetch->lock);
    version->expected = ranks > version->holders ? ranks : version->holders;
}

enum cairn_code cairn_up_fetch_read(struct cairn_up_fetch *fetch, struct cairn_up_version *version,
                                    struct cairn_up_window *window,
                                    const struct cairn_up_range *ranges, size_t count,
                                    void (*done)(void *owner, enum cairn_code code,
                                                 const struct cairn_error *why),
                                    void *owner, struct cairn_error *err) {
    struct cairn_up_reading *reading = calloc(1, sizeof(*reading));
    if (!reading) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    reading->version = version;
    reading->window = window;
    reading->done = done;
    reading->end = reading_end;
    reading->owner = owner;
    enum cairn_code code = cairn_up_fetch_plan(reading, ranges, count, err);
    if (code != CAIRN_OK) {
        free(reading->pieces);
        free(reading->fragments);
        free(reading);
        return code;
    }
    cairn_up_fetch_expect(fetch, version);
    cairn_lock_take(&fetch->lock);
    version->users++;
    window->users++;
    bool empty = !reading->piece_count || fetch->locked.stopping;
    if (!empty) {
        *fetch->locked.last = reading;
        fetch->locked.last = &reading->next;
    }
    cairn_lock_give(&fetch->lock);
    if (empty) {
        done(owner, CAIRN_OK, &reading->error);
        reading_free(reading);
        return CAIRN_OK;
    }
    cairn_up_readers_wake(fetch);
    return CAIRN_OK;
}

enum cairn_code cairn_up_fetch_new(struct cairn_up *up, struct cairn_up_fetch **ret,
                                   struct cairn_error *err) {
    struct cairn_up_fetch *fetch = calloc(1, sizeof(*fetch));
    if (!fetch) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the readers");
    fetch->up = up;
    cairn_lock_init(&fetch->lock, CAIRN_LOCK_uploader_fetch);
    cairn_condition_init(&fetch->changed);
    fetch->locked.last = &fetch->locked.first;
    fetch->locked.ready_last = &fetch->locked.ready;
    cairn_up_cells_init(&fetch->locked.cells, &up->budget, up->settings.restore_cache_bytes);
    fetch->locked.cells.restoring_bytes = &up->restoring_bytes;
    fetch->reader_count = (size_t)up->settings.restore_workers;
    atomic_store(&up->readers_bytes, pool_bytes(fetch));
    fetch->leases.thread =
        (struct cairn_thread){.name = "cairn-leases", .run = lease_main, .owner = fetch};
    enum cairn_code code = cairn_thread_start(&fetch->leases.thread, err);
    if (code) {
        cairn_up_cells_release(&fetch->locked.cells);
        cairn_condition_release(&fetch->changed);
        cairn_lock_release(&fetch->lock);
        free(fetch);
        return code;
    }
    cairn_up_serve_route(up, fetch);
    *ret = fetch;
    return CAIRN_OK;
}

static enum cairn_code make_pool(struct cairn_up_fetch *fetch, struct cairn_error *err) {
    size_t count = fetch->reader_count * CAIRN_UP_BOUNCES_PER_READER;
    uint64_t bytes = pool_bytes(fetch);
    CAIRN_TRY(cairn_budget_take(&fetch->up->budget, bytes, "buffers for restores", err));
    void *pool = cairn_pages_map((size_t)bytes);
    fetch->locked.bounces = calloc(count, sizeof(*fetch->locked.bounces));
    if (!pool || !fetch->locked.bounces) {
        cairn_pages_unmap(pool, (size_t)bytes);
        cairn_budget_give(&fetch->up->budget, bytes);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the buffers of restores");
    }
    fetch->locked.pool = pool;
    atomic_store(&fetch->up->readers_bytes, 0);
    for (size_t i = 0; i < count; i++) {
        struct cairn_up_bounce *bounce = &fetch->locked.bounces[i];
        bounce->data = fetch->locked.pool + i * CAIRN_BLOCK_BYTES;
        bounce->next = fetch->locked.free_bounces;
        fetch->locked.free_bounces = bounce;
    }
    return CAIRN_OK;
}

static enum cairn_code start_readers(struct cairn_up_fetch *fetch, struct cairn_error *err) {
    fetch->readers = calloc(fetch->reader_count, sizeof(*fetch->readers));
    if (!fetch->readers) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the readers");
    for (size_t i = 0; i < fetch->reader_count; i++) {
        fetch->readers[i].fetch = fetch;
        for (size_t at = 0; at < fetch->up->read_count; at++)
            CAIRN_TRY(
                cairn_store_worker_new(fetch->up->reads[at], &fetch->readers[i].stores[at], err));
    }
    CAIRN_TRY(make_pool(fetch, err));
    for (size_t i = 0; i < fetch->reader_count; i++) {
        struct cairn_up_reader *reader = &fetch->readers[i];
        CAIRN_TRY(
            cairn_up_thread_start(&reader->thread, cairn_up_reader_main, reader, "a reader", err));
    }
    return CAIRN_OK;
}

/* Ends all readers before freeing workers: a reader's last request wakes the others. */
static void drop_readers(struct cairn_up_fetch *fetch) {
    for (size_t i = 0; fetch->readers && i < fetch->reader_count; i++)
        cairn_up_thread_join(&fetch->readers[i].thread);
    for (size_t i = 0; fetch->readers && i < fetch->reader_count; i++)
        for (size_t at = 0; at < CAIRN_STORES_MAX; at++)
            cairn_store_worker_free(fetch->readers[i].stores[at]);
    free(fetch->readers);
    fetch->readers = NULL;
    uint64_t bytes = pool_bytes(fetch);
    if (fetch->locked.pool) {
        cairn_pages_unmap(fetch->locked.pool, (size_t)bytes);
        cairn_budget_give(&fetch->up->budget, bytes);
        atomic_store(&fetch->up->readers_bytes, bytes);
    }
    free(fetch->locked.bounces);
    fetch->locked.pool = NULL;
    fetch->locked.bounces = fetch->locked.free_bounces = NULL;
}

/* Under uploader_state, which only serialises first windows of several sessions. */
enum cairn_code cairn_up_fetch_run(struct cairn_up_fetch *fetch, struct cairn_error *err) {
    CAIRN_HOLD(&fetch->up->lock);
    cairn_lock_take(&fetch->lock);
    bool running = fetch->locked.running;
    cairn_lock_give(&fetch->lock);
    if (running) return CAIRN_OK;
    enum cairn_code code = start_readers(fetch, err);
    if (code != CAIRN_OK) {
        cairn_lock_take(&fetch->lock);
        fetch->locked.stopping = true;
        cairn_lock_give(&fetch->lock);
        drop_readers(fetch);
    }
    cairn_lock_take(&fetch->lock);
    fetch->locked.stopping = false;
    fetch->locked.running = code == CAIRN_OK;
    cairn_lock_give(&fetch->lock);
    return code;
}

/* Fails queued wants and orders: no reader or other node waits for them any more. */
static void drop_wants(struct cairn_up_fetch *fetch) {
    struct cairn_error why = {0};
    cairn_fail(&why, CAIRN_CANCELLED, "the uploader is stopping");
    for (;;) {
        cairn_lock_take(&fetch->lock);
        struct cairn_up_get *get = fetch->locked.orders;
        struct cairn_up_want *want = fetch->locked.ready;
        if (get)
            fetch->locked.orders = get->next;
        else if (want)
            fetch->locked.ready = want->next;
        if (!fetch->locked.ready) fetch->locked.ready_last = &fetch->locked.ready;
        cairn_lock_give(&fetch->lock);
        if (!get && !want) return;
        if (get)
            cairn_up_run_over(fetch, get, CAIRN_CANCELLED, &why);
        else
            cairn_up_want_fail(fetch, want, CAIRN_CANCELLED, &why);
    }
}

void cairn_up_fetch_stop(struct cairn_up_fetch *fetch) {
    if (!fetch) return;
    cairn_lock_take(&fetch->lock);
    fetch->locked.stopping = true;
    struct cairn_up_reading *left = NULL;
    for (struct cairn_up_reading *at = fetch->locked.first; at; at = at->next) {
        if (at->code == CAIRN_OK) {
            at->code = CAIRN_CANCELLED;
            cairn_fail(&at->error, CAIRN_CANCELLED, "the uploader is stopping");
        }
    }
    cairn_lock_give(&fetch->lock);
    cairn_up_readers_wake(fetch);
    drop_readers(fetch);
    drop_wants(fetch);
    /* Readings without pieces in progress. */
    cairn_lock_take(&fetch->lock);
    left = fetch->locked.first;
    fetch->locked.first = NULL;
    fetch->locked.last = &fetch->locked.first;
    cairn_lock_give(&fetch->lock);
    while (left) {
        struct cairn_up_reading *reading = left;
        left = left->next;
        reading->done(reading->owner, reading->code, &reading->error);
        reading_free(reading);
    }
}

void cairn_up_fetch_free(struct cairn_up_fetch *fetch) {
    if (!fetch) return;
    cairn_up_fetch_stop(fetch);
    cairn_up_version_tick(fetch, true);
    struct cairn_up_leases *leases = &fetch->leases;
    if (leases->thread.started) cairn_thread_stop(&leases->thread);
    if (leases->rest) cairn_rest_free(CAIRN_TAKE(leases->rest));
    while (leases->first) {
        struct cairn_up_lease *lease = leases->first;
        leases->first = lease->next;
        free(lease);
    }
    cairn_up_cells_release(&fetch->locked.cells);
    cairn_condition_release(&fetch->changed);
    cairn_lock_release(&fetch->lock);
    free(fetch);
}
