/* SPDX-License-Identifier: Apache-2.0 */
/* The example's checker: reads the restored pieces, recomputes each element from its name and
 * index, and requires that the pieces cover every tensor once per copy. Independent of Cairn:
 *   check FOLDER RESTORED_RANKS SAVED_RANKS  */
#include <stdio.h>
#include <stdlib.h>

#include "examples/transformer/model.h"

#define PIECES_MAX 65536
#define CHUNK_ELEMENTS 262144

struct piece {
    char name[128], path[1024];
    unsigned element_bytes;
    uint64_t first, elements;
};
static struct piece pieces[PIECES_MAX];
static unsigned piece_count;
static uint64_t checked_bytes, wrong;

static int by_name_then_first(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->first > y->first) - (x->first < y->first);
}

static void complain(const char *what, const char *name, uint64_t at) {
    if (wrong++ < 20) fprintf(stderr, "WRONG %s: %s at %llu\n", what, name, (unsigned long long)at);
}

static int read_list(const char *folder, unsigned rank) {
    char path[1100], line[1400];
    snprintf(path, sizeof path, "%s/pieces-%u.txt", folder, rank);
    FILE *list = fopen(path, "r");
    if (!list) {
        perror(path);
        return 0;
    }
    while (piece_count < PIECES_MAX && fgets(line, sizeof line, list)) {
        struct piece *piece = &pieces[piece_count];
        unsigned long long first, elements;
        /* The path is the rest of the line, including spaces. */
        if (sscanf(line, "%127s %u %llu %llu %1023[^\n]", piece->name, &piece->element_bytes,
                   &first, &elements, piece->path) != 5) {
            fprintf(stderr, "bad line in %s: %s", path, line);
            return 0;
        }
        piece->first = first;
        piece->elements = elements;
        piece_count++;
    }
    fclose(list);
    return 1;
}

/* A raw shard has a byte per element, hashed from "raw of rank N"; an alias has its target's
 * bytes. */
static void expected_name(const struct piece *piece, char ret[128]) {
    unsigned rank;
    snprintf(ret, 128, "%s", piece->name);
    if (sscanf(piece->name, "raw:%u", &rank) == 1) snprintf(ret, 128, "raw of rank %u", rank);
    if (!strcmp(piece->name, "lm_head.weight")) snprintf(ret, 128, "model.embed_tokens.weight");
}

static void check_bytes(const struct piece *piece) {
    static unsigned char chunk[CHUNK_ELEMENTS * 4];
    char name[128];
    expected_name(piece, name);
    uint64_t seed = model_seed(name);
    FILE *file = fopen(piece->path, "rb");
    if (!file) {
        complain("missing file", piece->path, 0);
        return;
    }
    for (uint64_t done = 0; done < piece->elements;) {
        uint64_t count =
            piece->elements - done < CHUNK_ELEMENTS ? piece->elements - done : CHUNK_ELEMENTS;
        if (fread(chunk, piece->element_bytes, count, file) != count) {
            complain("short file", piece->path, done);
            break;
        }
        for (uint64_t i = 0; i < count; i++) {
            uint32_t wanted = model_element(seed, piece->first + done + i), found = 0;
            memcpy(&found, chunk + i * piece->element_bytes, piece->element_bytes);
            if (piece->element_bytes < 4) wanted &= (1u << (8 * piece->element_bytes)) - 1;
            if (found != wanted) complain("element", piece->name, piece->first + done + i);
        }
        done += count;
        checked_bytes += count * piece->element_bytes;
    }
    if (fgetc(file) != EOF) complain("long file", piece->path, piece->elements);
    fclose(file);
}

/* Sorted pieces of a name must be contiguous, or each whole (replicated: one per restored rank). */
static void check_cover(const char *name, uint64_t elements, unsigned copies) {
    uint64_t next = 0;
    unsigned seen = 0;
    for (unsigned p = 0; p < piece_count; p++) {
        if (strcmp(pieces[p].name, name)) continue;
        if (copies > 1) {
            if (pieces[p].first || pieces[p].elements != elements) complain("copy", name, p);
            next = elements;
        } else {
            if (pieces[p].first != next) complain("hole or overlap", name, next);
            next = pieces[p].first + pieces[p].elements;
        }
        seen++;
    }
    if (next != elements || (copies > 1 && seen != copies)) complain("cover", name, next);
}

int main(int argc, char **argv) {
    static struct model_tensor tensors[MODEL_TENSORS_MAX];
    if (argc != 4) {
        fprintf(stderr, "usage: check FOLDER RESTORED_RANKS SAVED_RANKS\n");
        return 2;
    }
    unsigned restored = (unsigned)strtoul(argv[2], NULL, 10);
    unsigned saved = (unsigned)strtoul(argv[3], NULL, 10);
    for (unsigned rank = 0; rank < restored; rank++)
        if (!read_list(argv[1], rank)) return 1;
    qsort(pieces, piece_count, sizeof *pieces, by_name_then_first);
    for (unsigned p = 0; p < piece_count; p++) check_bytes(&pieces[p]);
    unsigned count = model_tensors(tensors);
    for (unsigned t = 0; t < count; t++)
        check_cover(tensors[t].name, tensors[t].elements,
                    tensors[t].kind == MODEL_REPLICATED ? restored : 1);
    for (unsigned rank = 0; rank < saved; rank++) {
        char name[32];
        snprintf(name, sizeof name, "raw:%u", rank);
        check_cover(name, 20011, 1);
    }
    printf("{\"tensors\":%u,\"pieces\":%u,\"bytes\":%llu,\"wrong\":%llu}\n", count, piece_count,
           (unsigned long long)checked_bytes, (unsigned long long)wrong);
    return wrong ? 1 : 0;
}
