/* SPDX-License-Identifier: Apache-2.0 */
/* A line is formatted, escaped and cut on the stack, then written in one call. */
#include "common/log.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/lock.h"
#include "common/text.h"
#include "common/trace.h"

#define LINE_BYTES_MAX 2048
#define JSON_BYTES_MAX 4096 /* PIPE_BUF: one write to a pipe is atomic */

static const char *const level_names[] = {"ERROR", "WARN", "INFO", "DEBUG"};
static const char *const level_words[] = {"error", "warn", "info", "debug"};
static const char *const format_words[] = {"text", "json"};

/* Written by cairn_log_start only, before other threads exist. */
static struct {
    struct cairn_lock lock; /* guards the order of lines only */
    enum cairn_log_level level;
    enum cairn_log_format format;
    int fd;
    bool started;
} logger = {.fd = -1};

void cairn_log_start(const char *program, enum cairn_log_level level, int fd) {
    if (!logger.started) cairn_lock_init(&logger.lock, CAIRN_LOCK_log_line);
    logger.started = true;
    logger.level = level;
    logger.fd = fd;
    cairn_log(DEBUG, "log.start", "program=%s pid=%ld", program, (long)getpid());
}

void cairn_log_write_as(enum cairn_log_format format) {
    logger.format = format;
}

enum cairn_code cairn_log_format_parse(const char *text, enum cairn_log_format *ret,
                                       struct cairn_error *err) {
    for (unsigned i = 0; i < CAIRN_COUNT(format_words); i++) {
        if (strcmp(text, format_words[i]) != 0) continue;
        *ret = (enum cairn_log_format)i;
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_INVALID, "\"%.32s\" is not a log format: text or json", text);
}

enum cairn_code cairn_log_level_parse(const char *text, enum cairn_log_level *ret,
                                      struct cairn_error *err) {
    for (unsigned i = 0; i < CAIRN_COUNT(level_words); i++) {
        if (!strcmp(text, level_words[i])) {
            *ret = (enum cairn_log_level)i;
            return CAIRN_OK;
        }
    }
    return cairn_fail(err, CAIRN_INVALID,
                      "\"%.32s\" is not a log level: error, warn, info or debug", text);
}

bool cairn_log_enabled(enum cairn_log_level level) {
    return logger.started && logger.fd >= 0 && level <= logger.level;
}

/* Escapes byte c: itself, or at most 4 bytes. Returns the size. */
static size_t escape_byte(uint8_t c, bool is_text, char ret_escape[8]) {
    const char *name = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : NULL;
    if (name) {
        memcpy(ret_escape, name, 2);
        return 2;
    }
    if (c < 0x20 || c == 0x7f || (c >= 0x80 && !is_text))
        return (size_t)snprintf(ret_escape, 8, "\\x%02x", c);
    ret_escape[0] = (char)c;
    return 1;
}

/* Size of a cut text without a last non-ASCII character, which may be incomplete. */
static size_t without_torn_character(const char *text, size_t size) {
    size_t end = size;
    while (end > 0 && ((uint8_t)text[end - 1] & 0xc0) == 0x80) end--;
    return end > 0 && (uint8_t)text[end - 1] >= 0xc0 ? end - 1 : size;
}

/* ---- values ---- */

struct values { /* the key=value pairs of a line */
    char *text;
    size_t size;
    bool quoted; /* inside quotes of the format */
    bool cut;
};

static void put(struct values *values, const char *bytes, size_t size) {
    size_t room = LINE_BYTES_MAX - 1 - values->size;
    values->cut |= size > room;
    size = cairn_min_u64(size, room);
    memcpy(values->text + values->size, bytes, size);
    values->size += size;
}

static void put_in_quotes(struct values *values, const char *value, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (value[i] == '"' || value[i] == '\\') put(values, "\\", 1);
        put(values, &value[i], 1);
    }
}

struct conversion { /* a printf conversion, '%' included */
    char text[16];
    size_t size;
    char length, kind; /* length: 0, 'l', 'L' (ll), 'z' */
};

/* Formats one conversion and consumes its arguments, as vsnprintf would. */
static void put_conversion(struct values *values, const struct conversion *at, va_list *arguments) {
    char number[64] = "";
    if (at->kind == 's') {
        int most = strchr(at->text, '*')   ? va_arg(*arguments, int)
                   : strchr(at->text, '.') ? (int)strtol(strchr(at->text, '.') + 1, NULL, 10)
                                           : -1;
        const char *value = va_arg(*arguments, const char *);
        if (!value) value = "(null)";
        /* log.h#2 */
        size_t size = most < 0 ? strlen(value) : strnlen(value, (size_t)most);
        bool bare = !values->quoted && values->size && values->text[values->size - 1] == '=';
        bool breaks = false;
        for (size_t i = 0; i < size; i++)
            breaks |= (uint8_t)value[i] <= ' ' || value[i] == '"' || value[i] == 0x7f;
        if (bare && breaks) put(values, "\"", 1);
        if (values->quoted || (bare && breaks))
            put_in_quotes(values, value, size);
        else
            put(values, value, size);
        if (bare && breaks) put(values, "\"", 1);
        return;
    }
    if (at->kind == '%')
        put(values, "%", 1);
    else if (at->length == 'L')
        snprintf(number, sizeof(number), at->text, va_arg(*arguments, long long));
    else if (at->length == 'l')
        snprintf(number, sizeof(number), at->text, va_arg(*arguments, long));
    else if (at->length == 'z')
        snprintf(number, sizeof(number), at->text, va_arg(*arguments, size_t));
    else
        snprintf(number, sizeof(number), at->text, va_arg(*arguments, int));
    put(values, number, strlen(number));
}

static void put_all(struct values *values, const char *format, va_list *arguments) {
    while (*format) {
        if (*format == '%') {
            struct conversion at = {0};
            size_t size = 1 + strspn(format + 1, "-+ 0#123456789.*");
            for (; format[size] && strchr("hlzjt", format[size]); size++)
                at.length = format[size] == 'l' && at.length == 'l' ? 'L' : format[size];
            at.kind = format[size];
            at.size = size + 1;
            CAIRN_ASSERT(at.kind);
            CAIRN_ASSERT(at.size < sizeof(at.text));
            memcpy(at.text, format, at.size);
            put_conversion(values, &at, arguments);
            format += at.size;
            continue;
        }
        values->quoted ^= *format == '"';
        put(values, format++, 1);
    }
    values->text[values->size] = '\0';
}

/* ---- as text ---- */

static size_t text_line(enum cairn_log_level level, const char *event, const char *time,
                        const char *text, bool cut, char *line) {
    const struct cairn_trace *trace = cairn_trace_get();
    int head = snprintf(line, LINE_BYTES_MAX, "%s %s %.128s%s%s%s", time, level_names[level], event,
                        trace ? " trace=" : "", trace ? trace->id : "", text[0] ? " " : "");
    size_t size = (size_t)head; /* grows by the escaped text */
    const size_t room = LINE_BYTES_MAX - sizeof("...\n");
    bool is_text = cairn_utf8_valid(cairn_view_of(text));
    const uint8_t *at = (const uint8_t *)text;
    while (*at) {
        char escape[8];
        size_t taken = 1;
        size_t escape_size = escape_byte(*at, is_text, escape);
        /* U+0080 to U+009F are control characters that terminals obey. */
        if (is_text && at[0] == 0xc2 && at[1] < 0xa0) {
            escape_size = (size_t)snprintf(escape, sizeof(escape), "\\u%04x", at[1]);
            taken = 2;
        }
        if (size + escape_size > room) break;
        memcpy(line + size, escape, escape_size);
        size += escape_size;
        at += taken;
    }
    if (*at || cut) {
        if (*at && is_text) size = without_torn_character(line, size);
        memcpy(line + size, "...", 3);
        size += 3;
    }
    return size;
}

/* ---- as JSON ---- */

/* Size of the key at `at`, without its '='; 0: no key. */
static size_t key_size(const char *at) {
    size_t size = 0;
    while ((at[size] >= 'a' && at[size] <= 'z') || (at[size] >= '0' && at[size] <= '9') ||
           at[size] == '_')
        size++;
    return at[size] == '=' ? size : 0;
}

struct json_line {
    char *bytes; /* JSON_BYTES_MAX */
    size_t size;
};

/* Is there room for `bytes` and the end of a value and of the object? */
static bool json_room(const struct json_line *line, size_t bytes) {
    return line->size + bytes + sizeof("...\"}\n") < JSON_BYTES_MAX;
}

static void json_bytes(struct json_line *line, const char *bytes, size_t size) {
    memcpy(line->bytes + line->size, bytes, size);
    line->size += size;
}

/* Writes a quoted string; each byte of invalid UTF-8 becomes \u00XX. */
static void json_text(struct json_line *line, struct cairn_view text) {
    bool is_text = cairn_utf8_valid(text), cut = false;
    const char *bytes = text.data;
    line->bytes[line->size++] = '"';
    for (size_t i = 0; i < text.size && !cut; i++) {
        char escape[8] = {bytes[i]};
        uint8_t c = (uint8_t)bytes[i];
        size_t size = 1;
        if (c == '"' || c == '\\')
            size = (size_t)snprintf(escape, sizeof(escape), "\\%c", c);
        else if (c < 0x20 || c == 0x7f || (c >= 0x80 && !is_text))
            size = (size_t)snprintf(escape, sizeof(escape), "\\u%04x", c);
        cut = !json_room(line, size + 4);
        if (!cut) json_bytes(line, escape, size);
    }
    if (cut && is_text) line->size = without_torn_character(line->bytes, line->size);
    if (cut) json_bytes(line, "...", 3);
    line->bytes[line->size++] = '"';
}

static void json_member(struct json_line *line, struct cairn_view key, struct cairn_view value,
                        bool number) {
    if (!json_room(line, key.size + 8)) return;
    json_bytes(line, line->size > 1 ? "," : "", line->size > 1);
    json_text(line, key);
    line->bytes[line->size++] = ':';
    if (number && json_room(line, value.size))
        json_bytes(line, value.data, value.size);
    else
        json_text(line, value);
}

static bool is_number(struct cairn_view text) {
    const char *digits = text.data;
    size_t size = text.size;
    if (size && *digits == '-') digits++, size--;
    if (!size || size > 15 || (size > 1 && *digits == '0')) return false;
    for (size_t i = 0; i < size; i++)
        if (digits[i] < '0' || digits[i] > '9') return false;
    return true;
}

/* Reads a value back from its text form (log.h#2); returns its end. An unquoted value ends at the
 * next key, since a format may append free text. */
static const char *read_value(const char *at, char *ret_plain, size_t *ret_size, bool *ret_quoted) {
    size_t size = 0;
    *ret_quoted = *at == '"';
    if (*ret_quoted) {
        for (at++; *at && *at != '"'; at++) {
            if (*at == '\\' && at[1]) at++;
            ret_plain[size++] = *at;
        }
        at += *at == '"';
    }
    while (*at && !(*at == ' ' && key_size(at + 1))) ret_plain[size++] = *at++;
    *ret_size = size;
    return at + (*at == ' ');
}

static void json_pairs(struct json_line *line, const char *text, bool cut) {
    char plain[LINE_BYTES_MAX + sizeof("...")];
    while (*text) {
        struct cairn_view key = {text, key_size(text)};
        size_t size = 0;
        bool quoted = false;
        text = read_value(key.size ? text + key.size + 1 : text, plain, &size, &quoted);
        if (!*text && cut) {
            memcpy(plain + size, "...", 3);
            size += 3;
        }
        struct cairn_view value = {plain, size};
        json_member(line, key.size ? key : CAIRN_VIEW("text"), value,
                    key.size && !quoted && is_number(value));
    }
}

static size_t json_line(enum cairn_log_level level, const char *event, const char *time,
                        const char *text, bool cut, char *bytes) {
    const struct cairn_trace *trace = cairn_trace_get();
    struct json_line line = {.bytes = bytes};
    json_bytes(&line, "{", 1);
    json_member(&line, CAIRN_VIEW("time"), cairn_view_of(time), false);
    json_member(&line, CAIRN_VIEW("level"), cairn_view_of(level_words[level]), false);
    json_member(&line, CAIRN_VIEW("event"), cairn_view_of(event), false);
    if (trace) json_member(&line, CAIRN_VIEW("trace"), cairn_view_of(trace->id), false);
    json_pairs(&line, text, cut);
    json_bytes(&line, "}", 1);
    return line.size;
}

/* ---- a line ---- */

void cairn_log_write(enum cairn_log_level level, const char *event, const char *format, ...) {
    if (!cairn_log_enabled(level)) return;
    int saved_errno = errno;
    char text[LINE_BYTES_MAX], line[JSON_BYTES_MAX], time[32];
    struct values values = {.text = text};
    va_list arguments;
    va_start(arguments, format);
    put_all(&values, format, &arguments);
    va_end(arguments);
    if (values.cut) text[without_torn_character(text, values.size)] = '\0';
    cairn_time_text(cairn_clock_real.wall_ms(&cairn_clock_real), true, time);
    size_t size = logger.format == CAIRN_LOG_JSON
                      ? json_line(level, event, time, text, values.cut, line)
                      : text_line(level, event, time, text, values.cut, line);
    line[size++] = '\n';
    {
        CAIRN_HOLD(&logger.lock);
        /* log.h#3: a closed standard error must not kill the program, so SIGPIPE is blocked and
         * discarded. */
        sigset_t pipe_set, before;
        sigemptyset(&pipe_set);
        sigaddset(&pipe_set, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe_set, &before);
        ssize_t written;
        do {
            written = write(logger.fd, line, size);
        } while (written < 0 && errno == EINTR);
        if (written < 0 && errno == EPIPE && !sigismember(&before, SIGPIPE))
            sigtimedwait(&pipe_set, NULL, &(struct timespec){0});
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    errno = saved_errno;
}

void cairn_log_failed(const char *program, const char *format_said, const char *cause) {
    enum cairn_log_format format = logger.format;
    if (!logger.started && format_said) (void)!cairn_log_format_parse(format_said, &format, NULL);
    if (format != CAIRN_LOG_JSON) {
        fprintf(stderr, "%s: %s\n", program, cause);
        return;
    }
    cairn_log_write_as(format);
    if (!logger.started) cairn_log_start(program, CAIRN_LOG_ERROR, STDERR_FILENO);
    cairn_log(ERROR, "process.failed", "program=%s cause=\"%s\"", program, cause);
}

/* ---- limits: a slot per cause, free again after its minute if no line is left to count ---- */

static uint64_t hash_of(const char *cause) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; *cause; cause++) hash = (hash ^ (uint8_t)*cause) * UINT64_C(1099511628211);
    return hash ? hash : 1;
}

/* The last slot is shared by all causes without one. */
static size_t place_of(struct cairn_log_limit *limit, uint64_t cause, uint64_t now_ms) {
    for (size_t i = 0; i < CAIRN_LOG_LIMIT_CAUSES; i++)
        if (limit->causes[i].cause == cause) return i;
    for (size_t i = 0; i < CAIRN_LOG_LIMIT_CAUSES; i++) {
        bool old =
            now_ms - limit->causes[i].said_ms >= CAIRN_LOG_LIMIT_MS && !limit->causes[i].unsaid;
        if (limit->causes[i].cause && !old) continue;
        limit->causes[i].cause = 0;
        return i;
    }
    return CAIRN_LOG_LIMIT_CAUSES;
}

bool cairn_log_limit_allows(struct cairn_log_limit *limit, const char *cause, uint64_t now_ms,
                            uint64_t *ret_unsaid) {
    uint64_t hash = hash_of(cause);
    size_t at = place_of(limit, hash, now_ms);
    if (limit->causes[at].cause && now_ms - limit->causes[at].said_ms < CAIRN_LOG_LIMIT_MS) {
        limit->causes[at].unsaid++;
        return false;
    }
    *ret_unsaid = limit->causes[at].unsaid;
    limit->causes[at].cause = hash;
    limit->causes[at].said_ms = now_ms;
    limit->causes[at].unsaid = 0;
    return true;
}
