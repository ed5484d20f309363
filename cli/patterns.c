/* SPDX-License-Identifier: Apache-2.0 */
/* Components are matched by fnmatch(); what stands between them is done here. */
#include "cli/patterns.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>

#include "api/documents/keys.h"
#include "common/buf.h"

#define PATTERNS_MAX 10000

/* ---- one pattern ---- */

/* The next component, without its slash; false: there is none. */
static bool next_component(const char **at, char ret[CAIRN_SHARD_NAME_BYTES_MAX + 1]) {
    if (!**at) return false;
    size_t size = strcspn(*at, "/");
    if (size > CAIRN_SHARD_NAME_BYTES_MAX) size = CAIRN_SHARD_NAME_BYTES_MAX;
    memcpy(ret, *at, size);
    ret[size] = '\0';
    *at += size;
    if (**at == '/') ++*at;
    return true;
}

/* A ** that did not lead on is tried again one component further: only the last one has to be,
 * since what comes before it has matched as early as it could. */
bool cairn_cli_glob(const char *pattern, const char *name) {
    char wanted[CAIRN_SHARD_NAME_BYTES_MAX + 1], found[CAIRN_SHARD_NAME_BYTES_MAX + 1];
    const char *after_stars = NULL, *from = NULL;
    while (*name) {
        const char *rest = pattern, *behind = name;
        bool more = next_component(&rest, wanted);
        if (more && strcmp(wanted, "**") == 0) {
            if (!*rest) return true;
            after_stars = pattern = rest;
            from = name;
            continue;
        }
        (void)next_component(&behind, found);
        if (more && fnmatch(wanted, found, FNM_NOESCAPE) == 0) {
            pattern = rest;
            name = behind;
        } else if (after_stars) {
            (void)next_component(&from, found);
            pattern = after_stars;
            name = from;
        } else {
            return false;
        }
    }
    return !*pattern;
}

/* Where the bracket that begins at `from` ends, or NULL: fnmatch() takes such a [ for itself, so
 * that what was meant as a set of characters would match nothing, unseen. */
static const char *bracket_end(const char *from, const char *end) {
    const char *at = from + 1;
    if (at < end && (*at == '!' || *at == '^')) at++;
    if (at < end && *at == ']') at++;
    for (; at < end && *at != '/'; at++) {
        if (*at == ']') return at;
        if (*at != '[' || at + 1 == end || !strchr(":.=", at[1])) continue;
        const char closes[3] = {at[1], ']', '\0'}, *class = strstr(at + 2, closes);
        if (class && class < end) at = class + 1; /* [:digit:] has a ] of its own */
    }
    return NULL;
}

static enum cairn_code check_brackets(const char *text, size_t size, struct cairn_error *err) {
    for (const char *at = text; (at = memchr(at, '[', (size_t)(text + size - at))); at++) {
        at = bracket_end(at, text + size);
        if (!at)
            return cairn_fail(err, CAIRN_INVALID,
                              "the pattern %.200s has a [ that no ] ends; [[] is the character "
                              "itself",
                              text);
    }
    return CAIRN_OK;
}

/* ---- several ---- */

enum cairn_code cairn_cli_patterns_add(struct cairn_cli_patterns *patterns, const char *text,
                                       struct cairn_error *err) {
    struct cairn_cli_pattern pattern = {.keeps = text[0] == '!'};
    text += pattern.keeps;
    size_t size = strlen(text);
    if (size > CAIRN_SHARD_NAME_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "a pattern has at most %d bytes: %.80s...",
                          CAIRN_SHARD_NAME_BYTES_MAX, text);
    pattern.folders = size && text[size - 1] == '/';
    while (size && text[size - 1] == '/') size--;
    pattern.anchored = memchr(text, '/', size) != NULL;
    while (size && *text == '/') text++, size--;
    if (!size) return cairn_fail(err, CAIRN_INVALID, "an empty pattern");
    CAIRN_TRY(check_brackets(text, size, err));
    CAIRN_TRY(CAIRN_ARRAY_ROOM(patterns->items, patterns->count, patterns->capacity, PATTERNS_MAX,
                               "patterns", err));
    pattern.text = strndup(text, size);
    if (!pattern.text) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a pattern");
    patterns->items[patterns->count++] = pattern;
    return CAIRN_OK;
}

enum cairn_code cairn_cli_patterns_add_lines(struct cairn_cli_patterns *patterns,
                                             struct cairn_view lines, struct cairn_error *err) {
    const char *at = lines.data, *end = at + lines.size;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        size_t size = (size_t)(stop - at);
        while (size && (at[size - 1] == ' ' || at[size - 1] == '\t' || at[size - 1] == '\r'))
            size--;
        if (size && *at != '#') {
            CAIRN_AUTO_HEAP char *line = strndup(at, size);
            if (!line) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a pattern");
            CAIRN_TRY(cairn_cli_patterns_add(patterns, line, err));
        }
        at = stop < end ? stop + 1 : end;
    }
    return CAIRN_OK;
}

void cairn_cli_patterns_release(struct cairn_cli_patterns *patterns) {
    for (size_t i = 0; i < patterns->count; i++) free(patterns->items[i].text);
    free(patterns->items);
    *patterns = (struct cairn_cli_patterns){0};
}

static bool is_matched(const struct cairn_cli_patterns *patterns, const char *name, bool folder) {
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    for (size_t i = patterns->count; i-- > 0;) {
        const struct cairn_cli_pattern *pattern = &patterns->items[i];
        if (pattern->folders && !folder) continue;
        if (cairn_cli_glob(pattern->text, pattern->anchored ? name : last)) return !pattern->keeps;
    }
    return false;
}

bool cairn_cli_patterns_match(const struct cairn_cli_patterns *patterns, const char *name,
                              bool folder) {
    char path[CAIRN_SHARD_NAME_BYTES_MAX + 1];
    if (!patterns->count) return false;
    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        size_t size = (size_t)(slash - name);
        if (size >= sizeof path) break;
        memcpy(path, name, size);
        path[size] = '\0';
        if (is_matched(patterns, path, true)) return true;
    }
    return is_matched(patterns, name, folder);
}
