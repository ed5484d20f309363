/* SPDX-License-Identifier: Apache-2.0 */
/* The table of codes, and helpers that fill the caller's struct without allocating. */
#include "common/error.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "common/text.h"

static const struct cairn_code_info code_infos[CAIRN_CODE_COUNT] = {
#define CODE_INFO(name, slug, http, retry, exit, meaning) {#name, slug, http, retry, exit, meaning},
    CAIRN_CODES(CODE_INFO)
#undef CODE_INFO
};

const struct cairn_code_info *cairn_code_info(enum cairn_code code) {
    /* A code from elsewhere (a newer peer, a broken struct) must not read past the table. */
    unsigned index = (unsigned)code;
    return &code_infos[index < CAIRN_CODE_COUNT ? index : CAIRN_INTERNAL];
}

const struct cairn_code_info *cairn_code_at(unsigned index) {
    return index < CAIRN_CODE_COUNT ? &code_infos[index] : NULL;
}

enum cairn_code cairn_code_from_slug(const char *slug) {
    for (unsigned i = 0; slug && i < CAIRN_CODE_COUNT; i++) {
        if (!strcmp(code_infos[i].slug, slug)) return (enum cairn_code)i;
    }
    return CAIRN_INTERNAL;
}

enum cairn_code cairn_code_from_errno(int os_errno) {
    switch (os_errno) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return CAIRN_NO_SPACE;
    case ENOMEM:
        return CAIRN_NO_MEMORY;
    case EMFILE: /* closing any descriptor frees one */
    case ENFILE:
        return CAIRN_BUSY;
    default:
        return CAIRN_IO;
    }
}

/* ---- what a failure is about ---- */

#define RUNS_MAX 1024
#define MARK "\001about\002" /* behind a text's NUL; no text has it */

struct noted { /* the last bytes of a message */
    char mark[sizeof(MARK)];
    struct cairn_error_subject subject;
};
#define TEXT_BYTES (sizeof(((struct cairn_error *)0)->message) - sizeof(struct noted))

static _Atomic(char *) runs[RUNS_MAX]; /* owned by the process; only appended to */

uint16_t cairn_error_run(const char *run) {
    for (uint16_t i = 0; i < RUNS_MAX; i++) {
        char *found = atomic_load(&runs[i]);
        if (!found) {
            char *made = strdup(run);
            if (!made) return 0;
            if (atomic_compare_exchange_strong(&runs[i], &found, made)) return (uint16_t)(i + 1);
            free(made); /* another thread's is there, in `found` */
        }
        if (!strcmp(found, run)) return (uint16_t)(i + 1);
    }
    return 0;
}

/* False: nothing was noted. */
static bool get_noted(const struct cairn_error *err, struct noted *ret) {
    memcpy(ret, err->message + TEXT_BYTES, sizeof(*ret));
    return !memcmp(ret->mark, MARK, sizeof(MARK)) && ret->subject.run <= RUNS_MAX;
}

void cairn_error_note(struct cairn_error *err, const struct cairn_error_subject *subject) {
    struct noted noted;
    if (!err || strlen(err->message) >= TEXT_BYTES) return; /* the text matters more */
    if (!get_noted(err, &noted)) {
        memset(&noted, 0, sizeof(noted));
        memcpy(noted.mark, MARK, sizeof(MARK));
    }
    struct cairn_error_subject *all = &noted.subject;
    if (subject->run) all->run = subject->run;
    if (subject->has_step) all->step = subject->step;
    if (subject->has_rank) all->rank = subject->rank;
    all->has_step = all->has_step || subject->has_step;
    all->has_rank = all->has_rank || subject->has_rank;
    memcpy(err->message + TEXT_BYTES, &noted, sizeof(noted));
}

int cairn_error_about(const struct cairn_error *err, struct cairn_error_about *ret) {
    struct noted noted;
    if (!ret) return 0;
    *ret = (struct cairn_error_about){0};
    if (!err || !get_noted(err, &noted)) return 0;
    const struct cairn_error_subject *all = &noted.subject;
    const char *run = all->run ? atomic_load(&runs[all->run - 1]) : NULL;
    (void)cairn_text_copy(ret->run, sizeof(ret->run), run ? run : "");
    ret->has_step = all->has_step;
    ret->has_rank = all->has_rank;
    ret->step = all->has_step ? all->step : 0;
    ret->rank = all->has_rank ? all->rank : 0;
    return ret->run[0] || ret->has_step || ret->has_rank;
}

/* ---- text that is safe to print, log and send (include/cairn/error.h#4) ---- */

#define DOTS "..."
#define CONTEXT_BYTES 2048   /* raw context of one call */
#define CONTEXT_BYTES_MAX 96 /* three contexts leave room for a cause */
#define CONTEXT_BYTES_MIN 40 /* a context keeps these when the cause fills the message */
#define ESCAPE_BYTES 4       /* \xNN */
#define CHARACTER_BYTES 4

struct line {
    char *text;
    size_t capacity, used;
    size_t border; /* end of the last piece after which the dots still fit */
    bool full;
};

/* Appends one character or escape; false: it does not fit, and the line ends in dots. */
static bool add_piece(struct line *line, const char *piece, size_t size) {
    if (line->used + size >= line->capacity) {
        memcpy(line->text + line->border, DOTS, sizeof(DOTS));
        line->used = line->border + sizeof(DOTS) - 1;
        line->full = true;
        return false;
    }
    memcpy(line->text + line->used, piece, size);
    line->used += size;
    line->text[line->used] = '\0';
    if (line->used + sizeof(DOTS) <= line->capacity) line->border = line->used;
    return true;
}

/* Control characters (also U+0080 to U+009F, which terminals obey) and bytes that are no UTF-8. */
static bool needs_escape(const char *at, size_t size) {
    unsigned char first = (unsigned char)at[0];
    return size == 0 || first < 0x20 || first == 0x7f ||
           (first == 0xc2 && (unsigned char)at[1] < 0xa0);
}

static void add_text(struct line *line, const char *text) {
    size_t left = strlen(text);
    while (left && !line->full) {
        size_t size = cairn_utf8_size(text, left);
        if (needs_escape(text, size)) {
            char escape[ESCAPE_BYTES + 1];
            snprintf(escape, sizeof(escape), "\\x%02x", (unsigned char)text[0]);
            (void)add_piece(line, escape, ESCAPE_BYTES);
            size = 1;
        } else {
            (void)add_piece(line, text, size);
        }
        text += size;
        left -= size;
    }
}

/* raw holds one character more than the line, so truncation by vsnprintf never shows. */
static void add_format(struct line *line, char *raw, size_t raw_bytes, const char *format,
                       va_list arguments) {
    if (vsnprintf(raw, raw_bytes, format, arguments) < 0) raw[0] = '\0';
    add_text(line, raw);
}

#define SYSTEM_BYTES 200

/* GNU's strerror_r returns a text, POSIX's a number. */
static const char *text_of(int os_errno, char *room, size_t capacity) {
#ifdef __GLIBC__
    return strerror_r(os_errno, room, capacity);
#else
    return strerror_r(os_errno, room, capacity) ? "unknown error" : room;
#endif
}

/* ": " and the system's text; for EMFILE and ENFILE also the limit that was reached. */
static void system_words(int os_errno, char ret[SYSTEM_BYTES]) {
    char room[80];
    struct rlimit limit = {0};
    const char *says = text_of(os_errno, room, sizeof(room));
    if (os_errno == EMFILE && !getrlimit(RLIMIT_NOFILE, &limit))
        snprintf(ret, SYSTEM_BYTES,
                 ": %.80s (this process may have %llu; raise RLIMIT_NOFILE, ulimit -n)", says,
                 (unsigned long long)limit.rlim_cur);
    else
        snprintf(ret, SYSTEM_BYTES, ": %.80s%s", says,
                 os_errno == ENFILE ? " on this machine (raise fs.file-max)" : "");
}

enum cairn_code cairn_fail_at(struct cairn_error *err, enum cairn_code code, int os_errno,
                              const char *origin, const char *format, ...) {
    if (!err) return code;
    int saved_errno = errno;
    /* Built in a local struct, because the arguments may point into *err. */
    struct cairn_error made = {.code = code, .os_errno = os_errno, .origin = origin};
    char whole[CONTEXT_BYTES] = "", raw[sizeof(whole) + CHARACTER_BYTES], words[SYSTEM_BYTES] = "";
    if (os_errno) system_words(os_errno, words);
    struct line line = {whole, sizeof(whole), 0, 0, false};
    va_list arguments;
    va_start(arguments, format);
    add_format(&line, raw, sizeof(raw), format, arguments);
    va_end(arguments);
    cairn_utf8_shorten(made.message, sizeof(made.message) - strlen(words), whole);
    memcpy(made.message + strlen(made.message), words, strlen(words) + 1);
    *err = made;
    errno = saved_errno;
    return code;
}

enum cairn_code cairn_within(struct cairn_error *err, enum cairn_code code, const char *format,
                             ...) {
    if (!err || code == CAIRN_OK) return code;
    int saved_errno = errno;
    const size_t capacity = sizeof(err->message);
    char message[sizeof(err->message)] = "", context[CONTEXT_BYTES] = "";
    struct noted noted;
    const bool is_noted = get_noted(err, &noted);
    char raw[sizeof(context) + CHARACTER_BYTES];
    struct line whole = {context, sizeof(context), 0, 0, false};
    va_list arguments;
    va_start(arguments, format);
    add_format(&whole, raw, sizeof(raw), format, arguments);
    va_end(arguments);
    size_t cause_bytes = strlen(err->message) + strlen(": ");
    size_t room = capacity - 1 > cause_bytes ? capacity - 1 - cause_bytes : 0;
    room = room < CONTEXT_BYTES_MIN ? CONTEXT_BYTES_MIN : room;
    cairn_utf8_shorten(raw, 1 + (room < CONTEXT_BYTES_MAX ? room : CONTEXT_BYTES_MAX), context);
    struct line line = {message, capacity, 0, 0, false};
    add_text(&line, raw);
    add_text(&line, ": ");
    char cause[sizeof(message)];
    size_t left = capacity - line.used;
    cairn_utf8_shorten(cause, left, err->message); /* common/error.h#2, #4: its end stays */
    add_text(&line, cause);
    if (is_noted && strlen(message) < TEXT_BYTES)
        memcpy(message + TEXT_BYTES, &noted, sizeof(noted));
    memcpy(err->message, message, capacity);
    err->code = code;
    errno = saved_errno;
    return code;
}

void cairn_error_request_id(struct cairn_error *err, const char *request_id) {
    struct line line = {err->request_id, sizeof(err->request_id), 0, 0, false};
    err->request_id[0] = '\0';
    add_text(&line, request_id);
}
