/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json: small documents in and out, strictly (owner of jansson.h); YAML read as JSON.
 *
 * Why:     API bodies, manifests and frames come from outside; jansson alone keeps the last of
 *          two equal keys, takes 81 times the input in memory and reads 1e3 as a real. Some
 *          programs read OpenAPI as JSON alone, and api/openapi.yaml is the one copy of it.
 * Promise: 1   parse refuses duplicate keys, trailing bytes, bad UTF-8, depth > 16, more than
 *              limits.nodes values or limits.bytes bytes, before it allocates for them.
 *          2   integers are JSON integers in [0, 2^62]; 1.0, 1e3, -1 and "12" are refused.
 *          3   a typed getter that fails names the pointer ("/ranks/3/proc") and what it wanted.
 *          4   dump is canonical: keys sorted, no spaces, so equal values give equal bytes. Of
 *              doubles it has 17 digits, as stored documents do (docs/format.md).
 *          5   what is shown has the fewest digits of a double that read back as the same one.
 *          6   YAML is read as YAML 1.2 reads it; what is not taken is CAIRN_UNSUPPORTED with its
 *              line, and never another value.
 * Limits:  see struct cairn_json_limits; zero means 1 MiB and 100,000 values. Of YAML: block
 *          mappings and sequences, by two spaces; flow ones, also over several lines; plain scalars
 *          of one line, quoted ones, literal (|) and folded (>) texts of equal indent, with or
 *          without "-"; null, true, false and whole numbers from 0 on. No anchors, tags, tabs,
 *          documents; CAIRN_YAML_DEPTH_MAX levels.
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

/* A reference that is dropped at scope end: CAIRN_AUTO_JSON json_t *body = NULL; */
static inline void cairn_json_drop_at(json_t **json) {
    json_decref(*json);
}
#define CAIRN_AUTO_JSON __attribute__((cleanup(cairn_json_drop_at)))

/* First thing in a program's main: from now on a parse that failed for want of memory is
 * CAIRN_NO_MEMORY for certain; without this jansson may call it a syntax error. libcairn leaves the
 * allocator of its host alone. */
void cairn_json_watch_memory(void);
enum cairn_code cairn_json_parse(struct cairn_view text, struct cairn_json_limits limits,
                                 json_t **ret_json, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_json_dump(const json_t *json, struct cairn_buf *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* For whoever asks, not for what is stored or compared: as dump, and json.h#5. */
enum cairn_code cairn_json_show(const json_t *json, struct cairn_buf *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* For people: two spaces of indent, keys in insertion order; json.h#5. */
enum cairn_code cairn_json_dump_pretty(const json_t *json, struct cairn_buf *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* How deep objects and arrays lie in one another; json.h#1 bounds it where it was parsed. */
unsigned cairn_json_depth(const json_t *json);
/* A new array of copies of at most limit items from this place on; NULL: no memory. *ret_more:
 * there are others behind. array NULL: it has none. */
json_t *cairn_json_page(const json_t *array, uint64_t from, uint64_t limit, bool *ret_more);

/* One row per field of an object; a closed list: other keys are refused by name. */
enum cairn_json_kind {
    CAIRN_JSON_U64,    /* uint64_t *                                            */
    CAIRN_JSON_U32,    /* uint32_t *                                            */
    CAIRN_JSON_REAL,   /* double *, of any JSON number                          */
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
/* pointer is where the object stands in its document, "" for the root. open: take unknown keys. */
enum cairn_code cairn_json_read(const json_t *object, const char *pointer,
                                const struct cairn_json_field *fields, size_t count, bool open,
                                struct cairn_error *err) CAIRN_MUST_USE;

/* ---- YAML as JSON ---- */

#define CAIRN_YAML_DEPTH_MAX 40

enum cairn_code cairn_yaml_json(struct cairn_view text, json_t **ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
