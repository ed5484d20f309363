/* SPDX-License-Identifier: Apache-2.0 */
/* An eventfd that holds 1 from a change on until that was looked at, so that no call blocks. */
#include "client/save/poll.h"

#include <cairn/poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

void cairn_client_saves_changed(struct cairn_session *session) {
    struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place)
        if (!cairn_client_save_over(save)) cairn_client_save_changed(save);
}

void cairn_client_save_looked_at(struct cairn_save *save) {
    eventfd_t count;
    if (!save->changed || cairn_client_save_over(save)) return; /* readable for good */
    save->changed = false;
    if (save->fd >= 0) (void)!eventfd_read(save->fd, &count);
}

void cairn_client_save_fd_close(struct cairn_save *save) {
    if (save->fd >= 0) close(save->fd);
    save->fd = -1;
}

int cairn_save_fd(struct cairn_save *save) {
    if (cairn_client_save_enter(save, NULL)) return -1;
    struct cairn_session *session = save->session;
    cairn_lock_take(&session->lock);
    if (save->fd < 0) {
        save->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (save->fd >= 0 && save->changed) (void)!eventfd_write(save->fd, 1);
    }
    int fd = save->fd;
    cairn_lock_give(&session->lock);
    cairn_client_leave(session);
    return fd;
}
