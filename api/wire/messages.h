/* SPDX-License-Identifier: Apache-2.0 */
/*
 * messages: every frame, journal record and REST body as a struct, with one reader and one writer;
 * also the errors, labels and meta in them.
 *
 * Why:     a message that is packed in one file, read in another and documented in a third diverges
 *          with the first changes. The cause of a failed save passes from the store through
 *          uploader, journal, server and another uploader to a rank; a hop that rebuilds it loses a
 *          part. Labels and meta that a rank's library accepts and the server then refuses cost all
 *          ranks the save, so both call one function, for the same bytes (V34).
 * Promise: 1   api/messages.def is the only list of fields: struct, reader, writer, the tables of
 *              docs/socket.md and uploader/README.md and the schemas of openapi.yaml follow it.
 *          2   a struct of another form is a compile error.
 *          3   read leaves the fields of absent or null members unchanged, so set defaults before;
 *              texts and objects are borrowed from the document.
 *          4   pack borrows what the struct points to. It fails only for lack of memory, which
 *              includes a NULL OBJECT or ARRAY of a MUST or SENT row, and a text that is not UTF-8.
 *          5   an error's code, text, http_status and request_id arrive unchanged; os_errno and
 *              origin, meaningful in one process only, are not sent. Putting an error fails only
 *              for lack of memory: it is valid UTF-8 (include/cairn/error.h#4).
 *          Q50  content accepted by cairn_meta_check is accepted by the server, journaled, and kept
 *               in the manifest: size and depth are those of the canonical form, whatever its
 *               spelling was.
 * Limits:  as the rows say; `id` of a frame belongs to its sender (docs/socket.md). An error's
 *          http_status and request_id are omitted if there are none; unknown codes read as
 *          CAIRN_INTERNAL, no code as CAIRN_OK. Labels and meta: CAIRN_META_BYTES_MAX of canonical
 *          JSON, objects and arrays CAIRN_META_DEPTH_MAX deep.
 * Threads: stateless.
 * Next:    api/wire/frame.h, uploader/journal/journal.h, api/wire/rest.h, which carry messages.
 */
#pragma once

#include "api/table/table.h"
#include "api/wire/rights.h"
#include "common/json.h"

#define CAIRN_JOB_BYTES_MAX 255
#define CAIRN_RESUME_BYTES_MAX 64
#define CAIRN_INCARNATION_BYTES_MAX 128
#define CAIRN_WAIT_STAGED_MS_MAX 3600000
#define CAIRN_AFTER_S_MAX UINT64_C(3162240000) /* of an assumed save: 100 years */
#define CAIRN_LEASE_S_MAX 3600                 /* of a reader's lease, until it is renewed */
/* An absent number of a NULLS or OMITS row, cut to its width; NAN for REAL. */
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
    enum cairn_message item; /* of OBJECT and ARRAY; none: any content */
    size_t offset;           /* in the form's struct */
};
struct cairn_message_form {
    const char *name, *text;
    enum cairn_message_group group;
    enum cairn_message answer;
    const struct cairn_message_field *(*fields)(void); /* ends with a row without a name */
};
const struct cairn_message_form *cairn_message_form(enum cairn_message message);
/* The REQUEST or NOTICE with that "t"; none if there is none. */
enum cairn_message cairn_message_of(const char *text);

/* ---- reading and writing, used through the typed functions below ---- */

enum cairn_code cairn_message_read(enum cairn_message message, const json_t *json,
                                   const char *pointer, void *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* For an answer that this program itself has packed: absent fields are none. */
enum cairn_code cairn_message_read_own(enum cairn_message message, const json_t *json,
                                       const char *pointer, void *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
json_t *cairn_message_pack(enum cairn_message message, const void *from) CAIRN_MUST_USE;

/* cairn_msg_hello_read(json, "", &hello, err): pointer as in cairn_json_read.
 * cairn_msg_hello_pack(&hello): a new object; NULL: no memory. */
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
/* The four fields of a struct cairn_error; text: `message` or `reason`. */
#define CAIRN_PACK_WHY(why, text)                                                                  \
    .code = cairn_code_info((why)->code)->slug, .text = (why)->message,                            \
    .http_status = (uint32_t)(why)->http_status, .request_id = (why)->request_id

/* ---- a struct cairn_error as members of an object ---- */

/* text_key: "reason" in the journal and over HTTP, "message" on the socket. */
bool cairn_failure_put(json_t *object, const char *text_key,
                       const struct cairn_error *why) CAIRN_MUST_USE;
void cairn_failure_get(const json_t *object, const char *text_key, struct cairn_error *ret);

/* ---- labels and meta of a save ---- */

#define CAIRN_META_BYTES_MAX (64 * CAIRN_KIB)
/* Frames, journal, bodies and manifest nest it up to four levels deep, of the 16 allowed. */
#define CAIRN_META_DEPTH_MAX 12
/* Member of meta in which `put` keeps the folders of a tree, besides its files' bytes; a long one
 * has a shard of its own, which is no file of the tree (docs/format.md). */
#define CAIRN_META_TREE "cairn_tree"
#define CAIRN_TREE_SHARD ".cairn-tree.json"
#define CAIRN_NOTE_BYTES_MAX 4096 /* of a note beside a run or a version */

/* what: names the value in messages ("meta", "/begins/3/labels"). json NULL: an empty object.
 * of_texts: for labels, whose names and texts have no control bytes. *ret_canonical (may be NULL)
 * gets the canonical bytes. */
enum cairn_code cairn_meta_check(const json_t *json, const char *what, bool of_texts,
                                 struct cairn_buf *ret_canonical,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* The same for changed labels; null removes a label, whatever bytes its name has. */
enum cairn_code cairn_label_changes_check(const json_t *changes, const char *what,
                                          struct cairn_error *err) CAIRN_MUST_USE;
