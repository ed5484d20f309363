/* SPDX-License-Identifier: Apache-2.0 */
/*
 * messages: every frame, journal record and REST body as a struct, with one reader and one writer;
 * errors, labels and meta within them.
 *
 * Why:     a message that is packed in one file, read in another and described in a third is three
 *          messages after the second change. Why a save failed passes from the store through
 *          uploader, journal, server and another uploader to a rank; each hop that rebuilds it
 *          loses a part. A save that one rank's library takes and the server then refuses is lost
 *          for all ranks, so both ask one function about labels and meta, about the same bytes
 *          (V34).
 * Promise: 1   api/messages.def is the only list of fields: struct, reader, writer, the tables of
 *              docs/socket.md and uploader/README.md and the schemas of openapi.yaml follow it.
 *          2   a struct of another form is a compile error.
 *          3   read leaves what is absent or null as it was, so defaults are set before; texts and
 *              objects are borrowed from the document.
 *          4   pack borrows what the struct points to. It fails for want of memory alone, which
 *              includes an OBJECT or ARRAY of a MUST or SENT row that is NULL, and a text that is
 *              no UTF-8.
 *          5   an error's code, text, http_status and request_id arrive as they left; os_errno and
 *              origin mean something in one process only and stay there. Putting one fails for want
 *              of memory alone: an error is valid UTF-8 (include/cairn/error.h#4).
 *          Q50  what cairn_meta_check passes is taken by the server, journaled, and kept in the
 *               manifest: size and depth are those of the canonical form, whatever spelling it came
 *               in.
 * Limits:  as the rows say; `id` of a frame belongs to who sends it (docs/socket.md). Of an error,
 *          http_status and request_id are left out when there are none; unknown codes read as
 *          CAIRN_INTERNAL, no code at all as CAIRN_OK. Labels and meta have CAIRN_META_BYTES_MAX as
 *          canonical JSON, objects and arrays CAIRN_META_DEPTH_MAX deep.
 * Threads: stateless.
 * Next:    api/wire/frame.h, uploader/journal/journal.h, api/wire/rest.h for what carries them.
 */
#pragma once

#include "api/table/table.h"
#include "api/wire/rights.h"
#include "common/json.h"

#define CAIRN_JOB_BYTES_MAX 255
#define CAIRN_RESUME_BYTES_MAX 64
#define CAIRN_INCARNATION_BYTES_MAX 128
#define CAIRN_WAIT_STAGED_MS_MAX 3600000
#define CAIRN_AFTER_S_MAX UINT64_C(3162240000) /* of a save that is assumed: 100 years */
#define CAIRN_LEASE_S_MAX 3600                 /* of a reader, until it renews it */
/* A number of a NULLS or OMITS row that is not there, cut to its width; of REAL it is NAN. */
#define CAIRN_MESSAGE_NONE UINT64_MAX

enum cairn_message {
    CAIRN_MESSAGE_none,
#define FORM(form, group, text, answer) CAIRN_MESSAGE_##form,
#include "api/messages.def"
    CAIRN_MESSAGE_COUNT
};
enum cairn_message_group {
    CAIRN_MESSAGE_REQUEST,
    CAIRN_MESSAGE_NOTICE,
    CAIRN_MESSAGE_ANSWER,
    CAIRN_MESSAGE_EVENT,
    CAIRN_MESSAGE_RECORD,
    CAIRN_MESSAGE_BODY,
    CAIRN_MESSAGE_REPLY,
    CAIRN_MESSAGE_WHOLE,
    CAIRN_MESSAGE_ITEM,
};
enum cairn_message_presence {
    CAIRN_MESSAGE_MUST,
    CAIRN_MESSAGE_SENT,
    CAIRN_MESSAGE_ADDED,
    CAIRN_MESSAGE_NULLS,
    CAIRN_MESSAGE_OMITS,
    CAIRN_MESSAGE_MAY,
};

/* ---- the structs ---- */

#define CAIRN_MESSAGE_TYPE_U64 uint64_t
#define CAIRN_MESSAGE_TYPE_U32 uint32_t
#define CAIRN_MESSAGE_TYPE_REAL double
#define CAIRN_MESSAGE_TYPE_BOOL bool
#define CAIRN_MESSAGE_TYPE_TEXT const char *
#define CAIRN_MESSAGE_TYPE_OBJECT json_t *
#define CAIRN_MESSAGE_TYPE_ARRAY json_t *
/* clang-format off */
#define FORM(form, group, text, answer) struct cairn_msg_##form {
#define FIELD(presence, kind, field, last) CAIRN_MESSAGE_TYPE_##kind field;
#define NOTHING bool nothing;
#define END };
#include "api/messages.def"
/* clang-format on */

/* ---- the table ---- */

struct cairn_message_field {
    const char *name;
    enum cairn_json_kind kind;
    enum cairn_message_presence presence;
    uint64_t max;            /* as in struct cairn_json_field */
    enum cairn_message item; /* of OBJECT and ARRAY; none: free */
    size_t offset;           /* in the form's struct */
};
struct cairn_message_form {
    const char *name, *text;
    enum cairn_message_group group;
    enum cairn_message answer;
    const struct cairn_message_field *(*fields)(void); /* up to one without a name */
};
const struct cairn_message_form *cairn_message_form(enum cairn_message message);
/* The REQUEST or NOTICE of that "t"; none when there is none. */
enum cairn_message cairn_message_of(const char *text);

/* ---- reading and writing; by the typed names below ---- */

enum cairn_code cairn_message_read(enum cairn_message message, const json_t *json,
                                   const char *pointer, void *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Of an answer's row that this program has made itself: what is not in it is none. */
enum cairn_code cairn_message_read_own(enum cairn_message message, const json_t *json,
                                       const char *pointer, void *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
json_t *cairn_message_pack(enum cairn_message message, const void *from) CAIRN_MUST_USE;

/* cairn_msg_hello_read(json, "", &hello, err): pointer as in cairn_json_read.
 * cairn_msg_hello_pack(&hello): a new object, NULL without memory. */
#define FORM(form, group, text, answer)                                                            \
    static inline CAIRN_MUST_USE enum cairn_code cairn_msg_##form##_read(                          \
        const json_t *json, const char *pointer, struct cairn_msg_##form *ret,                     \
        struct cairn_error *err) {                                                                 \
        return cairn_message_read(CAIRN_MESSAGE_##form, json, pointer, ret, err);                  \
    }                                                                                              \
    static inline CAIRN_MUST_USE json_t *cairn_msg_##form##_pack(                                  \
        const struct cairn_msg_##form *from) {                                                     \
        return cairn_message_pack(CAIRN_MESSAGE_##form, from);                                     \
    }
#include "api/messages.def"

/* CAIRN_PACK(free, .slab = 1, .owner = 2); CAIRN_PACK(bye, 0) */
#define CAIRN_PACK(form, ...) cairn_msg_##form##_pack(&(struct cairn_msg_##form){__VA_ARGS__})
/* The four fields that carry a struct cairn_error; text: `message` or `reason`. */
#define CAIRN_PACK_WHY(why, text)                                                                  \
    .code = cairn_code_info((why)->code)->slug, .text = (why)->message,                            \
    .http_status = (uint32_t)(why)->http_status, .request_id = (why)->request_id

/* ---- a struct cairn_error as members of an object, and back ---- */

/* text_key: "reason" in the journal and over HTTP, "message" on the socket. */
bool cairn_failure_put(json_t *object, const char *text_key,
                       const struct cairn_error *why) CAIRN_MUST_USE;
void cairn_failure_get(const json_t *object, const char *text_key, struct cairn_error *ret);

/* ---- labels and meta of a save ---- */

#define CAIRN_META_BYTES_MAX (64 * CAIRN_KIB)
/* Frames, journal, bodies and manifest put up to four levels around it, of the 16 they may have. */
#define CAIRN_META_DEPTH_MAX 12
/* The member of meta that says what `put` kept of a tree beside its files' bytes; a long one lies
 * in a shard of its own, which is no file of the tree (docs/format.md). */
#define CAIRN_META_TREE "cairn_tree"
#define CAIRN_TREE_SHARD ".cairn-tree.json"
#define CAIRN_NOTE_BYTES_MAX 4096 /* of what somebody writes beside a run or a version */

/* what names it in messages ("meta", "/begins/3/labels"). json NULL is an empty object. of_texts:
 * these are labels: each has a name and a text, both without control bytes. *ret_canonical (may be
 * NULL) gets the canonical bytes. */
enum cairn_code cairn_meta_check(const json_t *json, const char *what, bool of_texts,
                                 struct cairn_buf *ret_canonical,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* The same of labels that are changed; null takes one away, whatever its name has. */
enum cairn_code cairn_label_changes_check(const json_t *changes, const char *what,
                                          struct cairn_error *err) CAIRN_MUST_USE;
