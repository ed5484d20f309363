/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/passing.h"

#include <sys/mman.h>
#include <sys/un.h>

#include "tests/harness.h"

#define FILE_BYTES (2 * sizeof(int64_t)) /* of LIBCLOCK_AHEAD: the second number is ours */

/* An abstract name; who writes there is told apart by its process. */
static bool be_manager(struct cairn_passing *passing) {
    static unsigned count;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int on = 1;
    snprintf(passing->manager, sizeof(passing->manager), "NOTIFY_SOCKET=@cairn-passing-%d-%u",
             (int)getpid(), ++count);
    const char *path = strchr(passing->manager, '@');
    memcpy(name.sun_path + 1, path + 1, strlen(path + 1));
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    passing->manager_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return passing->manager_fd >= 0 && !bind(passing->manager_fd, (struct sockaddr *)&name, size) &&
           !setsockopt(passing->manager_fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
}

/* Who has told that it lives; 0: nobody more. */
static pid_t next_sign(const struct cairn_passing *passing) {
    char text[64] = "";
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec into = {text, sizeof(text) - 1};
    struct msghdr message = {.msg_iov = &into,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    struct ucred from = {0};
    while (recvmsg(passing->manager_fd, &message, 0) >= 0) {
        const struct cmsghdr *told = CMSG_FIRSTHDR(&message);
        if (told && !strncmp(text, "WATCHDOG=1", 10)) {
            memcpy(&from, CMSG_DATA(told), sizeof(from));
            return from.pid;
        }
        message.msg_controllen = sizeof(control);
    }
    return 0;
}

bool cairn_passing_open(struct cairn_passing *ret) {
    const char *build = getenv("CAIRN_BIN_DIR"), *options = getenv("ASAN_OPTIONS");
    const char *others = getenv("LD_PRELOAD"), *libraries = getenv("LD_LIBRARY_PATH");
    char self[400] = "", path[500];
    if (!build && readlink("/proc/self/exe", self, sizeof(self) - 1) > 0) *strrchr(self, '/') = 0;
    /* By its bare name: a space in LD_PRELOAD ends a path, and the build's folder may have one. */
    snprintf(ret->preload, sizeof(ret->preload), "LD_PRELOAD=libclock.so%s%.200s",
             others ? ":" : "", others ? others : "");
    snprintf(ret->libraries, sizeof(ret->libraries), "LD_LIBRARY_PATH=%.300s/tests%s%.200s",
             build ? build : self, libraries ? ":" : "", libraries ? libraries : "");
    snprintf(path, sizeof(path), "%s/passing", cairn_test_folder());
    snprintf(ret->file, sizeof(ret->file), "LIBCLOCK_AHEAD=%s", path);
    /* The sanitizer's library is linked into the program, and not the first one then. */
    snprintf(ret->sanitizer, sizeof(ret->sanitizer), "ASAN_OPTIONS=%.200s:verify_asan_link_order=0",
             options ? options : "");
    if (!EXPECT(be_manager(ret))) return false;
    const char *const env[] = {ret->preload, ret->libraries,       ret->file, ret->sanitizer,
                               ret->manager, "WATCHDOG_USEC=1000", NULL};
    memcpy(ret->env, env, sizeof(env));
    CAIRN_AUTO_FD fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (!EXPECT(fd >= 0 && !ftruncate(fd, FILE_BYTES))) return false;
    void *mapped = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!EXPECT(mapped != MAP_FAILED)) return false;
    ret->passed_ms = (int64_t *)mapped + 1;
    return true;
}

void cairn_passing_release(struct cairn_passing *passing) {
    if (passing->passed_ms) munmap(passing->passed_ms - 1, FILE_BYTES);
    if (passing->passed_ms) close(passing->manager_fd);
    passing->passed_ms = NULL;
}

void cairn_passing_pass(struct cairn_passing *passing, uint64_t ms) {
    while (next_sign(passing)) continue;
    __atomic_fetch_add(passing->passed_ms, (int64_t)ms, __ATOMIC_SEQ_CST);
}

bool cairn_passing_looked(struct cairn_passing *passing, pid_t daemon) {
    pid_t from = 0;
    return AWAIT((from = next_sign(passing)) == daemon);
}
