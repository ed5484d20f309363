/* SPDX-License-Identifier: Apache-2.0 */
/* Points use a mutex without a rank, since any lock may be held where one is passed. Rules are bits
 * of one word; its top bit says that the environment was read. */
#include "common/hooks.h"

#ifdef CAIRN_CRASHPOINTS
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/text.h"

#define EXIT_STATUS 70

enum action { ACTION_NONE, ACTION_KILL, ACTION_EXIT, ACTION_STOP, ACTION_WAIT, ACTION_FAIL };

static const char *const point_names[] = {
#define POINT(name, where) name,
#include "common/crashpoints.def"
#undef POINT
};

static pthread_mutex_t chosen_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
    enum action action;
    char name[64];
    uint64_t nth; /* 0: every pass */
    uint64_t passes;
    uint64_t delay_ms;
    char until[512]; /* file; "": none */
    bool read;       /* the environment was read */
} chosen;

static _Noreturn void refuse(const char *what, const char *text) {
    fprintf(stderr, "cairn: crash point: %s: \"%s\"\n", what, text);
    abort();
}

static void must_be_listed(const char *name) {
    for (size_t i = 0; i < CAIRN_COUNT(point_names); i++) {
        if (!strcmp(name, point_names[i])) return;
    }
    refuse("not in common/crashpoints.def", name);
}

/* Parses one word between colons: a count or an action. */
static void choose_word(struct cairn_view word, const char *text) {
    static const struct {
        const char *name;
        enum action action;
    } actions[] = {
        {"kill", ACTION_KILL}, {"exit", ACTION_EXIT}, {"stop", ACTION_STOP}, {"fail", ACTION_FAIL}};
    static const char delay[] = "delay=", until[] = "until=";
    for (size_t i = 0; i < CAIRN_COUNT(actions); i++) {
        if (word.size == strlen(actions[i].name) &&
            !memcmp(word.data, actions[i].name, word.size)) {
            chosen.action = actions[i].action;
            return;
        }
    }
    if (word.size > strlen(until) && !memcmp(word.data, until, strlen(until))) {
        size_t size = word.size - strlen(until);
        if (size >= sizeof(chosen.until)) refuse("not understood", text);
        memcpy(chosen.until, (const char *)word.data + strlen(until), size);
        chosen.action = ACTION_WAIT;
        return;
    }
    uint64_t *number = &chosen.nth;
    if (word.size > strlen(delay) && !memcmp(word.data, delay, strlen(delay))) {
        word.data = (const char *)word.data + strlen(delay);
        word.size -= strlen(delay);
        chosen.action = ACTION_WAIT;
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

/* Returns the action of this pass; counting needs the mutex, the action runs without it. */
static enum action action_of_pass(const char *name, uint64_t *delay_ms) {
    pthread_mutex_lock(&chosen_mutex);
    if (!chosen.read) choose(getenv("CAIRN_CRASH_AT"));
    enum action action = ACTION_NONE;
    if (chosen.action != ACTION_NONE && !strcmp(name, chosen.name)) {
        chosen.passes++;
        if (chosen.nth == 0 || chosen.passes == chosen.nth) action = chosen.action;
    }
    *delay_ms = chosen.delay_ms;
    pthread_mutex_unlock(&chosen_mutex);
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
    if (action == ACTION_WAIT) sleep_ms(delay_ms);
    while (action == ACTION_WAIT && chosen.until[0] && access(chosen.until, F_OK)) sleep_ms(1);
    errno = saved_errno;
    return action == ACTION_FAIL;
}

void cairn_crashpoint_arm(const char *text) {
    pthread_mutex_lock(&chosen_mutex);
    choose(text);
    chosen.read = text != NULL;
    pthread_mutex_unlock(&chosen_mutex);
}

/* ---- rules ---- */

#define LOOKED (UINT64_C(1) << 63)
_Static_assert(CAIRN_RULES < 63, "one bit a rule");

static const char *const rule_names[] = {
#define RULE(name, what) #name,
#include "common/rules.def"
#undef RULE
};
static _Atomic uint64_t out; /* bits of the rules taken out */

static bool bits_of(const char *text, uint64_t *ret) {
    uint64_t bits = LOOKED;
    while (*text) {
        size_t size = strcspn(text, ","), i = 0;
        while (i < CAIRN_RULES &&
               (strlen(rule_names[i]) != size || memcmp(rule_names[i], text, size)))
            i++;
        if (i == CAIRN_RULES) return false;
        bits |= UINT64_C(1) << i;
        text += size;
        if (*text == ',') text++;
    }
    *ret = bits;
    return true;
}

bool cairn_rule_take_out(const char *text) {
    uint64_t bits = 0;
    if (text && !bits_of(text, &bits)) return false;
    atomic_store(&out, bits);
    return true;
}

bool cairn_rule_holds(enum cairn_rule rule) {
    uint64_t bits = atomic_load_explicit(&out, memory_order_relaxed);
    if (!(bits & LOOKED)) {
        const char *text = getenv("CAIRN_WITHOUT");
        if (!bits_of(text ? text : "", &bits)) {
            fprintf(stderr, "cairn: no such rule in CAIRN_WITHOUT: \"%s\"\n", text);
            abort();
        }
        atomic_store(&out, bits);
    }
    return !(bits >> rule & 1);
}
#endif
