/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz: one function per parser, fed with bytes that nobody chose.
 *
 * Why:     every parser takes bytes from outside (a peer, a store, a disk, a user); none may crash,
 *          read outside its input, or take more than it can give back unchanged.
 * Promise: 1   a target asserts what holds for every input: what was decoded and encoded again is
 *              decoded to the same; what was refused says why.
 *          2   a target keeps nothing between two inputs: one input alone repeats a finding.
 * Limits:  inputs of at most 64 KiB.
 * Threads: main thread only.
 * Next:    replay.c runs the corpus and seeded mutations of it in every build; engine.c is what
 *          libFuzzer calls (preset `fuzz`, clang).
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "tests/each.h"

#define FUZZ(name, surface) void cairn_fuzz_##name(struct cairn_view input);
#include "api/wire/frame.h"
#include "api/wire/rights.h"
#include "common/text.h"
#include "tests/fuzz/targets.def"
#include "uploader/journal/journal.h"
#undef FUZZ

/* Unlike assert, never compiled out; names what did not hold. */
#define FUZZ_HOLDS(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)
/* Every refusal has a message. */
#define FUZZ_SAYS_WHY(code, err) FUZZ_HOLDS(!(code) || (err).message[0])

/* The input as text, cut at its first NUL; released by the caller with free. */
static inline char *cairn_fuzz_text(struct cairn_view input) {
    char *text = malloc(input.size + 1);
    if (!text) abort();
    if (input.size) memcpy(text, input.data, input.size);
    text[input.size] = '\0';
    return text;
}
/* The input as a file, for parsers that open a path; gone with cairn_fuzz_file_end. */
struct cairn_fuzz_file {
    int fd;
    char path[64];
};
void cairn_fuzz_file_begin(struct cairn_view input, struct cairn_fuzz_file *ret);
void cairn_fuzz_file_end(struct cairn_fuzz_file *file);
/* Good inputs that only code can make (binary formats); told to `each`. */
void cairn_fuzz_seeds(const char *target, void (*each)(struct cairn_view seed, void *owner),
                      void *owner);
