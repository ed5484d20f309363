/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selector: which labels are meant, as "team=nlp,tier!=tmp".
 *
 * Why:     lists, policies and the command choose versions by their labels; one reader of that text
 *          means that they choose the same ones.
 * Promise: 1   every term must hold: key=value (it is there with this value), key!=value (it is not
 *              there, or has another value), key (it is there), !key (it is not there).
 *          2   what is not such a text is refused, with the term that is wrong: nothing is guessed,
 *              since a selector that chooses nothing may delete what it was meant to keep.
 *          3   a selector that was read is printed as it was given.
 * Limits:  CAIRN_SELECTOR_TERMS_MAX terms, CAIRN_SELECTOR_BYTES_MAX bytes. Keys and values hold no
 *          comma and no control character, keys no '=' and no '!', values begin with no '='.
 * Threads: stateless.
 * Next:    api/policy.h, server/versions/checkpoints.c.
 */
#pragma once

#include "common/json.h"

#define CAIRN_SELECTOR_TERMS_MAX 16
#define CAIRN_SELECTOR_BYTES_MAX 512

enum cairn_selector_kind {
    CAIRN_SELECTOR_IS,
    CAIRN_SELECTOR_IS_NOT,
    CAIRN_SELECTOR_HAS,
    CAIRN_SELECTOR_HAS_NOT,
};
struct cairn_selector {
    char text[CAIRN_SELECTOR_BYTES_MAX + 1];
    char parts[CAIRN_SELECTOR_BYTES_MAX + 1]; /* keys and values, each with a NUL behind it */
    struct {
        enum cairn_selector_kind kind;
        uint16_t key, value; /* where in parts */
    } terms[CAIRN_SELECTOR_TERMS_MAX];
    uint32_t count; /* 0: chooses all */
};

enum cairn_code cairn_selector_parse(struct cairn_view text, struct cairn_selector *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* labels: an object of texts; NULL is one without any. */
bool cairn_selector_matches(const struct cairn_selector *selector, const json_t *labels);
