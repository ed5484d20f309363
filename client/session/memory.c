/* SPDX-License-Identifier: Apache-2.0 */
/* Maps the uploader's slabs and window; a plug-in copies between them and a device. */

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>

#include "client/device/device.h"
#include "client/session/memory.h"
#include "client/session/options.h"
#include "client/session/process.h"

#define PLUGIN "libcairn_cuda.so.0"
#define WINDOW_BYTES_MIN (8 * CAIRN_MIB)
#define VERSION_OF_WRITABLE_WINDOWS 8 /* socket version that introduced them */
#define VERSION_OF_WINDOWS_BACK 9     /* socket version that introduced `bytes` 0 */

/* ---- the device ---- */

/* Loads the plug-in from libcairn's own folder: an installation may be moved, and the search path
 * may lead to another release. */
static void *load_beside(void) {
    char path[PATH_MAX];
    Dl_info own;
    if (!dladdr((const void *)(uintptr_t)load_beside, &own) || !own.dli_fname) return NULL;
    const char *slash = strrchr(own.dli_fname, '/');
    if (!slash) return NULL;
    int size =
        snprintf(path, sizeof path, "%.*s/" PLUGIN, (int)(slash - own.dli_fname), own.dli_fname);
    if (size < 0 || (size_t)size >= sizeof path) return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static enum cairn_code load_plugin(const struct cairn_device_plugin **ret,
                                   struct cairn_error *err) {
    void *library = load_beside();
    if (!library) library = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "memory of a device needs " PLUGIN " beside libcairn: %s", dlerror());
    const struct cairn_device_plugin *(*entry)(void) = NULL;
    void *symbol = dlsym(library, CAIRN_DEVICE_ENTRY);
    memcpy(&entry, &symbol, sizeof entry);
    const struct cairn_device_plugin *plugin = entry ? entry() : NULL;
    if (!plugin || plugin->abi != CAIRN_DEVICE_ABI) {
        dlclose(library);
        return cairn_fail(err, CAIRN_UNSUPPORTED, PLUGIN " is of another release than libcairn");
    }
    *ret = plugin;
    return CAIRN_OK;
}

enum cairn_code cairn_client_device_open(struct cairn_client_device *ret, struct cairn_error *err) {
    struct cairn_client_device made = {0};
    if (ret->handle) return CAIRN_OK;
    CAIRN_TRY(load_plugin(&made.plugin, err));
    CAIRN_TRY(made.plugin->open(&made.handle, err));
    *ret = made;
    return CAIRN_OK;
}

void cairn_client_device_release(struct cairn_client_device *device) {
    if (device->handle) device->plugin->close(device->handle);
    *device = (struct cairn_client_device){0};
}

struct cairn_client_device cairn_client_device_known(struct cairn_session *session) {
    CAIRN_HOLD(&session->lock);
    return session->device;
}

/* Loads without the session's lock, because loading may take a second. */
enum cairn_code cairn_client_device_need(struct cairn_session *session, const void *memory,
                                         struct cairn_error *err) {
    struct cairn_client_device device = {0};
    if (!cairn_client_device_known(session).handle)
        CAIRN_TRY(cairn_client_device_open(&device, err));
    cairn_lock_take(&session->lock);
    if (!session->device.handle) {
        session->device = device;
        device = (struct cairn_client_device){0};
    }
    cairn_lock_give(&session->lock);
    cairn_client_device_release(&device);
    if (!memory) return CAIRN_OK;
    return session->device.plugin->check(session->device.handle, memory, err);
}

void cairn_client_device_lock(struct cairn_session *session, const struct cairn_slab *slab,
                              bool read_only, const char *which) {
    struct cairn_error why = {0};
    const struct cairn_client_device device = cairn_client_device_known(session);
    if (!device.plugin->lock(device.handle, slab->data, slab->size_bytes, read_only, &why)) return;
    (void)cairn_within(&why, why.code,
                       "the memory of %s is not page-locked, so a device copies at about a quarter "
                       "of its speed",
                       which);
    CAIRN_HOLD(&session->lock);
    session->sink->notice(session, &why);
}

/* ---- slabs ---- */

enum cairn_code cairn_client_slabs_map(struct cairn_frame *answer, uint64_t bytes,
                                       struct cairn_client_slabs *ret, struct cairn_error *err) {
    struct cairn_msg_slabs_given told = {0};
    if (cairn_msg_slabs_given_read(answer->message, "", &told, err) != CAIRN_OK || told.count < 1 ||
        told.count > CAIRN_CLIENT_GENERATIONS_MAX || answer->fd_count != told.count ||
        told.bytes < bytes)
        return cairn_fail(err, CAIRN_PROTOCOL, "slabs without the memory that was asked for");
    for (uint32_t i = 0; i < told.count; i++) {
        struct cairn_slab *slab = &ret->slabs[i];
        int fd = answer->fds[i];
        answer->fds[i] = -1;
        CAIRN_TRY(cairn_slab_attach(fd, told.bytes, true, slab, err));
        ret->count = i + 1;
        cairn_client_process_watch(slab->fd);
        (void)madvise(slab->data, slab->size_bytes, MADV_DONTFORK);
    }
    return CAIRN_OK;
}

void cairn_client_slabs_unmap(struct cairn_client_slabs *slabs) {
    for (uint32_t i = 0; i < slabs->count; i++) {
        cairn_client_process_unwatch(slabs->slabs[i].fd);
        cairn_slab_release(&slabs->slabs[i]);
    }
    slabs->count = 0;
}

void cairn_client_slabs_take(struct cairn_session *session, struct cairn_client_slabs *ret) {
    ret->count = session->slab_count;
    memcpy(ret->slabs, session->slabs, sizeof ret->slabs);
    session->slab_count = 0;
}

void cairn_client_slabs_set(struct cairn_session *session, struct cairn_client_slabs *take_slabs) {
    CAIRN_PROMISE(!session->slab_count, return );
    memcpy(session->slabs, take_slabs->slabs, sizeof session->slabs);
    session->slab_count = take_slabs->count;
    take_slabs->count = 0;
}

/* ---- the window ---- */

void cairn_client_window_release(struct cairn_session *session) {
    for (size_t slot = 0; slot < CAIRN_CLIENT_SLOTS; slot++)
        if (session->window.busy[slot]) cairn_frame_release(&session->window.pending[slot].answer);
    memset(session->window.busy, 0, sizeof session->window.busy);
    if (session->window.epoch) {
        const struct cairn_client_device device = cairn_client_device_known(session);
        if (device.handle) /* without a device it was never page-locked */
            device.plugin->unlock(device.handle, session->window.slab.data);
        cairn_client_process_unwatch(session->window.slab.fd);
        cairn_slab_release(&session->window.slab);
    }
    session->window.epoch = session->window.locked = 0;
    session->window.writable = false;
    session->window.slab = (struct cairn_slab){.fd = -1};
}

enum cairn_code cairn_client_window_take(struct cairn_session *session, uint64_t deadline_ms,
                                         struct cairn_error *err) {
    CAIRN_HOLD(&session->lock);
    while (session->locked.window_taken) {
        enum cairn_code code = cairn_client_pause(session, deadline_ms, err);
        if (code == CAIRN_TIMEOUT)
            return cairn_fail(err, code, "another read of this session goes on");
        CAIRN_TRY(code);
    }
    session->locked.window_taken = true;
    return CAIRN_OK;
}

/* While taken. A failed call may have left answers to come: until then the uploader writes into its
 * own mapping alone, and nothing awaits them. */
static void send_back(struct cairn_session *session, uint64_t deadline_ms) {
    uint32_t epoch = session->window.epoch;
    struct cairn_client_pending pending;
    if (!epoch || cairn_client_speaks(session, VERSION_OF_WINDOWS_BACK, "", NULL)) return;
    for (size_t slot = 0; slot < CAIRN_CLIENT_SLOTS; slot++) {
        if (session->window.busy[slot])
            cairn_client_abandon(session, &session->window.pending[slot]);
        session->window.busy[slot] = false;
    }
    cairn_client_window_release(session);
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(window, .bytes = 0), .epoch = epoch,
        .deadline_ms = deadline_ms ? deadline_ms : cairn_mono_ms()};
    if (cairn_client_post(session, &request, &pending, NULL)) return; /* a new link has no window */
    if (deadline_ms)
        (void)!cairn_client_await(session, &request, &pending, NULL, NULL);
    else
        cairn_client_abandon(session, &pending);
}

void cairn_client_window_give(struct cairn_session *session) {
    cairn_lock_take(&session->lock);
    while (session->locked.window_unwanted) {
        session->locked.window_unwanted = false;
        cairn_lock_give(&session->lock);
        send_back(session, 0);
        cairn_lock_take(&session->lock);
    }
    session->locked.window_taken = false;
    cairn_client_changed(session);
    cairn_lock_give(&session->lock);
}

void cairn_client_window_give_back(struct cairn_session *session, uint64_t deadline_ms) {
    cairn_lock_take(&session->lock);
    bool taken = session->locked.window_taken;
    session->locked.window_taken = true;
    session->locked.window_unwanted = taken;
    cairn_lock_give(&session->lock);
    if (taken) return;
    send_back(session, deadline_ms);
    cairn_client_window_give(session);
}

static enum cairn_code map_window(struct cairn_session *session, uint32_t epoch, bool writable,
                                  struct cairn_frame *answer, struct cairn_error *err) {
    struct cairn_msg_window_given told = {0};
    if (cairn_msg_window_given_read(answer->message, "", &told, err) != CAIRN_OK ||
        answer->fd_count != 1 || told.bytes < CAIRN_SLAB_UNIT_BYTES)
        return cairn_fail(err, CAIRN_PROTOCOL, "window without its memory");
    int fd = answer->fds[0];
    answer->fds[0] = -1;
    CAIRN_TRY(cairn_slab_attach(fd, told.bytes, writable, &session->window.slab, err));
    session->window.epoch = epoch;
    session->window.writable = writable;
    cairn_client_process_watch(session->window.slab.fd);
    (void)madvise(session->window.slab.data, session->window.slab.size_bytes, MADV_DONTFORK);
    return CAIRN_OK;
}

/* One request per link, halved while memory is short. */
enum cairn_code cairn_client_window_open(struct cairn_session *session, uint32_t epoch,
                                         uint64_t wanted_bytes, bool writable, uint64_t deadline_ms,
                                         struct cairn_error *err) {
    writable = writable && cairn_client_speaks(session, VERSION_OF_WRITABLE_WINDOWS,
                                               "a writable window", NULL) == CAIRN_OK;
    if (session->window.epoch == epoch && (session->window.writable || !writable)) return CAIRN_OK;
    cairn_client_window_release(session);
    for (uint64_t bytes = wanted_bytes;; bytes /= 2) {
        CAIRN_AUTO(frame) answer = {0};
        const struct cairn_client_request request = {
            CAIRN_CLIENT_REQUEST(window, .bytes = bytes, .writable = writable), .epoch = epoch,
            .deadline_ms = deadline_ms};
        enum cairn_code code = cairn_client_call(session, &request, &answer, err);
        if (code == CAIRN_NO_MEMORY && bytes / 2 >= WINDOW_BYTES_MIN) continue;
        if (code) return cairn_within(err, code, "window for reading");
        return map_window(session, epoch, writable, &answer, err);
    }
}

/* ---- warm-up: a save's path, tested before the first save ---- */

static enum cairn_code warm_device(struct cairn_session *session, enum cairn_memory memory,
                                   struct cairn_error *err) {
    if (memory == CAIRN_MEMORY_HOST) return CAIRN_OK;
    if (memory != CAIRN_MEMORY_CUDA)
        return cairn_fail(err, CAIRN_INVALID, "memory %d is none of enum cairn_memory",
                          (int)memory);
    CAIRN_TRY(cairn_client_device_need(session, NULL, err));
    struct cairn_slab slabs[CAIRN_CLIENT_GENERATIONS_MAX];
    cairn_lock_take(&session->lock);
    uint32_t count = session->slab_count;
    memcpy(slabs, session->slabs, sizeof slabs);
    session->locked.slab_users++; /* a reserve unmaps them when this is 0 again */
    cairn_lock_give(&session->lock);
    enum cairn_code code = CAIRN_OK;
    for (uint32_t i = 0; i < count && !code; i++)
        code = session->device.plugin->lock(session->device.handle, slabs[i].data,
                                            slabs[i].size_bytes, false, err);
    CAIRN_HOLD(&session->lock);
    session->locked.slab_users--;
    cairn_client_changed(session);
    return code;
}

enum cairn_code cairn_warmup(struct cairn_session *session,
                             const struct cairn_warmup_options *options, struct cairn_error *err) {
    struct cairn_warmup_options wanted;
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(options, &wanted, err));
    if (session->read_only)
        return cairn_fail(err, CAIRN_INVALID, "a session that only reads has no way of saves");
    uint64_t deadline_ms = cairn_client_deadline(session, wanted.timeout_ms);
    enum cairn_code code = warm_device(session, (enum cairn_memory)wanted.memory, err);
    if (!code) {
        const struct cairn_client_request request = {
            CAIRN_CLIENT_REQUEST(warmup, .timeout_ms = cairn_client_left_ms(deadline_ms)),
            .waits = true, .deadline_ms = deadline_ms};
        code = cairn_client_call(session, &request, NULL, err);
    }
    if (!code) return CAIRN_OK;
    (void)cairn_within(err, code, "%s rank %u: warm-up", session->run, session->rank);
    return cairn_client_about(session, code, err);
}
