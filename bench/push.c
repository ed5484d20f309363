/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_push save --socket PATH --run PROJECT/RUN --count N
 * bench_push pingpong --folder FOLDER --count N
 *
 * Each line on standard input is answered by {"p50": microseconds} of N rounds.
 *     save       cairn_save_begin, _raw of 100 bytes and _stage; the wait for the commit between
 *                rounds is not counted
 *     pingpong   the lower bound of these calls: three messages to another process over a
 *                socketpair, with replies; two are written to a file and synced before the reply
 */
#include <cairn/cairn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/measure.h"
#include "common/clock.h"

#define WAIT_MS 60000
#define ROUNDS_MAX 10000
#define MESSAGE_BYTES 256

struct push {
    bool save;
    size_t count;
    struct cairn_session *session;
    uint64_t step;
    int fd; /* to the other process */
};

static uint64_t took_us[ROUNDS_MAX];

static enum cairn_code save_once(struct push *push, uint64_t *ret_us, struct cairn_error *err) {
    static const char bytes[100] = "a small save";
    struct cairn_save *save = NULL;
    uint64_t began_us = cairn_mono_us();
    CAIRN_TRY(cairn_save_begin(push->session, ++push->step, NULL, &save, err));
    enum cairn_code code = cairn_save_raw(save, "state.bin", bytes, sizeof bytes, err);
    if (!code) code = cairn_save_stage(save, err);
    *ret_us = cairn_mono_us() - began_us;
    if (!code) code = cairn_save_wait(save, CAIRN_COMMITTED, WAIT_MS, err);
    cairn_save_free(save);
    return code;
}

static enum cairn_code exchange(int fd, char kind, struct cairn_error *err) {
    char message[MESSAGE_BYTES];
    memset(message, kind, sizeof message);
    if (send(fd, message, sizeof message, MSG_NOSIGNAL) != MESSAGE_BYTES ||
        recv(fd, message, sizeof message, MSG_WAITALL) != MESSAGE_BYTES)
        return cairn_fail_errno(err, "a message");
    return CAIRN_OK;
}

/* begin and seal are synced, stage is not. */
static enum cairn_code pingpong_once(struct push *push, uint64_t *ret_us, struct cairn_error *err) {
    uint64_t began_us = cairn_mono_us();
    CAIRN_TRY(exchange(push->fd, 's', err));
    CAIRN_TRY(exchange(push->fd, 'm', err));
    CAIRN_TRY(exchange(push->fd, 's', err));
    *ret_us = cairn_mono_us() - began_us;
    return CAIRN_OK;
}

static void answer_all(int fd, int file) {
    char message[MESSAGE_BYTES];
    while (recv(fd, message, sizeof message, MSG_WAITALL) == MESSAGE_BYTES) {
        if (*message == 's' && (write(file, message, sizeof message) < 0 || fdatasync(file))) break;
        if (send(fd, message, sizeof message, MSG_NOSIGNAL) != MESSAGE_BYTES) break;
    }
}

static enum cairn_code open_pair(struct push *push, const char *folder, struct cairn_error *err) {
    int pair[2];
    char path[400];
    snprintf(path, sizeof path, "%s/pingpong", folder);
    int file = open(path, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return cairn_fail_errno(err, "a socketpair and a file");
    pid_t child = fork();
    if (child < 0) return cairn_fail_errno(err, "a process");
    if (!child) {
        close(pair[0]);
        answer_all(pair[1], file);
        _exit(0);
    }
    close(pair[1]);
    close(file);
    push->fd = pair[0];
    return CAIRN_OK;
}

static int order(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static enum cairn_code measure(void *owner, const char *line, struct cairn_error *err) {
    struct push *push = owner;
    (void)line;
    for (size_t i = 0; i < push->count; i++)
        CAIRN_TRY(push->save ? save_once(push, &took_us[i], err)
                             : pingpong_once(push, &took_us[i], err));
    qsort(took_us, push->count, sizeof *took_us, order);
    printf("{\"p50\": %llu}\n", (unsigned long long)took_us[push->count / 2]);
    return CAIRN_OK;
}

int main(int count, char **values) {
    static struct push push;
    struct cairn_error error = {0};
    push.save = count > 1 && !strcmp(values[1], "save");
    push.count = cairn_min_u64(bench_flag_number(count, values, "--count", 100), ROUNDS_MAX);
    struct cairn_open_options options = {.size = sizeof options,
                                         .run = bench_flag(count, values, "--run", "bench/push"),
                                         .job = "bench",
                                         .world_size = 1,
                                         .bytes = CAIRN_MIB,
                                         .timeout_ms = WAIT_MS,
                                         .socket = bench_flag(count, values, "--socket", NULL)};
    enum cairn_code code = CAIRN_OK;
    if (push.count < 1) code = cairn_fail(&error, CAIRN_INVALID, "at least one round");
    if (!code)
        code = push.save ? cairn_open(&options, &push.session, NULL, &error)
                         : open_pair(&push, bench_flag(count, values, "--folder", "."), &error);
    if (!code) printf("{\"ready\": true}\n");
    fflush(stdout);
    if (!code) code = bench_lines(measure, &push, &error);
    if (code) fprintf(stderr, "bench_push: %s\n", error.message);
    if (push.session) (void)cairn_close(push.session, NULL);
    return code ? 2 : 0;
}
