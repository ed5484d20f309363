/* SPDX-License-Identifier: Apache-2.0 */
/* declared: what begins at the start of a line, up to its semicolon or brace. */
#include "tests/tidy/declared.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define NAME_BYTES 80
#define PATH_BYTES 160

struct places {
    struct place {
        char name[NAME_BYTES], path[PATH_BYTES];
    } at[CAIRN_TIDY_FUNCTIONS_MAX];
    size_t count;
};
struct cairn_tidy_declared {
    struct places declarations, definitions;
};

struct cairn_tidy_declared *cairn_tidy_declared_new(void) {
    return calloc(1, sizeof(struct cairn_tidy_declared));
}

void cairn_tidy_declared_free(struct cairn_tidy_declared *declared) {
    free(declared);
}

/* ---- collecting ---- */

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static bool begins_with(const char *text, const char *start) {
    return !strncmp(text, start, strlen(start));
}

/* The first word of Cairn's that a bracket follows; 0: none before `end`. */
static size_t name_of(const char *line, const char *end, const char **ret) {
    for (const char *at = line; at < end; at++) {
        if (at > line && is_word(at[-1])) continue;
        size_t size = 0;
        while (is_word(at[size])) size++;
        *ret = at;
        bool ours = begins_with(at, "cairn_") || begins_with(at, "cli_");
        if (ours && size < NAME_BYTES && at[size] == '(') return size;
    }
    return 0;
}

void cairn_tidy_declared_add(struct cairn_tidy_declared *declared,
                             const struct cairn_tidy_file *file) {
    bool header = !strcmp(file->path + strlen(file->path) - 2, ".h");
    struct places *places = header ? &declared->declarations : &declared->definitions;
    for (const char *line = file->code; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!is_word(*line) || begins_with(line, "static ") || begins_with(line, "typedef "))
            continue;
        const char *end = line + strcspn(line, ";{="), *name = NULL;
        if (*end != (header ? ';' : '{')) continue;
        size_t size = name_of(line, end, &name);
        const char *weak = strstr(line, "weak");
        if (!size || (weak && weak < end)) continue;
        if (places->count == CAIRN_TIDY_FUNCTIONS_MAX) abort();
        struct place *place = &places->at[places->count++];
        snprintf(place->name, sizeof place->name, "%.*s", (int)size, name);
        snprintf(place->path, sizeof place->path, "%s", file->path);
    }
}

/* ---- comparing ---- */

/* "server/http/http.h": its name is its folder's. */
static bool is_face(const char *header, const char *stem) {
    const char *folder = stem - 1;
    while (folder > header && folder[-1] != '/') folder--;
    size_t size = (size_t)(stem - folder) - 1;
    return strlen(stem) == size + 2 && !strncmp(stem, folder, size);
}

/* May a function of this header be defined in this source? Of a room's face and of its inside.h in
 * any source of the room, of its above.h (what the room calls above itself) in any of another. */
static bool belongs(const char *header, const char *source) {
    const char *stem = strrchr(header, '/'), *other = strrchr(source, '/');
    size_t folder = stem ? (size_t)(stem - header) + 1 : 0;
    if (!stem || !other) return false;
    bool same = (size_t)(other - source) + 1 == folder && !strncmp(header, source, folder);
    stem++, other++;
    if (!strcmp(stem, "above.h")) return !same;
    if (!same) return false;
    if (!strcmp(stem, "inside.h") || is_face(header, stem)) return true;
    size_t size = strlen(stem) - 2;
    const char *inside = strstr(stem, "_inside.h");
    if (inside) size = (size_t)(inside - stem);
    if (strncmp(stem, other, size) != 0) return false;
    return other[size] == '.' || other[size] == '_';
}

size_t cairn_tidy_declared_find(const struct cairn_tidy_declared *declared,
                                struct cairn_buf *found) {
    const struct places *definitions = &declared->definitions;
    for (size_t i = 0; i < declared->declarations.count; i++) {
        const struct place *at = &declared->declarations.at[i];
        const char *elsewhere = "nowhere";
        bool good = false;
        for (size_t k = 0; k < definitions->count && !good; k++) {
            if (strcmp(definitions->at[k].name, at->name) != 0) continue;
            elsewhere = definitions->at[k].path;
            good = belongs(at->path, elsewhere);
        }
        if (!good && cairn_buf_printf(found, NULL, "%s:1: declares %s, which is defined in %s\n",
                                      at->path, at->name, elsewhere))
            abort();
    }
    return declared->declarations.count;
}
