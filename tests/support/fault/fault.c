/* SPDX-License-Identifier: Apache-2.0 */
/* fault: the wrapping store. A request it lets through keeps its struct; only done and owner are
 * exchanged while it is inside. The script is read in script.c. */
#include "tests/support/fault/fault.h"

#include <stdlib.h>

#include "common/crc.h"
#include "common/log.h"
#include "tests/support/fault/script.h"

struct fault_store {
    struct cairn_store base; /* first */
    struct cairn_store *inner;
    uint64_t seed;
    struct cairn_store_fault_script script;
};
/* One request on its way. */
struct fault_call {
    struct fault_call *next;
    struct fault_worker *worker;
    struct cairn_store_request *request;
    const struct cairn_store_fault_rule *rule; /* NULL: passes unchanged */
    void (*done)(struct cairn_store_request *request);
    void *owner;
    uint64_t due_ms; /* held back until then; real mono clock */
    bool inside;     /* the wrapped store has it */
};
struct fault_worker {
    struct cairn_store_worker base; /* first */
    struct cairn_store_worker *inner;
    struct fault_call *calls;
    bool ended_one; /* in this poll */
};

static const struct cairn_store_vtable vtable;

/* ---- store ---- */

enum cairn_code cairn_store_fault_wrap(struct cairn_store *take_store,
                                       const struct cairn_store_fault_options *options,
                                       struct cairn_store **ret, struct cairn_error *err) {
    struct fault_store *store = calloc(1, sizeof *store);
    enum cairn_code code = CAIRN_OK;
    if (store)
        code = cairn_store_fault_script_parse(options->script, &store->script, err);
    else
        code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a fault store");
    if (code != CAIRN_OK) {
        free(store);
        cairn_store_free(take_store);
        return code;
    }
    store->inner = take_store;
    store->seed = options->seed;
    store->base.vtable = &vtable;
    store->base.profile = take_store->profile;
    memcpy(store->base.url, take_store->url, sizeof store->base.url);
    *ret = &store->base;
    return CAIRN_OK;
}

uint64_t cairn_store_fault_count(const struct cairn_store *store, unsigned rule_index) {
    CAIRN_ASSERT(store->vtable == &vtable);
    const struct fault_store *fault = (const struct fault_store *)store;
    CAIRN_ASSERT(rule_index < fault->script.count);
    return atomic_load(&fault->script.rules[rule_index].acted);
}

static void store_free(struct cairn_store *base) {
    struct fault_store *store = (struct fault_store *)base;
    cairn_store_free(store->inner);
    free(store);
}

static enum cairn_code worker_new(struct cairn_store *base, struct cairn_store_worker **ret,
                                  struct cairn_error *err) {
    struct fault_store *store = (struct fault_store *)base;
    struct fault_worker *worker = calloc(1, sizeof *worker);
    if (!worker) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a store worker");
    worker->base.store = base;
    enum cairn_code code = cairn_store_worker_new(store->inner, &worker->inner, err);
    if (code != CAIRN_OK)
        free(worker);
    else
        *ret = &worker->base;
    return code;
}

/* ---- ends ---- */

static struct fault_call **find(struct fault_worker *worker, const struct fault_call *call,
                                const struct cairn_store_request *request) {
    struct fault_call **at = &worker->calls;
    while (*at && *at != call && (*at)->request != request) at = &(*at)->next;
    return at;
}

/* Gives the request back to its owner. */
static void end(struct fault_call *call) {
    struct cairn_store_request *request = call->request;
    struct fault_call **at = find(call->worker, call, NULL);
    CAIRN_ASSERT(*at == call);
    *at = call->next;
    call->worker->ended_one = true;
    request->done = call->done;
    request->owner = call->owner;
    free(call);
    request->done(request);
}

static void end_with(struct fault_call *call, enum cairn_code code, const char *why) {
    struct cairn_store_request *request = call->request;
    request->error = (struct cairn_error){0};
    request->code = cairn_fail(&request->error, code, "object %s: %s", request->key, why);
    end(call);
}

static void damage(const struct cairn_store_fault_rule *rule, struct cairn_store_request *request) {
    uint8_t *into = request->into;
    bool get = request->op == CAIRN_STORE_GET;
    if (rule->action == CAIRN_STORE_FAULT_FLIP && get && rule->argument < request->length) {
        into[rule->argument] ^= 0x10;
    }
    if (rule->action == CAIRN_STORE_FAULT_SHORT && get) {
        uint64_t lost = cairn_min_u64(rule->argument, request->length);
        memset(into + (request->length - lost), 0, lost);
    }
    if (get && request->wants_crc32c)
        request->got_crc32c = cairn_crc32c(0, request->into, request->length);
    if (rule->action == CAIRN_STORE_FAULT_SHORT && request->op == CAIRN_STORE_HEAD) {
        request->object_bytes -= cairn_min_u64(rule->argument, request->object_bytes);
    }
}

/* done() of the wrapped store. */
static void inner_done(struct cairn_store_request *request) {
    struct fault_call *call = request->owner;
    if (!call->rule || request->code == CAIRN_CANCELLED) {
        end(call);
    } else if (call->rule->action == CAIRN_STORE_FAULT_LOSE_REPLY) {
        request->ambiguous = true;
        request->etag[0] = request->upload_id[0] = '\0';
        end_with(call, CAIRN_UNAVAILABLE, "the reply was lost (injected)");
    } else {
        if (request->code == CAIRN_OK) damage(call->rule, request);
        end(call);
    }
}

/* ---- requests ---- */

static void pass_on(struct fault_call *call) {
    call->inside = true;
    call->request->done = inner_done;
    call->request->owner = call;
    cairn_store_submit(call->worker->inner, call->request);
}

static void submit(struct cairn_store_worker *base, struct cairn_store_request *request) {
    struct fault_worker *worker = (struct fault_worker *)base;
    struct fault_store *store = (struct fault_store *)base->store;
    struct fault_call *call = calloc(1, sizeof *call);
    CAIRN_ASSERT(call); /* this store serves tests only */
    *call = (struct fault_call){
        .worker = worker,
        .request = request,
        .rule = cairn_store_fault_rule_for(&store->script, store->seed, request),
        .done = request->done,
        .owner = request->owner};
    struct fault_call **at = &worker->calls;
    while (*at) at = &(*at)->next;
    *at = call;
    if (!call->rule) {
        pass_on(call);
        return;
    }
    switch (call->rule->action) {
    case CAIRN_STORE_FAULT_FAIL:
        call->due_ms = cairn_mono_ms();
        return;
    case CAIRN_STORE_FAULT_DELAY:
        cairn_log(DEBUG, "fault.delays", "key=%s", request->key);
        call->due_ms = cairn_mono_ms() + call->rule->argument;
        return;
    case CAIRN_STORE_FAULT_HANG:
        cairn_log(DEBUG, "fault.hangs", "key=%s", request->key);
        call->due_ms = request->deadline_ms ? request->deadline_ms : UINT64_MAX;
        return;
    default:
        pass_on(call);
    }
}

static void cancel(struct cairn_store_worker *base, struct cairn_store_request *request) {
    struct fault_worker *worker = (struct fault_worker *)base;
    struct fault_call *call = *find(worker, NULL, request);
    if (!call) return;
    if (call->inside)
        cairn_store_cancel(worker->inner, request);
    else
        end_with(call, CAIRN_CANCELLED, "cancelled");
}

static void worker_free(struct cairn_store_worker *base) {
    struct fault_worker *worker = (struct fault_worker *)base;
    cairn_store_worker_free(worker->inner); /* ends what is inside */
    while (worker->calls) end_with(worker->calls, CAIRN_CANCELLED, "cancelled");
    free(worker);
}

/* ---- poll ---- */

/* Acts on what is due, up to the first end; returns how long until the next one is due. */
static uint64_t run_due(struct fault_worker *worker) {
    uint64_t next = UINT64_MAX;
    for (struct fault_call **at = &worker->calls; *at;) {
        struct fault_call *call = *at;
        uint64_t now = cairn_mono_ms();
        if (call->inside || call->due_ms > now) {
            if (!call->inside) next = cairn_min_u64(next, call->due_ms - now);
            at = &call->next;
            continue;
        }
        if (call->rule->action == CAIRN_STORE_FAULT_FAIL) {
            end_with(call, call->rule->code, "injected");
        } else if (call->rule->action == CAIRN_STORE_FAULT_HANG) {
            end_with(call, CAIRN_TIMEOUT, "the deadline passed (injected)");
        } else {
            pass_on(call);
        }
        if (worker->ended_one) return 0; /* one at a time: done() may submit anew */
        at = &worker->calls;
        next = UINT64_MAX;
    }
    return next;
}

static enum cairn_code poll_worker(struct cairn_store_worker *base, uint32_t timeout_ms,
                                   struct cairn_error *err) {
    struct fault_worker *worker = (struct fault_worker *)base;
    uint64_t start = cairn_mono_ms();
    for (;;) {
        worker->ended_one = false;
        uint64_t next = run_due(worker);
        uint64_t passed = cairn_mono_ms() - start;
        uint64_t left = passed < timeout_ms ? timeout_ms - passed : 0;
        bool due_first = next < left;
        if (worker->ended_one) left = 0;
        CAIRN_TRY(cairn_store_poll(worker->inner, (uint32_t)cairn_min_u64(left, next), err));
        /* The wrapped poll returned early: by an end, by a wake, or for a call that is due now. */
        if (worker->ended_one || !due_first || cairn_mono_ms() - start < next) return CAIRN_OK;
    }
}

static void wake(struct cairn_store_worker *base) {
    cairn_store_wake(((struct fault_worker *)base)->inner);
}

static uint32_t appetite(const struct cairn_store_worker *base) {
    return cairn_store_appetite(((const struct fault_worker *)base)->inner);
}

static bool moved(const struct cairn_store *base) {
    return cairn_store_moved(((const struct fault_store *)base)->inner);
}

static enum cairn_code follow(struct cairn_store *base, struct cairn_error *err) {
    return cairn_store_follow(((struct fault_store *)base)->inner, err);
}

/* ---- what a store says of itself ---- */

static struct cairn_store *inner_of(struct cairn_store *base) {
    return ((struct fault_store *)base)->inner;
}

static enum cairn_code keys(struct cairn_store *base, char ret_text[224], struct cairn_error *err) {
    return cairn_store_keys(inner_of(base), ret_text, err);
}

static bool keys_exposed(struct cairn_store *base, char ret_text[540]) {
    return cairn_store_keys_exposed(inner_of(base), ret_text);
}

static int64_t keys_until_ms(struct cairn_store *base) {
    return cairn_store_keys_until_ms(inner_of(base));
}

static enum cairn_code profile_save(struct cairn_store *base, bool *ret_written,
                                    struct cairn_error *err) {
    return cairn_store_profile_save(inner_of(base), ret_written, err);
}

static void health(struct cairn_store *base, struct cairn_store_health *ret) {
    cairn_store_health(inner_of(base), ret);
}

static bool misstates(struct cairn_store *base) {
    return cairn_store_misstates(inner_of(base));
}

static enum cairn_code tidy(struct cairn_store *base, struct cairn_error *err) {
    return cairn_store_tidy(inner_of(base), err);
}

static enum cairn_code presign(struct cairn_store *base, const char *key, uint32_t expires_s,
                               struct cairn_buf *ret_url, uint32_t *ret_expires_s,
                               struct cairn_error *err) {
    return cairn_store_presign(inner_of(base), key, expires_s, ret_url, ret_expires_s, err);
}

/* No probe: the wrapped store has been probed. */
static const struct cairn_store_vtable vtable = {.free = store_free,
                                                 .worker_new = worker_new,
                                                 .worker_free = worker_free,
                                                 .submit = submit,
                                                 .cancel = cancel,
                                                 .poll = poll_worker,
                                                 .wake = wake,
                                                 .appetite = appetite,
                                                 .moved = moved,
                                                 .follow = follow,
                                                 .keys = keys,
                                                 .keys_exposed = keys_exposed,
                                                 .keys_until_ms = keys_until_ms,
                                                 .profile_save = profile_save,
                                                 .health = health,
                                                 .misstates = misstates,
                                                 .tidy = tidy,
                                                 .presign = presign};
