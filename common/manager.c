/* SPDX-License-Identifier: Apache-2.0 */
/* One datagram a word; see manager.h. */
#include "common/manager.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"

#define ALIVE_EVERY_MS 1000

void cairn_manager_tell(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t size = path ? strlen(path) : 0;
    if (size < 2 || size >= sizeof(to.sun_path) || (*path != '/' && *path != '@')) return;
    memcpy(to.sun_path, path, size);
    if (*path == '@') to.sun_path[0] = '\0'; /* an abstract name: all of its bytes count */
    CAIRN_AUTO_FD fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, bytes);
}

void cairn_manager_alive(void) {
    static uint64_t told_ms; /* of the one loop that calls this */
    uint64_t now_ms = cairn_mono_ms();
    if (now_ms < told_ms + ALIVE_EVERY_MS || !getenv("WATCHDOG_USEC")) return;
    told_ms = now_ms;
    cairn_manager_tell("WATCHDOG=1");
}
