/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare: the tensors of two checkpoints, held against each other in bounded memory.
 *
 * Why:     which weights a step, a conversion or a repair changed, and by how much, is asked of
 *          checkpoints that no memory holds twice.
 * Promise: 1   every name of either side is in the result: in one alone, of another shape or type,
 *              or compared element by element.
 *          2   of one element type an element differs where its bytes do; of two float types where
 *              its value does.
 *          3   memory is workers * 4 windows of at most 8 MiB.
 * Limits:  as formats/assembly/assembly.h.
 * Threads: starts its workers and joins them.
 * Next:    cli/verbs/diff.c, cli/weights.h.
 */
#pragma once

#include "cli/progress.h"
#include "formats/assembly/assembly.h"

enum cairn_cli_verdict {
    CAIRN_CLI_SAME,
    CAIRN_CLI_DIFFERS,
    CAIRN_CLI_OTHER_SHAPE,
    CAIRN_CLI_OTHER_TYPE, /* and their values cannot be compared */
    CAIRN_CLI_ONLY_A,
    CAIRN_CLI_ONLY_B
};
struct cairn_cli_pair {
    const struct cairn_assembly_tensor *a, *b; /* NULL: not on that side */
    enum cairn_cli_verdict verdict;
    uint64_t elements, differing;
    bool measured;  /* largest is known: the elements are numbers */
    double largest; /* difference of two elements; NaN counts as differing alone */
};
struct cairn_cli_compare {
    const struct cairn_cli *cli;
    const struct cairn_assembly *a, *b;
    const char *only; /* a pattern of names, or NULL */
    /* By _run; owned, by name. */
    struct cairn_cli_pair *pairs;
    size_t count;
};
enum cairn_code cairn_cli_compare_run(struct cairn_cli_compare *job,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_compare_release(struct cairn_cli_compare *job);
