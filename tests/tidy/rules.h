/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules: the house rules as functions over the text of one file.
 *
 * Why:     a rule that only a reviewer knows is kept until that reviewer is away.
 * Promise: a finding is one line, "path:line: what is wrong"; there is no list of exemptions.
 * Limits:  text is read, not compiled: a rule sees what stands in the file.
 * Threads: stateless.
 * Next:    docs/style.md for the rules in words; test_tidy.c, which feeds each rule a bad file.
 */
#pragma once

#include "common/buf.h"
#include "tests/each.h"

struct cairn_tidy_file {
    const char *path; /* from the root of the tree: "store/retry.c" */
    const char *text;
    const char *code; /* text with comments and the insides of literals blanked, same places */
};
/* *ret has room for strlen(text) + 1. */
void cairn_tidy_blank(const char *text, char *ret);

typedef void cairn_tidy_rule(const struct cairn_tidy_file *file, struct cairn_buf *found);
cairn_tidy_rule cairn_tidy_layers;         /* includes point down, and are written from the root */
cairn_tidy_rule cairn_tidy_rooms;          /* rooms of one folder include downwards, too */
cairn_tidy_rule cairn_tidy_owners;         /* a foreign header is included by its owner only */
cairn_tidy_rule cairn_tidy_introduction;   /* licence line, then the introduction */
cairn_tidy_rule cairn_tidy_function_lines; /* at most 70 */
cairn_tidy_rule cairn_tidy_file_lines;     /* at most 1000 */
cairn_tidy_rule cairn_tidy_columns;        /* at most 100 */
cairn_tidy_rule cairn_tidy_calls;          /* calls that are banned */
cairn_tidy_rule cairn_tidy_pauses;         /* a test waits for a state; a pause says whose it is */
cairn_tidy_rule cairn_tidy_bounds;         /* no test is about how soon on this machine */
cairn_tidy_rule cairn_tidy_states;         /* a version's state has one writer */
cairn_tidy_rule cairn_tidy_sentences;      /* errors are told apart by their codes */
cairn_tidy_rule cairn_tidy_sql;            /* SQL stands in server/db/, its uses in ledger/ */
cairn_tidy_rule cairn_tidy_typedefs;       /* structs and enums have none */
cairn_tidy_rule cairn_tidy_tables;         /* every row of a .def says what it means */
cairn_tidy_rule cairn_tidy_words;          /* words that mark unfinished work */
cairn_tidy_rule cairn_tidy_paths;          /* folders of one machine */
