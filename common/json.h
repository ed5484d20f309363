/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json: small documents in and out, strictly (owner of jansson.h); YAML read as JSON.
 *
 * Why:     API bodies, manifests and frames are untrusted input; jansson alone keeps the last of
 *          two equal keys, takes 81 times the input in memory and reads 1e3 as a real. Some
 *          OpenAPI tools read JSON only, and api/openapi.yaml is its only copy.
 * Promise: 1   parse refuses duplicate keys, trailing bytes, bad UTF-8, depth > 16, more than
 *              limits.nodes values or limits.bytes bytes, before it allocates for them.
 *          2   integers are JSON integers in [0, 2^62]; 1.0, 1e3, -1 and "12" are refused.
 *          3   a typed getter that fails names the pointer ("/ranks/3/proc") and the type wanted.
 *          4   dump is canonical: keys sorted, no spaces, so equal values give equal bytes. Doubles
 *              have 17 digits, as in stored documents (docs/format.md).
 *          5   show prints a double with the fewest digits that read back as the same double.
 *          6   YAML is read as YAML 1.2; unsupported syntax is CAIRN_UNSUPPORTED with its line,
 *              and never another value.
 * Limits:  see struct cairn_json_limits; zero means 1 MiB and 100,000 values. YAML: block
 *          mappings and sequences indented by two spaces; flow ones, also over several lines;
 *          one-line plain scalars, quoted scalars, literal (|) and folded (>) texts of equal
 *          indent, with or without "-"; null, true, false and whole numbers from 0 on. No anchors,
 *          tags, tabs, documents; CAIRN_YAML_DEPTH_MAX levels.
 * Threads: a document belongs to one thread at a time.
 * Next:    api/documents/manifest.h for the stored documents; server/system.c.
 */
#pragma once

#include <jansson.h>

#include "common/buf.h"

struct cairn_json_limits {
    size_t bytes;
    size_t nodes;
};

/* Drops the reference at scope end: CAIRN_AUTO_JSON json_t *body = NULL; */
static inline void cairn_json_drop_at(json_t **json) {
    json_decref(*json);
}
#define CAIRN_AUTO_JSON __attribute__((cleanup(cairn_json_drop_at)))

/* for (json_t *item in the array). NULL counts as empty. */
#define CAIRN_JSON_EACH(item, array)                                                               \
    for (size_t item##_at = 0; item##_at != SIZE_MAX; item##_at = SIZE_MAX)                        \
        for (json_t * item; (item = json_array_get((array), item##_at)); item##_at++)

/* Call first in main: makes every parse that runs out of memory CAIRN_NO_MEMORY; otherwise jansson
 * may call it a syntax error. libcairn leaves the allocator of its host alone. */
void cairn_json_watch_memory(void);
enum cairn_code cairn_json_parse(struct cairn_view text, struct cairn_json_limits limits,
                                 json_t **ret_json, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_json_dump(const json_t *json, struct cairn_buf *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* As dump, with json.h#5: for answers, not for stored or compared bytes. */
enum cairn_code cairn_json_show(const json_t *json, struct cairn_buf *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* For people: two spaces of indent, keys in insertion order; json.h#5. */
enum cairn_code cairn_json_dump_pretty(const json_t *json, struct cairn_buf *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* CAIRN_NO_MEMORY, "no memory for <what>", also where take_item or array is NULL. */
enum cairn_code cairn_json_append(json_t *array, json_t *take_item, const char *what,
                                  struct cairn_error *err) CAIRN_MUST_USE;

/* Nesting depth; bounded by json.h#1 if the document was parsed. */
unsigned cairn_json_depth(const json_t *json);
/* A new array with copies of at most `limit` items from index `from`; NULL: no memory. *ret_more:
 * items are left. array NULL counts as empty. */
json_t *cairn_json_page(const json_t *array, uint64_t from, uint64_t limit, bool *ret_more);

/* One row per field of an object; other keys are refused by name unless `open`. */
enum cairn_json_kind {
    CAIRN_JSON_U64,    /* uint64_t *                                            */
    CAIRN_JSON_U32,    /* uint32_t *                                            */
    CAIRN_JSON_REAL,   /* double *, from any JSON number */
    CAIRN_JSON_BOOL,   /* bool *                                                */
    CAIRN_JSON_TEXT,   /* const char **, borrowed from the document             */
    CAIRN_JSON_OBJECT, /* json_t **, borrowed                                   */
    CAIRN_JSON_ARRAY,  /* json_t **, borrowed                                   */
    CAIRN_JSON_ANY,    /* json_t **, borrowed                                   */
};
struct cairn_json_field {
    const char *name;
    enum cairn_json_kind kind;
    bool required; /* absent or null and required: CAIRN_INVALID naming it */
    void *ret;     /* untouched when the field is absent or null           */
    uint64_t max;  /* numbers: 0 = 2^62 (U64), 2^32-1 (U32); text: most bytes, 0 = 4096 */
};
/* pointer: of the object in its document, "" for the root. open: accepts unknown keys. */
enum cairn_code cairn_json_read(const json_t *object, const char *pointer,
                                const struct cairn_json_field *fields, size_t count, bool open,
                                struct cairn_error *err) CAIRN_MUST_USE;

/* ---- YAML as JSON ---- */

#define CAIRN_YAML_DEPTH_MAX 40

enum cairn_code cairn_yaml_json(struct cairn_view text, json_t **ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
