/* SPDX-License-Identifier: Apache-2.0 */
/* What every room may use: claims of the node, wakeups, recent restores, metrics. */
#include "uploader/up.h"

#include <stdio.h>
#include <unistd.h>

#include "common/hash/hash.h"
#include "common/net.h"
#include "common/text.h"
#include "uploader/state/save.h"

enum cairn_code cairn_up_admits(struct cairn_up *up, struct cairn_error *err) {
    CAIRN_HOLD(&up->lock);
    if (!up->locked.draining) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNAVAILABLE, "the uploader of node %s is stopping",
                      up->places.node);
}

enum cairn_code cairn_up_rest_new(struct cairn_up *up, uint32_t timeout_ms, struct cairn_rest **ret,
                                  struct cairn_error *err) {
    const struct cairn_rest_options options = {.url = up->settings.server,
                                               .token = up->token,
                                               .token_file = up->settings.token_file,
                                               .ca_bundle = up->settings.ca_file,
                                               .timeout_ms = timeout_ms,
                                               .seen = &up->servers_seen};
    return cairn_rest_new(&options, ret, err);
}

/* ---- claims of the node: a socket name of user, node and a digest of the scope ---- */

#define SCOPE_DIGEST_BYTES 8

static void drop_claim(int *claim) {
    if (*claim) close(*claim - 1);
    *claim = 0;
}

enum cairn_code cairn_up_claim(struct cairn_up *up, enum cairn_up_claim kind, const char *scope,
                               struct cairn_error *err) {
    uint8_t digest[CAIRN_SHA256_BYTES];
    char hex[2 * SCOPE_DIGEST_BYTES + 1], name[128];
    struct cairn_error why = {0};
    int fd = -1;
    cairn_sha256_of(cairn_view_of(scope), digest);
    cairn_hex_encode(digest, SCOPE_DIGEST_BYTES, hex);
    snprintf(name, sizeof(name), "cairn/%u/%s/%s", geteuid(), up->places.node, hex);
    enum cairn_code code = cairn_net_claim(name, &fd, &why);
    if (code == CAIRN_OK) {
        drop_claim(&up->claims.fds[kind]);
        up->claims.fds[kind] = fd + 1;
        return CAIRN_OK;
    }
    if (code == CAIRN_CONFLICT)
        return cairn_fail(err, CAIRN_CONFLICT,
                          "another uploader of node %s runs on this machine (%s); give this one "
                          "another node name",
                          up->places.node, why.message);
    cairn_log(WARN, "node.unclaimed", "node=%s cause=\"%s\"", up->places.node, why.message);
    return CAIRN_OK;
}

void cairn_up_claims_tick(struct cairn_up *up) {
    for (size_t i = 0; i < CAIRN_COUNT(up->claims.fds); i++)
        if (up->claims.fds[i]) cairn_net_claim_clear(up->claims.fds[i] - 1);
}

void cairn_up_claims_release(struct cairn_up *up) {
    for (size_t i = 0; i < CAIRN_COUNT(up->claims.fds); i++) drop_claim(&up->claims.fds[i]);
}

enum cairn_code cairn_up_thread_start(struct cairn_up_thread *thread, void *(*run)(void *owner),
                                      void *owner, const char *whose, struct cairn_error *err) {
    errno = pthread_create(&thread->id, NULL, run, owner);
    thread->started = !errno;
    return errno ? cairn_fail(err, CAIRN_INTERNAL, "no thread for %s: %s", whose, strerror(errno))
                 : CAIRN_OK;
}

void cairn_up_thread_join(struct cairn_up_thread *thread) {
    if (thread->started) pthread_join(thread->id, NULL);
    thread->started = false;
}

void cairn_up_wakeup_init(struct cairn_up_wakeup *wakeup) {
    *wakeup = (struct cairn_up_wakeup){0};
    cairn_lock_init(&wakeup->lock, CAIRN_LOCK_uploader_outbox);
    cairn_condition_init(&wakeup->work);
}

void cairn_up_wakeup_release(struct cairn_up_wakeup *wakeup) {
    cairn_condition_release(&wakeup->work);
    cairn_lock_release(&wakeup->lock);
}

void cairn_up_wakeup_raise(struct cairn_up_wakeup *wakeup) {
    cairn_late_ring(&wakeup->bell);
    cairn_lock_take(&wakeup->lock);
    wakeup->locked.raised = true;
    cairn_condition_signal(&wakeup->work);
    cairn_lock_give(&wakeup->lock);
}

void cairn_up_wakeup_stop(struct cairn_up_wakeup *wakeup) {
    cairn_lock_take(&wakeup->lock);
    wakeup->locked.stopping = true;
    cairn_condition_signal(&wakeup->work);
    cairn_lock_give(&wakeup->lock);
}

bool cairn_up_wakeup_wait(struct cairn_up_wakeup *wakeup, uint64_t until_ms, bool backing_off) {
    CAIRN_HOLD(&wakeup->lock);
    while (!wakeup->locked.stopping && (backing_off || !wakeup->locked.raised)) {
        if (!cairn_condition_wait(&wakeup->work, &wakeup->lock, until_ms)) break;
    }
    wakeup->locked.raised = false;
    return !wakeup->locked.stopping;
}

static bool is_same(const struct cairn_up_restore_note *one,
                    const struct cairn_up_restore_note *other) {
    return !strcmp(one->version.text, other->version.text) && !strcmp(one->run, other->run);
}

void cairn_up_restores_note(struct cairn_up_restores *restores,
                            const struct cairn_up_restore_note *note) {
    CAIRN_HOLD(&restores->lock);
    struct cairn_up_restore_note *place = restores->locked.items;
    for (size_t i = 0; i < CAIRN_UP_RESTORES_TOLD; i++) {
        struct cairn_up_restore_note *at = &restores->locked.items[i];
        bool same = is_same(at, note);
        if (same || at->noted < place->noted) place = at;
        if (same) break;
    }
    struct cairn_up_restore_note sum = *note;
    if (is_same(place, note)) {
        sum.store_bytes += place->store_bytes;
        sum.shared_bytes += place->shared_bytes;
        sum.peer_bytes += place->peer_bytes;
        sum.memory_bytes += place->memory_bytes;
    }
    sum.noted = ++restores->locked.noted;
    *place = sum;
}

size_t cairn_up_restores_get(struct cairn_up_restores *restores,
                             struct cairn_up_restore_note ret[CAIRN_UP_RESTORES_TOLD]) {
    size_t count = 0;
    CAIRN_HOLD(&restores->lock);
    for (size_t i = 0; i < CAIRN_UP_RESTORES_TOLD; i++)
        if (restores->locked.items[i].noted) ret[count++] = restores->locked.items[i];
    return count;
}

static const char *version_value(size_t index, size_t label) {
    (void)index, (void)label;
    return CAIRN_UP_VERSION;
}

static const char *end_value(size_t index, size_t label) {
    (void)label;
    return cairn_up_end_text((enum cairn_up_end)index);
}

static const char *code_value(size_t index, size_t label) {
    (void)label;
    return cairn_code_info((enum cairn_code)index)->slug;
}

static const char *op_value(size_t index, size_t label) {
    (void)label;
    return cairn_store_op_word((enum cairn_store_op)index);
}

static const char *slab_value(size_t index, size_t label) {
    (void)label;
    return ((const char *[CAIRN_UP_SLAB_USES]){"free", "held", "kept"})[index];
}

static const char *cause_value(size_t index, size_t label) {
    (void)label;
    return cairn_retry_cause_text((enum cairn_retry_outcome)index);
}

static const char *restore_end_value(size_t index, size_t label) {
    (void)label;
    return ((const char *[CAIRN_UP_RESTORE_ENDS]){"released", "left"})[index];
}

static const char *wait_value(size_t index, size_t label) {
    (void)label;
    static const char *const words[CAIRN_UP_WAITS] = {"senders", "outbox", "watchers",
                                                      "readers", "peers",  "partners"};
    return words[index];
}

static const struct cairn_metric_axis axis_NONE = {.count = 1},
                                      axis_VERSIONS = {1, 1, version_value},
                                      axis_ENDS = {CAIRN_UP_FAILED + 1, 1, end_value},
                                      axis_CODES = {CAIRN_CODE_COUNT, 1, code_value},
                                      axis_OPS = {CAIRN_STORE_OP_COUNT, 1, op_value},
                                      axis_CAUSES = {CAIRN_RETRY_OUTCOMES, 1, cause_value},
                                      axis_RESTORE_ENDS = {CAIRN_UP_RESTORE_ENDS, 1,
                                                           restore_end_value},
                                      axis_WAITS = {CAIRN_UP_WAITS, 1, wait_value},
                                      axis_SLABS = {CAIRN_UP_SLAB_USES, 1, slab_value};

static const struct cairn_metric rows[] = {
#define METRIC(kind, name, labels, first, second, help)                                            \
    {CAIRN_METRIC_##kind, #name, labels, {&axis_##first, &axis_##second}, help},
#include "uploader/metrics.def"
#undef METRIC
};

void cairn_up_metrics_late(struct cairn_metrics *metrics, enum cairn_up_wait wait) {
    cairn_metrics_add(metrics, (struct cairn_metric_at){CAIRN_UP_METRIC_late_waits_total, wait, 0},
                      1);
    cairn_late_tell(wait_value(wait, 0));
}

enum cairn_code cairn_up_metrics_new(struct cairn_metrics **ret, struct cairn_error *err) {
    CAIRN_TRY(cairn_metrics_new(rows, CAIRN_COUNT(rows), ret, err));
    cairn_metrics_set(*ret, CAIRN_UP_METRIC(build_info), 1);
    cairn_metrics_set(*ret, CAIRN_UP_METRIC(inflight_bytes), 0);
    cairn_metrics_set(*ret, CAIRN_UP_METRIC(restores_open), 0);
    return CAIRN_OK;
}
