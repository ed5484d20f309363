/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace: random bytes, UUIDs, and for which trace a thread works, as W3C Trace Context names it.
 *
 * Why:     nonces, upload tokens, node and store ids must never repeat, also not after a fork or
 *          a restored snapshot of a machine: they come from the kernel each time. One save passes
 *          through a command or a trainer, an uploader and a server; a line of each is found by one
 *          number, and by the same one in the traces of the job around it.
 * Promise: 1   a traceparent is taken when it is what W3C Trace Context asks for, and is otherwise
 *              ignored as if it were not there: it fails no request.
 *          2   what is passed on has the trace's id and whether it is sampled, and a parent id of
 *              its own.
 *          3   a line that a thread logs while it works for a trace has trace=ID behind its event.
 *          4   cairn_random never returns short or predictable bytes; it aborts when the kernel
 *              has none to give.
 * Limits:  tracestate is not passed on. One trace a thread.
 * Threads: a trace is of the thread that sets it; ids are stateless.
 * Next:    api/documents/keys.h for version ids; common/log.h; api/wire/rest.h passes a trace on,
 *          server/http/accept.c takes it.
 */
#pragma once

#include "common/base.h"

#define CAIRN_UUID_TEXT_BYTES 37 /* 36 and the NUL */

void cairn_random(void *ret_data, size_t size);
/* Version 4, random. */
void cairn_uuid_random(char ret_text[CAIRN_UUID_TEXT_BYTES]);
/* Version 8 from the first 16 bytes of a digest (RFC 9562: our own bits, version and variant set).
 */
void cairn_uuid_from_digest(const uint8_t digest[16], char ret_text[CAIRN_UUID_TEXT_BYTES]);
bool cairn_uuid_text_valid(struct cairn_view text);

/* ---- traces ---- */

#define CAIRN_TRACE_SAMPLED 1 /* of flags: the caller records this one */

struct cairn_trace {
    char id[33];     /* 32 lower-case hexadecimal digits, not all 0; "": none */
    char parent[17]; /* likewise 16; of the caller */
    uint8_t flags;
};
/* False: *ret is none. */
bool cairn_trace_parse(struct cairn_view text, struct cairn_trace *ret);
/* TRACEPARENT of the environment, as programs that trace hand it on; "" where it is none. */
#define CAIRN_TRACE_TEXT_BYTES 56
void cairn_trace_of_environment(char ret[CAIRN_TRACE_TEXT_BYTES]);
/* A new one, for work that nobody traces yet. */
void cairn_trace_new(struct cairn_trace *ret);
/* The one that all who work on a version share: the digits of its id, "ckpt_" and a UUID. None
 * where the text is no such id. */
void cairn_trace_of_version(const char *version, struct cairn_trace *ret);
/* NULL or none: the thread works for none, which is how it begins. It must live until it is set
 * anew. */
void cairn_trace_set(const struct cairn_trace *trace);
const struct cairn_trace *cairn_trace_get(void); /* NULL: none */
/* "traceparent: 00-...", for a call that this thread makes; "" where it works for none. */
#define CAIRN_TRACE_HEADER_BYTES 72
void cairn_trace_header(char ret[CAIRN_TRACE_HEADER_BYTES]);
