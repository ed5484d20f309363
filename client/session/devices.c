/* SPDX-License-Identifier: Apache-2.0 */
/* Loading takes no lock of the session, since it may take a second. */
#include "client/session/devices.h"

enum cairn_code cairn_client_device_need(struct cairn_session *session, const void *memory,
                                         struct cairn_error *err) {
    struct cairn_client_device device = {0};
    cairn_lock_take(&session->lock);
    bool open = session->device.handle != NULL;
    cairn_lock_give(&session->lock);
    if (!open) CAIRN_TRY(cairn_client_device_open(&device, err));
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

enum cairn_code cairn_client_device_converts(struct cairn_session *session, const void *memory,
                                             unsigned source_dtype, unsigned dtype,
                                             struct cairn_error *err) {
    CAIRN_PROMISE(session->device.handle,
                  return cairn_fail(err, CAIRN_BROKEN, "no device is open"));
    return session->device.plugin->convertible(session->device.handle, memory, source_dtype, dtype,
                                               err);
}

void cairn_client_device_lock(struct cairn_session *session, const struct cairn_slab *slab,
                              bool read_only, const char *which) {
    struct cairn_error why = {0};
    const struct cairn_client_device *device = &session->device;
    if (!device->plugin->lock(device->handle, slab->data, slab->size_bytes, read_only, &why))
        return;
    (void)cairn_within(&why, why.code,
                       "the memory of %s is not page-locked, so a device copies at about a quarter "
                       "of its speed",
                       which);
    CAIRN_HOLD(&session->lock);
    session->sink->notice(session, &why);
}
