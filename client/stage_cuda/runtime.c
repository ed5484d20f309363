/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime, its driver, and contexts. A context's cache is a stack. A failure empties it: a
 * handle may belong to a context that was destroyed and recreated at the same address. */
#include "client/stage_cuda/inside.h"

#include <dlfcn.h>
#include <stdlib.h>

/* Blocking: a waiting thread sleeps and frees its core. */
#define EVENT_FLAGS (CAIRN_CUDA_EVENT_NO_TIMING | CAIRN_CUDA_EVENT_BLOCKING)

/* ---- the runtime: by soname, newest first: the process's own, else the loader's ---- */

static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};

static void *find_library(void) {
    void *library = NULL;
    for (size_t i = 0; i < CAIRN_COUNT(names) && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
    if (!library && dlsym(RTLD_DEFAULT, "cudaMemcpyAsync")) /* linked statically, symbols visible */
        library = dlopen(NULL, RTLD_NOW);
    for (size_t i = 0; i < CAIRN_COUNT(names) && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* which: "runtime" or "driver". */
static bool find(void *library, const char *which, const char *name, void *ret,
                 struct cairn_error *err) {
    void *symbol = dlsym(library, name);
    memcpy(ret, &symbol, sizeof symbol);
    if (!symbol) (void)cairn_fail(err, CAIRN_UNSUPPORTED, "the CUDA %s has no %s", which, name);
    return symbol != NULL;
}

static enum cairn_code find_runtime(struct cairn_cuda_runtime *ret, struct cairn_error *err) {
    void *library = find_library();
    if (!library)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "no CUDA runtime: libcudart.so.13, 12 and 11.0 are not found");
#define FIND(name, arguments)                                                                      \
    if (!find(library, "runtime", "cuda" #name, &ret->name, err)) return CAIRN_UNSUPPORTED;
    CAIRN_CUDA_CALLS(FIND)
#undef FIND
    if (!find(library, "runtime", "cudaGetErrorName", &ret->name_of, err) ||
        !find(library, "runtime", "cudaGetErrorString", &ret->text_of, err))
        return CAIRN_UNSUPPORTED;
    return CAIRN_OK;
}

enum cairn_code cairn_cuda_check(const struct cairn_cuda_runtime *cuda, const char *call,
                                 int status, struct cairn_error *err) {
    if (status == CAIRN_CUDA_OK) return CAIRN_OK;
    (void)cuda->GetLastError(); /* an error that is not sticky is ours alone */
    return cairn_fail(err, status == CAIRN_CUDA_OUT_OF_MEMORY ? CAIRN_NO_MEMORY : CAIRN_IO,
                      "%s: %s (%d): %s", call, cuda->name_of(status), status,
                      cuda->text_of(status));
}

/* ---- the driver, which a process with a runtime has loaded ---- */

static enum cairn_code find_driver(struct cairn_cuda_driver *ret, struct cairn_error *err) {
    void *library = dlsym(RTLD_DEFAULT, "cuModuleLoadData") ? dlopen(NULL, RTLD_NOW) : NULL;
    if (!library) library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "no CUDA driver: libcuda.so.1 is not found");
#define FIND(name, arguments)                                                                      \
    if (!find(library, "driver", "cu" #name, &ret->name, err)) return CAIRN_UNSUPPORTED;
    CAIRN_CUDA_DRIVER_CALLS(FIND)
#undef FIND
    return CAIRN_OK;
}

enum cairn_code cairn_cuda_driver_check(const struct cairn_cuda_driver *driver, const char *call,
                                        int status, struct cairn_error *err) {
    const char *name = NULL;
    if (!status) return CAIRN_OK;
    if (driver->GetErrorName(status, &name) || !name) name = "CUDA_ERROR_UNKNOWN";
    return cairn_fail(err, status == CAIRN_CUDA_DRIVER_OUT_OF_MEMORY ? CAIRN_NO_MEMORY : CAIRN_IO,
                      "%s: %s (%d)", call, name, status);
}

/* ---- contexts ---- */

enum cairn_code cairn_cuda_init(struct cairn_cuda *cuda, struct cairn_error *err) {
    *cuda = (struct cairn_cuda){0};
    CAIRN_TRY(find_runtime(&cuda->runtime, err));
    CAIRN_TRY(find_driver(&cuda->driver, err));
    cairn_lock_init(&cuda->lock, CAIRN_LOCK_client_device);
    return CAIRN_OK;
}

/* ---- a place's cache; the lock is held, and the thread is in the place ---- */

static void destroy_streams(const struct cairn_cuda *cuda,
                            const struct cairn_cuda_streams *streams) {
    const struct cairn_cuda_runtime *runtime = &cuda->runtime;
    int status = 0;
    for (size_t i = 0; i < CAIRN_CUDA_SCRATCHES; i++) {
        const struct cairn_cuda_scratch *scratch = &streams->scratches[i];
        if (scratch->filled) status |= runtime->EventDestroy(scratch->filled);
        if (scratch->emptied) status |= runtime->EventDestroy(scratch->emptied);
        if (scratch->memory) status |= runtime->Free(scratch->memory);
    }
    if (streams->copies) status |= runtime->StreamDestroy(streams->copies);
    if (streams->kernels) status |= runtime->StreamDestroy(streams->kernels);
    if (status) (void)runtime->GetLastError();
}

static void empty(const struct cairn_cuda *cuda, struct cairn_cuda_place *place) {
    int status = 0;
    while (place->event_count)
        status |= cuda->runtime.EventDestroy(place->events[--place->event_count]);
    if (status) (void)cuda->runtime.GetLastError();
    while (place->streams_count) destroy_streams(cuda, &place->streams[--place->streams_count]);
    if (place->module) (void)cuda->driver.ModuleUnload(place->module);
    place->module = NULL;
    memset(place->kernels, 0, sizeof place->kernels);
}

static void free_sums(const struct cairn_cuda *cuda, const struct cairn_cuda_sums *sums) {
    if (sums->at && cuda->runtime.FreeHost(sums->at)) (void)cuda->runtime.GetLastError();
}

void cairn_cuda_release(struct cairn_cuda *cuda) {
    for (size_t i = 0; i < cuda->locked.place_count; i++) {
        struct cairn_cuda_place *place = cuda->locked.places[i];
        struct cairn_cuda_entry entered = {0};
        if (!cairn_cuda_enter(cuda, place, &entered, NULL)) {
            empty(cuda, place);
            while (cuda->locked.sums_count)
                free_sums(cuda, &cuda->locked.sums[--cuda->locked.sums_count]);
        }
        cairn_cuda_entry_release(&entered);
        if (place->retained) (void)cuda->driver.DevicePrimaryCtxRelease_v2(place->device);
        free(place);
    }
    cairn_lock_release(&cuda->lock);
}

/* ---- finding the place ---- */

/* The lock is held. retained: the caller retained the context. */
static enum cairn_code add(struct cairn_cuda *cuda, void *context, int device, bool retained,
                           struct cairn_cuda_place **ret, struct cairn_error *err) {
    if (cuda->locked.place_count == CAIRN_CUDA_PLACES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "memory in more than %d contexts",
                          CAIRN_CUDA_PLACES_MAX);
    struct cairn_cuda_place *made = calloc(1, sizeof *made);
    if (!made) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a context");
    *made = (struct cairn_cuda_place){.context = context, .device = device, .retained = retained};
    cuda->locked.places[cuda->locked.place_count++] = made;
    *ret = made;
    return CAIRN_OK;
}

static enum cairn_code place_in(struct cairn_cuda *cuda, void *context, int device,
                                struct cairn_cuda_place **ret, struct cairn_error *err) {
    CAIRN_HOLD(&cuda->lock);
    for (size_t i = 0; i < cuda->locked.place_count; i++) {
        *ret = cuda->locked.places[i];
        if ((*ret)->context == context) return CAIRN_OK;
    }
    return add(cuda, context, device, false, ret, err);
}

/* The device's primary context, opened by the process. */
static enum cairn_code place_primary(struct cairn_cuda *cuda, int device,
                                     struct cairn_cuda_place **ret, struct cairn_error *err) {
    void *context = NULL;
    CAIRN_HOLD(&cuda->lock);
    for (size_t i = 0; i < cuda->locked.place_count; i++) {
        *ret = cuda->locked.places[i];
        if ((*ret)->retained && (*ret)->device == device) return CAIRN_OK;
    }
    CAIRN_TRY(CAIRN_CUDA_DRIVER(&cuda->driver, DevicePrimaryCtxRetain, (&context, device), err));
    enum cairn_code code = add(cuda, context, device, true, ret, err);
    if (code) (void)cuda->driver.DevicePrimaryCtxRelease_v2(device);
    return code;
}

static bool is_open(const struct cairn_cuda *cuda, int device) {
    unsigned flags = 0;
    int active = 0;
    return !cuda->driver.DevicePrimaryCtxGetState(device, &flags, &active) && active;
}

/* The thread's current context; false: none. */
static bool own_context(const struct cairn_cuda *cuda, void **ret, int *ret_device) {
    return !cuda->driver.CtxGetCurrent(ret) && *ret && !cuda->driver.CtxGetDevice(ret_device);
}

enum cairn_code cairn_cuda_place_of(struct cairn_cuda *cuda, const void *memory,
                                    struct cairn_cuda_place **ret, struct cairn_error *err) {
    void *context = NULL;
    int device = 0, own_device = -1;
    struct cairn_cuda_pointer found = {0};
    CAIRN_TRY(CAIRN_CUDA(&cuda->runtime, PointerGetAttributes, (&found, memory), err));
    if (found.type != CAIRN_CUDA_MEMORY_OF_DEVICE && found.type != CAIRN_CUDA_MEMORY_MANAGED)
        return cairn_fail(err, CAIRN_INVALID, "the source is not memory of a CUDA device");
    device = found.device;
    int status =
        cuda->driver.PointerGetAttribute(&context, CAIRN_CUDA_CONTEXT_OF, (uintptr_t)memory);
    if (!status && context) return place_in(cuda, context, device, ret, err);
    if (!is_open(cuda, device) && own_context(cuda, &context, &own_device) && own_device == device)
        return place_in(cuda, context, device, ret, err);
    return place_primary(cuda, device, ret, err);
}

enum cairn_code cairn_cuda_place_any(struct cairn_cuda *cuda, struct cairn_cuda_place **ret,
                                     struct cairn_error *err) {
    void *context = NULL;
    int device = 0;
    if (own_context(cuda, &context, &device)) return place_in(cuda, context, device, ret, err);
    cairn_lock_take(&cuda->lock);
    *ret = cuda->locked.place_count ? cuda->locked.places[0] : NULL;
    cairn_lock_give(&cuda->lock);
    if (*ret) return CAIRN_OK;
    CAIRN_TRY(CAIRN_CUDA(&cuda->runtime, GetDevice, (&device), err));
    return is_open(cuda, device) ? place_primary(cuda, device, ret, err) : CAIRN_OK;
}

/* ---- entering and leaving ---- */

enum cairn_code cairn_cuda_enter(const struct cairn_cuda *cuda,
                                 const struct cairn_cuda_place *place, struct cairn_cuda_entry *ret,
                                 struct cairn_error *err) {
    CAIRN_TRY(CAIRN_CUDA_DRIVER(&cuda->driver, CtxPushCurrent_v2, (place->context), err));
    *ret = (struct cairn_cuda_entry){cuda, CAIRN_CUDA_CAPTURE_RELAXED};
    (void)cuda->driver.ThreadExchangeStreamCaptureMode(&ret->mode); /* has no errors of its own */
    return CAIRN_OK;
}

void cairn_cuda_entry_release(struct cairn_cuda_entry *entry) {
    void *context = NULL;
    if (!entry->cuda) return;
    (void)entry->cuda->driver.ThreadExchangeStreamCaptureMode(&entry->mode);
    (void)entry->cuda->driver.CtxPopCurrent_v2(&context);
}

/* ---- cached objects ---- */

enum cairn_code cairn_cuda_event_take(struct cairn_cuda *cuda, struct cairn_cuda_place *place,
                                      void **ret, struct cairn_error *err) {
    cairn_lock_take(&cuda->lock);
    void *kept = place->event_count ? place->events[--place->event_count] : NULL;
    cairn_lock_give(&cuda->lock);
    *ret = kept;
    if (kept) return CAIRN_OK;
    return CAIRN_CUDA(&cuda->runtime, EventCreateWithFlags, (ret, EVENT_FLAGS), err);
}

void cairn_cuda_event_give(struct cairn_cuda *cuda, struct cairn_cuda_place *place, void *event) {
    if (!event) return;
    cairn_lock_take(&cuda->lock);
    bool kept = place->event_count < CAIRN_CUDA_EVENTS_KEPT;
    if (kept) place->events[place->event_count++] = event;
    cairn_lock_give(&cuda->lock);
    if (!kept && cuda->runtime.EventDestroy(event)) (void)cuda->runtime.GetLastError();
}

/* Kernels get the highest priority: they are short, and copies wait for them. */
static enum cairn_code make_streams(const struct cairn_cuda *cuda, struct cairn_cuda_streams *ret,
                                    struct cairn_error *err) {
    int least = 0, greatest = 0;
    *ret = (struct cairn_cuda_streams){0};
    CAIRN_TRY(CAIRN_CUDA(&cuda->runtime, DeviceGetStreamPriorityRange, (&least, &greatest), err));
    CAIRN_TRY(CAIRN_CUDA(&cuda->runtime, StreamCreateWithPriority,
                         (&ret->copies, CAIRN_CUDA_STREAM_NON_BLOCKING, least), err));
    return CAIRN_CUDA(&cuda->runtime, StreamCreateWithPriority,
                      (&ret->kernels, CAIRN_CUDA_STREAM_NON_BLOCKING, greatest), err);
}

enum cairn_code cairn_cuda_streams_take(struct cairn_cuda *cuda, struct cairn_cuda_place *place,
                                        struct cairn_cuda_streams *ret, struct cairn_error *err) {
    struct cairn_cuda_streams made;
    cairn_lock_take(&cuda->lock);
    bool kept = place->streams_count > 0;
    if (kept) *ret = place->streams[--place->streams_count];
    place->streams_taken++;
    cairn_lock_give(&cuda->lock);
    if (kept) return CAIRN_OK;
    enum cairn_code code = make_streams(cuda, &made, err);
    if (code)
        cairn_cuda_streams_give(cuda, place, &made, true);
    else
        *ret = made;
    return code;
}

void cairn_cuda_streams_give(struct cairn_cuda *cuda, struct cairn_cuda_place *place,
                             const struct cairn_cuda_streams *streams, bool failed) {
    CAIRN_HOLD(&cuda->lock);
    bool kept = !failed && place->streams_count < CAIRN_CUDA_LANES_KEPT;
    if (kept) place->streams[place->streams_count++] = *streams;
    if (!kept) destroy_streams(cuda, streams);
    place->streams_taken--;
    if (failed && !place->streams_taken) empty(cuda, place);
}

struct cairn_cuda_sums cairn_cuda_sums_take(struct cairn_cuda *cuda, size_t count) {
    struct cairn_cuda_sums ret = {0};
    void *made = NULL;
    cairn_lock_take(&cuda->lock);
    if (cuda->locked.sums_count) ret = cuda->locked.sums[--cuda->locked.sums_count];
    cairn_lock_give(&cuda->lock);
    if (ret.count < count) {
        free_sums(cuda, &ret);
        ret = (struct cairn_cuda_sums){.count = count};
        if (CAIRN_CUDA(&cuda->runtime, HostAlloc,
                       (&made, count * sizeof *ret.at, CAIRN_CUDA_HOST_PORTABLE), NULL))
            return (struct cairn_cuda_sums){0};
        ret.at = made;
    }
    memset(ret.at, 0, count * sizeof *ret.at);
    return ret;
}

void cairn_cuda_sums_give(struct cairn_cuda *cuda, const struct cairn_cuda_sums *sums) {
    if (!sums->at) return;
    cairn_lock_take(&cuda->lock);
    bool kept = cuda->locked.sums_count < CAIRN_CUDA_SUMS_KEPT;
    if (kept) cuda->locked.sums[cuda->locked.sums_count++] = *sums;
    cairn_lock_give(&cuda->lock);
    if (!kept) free_sums(cuda, sums);
}
