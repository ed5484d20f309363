/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* net: both ends of real sockets in one process, and descriptors counted before and after. */
#include <dirent.h>
#include <limits.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "common/net.h"
#include "tests/harness.h"

/* What the kernel says when a connection is accepted, so many times; then the truth. */
static int pretended_errno;
static unsigned pretended_times, accept_calls;
__attribute__((visibility("default"))) int accept4(int fd, struct sockaddr *address,
                                                   socklen_t *size, int flags) {
    accept_calls++;
    if (!pretended_times) return (int)syscall(SYS_accept4, fd, address, size, flags);
    pretended_times--;
    errno = pretended_errno;
    return -1;
}

static const char *socket_path(void) {
    static char path[108];
    snprintf(path, sizeof path, "%.90s/u.sock", cairn_test_folder());
    return path;
}

static size_t open_descriptors(void) {
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

static bool cloexec(int fd) {
    return fcntl(fd, F_GETFD) & FD_CLOEXEC;
}

struct pair {
    int ends[2];
};
static void cairn_pair_release(struct pair *pair) {
    close(pair->ends[0]);
    close(pair->ends[1]);
}
#define PAIR(name)                                                                                 \
    __attribute__((cleanup(cairn_pair_release))) struct pair name = {{-1, -1}};                    \
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, name.ends) == 0)

static void wait_readable(int fd) {
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    poll(&wanted, 1, (int)HANG_MS);
}

TEST(a_client_reaches_the_listener_and_is_known_by_uid_and_pid, err) { /* net.h#1 */
    CAIRN_AUTO_FD listener = -1, client = -1;
    REQUIRE_OK(cairn_net_listen_unix(socket_path(), 0640, &listener, &err));
    struct stat status;
    REQUIRE(stat(socket_path(), &status) == 0);
    EXPECT_EQ_U64(status.st_mode & 0777, 0640);
    REQUIRE_OK(cairn_net_connect_unix(socket_path(), &client, &err));
    CAIRN_AUTO_FD served = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    REQUIRE(served >= 0);
    EXPECT(cloexec(listener) && cloexec(client));
    uid_t uid = (uid_t)-1;
    pid_t pid = -1;
    REQUIRE_OK(cairn_net_peer_uid(served, &uid, &pid, &err));
    EXPECT_EQ_U64(uid, getuid());
    EXPECT_EQ_U64(pid, getpid());
}

TEST(a_listener_is_this_users_roots_or_one_that_is_named, err) { /* net.h#8 */
    CAIRN_AUTO_FD own = -1, client = -1;
    REQUIRE_OK(cairn_net_listen_unix(socket_path(), 0666, &own, &err));
    REQUIRE_OK(cairn_net_connect_unix(socket_path(), &client, &err));
    EXPECT_CODE(cairn_net_listener_check(client, socket_path(), NULL, "USERS", &err), CAIRN_OK);
    if (geteuid() != 0) SKIP("needs root to become somebody else");
    int ready[2];
    const char *name = TEXT("/tmp/cairn-listener-%d", (int)getpid());
    const char *given = TEXT("/run/cairn-test-%d", (int)getpid());
    const char *within = TEXT("%s/u.sock", given);
    bool has_run = !mkdir(given, 0755) && !chown(given, 65534, 65534);
    REQUIRE(pipe(ready) == 0);
    pid_t holder = fork();
    if (!holder) {
        int listener = -1;
        bool held =
            !setresuid(65534, 65534, 65534) && !cairn_net_listen_unix(name, 0666, &listener, &err);
        if (write(ready[1], "x", 1) == 1 && held) pause();
        _exit(1);
    }
    char byte;
    EXPECT(read(ready[0], &byte, 1) == 1);
    CAIRN_AUTO_FD strange = -1;
    REQUIRE_OK(cairn_net_connect_unix(name, &strange, &err));
    EXPECT_CODE(cairn_net_listener_check(strange, name, NULL, "USERS", &err), CAIRN_FORBIDDEN);
    EXPECT_EQ_TEXT(err.message, "user 65534 listens there, who is neither root nor this user (0): "
                                "set USERS=65534 if that is the uploader's user");
    EXPECT_CODE(cairn_net_listener_check(strange, name, "1,6553", "USERS", &err), CAIRN_FORBIDDEN);
    EXPECT_CODE(cairn_net_listener_check(strange, name, "1,65534", "USERS", &err), CAIRN_OK);
    EXPECT_CODE(cairn_net_listener_check(strange, name, "any", "USERS", &err), CAIRN_OK);
    if (has_run) { /* a folder that root has given that user, until others may write to it */
        EXPECT_CODE(cairn_net_listener_check(strange, within, NULL, "USERS", &err), CAIRN_OK);
        EXPECT(!chmod(given, 0777));
        EXPECT_CODE(cairn_net_listener_check(strange, within, NULL, "USERS", &err),
                    CAIRN_FORBIDDEN);
        EXPECT(!chmod(given, 0755) && !chown(given, 65533, 65533));
        EXPECT_CODE(cairn_net_listener_check(strange, within, NULL, "USERS", &err),
                    CAIRN_FORBIDDEN);
    }
    rmdir(given);
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    unlink(name);
    close(ready[0]);
    close(ready[1]);
}

TEST(the_end_of_the_process_that_has_connected_is_seen, err) {
    CAIRN_AUTO_FD listener = -1;
    REQUIRE_OK(cairn_net_listen_unix(socket_path(), 0640, &listener, &err));
    pid_t pid = fork();
    if (pid == 0) {
        int fd = -1;
        if (cairn_net_connect_unix(socket_path(), &fd, &err) != CAIRN_OK) _exit(1);
        for (;;) pause();
    }
    REQUIRE(pid > 0);
    wait_readable(listener);
    CAIRN_AUTO_FD served = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    REQUIRE(served >= 0);
    CAIRN_AUTO_FD process = cairn_net_peer_process(served);
    bool told = process >= 0;
    struct pollfd ended = {.fd = process, .events = POLLIN};
    if (told) EXPECT(poll(&ended, 1, 0) == 0 && cloexec(process));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    if (told) EXPECT(poll(&ended, 1, (int)HANG_MS) == 1);
    if (!told) SKIP("this kernel does not tell (Linux before 6.5)");
}

TEST(a_stale_socket_is_replaced_and_a_live_one_is_not, err) { /* net.h#2 */
    int first = -1;
    REQUIRE_OK(cairn_net_listen_unix(socket_path(), 0600, &first, &err));
    CAIRN_AUTO_FD second = -1;
    EXPECT_CODE(cairn_net_listen_unix(socket_path(), 0600, &second, &err), CAIRN_CONFLICT);
    CAIRN_AUTO_FD client = -1;
    EXPECT_CODE(cairn_net_connect_unix(socket_path(), &client, &err), CAIRN_OK);
    close(first);
    EXPECT_CODE(cairn_net_listen_unix(socket_path(), 0600, &second, &err), CAIRN_OK);
}

TEST(what_is_no_socket_is_never_removed, err) { /* net.h#2 */
    CAIRN_AUTO_FD listener = -1;
    CAIRN_AUTO_FD file = open(socket_path(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    REQUIRE(file >= 0);
    EXPECT_CODE(cairn_net_listen_unix(socket_path(), 0600, &listener, &err), CAIRN_CONFLICT);
    EXPECT(access(socket_path(), F_OK) == 0);
    REQUIRE(unlink(socket_path()) == 0 && symlink("elsewhere", socket_path()) == 0);
    EXPECT_CODE(cairn_net_listen_unix(socket_path(), 0600, &listener, &err), CAIRN_CONFLICT);
    struct stat status;
    EXPECT(lstat(socket_path(), &status) == 0 && S_ISLNK(status.st_mode));
}

TEST(paths_that_do_not_fit_or_lead_nowhere_are_said, err) {
    int fd = -1;
    char path[109];
    memset(path, 'a', 108);
    path[108] = '\0';
    EXPECT_CODE(cairn_net_connect_unix(path, &fd, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_net_listen_unix(path, 0600, &fd, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_net_listen_unix("", 0600, &fd, &err), CAIRN_INVALID);
    EXPECT_FAILS(cairn_net_connect_unix(socket_path(), &fd, &err), CAIRN_NOT_FOUND,
                 "there is no socket");
    int listener = -1;
    REQUIRE_OK(cairn_net_listen_unix(socket_path(), 0600, &listener, &err));
    close(listener);
    EXPECT_FAILS(cairn_net_connect_unix(socket_path(), &fd, &err), CAIRN_UNAVAILABLE,
                 "nothing listens");
    EXPECT(fd == -1);
}

TEST(a_claimed_name_is_one_process_and_free_when_that_ends, err) { /* net.h#5 */
    int first = -1, second = -1, ready[2];
    const char *name = TEXT("cairn-test/%d", (int)getpid());
    REQUIRE_OK(cairn_net_claim(name, &first, &err));
    EXPECT_FAILS(cairn_net_claim(name, &second, &err), CAIRN_CONFLICT, name);
    close(first);
    REQUIRE_OK(cairn_net_claim(name, &first, &err));
    close(first);
    REQUIRE(pipe(ready) == 0);
    pid_t holder = fork();
    if (!holder) {
        bool held = cairn_net_claim(name, &first, NULL) == CAIRN_OK;
        if (write(ready[1], "x", 1) == 1 && held) pause();
        _exit(1);
    }
    char byte;
    EXPECT(read(ready[0], &byte, 1) == 1);
    EXPECT_FAILS(cairn_net_claim(name, &second, &err), CAIRN_CONFLICT,
                 TEXT("process %d", (int)holder));
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    REQUIRE_OK(cairn_net_claim(name, &second, &err));
    close(second);
    close(ready[0]);
    close(ready[1]);
}

TEST(a_name_that_another_user_holds_is_told_apart, err) { /* net.h#5 */
    int fd = -1, ready[2];
    if (geteuid() != 0) SKIP("needs root to become somebody else");
    const char *name = TEXT("cairn-test/%d", (int)getpid());
    for (int listens = 0; listens < 2; listens++) {
        REQUIRE(pipe(ready) == 0);
        pid_t holder = fork();
        if (!holder) {
            struct sockaddr_un address = {.sun_family = AF_UNIX};
            memcpy(address.sun_path + 1, name, strlen(name));
            int mute = socket(AF_UNIX, SOCK_STREAM, 0);
            bool held =
                !setresuid(65534, 65534, 65534) &&
                !bind(mute, (struct sockaddr *)&address,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) &&
                (!listens || !listen(mute, 1));
            if (write(ready[1], "x", 1) == 1 && held) pause();
            _exit(1);
        }
        char byte;
        EXPECT(read(ready[0], &byte, 1) == 1);
        for (int i = 0; i < 5; i++) /* also when its queue is full */
            EXPECT_CODE(cairn_net_claim(name, &fd, &err), CAIRN_FORBIDDEN);
        kill(holder, SIGKILL);
        waitpid(holder, NULL, 0);
        close(ready[0]);
        close(ready[1]);
    }
}

TEST(a_tcp_listener_tells_the_port_it_was_given, err) {
    CAIRN_AUTO_FD listener = -1;
    uint16_t port = 0;
    REQUIRE_OK(cairn_net_listen_tcp("127.0.0.1:0", &listener, &port, &err));
    EXPECT(port != 0 && cloexec(listener));
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CAIRN_AUTO_FD client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT(connect(client, (struct sockaddr *)&to, sizeof to) == 0);
    const char *again = TEXT("127.0.0.1:%u", port);
    CAIRN_AUTO_FD second = -1;
    EXPECT_CODE(cairn_net_listen_tcp(again, &second, &port, &err), CAIRN_CONFLICT);
}

TEST(addresses_that_cannot_be_listened_on_are_invalid) {
    EACH_TEXT(text, "", "7420", ":7420", "127.0.0.1", "::1:80", "127.0.0.1:", "127.0.0.1:x",
              "127.0.0.1:-1", "[::1]", "127.0.0.1:080x", "127.0.0.1:65536", "[::1]7420") {
        struct cairn_error err = {0};
        int fd = -1;
        uint16_t port = 0;
        EXPECT_CODE(cairn_net_listen_tcp(text, &fd, &port, &err), CAIRN_INVALID);
        EXPECT(fd == -1);
    }
}

static void pretend(int number, unsigned times) {
    pretended_errno = number;
    pretended_times = times;
    accept_calls = 0;
}

TEST(callers_that_have_gone_are_passed_over_but_not_for_ever, err) { /* net.h#6, K08 */
    CAIRN_AUTO_FD listener = -1, client = -1, accepted = -1;
    REQUIRE_OK(cairn_net_listen_unix(socket_path(), 0640, &listener, &err));
    REQUIRE_OK(cairn_net_connect_unix(socket_path(), &client, &err));
    pretend(ECONNABORTED, UINT_MAX);
    EXPECT(cairn_net_accept(listener, &accepted, &err) != CAIRN_OK);
    EXPECT_EQ_U64(accept_calls, 16);
    pretend(ECONNABORTED, 15);
    REQUIRE_OK(cairn_net_accept(listener, &accepted, &err));
    EXPECT(accepted >= 0 && cloexec(accepted) && fcntl(accepted, F_GETFL) & O_NONBLOCK);
    int nobody = 0;
    REQUIRE_OK(cairn_net_accept(listener, &nobody, &err));
    EXPECT(nobody == -1);
}

TEST(an_accept_that_fails_is_asked_once_and_its_caller_is_still_there, err) { /* net.h#6, K08 */
    CAIRN_AUTO_FD listener = -1, client = -1;
    REQUIRE_OK(cairn_net_listen_unix(socket_path(), 0640, &listener, &err));
    REQUIRE_OK(cairn_net_connect_unix(socket_path(), &client, &err));
    int accepted = -1;
    EACH_OF(int, number, EMFILE, ENFILE, ENOMEM, ENOBUFS, ENETDOWN, EPROTO, EPERM) {
        pretend(number, 1);
        EXPECT(cairn_net_accept(listener, &accepted, &err) != CAIRN_OK && accepted == -1);
        EXPECT_EQ_U64(accept_calls, 1);
    }
    pretend(EINTR, 3);
    REQUIRE_OK(cairn_net_accept(listener, &accepted, &err));
    EXPECT(accepted >= 0);
    close(accepted);
}

TEST(bytes_and_descriptors_arrive_together_and_close_on_exec, err) { /* net.h#1 */
    PAIR(pair);
    int pipes[2];
    REQUIRE(pipe2(pipes, O_CLOEXEC) == 0);
    REQUIRE_OK(cairn_net_send(pair.ends[0], CAIRN_VIEW("hello"), pipes, 2,
                              cairn_deadline_in(&cairn_clock_real, 1000), &err));
    close(pipes[0]);
    char text[16];
    size_t size = 0, count = 0;
    int fds[CAIRN_NET_FDS_MAX];
    REQUIRE_OK(cairn_net_receive(pair.ends[1], text, sizeof text, &size, fds, &count, &err));
    EXPECT(size == 5 && !memcmp(text, "hello", 5));
    REQUIRE(count == 2);
    EXPECT(cloexec(fds[0]) && cloexec(fds[1]));
    EXPECT(write(pipes[1], "x", 1) == 1 && read(fds[0], text, 1) == 1 && text[0] == 'x');
    close(fds[0]);
    close(fds[1]);
    close(pipes[1]);
}

TEST(eight_descriptors_arrive_and_nine_are_an_error_that_leaks_none, err) { /* net.h#1 */
    PAIR(pair);
    int zero = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int many[9];
    for (size_t i = 0; i < 9; i++) many[i] = zero;
    char text[4];
    size_t size = 0, count = 0;
    int fds[CAIRN_NET_FDS_MAX];
    REQUIRE_OK(cairn_net_send(pair.ends[0], CAIRN_VIEW("x"), many, 8, UINT64_MAX, &err));
    REQUIRE_OK(cairn_net_receive(pair.ends[1], text, sizeof text, &size, fds, &count, &err));
    EXPECT_EQ_U64(count, 8);
    for (size_t i = 0; i < count; i++) close(fds[i]);
    EXPECT_CODE(cairn_net_send(pair.ends[0], CAIRN_VIEW("x"), many, 9, UINT64_MAX, &err),
                CAIRN_INVALID);

    /* A peer that is not ours can send nine. */
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof many)];
    } control = {0};
    struct iovec one = {(char[]){'x'}, 1};
    struct msghdr message = {.msg_iov = &one,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof many);
    memcpy(CMSG_DATA(&control.header), many, sizeof many);
    size_t before = open_descriptors();
    REQUIRE(sendmsg(pair.ends[0], &message, 0) == 1);
    count = 77;
    EXPECT_CODE(cairn_net_receive(pair.ends[1], text, sizeof text, &size, fds, &count, &err),
                CAIRN_PROTOCOL);
    EXPECT_EQ_U64(count, 77);
    EXPECT_EQ_U64(open_descriptors(), before);
    close(zero);
}

TEST(a_descriptor_needs_a_byte_to_travel_with, err) {
    PAIR(pair);
    EXPECT_CODE(cairn_net_send(pair.ends[0], (struct cairn_view){NULL, 0}, &pair.ends[1], 1,
                               UINT64_MAX, &err),
                CAIRN_INVALID);
}

TEST(an_empty_socket_is_busy_and_an_ended_one_gives_no_bytes, err) {
    PAIR(pair);
    char text[4];
    size_t size = 9, count = 9;
    int fds[CAIRN_NET_FDS_MAX];
    EXPECT_CODE(cairn_net_receive(pair.ends[1], text, sizeof text, &size, fds, &count, &err),
                CAIRN_BUSY);
    EXPECT_EQ_U64(size, 0);
    shutdown(pair.ends[0], SHUT_WR);
    size = 9;
    EXPECT_CODE(cairn_net_receive(pair.ends[1], text, sizeof text, &size, fds, &count, &err),
                CAIRN_OK);
    EXPECT_ALL_U64(size, 0, count, 0);
}

TEST(sending_to_a_closed_peer_fails_without_a_signal, err) { /* net.h#3 */
    PAIR(pair);
    close(pair.ends[1]);
    pair.ends[1] = dup(pair.ends[0]); /* so that the clean-up closes two */
    EXPECT_CODE(cairn_net_send(pair.ends[0], CAIRN_VIEW("x"), NULL, 0, UINT64_MAX, &err),
                CAIRN_UNAVAILABLE);
}

TEST(a_peer_that_does_not_read_ends_the_send_at_the_deadline, err) {
    PAIR(pair);
    static char bytes[4 << 20];
    uint64_t start = cairn_mono_ms();
    EXPECT_CODE(cairn_net_send(pair.ends[0], (struct cairn_view){bytes, sizeof bytes}, NULL, 0,
                               cairn_deadline_in(&cairn_clock_real, 100), &err),
                CAIRN_TIMEOUT);
    EXPECT(cairn_mono_ms() - start >= 100);
}

struct reader {
    int fd;
    size_t total, wrong, fds;
};

static void *read_all(void *context) {
    struct reader *reader = context;
    for (;;) {
        uint8_t bytes[60000];
        size_t size = 0, count = 0;
        int fds[CAIRN_NET_FDS_MAX];
        wait_readable(reader->fd);
        enum cairn_code code =
            cairn_net_receive(reader->fd, bytes, sizeof bytes, &size, fds, &count, NULL);
        if (code == CAIRN_BUSY) continue;
        if (code != CAIRN_OK || size == 0) return NULL;
        for (size_t i = 0; i < size; i++)
            reader->wrong += bytes[i] != (uint8_t)((reader->total + i) * 7);
        for (size_t i = 0; i < count; i++) close(fds[i]);
        reader->fds += count;
        reader->total += size;
    }
}

TEST(a_long_message_arrives_whole_and_its_descriptor_once, err) {
    PAIR(pair);
    static uint8_t bytes[4 << 20];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7);
    struct reader reader = {.fd = pair.ends[1]};
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, read_all, &reader) == 0);
    enum cairn_code code =
        cairn_net_send(pair.ends[0], (struct cairn_view){bytes, sizeof bytes}, &pair.ends[0], 1,
                       cairn_deadline_in(&cairn_clock_real, 5000), &err);
    shutdown(pair.ends[0], SHUT_WR);
    pthread_join(thread, NULL);
    EXPECT_CODE(code, CAIRN_OK);
    EXPECT_ALL_U64(reader.total, sizeof bytes, reader.wrong, 0, reader.fds, 1);
}

/* ---- addresses of metadata services ---- */

TEST(a_metadata_address_is_known_in_every_spelling) { /* net.h#7 */
    EACH_TEXT(text, "169.254.169.254", "169.254.170.2", "2852039166", "0xa9fea9fe",
              "0XA9.0xFE.43518", "0251.0376.0251.0376", "025177524776", "169.16689662",
              "169.254.43518", "169.254.169.254.", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]",
              "[0:0:0:0:0:FFFF:A9FE:A9FE]", "[::169.254.169.254]", "[64:ff9b::a9fe:a9fe]",
              "[2002:a9fe:a9fe::1]", "[fe80::1]", "[FE80::1%25eth0]", "[fd00:ec2::254]",
              "[FD00:0EC2:0::254]", "100.100.100.200", "192.0.0.192", "Metadata.Google.Internal",
              "metadata.google.internal.")
        if (!cairn_net_is_metadata_host(cairn_view_of(text))) EXPECT_EQ_TEXT(text, "refused");
    EACH_TEXT(one, "127.0.0.1", "2130706433", "[::1]", "169.253.1.1", "169.255.0.1",
              "[2001:db8::a9fe:a9fe]", "s3.example.com", "169.254.example.com", "[::ffff:10.0.0.1]",
              "fd00:ec3::1", "", "[]")
        if (cairn_net_is_metadata_host(cairn_view_of(one))) EXPECT_EQ_TEXT(one, "taken");
}

TEST(a_64_of_ipv6_is_one_caller_and_an_address_of_ipv4_another) {
    char text[64];
    EACH(row, FIELDS(const char *address, *caller), {"192.0.2.7", "192.0.2.7"},
         {"::ffff:192.0.2.7", "::ffff:192.0.2.7"}, {"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
         {"2001:db8:1:2::", "2001:db8:1:2::/64"}, {"2001:db8:1:3::1", "2001:db8:1:3::/64"},
         {"", ""}) {
        cairn_net_caller_text(row->address, text, sizeof text);
        EXPECT_EQ_TEXT(text, row->caller);
    }
    struct sockaddr_in6 one = {.sin6_family = AF_INET6}, other = one;
    struct sockaddr_in four = {.sin_family = AF_INET};
    uint8_t a[16], b[16];
    one.sin6_addr.s6_addr[0] = other.sin6_addr.s6_addr[0] = 0x20;
    one.sin6_addr.s6_addr[15] = 1;
    cairn_net_caller((const struct sockaddr *)&one, a);
    cairn_net_caller((const struct sockaddr *)&other, b);
    EXPECT(!memcmp(a, b, sizeof a));
    other.sin6_addr.s6_addr[7] = 1;
    cairn_net_caller((const struct sockaddr *)&other, b);
    EXPECT(memcmp(a, b, sizeof a) != 0);
    four.sin_addr.s_addr = htonl(0xc0000207);
    cairn_net_caller((const struct sockaddr *)&four, a);
    EXPECT(a[10] == 0xff && a[15] == 7);
}
