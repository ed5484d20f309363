/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy: retention policies, as JSON and text, and label selectors, such as
 * "team=nlp,tier!=tmp".
 *
 * Why:     a policy is typed by people, kept for years and deletes data; it must be readable, and
 *          a mistake in it an error, never another policy. Lists, policies and the command select
 *          versions by labels with one parser, so they select the same ones.
 * Promise: 1   a policy that is read and printed reads back as the same policy and prints as the
 *              same bytes.
 *          2   a zero, an unknown key, a metric without an order, a malformed selector are refused
 *              with pointer ("/keep/last") and the value wanted. An unwanted rule is omitted; no
 *              number means "none" or "all".
 *          3   a policy without a rule removes nothing.
 *          4   `copies` selects the stores for kept versions, `partner_copies` the number of other
 *              nodes that hold a node's staged data (docs/partner.md); neither keeps or removes a
 *              version. Without partner_copies the server's setting applies.
 *          5   all terms of a selector must match: key=value (has this value), key!=value (is
 *              absent or has another value), key (is present), !key (is absent).
 *          6   a malformed selector is refused with its wrong term: nothing is guessed, since a
 *              selector that matches nothing may delete what it was meant to keep.
 *          7   a selector is printed exactly as it was read.
 * Limits:  CAIRN_POLICY_BEST_MAX metrics, CAIRN_POLICY_LABELS_MAX selectors and
 *          CAIRN_POLICY_COPIES_MAX stores, within 100 years. CAIRN_SELECTOR_TERMS_MAX terms,
 *          CAIRN_SELECTOR_BYTES_MAX bytes; keys and values hold no comma and no control character,
 *          keys no '=' and no '!', values begin with no '='.
 * Threads: stateless; a struct belongs to its caller.
 * Next:    api/policy.def, plan/retention.h, server/versions/checkpoints.c.
 */
#pragma once

#include "api/documents/keys.h"
#include "common/json.h"

/* ---- selectors of labels ---- */

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
    char parts[CAIRN_SELECTOR_BYTES_MAX + 1]; /* keys and values, each followed by a NUL */
    struct {
        enum cairn_selector_kind kind;
        uint16_t key, value; /* offsets into parts */
    } terms[CAIRN_SELECTOR_TERMS_MAX];
    uint32_t count; /* 0: matches all versions */
};

enum cairn_code cairn_selector_parse(struct cairn_view text, struct cairn_selector *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* labels: an object of texts; NULL: no labels. */
bool cairn_selector_matches(const struct cairn_selector *selector, const json_t *labels);

/* ---- policies ---- */

enum cairn_keep {
#define KEEP_NUMBER(id, key, most, what) CAIRN_KEEP_##id,
#define KEEP_OTHER(id, key, what) CAIRN_KEEP_##id,
#define KEEP_HOLD(id, slug, what) CAIRN_KEEP_##id,
#include "api/policy.def"
#undef KEEP_NUMBER
#undef KEEP_OTHER
#undef KEEP_HOLD
    CAIRN_KEEP_COUNT
};
#define CAIRN_KEEP_NUMBERS CAIRN_KEEP_WITHIN /* rules that are a number each */

#define CAIRN_POLICY_BEST_MAX 8
#define CAIRN_POLICY_LABELS_MAX 8
#define CAIRN_POLICY_COPIES_MAX 8
#define CAIRN_PARTNER_COPIES_MAX 1
#define CAIRN_METRIC_NAME_MAX 128
#define CAIRN_UNMEASURED_GRACE_MS UINT64_C(86400000)

struct cairn_policy_best {
    uint64_t count;
    char metric[CAIRN_METRIC_NAME_MAX + 1];
    bool largest;
};
/* Rule for the versions copied to a store. */
struct cairn_policy_copies {
    char store[CAIRN_STORE_NAME_BYTES];
    uint64_t last, every_steps; /* 0: no such rule; at least one is set */
};
struct cairn_policy {
    uint64_t numbers[CAIRN_KEEP_NUMBERS]; /* by enum cairn_keep; 0: no such rule */
    uint64_t within_ms;                   /* 0: no such rule; whole seconds */
    struct cairn_policy_best best[CAIRN_POLICY_BEST_MAX];
    uint32_t best_count;
    struct cairn_selector labels[CAIRN_POLICY_LABELS_MAX];
    uint32_t labels_count;
    struct cairn_policy_copies copies[CAIRN_POLICY_COPIES_MAX]; /* each store once */
    uint32_t copies_count;
    bool says_unmeasured_grace;
    uint64_t unmeasured_grace_ms; /* how long `best` waits for a metric; default
                                     CAIRN_UNMEASURED_GRACE_MS */
    bool says_partner_copies;
    uint32_t partner_copies; /* 0 to CAIRN_PARTNER_COPIES_MAX; 0 if not given */
};

/* {"keep": {"last": 3, "every_steps": 1000, "within_s": 21600, "labels": ["team=nlp"],
 *  "best": [{"count": 1, "metric": "eval_loss", "order": "min"}], "unmeasured_grace_s": 86400},
 *  "copies": [{"store": "archive", "every_steps": 1000}], "partner_copies": 1}.
 * pointer: of the policy in its document. */
enum cairn_code cairn_policy_read(const json_t *json, const char *pointer, struct cairn_policy *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Reads a catalog row, also of a release that wrote "within": "6h" and "unmeasured_grace". */
enum cairn_code cairn_policy_read_stored(json_t *json, struct cairn_policy *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_policy_json(const struct cairn_policy *policy, json_t **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* "last 2 OR every 1000 steps OR best 1 by eval_loss (min)"; "no rule: removes nothing". */
enum cairn_code cairn_policy_text(const struct cairn_policy *policy, struct cairn_buf *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Parses "6h". This and the following parse arguments of the command. */
enum cairn_code cairn_policy_within_parse(struct cairn_view text, struct cairn_policy *policy,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* How long after its commit a version without a rule's metric is kept. */
uint64_t cairn_policy_unmeasured_grace_ms(const struct cairn_policy *policy);
/* Parses "24h"; "0s": no grace. */
enum cairn_code cairn_policy_unmeasured_grace_parse(struct cairn_view text,
                                                    struct cairn_policy *policy,
                                                    struct cairn_error *err) CAIRN_MUST_USE;
bool cairn_policy_empty(const struct cairn_policy *policy);
/* Adds "archive:every:1000,main:last:3". */
enum cairn_code cairn_policy_copies_parse(struct cairn_view text, struct cairn_policy *policy,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Parses "0" or "1". */
enum cairn_code cairn_policy_partner_copies_parse(struct cairn_view text,
                                                  struct cairn_policy *policy,
                                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Parses "1:eval_loss:min". */
enum cairn_code cairn_policy_best_parse(struct cairn_view text, struct cairn_policy_best *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Letters, digits and ._-/@:+; begins with a letter, digit or _. */
enum cairn_code cairn_metric_name_check(struct cairn_view name,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* The key in JSON: "last", "pinned". */
const char *cairn_keep_name(enum cairn_keep keep);
