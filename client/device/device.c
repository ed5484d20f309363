/* SPDX-License-Identifier: Apache-2.0 */
/* The plug-in is looked for beside the object that holds this code: an installation may be moved,
 * and a trainer's search path may have another release. */
#include "client/device/device.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>

#define PLUGIN "libcairn_cuda.so.0"

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

static enum cairn_code load(const struct cairn_device_plugin **ret, struct cairn_error *err) {
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
    CAIRN_TRY(load(&made.plugin, err));
    CAIRN_TRY(made.plugin->open(&made.handle, err));
    *ret = made;
    return CAIRN_OK;
}

void cairn_client_device_release(struct cairn_client_device *device) {
    if (device->handle) device->plugin->close(device->handle);
    *device = (struct cairn_client_device){0};
}
