/* SPDX-License-Identifier: Apache-2.0 */
/* rings: definitions first, then the words of every source, then who reaches whom. */
#include "tests/tidy/rings.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define WORDS (CAIRN_TIDY_SOURCES_MAX / 64)
#define NAME_PLACES 16384 /* a power of two, four times what there is */

/* Sources of each folder that are in a ring of more than CAIRN_TIDY_RING_MAX. A number may only
 * become smaller, and is made smaller with the ring; a folder that is not here has none. */
static const struct {
    const char *folder;
    unsigned sources;
} folders[] = {{"api/", 0},  {"cli/", 0},    {"client/", 0}, {"common/", 0},  {"formats/", 0},
               {"plan/", 0}, {"server/", 0}, {"store/", 0},  {"uploader/", 0}};

struct name {
    const char *text; /* in the code of its source, NULL: a free place */
    size_t size;
    unsigned source;
};
struct source {
    char *path, *code;
    uint64_t reaches[WORDS];
    unsigned ring; /* how many sources reach it and are reached by it, itself among them */
};
struct cairn_tidy_rings {
    struct source sources[CAIRN_TIDY_SOURCES_MAX];
    unsigned count;
    struct name names[NAME_PLACES];
};

struct cairn_tidy_rings *cairn_tidy_rings_new(void) {
    return calloc(1, sizeof(struct cairn_tidy_rings));
}

void cairn_tidy_rings_free(struct cairn_tidy_rings *rings) {
    for (unsigned i = 0; rings && i < rings->count; i++) {
        free(rings->sources[i].path);
        free(rings->sources[i].code);
    }
    free(rings);
}

void cairn_tidy_rings_add(struct cairn_tidy_rings *rings, const struct cairn_tidy_file *file) {
    if (rings->count == CAIRN_TIDY_SOURCES_MAX) abort();
    struct source *source = &rings->sources[rings->count++];
    source->path = strdup(file->path);
    source->code = strdup(file->code);
    if (!source->path || !source->code) abort();
}

/* ---- names ---- */

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static size_t word_size(const char *at) {
    size_t size = 0;
    while (is_word(at[size])) size++;
    return size;
}

static bool is_ours(const char *word, size_t size) {
    return (size > 6 && !strncmp(word, "cairn_", 6)) || (size > 4 && !strncmp(word, "cli_", 4));
}

/* Its place, or the free place where it belongs. */
static struct name *find_name(struct cairn_tidy_rings *rings, const char *text, size_t size) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < size; i++) hash = (hash ^ (uint8_t)text[i]) * 16777619u;
    for (uint32_t i = 0; i < NAME_PLACES; i++) {
        struct name *name = &rings->names[(hash + i) % NAME_PLACES];
        if (!name->text || (name->size == size && !memcmp(name->text, text, size))) return name;
    }
    abort();
}

/* What stands at the start of a line, up to its brace, is a function where the last bracket before
 * that brace follows a word; *ret is the word. */
static bool names_function(const char *line, const char **ret, size_t *ret_size) {
    size_t end = strcspn(line, ";{=");
    if (line[end] != '{' || !is_word(*line) || !strncmp(line, "static", 6)) return false;
    int depth = 0;
    *ret = NULL;
    for (const char *at = line; at < line + end; at++) {
        const char *before = at;
        if (*at == '(' && !depth++) {
            while (before > line && is_word(before[-1])) before--;
            *ret = before;
            *ret_size = (size_t)(at - before);
        }
        if (*at == ')') depth--;
    }
    return *ret && is_ours(*ret, *ret_size);
}

static void define_all(struct cairn_tidy_rings *rings, unsigned index) {
    const char *line = rings->sources[index].code;
    while (line) {
        const char *word;
        size_t size;
        if (names_function(line, &word, &size))
            *find_name(rings, word, size) = (struct name){word, size, index};
        line = strchr(line, '\n');
        if (line) line++;
    }
}

static void use_all(struct cairn_tidy_rings *rings, unsigned index) {
    struct source *source = &rings->sources[index];
    for (const char *at = source->code; *at; at++) {
        size_t size = word_size(at);
        if (!size) continue;
        const struct name *name = is_ours(at, size) ? find_name(rings, at, size) : NULL;
        if (name && name->text && name->source != index)
            source->reaches[name->source / 64] |= UINT64_C(1) << name->source % 64;
        at += size - 1;
    }
}

/* ---- rings ---- */

static bool reaches(const struct cairn_tidy_rings *rings, unsigned from, unsigned to) {
    return rings->sources[from].reaches[to / 64] >> to % 64 & 1;
}

static bool shares_ring(const struct cairn_tidy_rings *rings, unsigned one, unsigned other) {
    return one == other || (reaches(rings, one, other) && reaches(rings, other, one));
}

void cairn_tidy_rings_close(struct cairn_tidy_rings *rings) {
    for (unsigned i = 0; i < rings->count; i++) define_all(rings, i);
    for (unsigned i = 0; i < rings->count; i++) use_all(rings, i);
    for (unsigned middle = 0; middle < rings->count; middle++)
        for (unsigned i = 0; i < rings->count; i++)
            for (size_t k = 0; reaches(rings, i, middle) && k < WORDS; k++)
                rings->sources[i].reaches[k] |= rings->sources[middle].reaches[k];
    for (unsigned i = 0; i < rings->count; i++)
        for (unsigned k = 0; k < rings->count; k++)
            rings->sources[i].ring += shares_ring(rings, i, k);
}

static bool is_counted(const struct source *source, const char *folder) {
    return source->ring > CAIRN_TIDY_RING_MAX && !strncmp(source->path, folder, strlen(folder));
}

unsigned cairn_tidy_rings_count(const struct cairn_tidy_rings *rings, const char *folder) {
    unsigned count = 0;
    for (unsigned i = 0; i < rings->count; i++) count += is_counted(&rings->sources[i], folder);
    return count;
}

/* The ring of a source, told by its first one. */
static void tell_ring(const struct cairn_tidy_rings *rings, unsigned index,
                      struct cairn_buf *found) {
    for (unsigned i = 0; i < index; i++)
        if (shares_ring(rings, index, i)) return;
    const struct source *source = &rings->sources[index];
    enum cairn_code code =
        cairn_buf_printf(found, NULL, "%s:1: a ring of %u sources:", source->path, source->ring);
    for (unsigned i = index; i < rings->count && code == CAIRN_OK; i++)
        if (shares_ring(rings, index, i))
            code = cairn_buf_printf(found, NULL, " %s", rings->sources[i].path);
    if (code != CAIRN_OK || cairn_buf_printf(found, NULL, "\n") != CAIRN_OK) abort();
}

void cairn_tidy_rings_find(const struct cairn_tidy_rings *rings, struct cairn_buf *found) {
    for (size_t i = 0; i < CAIRN_COUNT(folders); i++) {
        unsigned count = cairn_tidy_rings_count(rings, folders[i].folder);
        if (count == folders[i].sources) continue;
        enum cairn_code code = cairn_buf_printf(
            found, NULL,
            "tests/tidy/rings.c:1: %s has %u sources in rings of more than %d, the "
            "table says %u: %s\n",
            folders[i].folder, count, CAIRN_TIDY_RING_MAX, folders[i].sources,
            count < folders[i].sources ? "lower it" : "break the ring");
        if (code != CAIRN_OK) abort();
        for (unsigned k = 0; count > folders[i].sources && k < rings->count; k++)
            if (is_counted(&rings->sources[k], folders[i].folder)) tell_ring(rings, k, found);
    }
}
