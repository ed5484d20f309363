/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file: real files; short writes, signals and full disks by replacing three system calls of this
 * program, since no file system fails on request.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/harness.h"

/* ---- faults ---- */

static struct {
    int direct_errno;   /* every O_DIRECT write fails with it */
    int write_errno;    /* every other write does */
    size_t short_bytes; /* no write takes more; 0: no limit */
    int sync_errno;
    unsigned interrupts; /* that many writes fail with EINTR first */
    unsigned syncs, direct_writes, buffered_writes;
} faults;

static bool is_direct(int fd) {
    return fcntl(fd, F_GETFL) & O_DIRECT;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    bool direct = is_direct(fd);
    int refused = direct ? faults.direct_errno : faults.write_errno;
    if (faults.interrupts > 0) {
        faults.interrupts--;
        refused = EINTR;
    }
    if (refused) {
        errno = refused;
        return -1;
    }
    direct ? faults.direct_writes++ : faults.buffered_writes++;
    if (faults.short_bytes && size > faults.short_bytes) size = faults.short_bytes;
    return syscall(SYS_pwrite64, fd, data, size, offset);
}

int fdatasync(int fd) {
    faults.syncs++;
    errno = faults.sync_errno;
    return faults.sync_errno ? -1 : (int)syscall(SYS_fdatasync, fd);
}

static int faults_begin(void) {
    memset(&faults, 0, sizeof faults);
    return 0;
}
static void cairn_faults_release(int *unused) {
    *unused = faults_begin();
}
/* Counted from here; faults end with the test that asked for them, also when REQUIRE leaves it. */
#define FAULTS                                                                                     \
    __attribute__((cleanup(cairn_faults_release))) CAIRN_UNUSED int faults_end = faults_begin()

/* ---- folder ---- */

static int folder(void) {
    return open(cairn_test_folder(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static const char *path_in(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", cairn_test_folder(), name);
    return path;
}

static bool exists(int dir_fd, const char *name) {
    return faccessat(dir_fd, name, F_OK, 0) == 0;
}

static uint8_t *aligned(size_t size, uint64_t seed) {
    uint8_t *bytes = aligned_alloc(CAIRN_FILE_ALIGN, cairn_round_up(size, CAIRN_FILE_ALIGN));
    for (size_t i = 0; bytes && i < size; i++) bytes[i] = (uint8_t)cairn_test_random(&seed);
    return bytes;
}

/* Write `bytes` and read them back through a second open of the file. */
static enum cairn_code round_trip(const uint8_t *bytes, size_t size, uint8_t *back,
                                  struct cairn_error *err) {
    CAIRN_AUTO_FD dir = folder();
    CAIRN_AUTO(file) out = {0}, in = {0};
    uint64_t found = 0;
    unlinkat(dir, "trip", 0);
    CAIRN_TRY(cairn_file_create(dir, "trip", size, &out, err));
    CAIRN_TRY(cairn_file_write_at(&out, bytes, size, 0, err));
    CAIRN_TRY(cairn_file_sync(&out, err));
    CAIRN_TRY(cairn_file_open_read(dir, "trip", &in, err));
    CAIRN_TRY(cairn_file_size(&in, &found, err));
    if (found != size)
        return cairn_fail(err, CAIRN_CORRUPT, "size %llu", (unsigned long long)found);
    return cairn_file_read_at(&in, back, size, 0, err);
}

/* ---- write and read ---- */

TEST(a_big_odd_write_comes_back_whole_and_only_its_tail_is_buffered, err) { /* file.h#3 file.h#4 */
    FAULTS;
    size_t size = 9 * CAIRN_MIB + 4096 + 77;
    CAIRN_AUTO_HEAP uint8_t *bytes = aligned(size, 1);
    CAIRN_AUTO_HEAP uint8_t *back = aligned(size, 2);
    REQUIRE_OK(round_trip(bytes, size, back, &err));
    EXPECT(!memcmp(bytes, back, size));
    CAIRN_AUTO_FD dir = folder();
    WITH_OK(file, file, cairn_file_open_write(dir, "trip", &file, &err));
    if (file.direct_fd < 0) SKIP("this file system has no O_DIRECT");
    EXPECT_ALL_U64(faults.direct_writes, 3, faults.buffered_writes, 1);
}

TEST(a_file_system_that_refuses_direct_writes_gets_buffered_ones, err) { /* file.h#3 */
    FAULTS;
    faults.direct_errno = EINVAL;
    size_t size = 5 * CAIRN_MIB;
    CAIRN_AUTO_HEAP uint8_t *bytes = aligned(size, 3);
    CAIRN_AUTO_HEAP uint8_t *back = aligned(size, 4);
    REQUIRE_OK(round_trip(bytes, size, back, &err));
    EXPECT(!memcmp(bytes, back, size));
    EXPECT_EQ_U64(faults.direct_writes, 0);
}

TEST(short_and_interrupted_writes_are_continued, err) { /* file.h#4 */
    EACH_OF(size_t, number, 1000000, 65536, 4097) {
        FAULTS;
        faults.short_bytes = number;
        faults.interrupts = 3;
        size_t size = 2 * CAIRN_MIB + 5;
        CAIRN_AUTO_HEAP uint8_t *bytes = aligned(size, 5);
        CAIRN_AUTO_HEAP uint8_t *back = aligned(size, 6);
        REQUIRE_OK(round_trip(bytes, size, back, &err));
        EXPECT(!memcmp(bytes, back, size));
    }
}

TEST(a_failed_write_names_the_file_and_the_place, err) {
    FAULTS;
    CAIRN_AUTO_HEAP uint8_t *bytes = aligned(8192, 7);
    CAIRN_AUTO_HEAP uint8_t *back = aligned(8192, 8);
    faults.write_errno = ENOSPC;
    EXPECT_FAILS(round_trip(bytes, 8192, back, &err), CAIRN_NO_SPACE, "/trip");
    faults.write_errno = EIO;
    EXPECT_CODE(round_trip(bytes, 8192, back, &err), CAIRN_IO);
}

TEST(a_failed_sync_is_tried_once_and_reported, err) { /* file.h#2 */
    EACH_OF(int, number, EIO, EINTR, ENOSPC) {
        FAULTS;
        CAIRN_AUTO_HEAP uint8_t *bytes = aligned(100, 9);
        CAIRN_AUTO_HEAP uint8_t *back = aligned(100, 10);
        faults.sync_errno = number;
        EXPECT(round_trip(bytes, 100, back, &err) != CAIRN_OK);
        EXPECT_EQ_U64(faults.syncs, 1);
    }
}

TEST(any_mix_of_places_and_sizes_equals_a_copy_in_memory, err) { /* file.h#3 file.h#4 */
    uint64_t seed = cairn_test_seed();
    size_t size = 6 * CAIRN_MIB;
    CAIRN_AUTO_HEAP uint8_t *model = calloc(1, size);
    CAIRN_AUTO_HEAP uint8_t *source = aligned(size, seed);
    CAIRN_AUTO_HEAP uint8_t *back = aligned(size, seed);
    CAIRN_AUTO_FD dir = folder();
    WITH_OK(file, file, cairn_file_create(dir, "mixed", 0, &file, &err));
    REQUIRE_OK(cairn_file_write_at(&file, model, size, 0, &err));
    for (int i = 0; i < 40; i++) {
        uint64_t unit = i % 3 == 0 ? 1 : i % 3 == 1 ? 512 : CAIRN_FILE_ALIGN;
        size_t at = (size_t)(cairn_test_random(&seed) % size / unit * unit);
        size_t n = (size_t)(cairn_test_random(&seed) % (size - at + 1));
        size_t from = (size_t)(cairn_test_random(&seed) % (size - n + 1) / unit * unit);
        memcpy(model + at, source + from, n);
        REQUIRE_OK(cairn_file_write_at(&file, source + from, n, at, &err));
        size_t probe = at > 5000 ? at - 5000 : 0;
        REQUIRE_OK(cairn_file_read_at(&file, back + from % 64, size - probe - 64, probe, &err));
        REQUIRE(!memcmp(back + from % 64, model + probe, size - probe - 64));
    }
}

TEST(reading_past_the_end_is_corrupt_and_names_the_file, err) { /* file.h#4 */
    CAIRN_AUTO_FD dir = folder();
    char bytes[16];
    WITH_OK(file, file, cairn_file_create(dir, "short", 0, &file, &err));
    REQUIRE_OK(cairn_file_write_at(&file, "0123456789", 10, 0, &err));
    EXPECT_CODE(cairn_file_read_at(&file, bytes, 10, 0, &err), CAIRN_OK);
    EXPECT_FAILS(cairn_file_read_at(&file, bytes, 11, 0, &err), CAIRN_CORRUPT,
                 "/short ends at byte 10");
    EXPECT_CODE(cairn_file_read_at(&file, bytes, 1, UINT64_MAX, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_file_write_at(&file, bytes, 1, INT64_MAX, &err), CAIRN_INVALID);
}

/* ---- names ---- */

TEST(a_name_is_created_once_and_only_regular_files_are_opened, err) {
    CAIRN_AUTO_FD dir = folder();
    CAIRN_AUTO(file) file = {0}, other = {0};
    REQUIRE_OK(cairn_file_create(dir, "once", 0, &file, &err));
    EXPECT_CODE(cairn_file_create(dir, "once", 0, &other, &err), CAIRN_PRECONDITION);
    EXPECT_CODE(cairn_file_open_read(dir, "never", &other, &err), CAIRN_NOT_FOUND);
    EXPECT_CODE(cairn_file_create(dir, "no/such/folder", 0, &other, &err), CAIRN_NOT_FOUND);
    REQUIRE(mkfifoat(dir, "pipe", 0600) == 0 && symlinkat("once", dir, "link") == 0);
    EXPECT_CODE(cairn_file_open_read(dir, "pipe", &other, &err), CAIRN_INVALID);
    EXPECT(cairn_file_open_read(dir, "link", &other, &err) != CAIRN_OK);
    EXPECT(!other.open);
}

/* Opened below a folder with one file in/file, a link to each, and links as components. */
static const struct {
    const char *path;
    int flags, expected_errno;
} beneath[] = {
    {"in/file", O_RDONLY, 0},
    {"in", O_RDONLY | O_DIRECTORY, 0},
    {"in//./file", O_PATH, 0},
    {"in/", O_PATH | O_DIRECTORY, 0},
    {"", O_RDONLY | O_DIRECTORY, 0},
    {".", O_RDONLY | O_DIRECTORY, 0},
    {"in/file/", O_RDONLY, ENOTDIR},
    {"in/file/x", O_RDONLY, ENOTDIR},
    {"in/file", O_RDONLY | O_DIRECTORY, ENOTDIR},
    {"in/none", O_RDONLY, ENOENT},
    {"none/file", O_RDONLY, ENOENT},
    {"to_file", O_RDONLY, ELOOP},
    {"to_file", O_PATH, ELOOP},
    {"to_folder", O_RDONLY | O_DIRECTORY, ELOOP},
    {"to_folder/file", O_RDONLY, ELOOP},
    {"to_folder/file", O_PATH, ELOOP},
    {"in/out", O_RDONLY | O_DIRECTORY, ELOOP},
    {"..", O_RDONLY | O_DIRECTORY, EXDEV},
    {"in/../../x", O_RDONLY, EXDEV},
    {"/in/file", O_RDONLY, EXDEV},
};

/* What differs is printed; returns how many did. */
static int differing(int dir_fd, int (*open_one)(int, const char *, int), const char *by) {
    int wrong = 0;
    for (size_t i = 0; i < CAIRN_COUNT(beneath); i++) {
        errno = 0;
        CAIRN_AUTO_FD fd = open_one(dir_fd, beneath[i].path, beneath[i].flags);
        int found = fd < 0 ? errno : 0;
        if (found == beneath[i].expected_errno) continue;
        wrong++;
        printf("%s: \"%s\" by %s: errno %d, expected %d\n", __func__, beneath[i].path, by, found,
               beneath[i].expected_errno);
    }
    return wrong;
}

/* In a process whose kernel answers openat2 with refused; returns its exit status. */
static int differing_without_openat2(int dir_fd, int refused) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)refused),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {CAIRN_COUNT(steps), steps};
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        bool set = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                   prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0 &&
                   syscall(SYS_openat2, dir_fd, ".", NULL, 0) < 0 && errno == refused;
        int wrong = set ? differing(dir_fd, cairn_open_beneath, "a kernel without openat2") : 200;
        fflush(stdout);
        _exit(wrong);
    }
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : -1;
}

TEST(no_link_and_no_way_out_is_followed_with_openat2_and_without) { /* file.h#5 */
    CAIRN_AUTO_FD dir = folder();
    REQUIRE(mkdirat(dir, "in", 0755) == 0 && symlinkat("in", dir, "to_folder") == 0);
    REQUIRE(symlinkat("in/file", dir, "to_file") == 0 && symlinkat("..", dir, "in/out") == 0);
    CAIRN_AUTO_FD file = openat(dir, "in/file", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    REQUIRE(file >= 0);
    EXPECT_EQ_U64(differing(dir, cairn_open_beneath, "openat2"), 0);
    EXPECT_EQ_U64(differing(dir, cairn_open_by_component, "components"), 0);
    EXPECT_EQ_U64(differing_without_openat2(dir, ENOSYS), 0);
    EXPECT_EQ_U64(differing_without_openat2(dir, EPERM), 0);
}

TEST(publish_shows_the_whole_file_under_a_new_name, err) { /* file.h#1 */
    CAIRN_AUTO_FD dir = folder();
    WITH_OK(file, file, cairn_file_create(dir, ".a.tmp", 3, &file, &err));
    REQUIRE_OK(cairn_file_write_at(&file, "abc", 3, 0, &err));
    REQUIRE_OK(cairn_file_sync(&file, &err));
    REQUIRE_OK(cairn_file_publish(dir, ".a.tmp", "final", &err));
    EXPECT(!exists(dir, ".a.tmp"));
    WITH_OK(buf, text, cairn_file_load(path_in("final"), &text, &err));
    EXPECT_EQ_TEXT(text.data, "abc");
}

TEST(publish_never_overwrites_and_keeps_the_temporary, err) { /* file.h#1 */
    CAIRN_AUTO_FD dir = folder();
    REQUIRE_OK(cairn_file_replace(path_in("final"), CAIRN_VIEW("old"), 0600, &err));
    REQUIRE_OK(cairn_file_replace(path_in(".b.tmp"), CAIRN_VIEW("new"), 0600, &err));
    EXPECT_CODE(cairn_file_publish(dir, ".b.tmp", "final", &err), CAIRN_PRECONDITION);
    EXPECT(exists(dir, ".b.tmp"));
    WITH_OK(buf, text, cairn_file_load(path_in("final"), &text, &err));
    EXPECT_EQ_TEXT(text.data, "old");
    EXPECT_CODE(cairn_file_publish(dir, ".gone.tmp", "other", &err), CAIRN_NOT_FOUND);
}

TEST(publish_goes_on_where_a_crash_left_both_names, err) { /* file.h#1 */
    CAIRN_AUTO_FD dir = folder();
    REQUIRE_OK(cairn_file_replace(path_in(".c.tmp"), CAIRN_VIEW("c"), 0600, &err));
    REQUIRE(linkat(dir, ".c.tmp", dir, "final", 0) == 0);
    EXPECT_CODE(cairn_file_publish(dir, ".c.tmp", "final", &err), CAIRN_OK);
    EXPECT(exists(dir, "final") && !exists(dir, ".c.tmp"));
}

TEST(folders_are_made_with_their_parents_and_the_given_mode, err) {
    const char *path = TEXT("%s//x/y/../y/z/", cairn_test_folder());
    mode_t before = umask(077);
    enum cairn_code code = cairn_dir_make(path, 0755, &err);
    umask(before);
    EXPECT_CODE(code, CAIRN_OK);
    struct stat status;
    REQUIRE(stat(path_in("x/y/z"), &status) == 0);
    EXPECT_EQ_U64(status.st_mode & 0777, 0755);
    EXPECT_CODE(cairn_dir_make(path, 0700, &err), CAIRN_OK);
    REQUIRE_OK(cairn_file_replace(path_in("x/file"), CAIRN_VIEW(""), 0600, &err));
    EXPECT(cairn_dir_make(path_in("x/file/z"), 0700, &err) != CAIRN_OK);
    EXPECT_CODE(cairn_dir_make("", 0700, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_dir_sync(AT_FDCWD, &err), CAIRN_OK);
}

/* ---- small files ---- */

TEST(load_keeps_the_limit_of_the_buffer, err) {
    CAIRN_AUTO(buf) text = {.limit = 5};
    REQUIRE_OK(cairn_file_replace(path_in("six"), CAIRN_VIEW("123456"), 0600, &err));
    EXPECT_CODE(cairn_file_load(path_in("six"), &text, &err), CAIRN_TOO_LARGE);
    EXPECT_EQ_U64(text.size, 0);
    REQUIRE_OK(cairn_file_replace(path_in("six"), CAIRN_VIEW("12345"), 0600, &err));
    EXPECT_CODE(cairn_file_load(path_in("six"), &text, &err), CAIRN_OK);
    EXPECT_EQ_U64(text.size, 5);
    CAIRN_AUTO(buf) none = {0};
    EXPECT_CODE(cairn_file_load(path_in("absent"), &none, &err), CAIRN_NOT_FOUND);
    EXPECT(cairn_file_load(cairn_test_folder(), &none, &err) != CAIRN_OK);
}

TEST(replace_gives_the_mode_and_leaves_no_temporary_behind, err) {
    FAULTS;
    REQUIRE_OK(cairn_file_replace(path_in("state"), CAIRN_VIEW("one"), 0640, &err));
    REQUIRE_OK(cairn_file_replace(path_in("state"), CAIRN_VIEW("two"), 0640, &err));
    faults.sync_errno = EIO;
    EXPECT_CODE(cairn_file_replace(path_in("state"), CAIRN_VIEW("three"), 0640, &err), CAIRN_IO);
    WITH_OK(buf, text, cairn_file_load(path_in("state"), &text, &err));
    EXPECT_EQ_TEXT(text.data, "two");
    struct stat status;
    REQUIRE(stat(path_in("state"), &status) == 0);
    EXPECT_EQ_U64(status.st_mode & 0777, 0640);
    /* The folder goes only when it is empty: no temporary is left. */
    REQUIRE(unlink(path_in("state")) == 0);
    EXPECT(rmdir(cairn_test_folder()) == 0);
    mkdir(cairn_test_folder(), 0700);
    EXPECT_CODE(cairn_file_replace(path_in("no/state"), CAIRN_VIEW("x"), 0600, &err),
                CAIRN_NOT_FOUND);
}

TEST(a_lock_is_held_by_one_process_and_names_it, err) {
    int pipes[2];
    const char *path = path_in("lock"); /* before the fork: the folder is made on demand */
    REQUIRE(pipe2(pipes, O_CLOEXEC) == 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        int held = -1;
        enum cairn_code code = cairn_file_lock(path, &held, NULL);
        if (write(pipes[1], code == CAIRN_OK ? "y" : "n", 1) == 1) pause();
        _exit(0);
    }
    char answer = 0;
    REQUIRE(read(pipes[0], &answer, 1) == 1);
    EXPECT(answer == 'y');
    int fd = -1;
    EXPECT_FAILS(cairn_file_lock(path, &fd, &err), CAIRN_CONFLICT,
                 TEXT("process %ld", (long)child));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    EXPECT_CODE(cairn_file_lock(path, &fd, &err), CAIRN_OK);
    EXPECT(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    close(pipes[0]);
    close(pipes[1]);
}

TEST(memory_is_no_network_file_system) {
    CAIRN_AUTO_FD fd = memfd_create("test", MFD_CLOEXEC);
    REQUIRE(fd >= 0);
    EXPECT(cairn_file_network_fs(fd) == NULL);
    EXPECT(cairn_file_network_fs(-1) == NULL);
}
