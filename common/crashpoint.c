/* SPDX-License-Identifier: Apache-2.0 */
/* A mutex of its own and not a ranked one: points are passed while any lock may be held. */
#include "common/crashpoint.h"

#ifdef CAIRN_CRASHPOINTS
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/text.h"

#define EXIT_STATUS 70

enum action { ACTION_NONE, ACTION_KILL, ACTION_EXIT, ACTION_STOP, ACTION_DELAY, ACTION_FAIL };

static const char *const names[] = {
#define POINT(name, where) name,
#include "common/crashpoints.def"
#undef POINT
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
    enum action action;
    char name[64];
    uint64_t nth; /* 0: every pass */
    uint64_t passes;
    uint64_t delay_ms;
    bool read; /* the environment was looked at */
} chosen;

static _Noreturn void refuse(const char *what, const char *text) {
    fprintf(stderr, "cairn: crash point: %s: \"%s\"\n", what, text);
    abort();
}

static void must_be_listed(const char *name) {
    for (size_t i = 0; i < CAIRN_COUNT(names); i++) {
        if (!strcmp(name, names[i])) return;
    }
    refuse("not in common/crashpoints.def", name);
}

/* One word of the text between colons: a count or an action. */
static void choose_word(struct cairn_view word, const char *text) {
    static const struct {
        const char *name;
        enum action action;
    } actions[] = {
        {"kill", ACTION_KILL}, {"exit", ACTION_EXIT}, {"stop", ACTION_STOP}, {"fail", ACTION_FAIL}};
    static const char delay[] = "delay=";
    for (size_t i = 0; i < CAIRN_COUNT(actions); i++) {
        if (word.size == strlen(actions[i].name) &&
            !memcmp(word.data, actions[i].name, word.size)) {
            chosen.action = actions[i].action;
            return;
        }
    }
    uint64_t *number = &chosen.nth;
    if (word.size > strlen(delay) && !memcmp(word.data, delay, strlen(delay))) {
        word.data = (const char *)word.data + strlen(delay);
        word.size -= strlen(delay);
        chosen.action = ACTION_DELAY;
        number = &chosen.delay_ms;
    }
    if (cairn_parse_u64(word, number, NULL) != CAIRN_OK) refuse("not understood", text);
}

static void choose(const char *text) {
    memset(&chosen, 0, sizeof(chosen));
    chosen.read = true;
    if (!text || !*text) return;
    chosen.action = ACTION_KILL;
    chosen.nth = 1;
    size_t size = strcspn(text, ":");
    if (size >= sizeof(chosen.name)) refuse("not understood", text);
    memcpy(chosen.name, text, size);
    must_be_listed(chosen.name);
    for (const char *at = text + size; *at == ':'; at += size) {
        at++;
        size = strcspn(at, ":");
        choose_word((struct cairn_view){at, size}, text);
    }
}

static void list_pass(const char *name) {
    const char *path = getenv("CAIRN_CRASH_LIST");
    if (!path || !*path) return;
    CAIRN_AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    char line[128];
    int size = snprintf(line, sizeof(line), "%s\n", name);
    if (fd < 0 || write(fd, line, (size_t)size) != size) refuse("cannot be listed in", path);
}

/* What this pass must do; the count is kept under the mutex, the deed is done outside it. */
static enum action action_of_pass(const char *name, uint64_t *delay_ms) {
    pthread_mutex_lock(&mutex);
    if (!chosen.read) choose(getenv("CAIRN_CRASH_AT"));
    enum action action = ACTION_NONE;
    if (chosen.action != ACTION_NONE && !strcmp(name, chosen.name)) {
        chosen.passes++;
        if (chosen.nth == 0 || chosen.passes == chosen.nth) action = chosen.action;
    }
    *delay_ms = chosen.delay_ms;
    pthread_mutex_unlock(&mutex);
    return action;
}

static void sleep_ms(uint64_t ms) {
    struct timespec left = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

bool cairn_crashpoint_pass(const char *name) {
    int saved_errno = errno;
    uint64_t delay_ms = 0;
    must_be_listed(name);
    list_pass(name);
    enum action action = action_of_pass(name, &delay_ms);
    if (action == ACTION_KILL) raise(SIGKILL);
    if (action == ACTION_EXIT) _exit(EXIT_STATUS);
    if (action == ACTION_STOP) raise(SIGSTOP);
    if (action == ACTION_DELAY) sleep_ms(delay_ms);
    errno = saved_errno;
    return action == ACTION_FAIL;
}

void cairn_crashpoint_arm(const char *text) {
    pthread_mutex_lock(&mutex);
    choose(text);
    chosen.read = text != NULL;
    pthread_mutex_unlock(&mutex);
}
#endif
