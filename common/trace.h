/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace: random bytes, UUIDs, and the W3C trace for which a thread works.
 *
 * Why:     nonces, upload tokens, node and store ids must never repeat, not even after a fork or
 *          a restored machine snapshot, so they come from the kernel each time. One save passes
 *          through a command or a trainer, an uploader and a server; one trace id finds its log
 *          lines in all of them and in the traces of the surrounding job.
 * Promise: 1   a valid traceparent is used; an invalid one is ignored and fails no request.
 *          2   an outgoing traceparent has the trace's id and sampled flag, and a parent id of its
 *              own.
 *          3   log lines of a thread that works for a trace have trace=ID behind their event.
 *          4   cairn_random never returns short or predictable bytes; it aborts if the kernel
 *              provides none.
 * Limits:  tracestate is not passed on. One trace a thread.
 * Threads: a trace belongs to the thread that sets it; ids are stateless.
 * Next:    api/documents/keys.h for version ids; common/log.h; api/wire/rest.h sends traces,
 *          server/http/accept.c reads them.
 */
#pragma once

#include "common/base.h"

#define CAIRN_UUID_TEXT_BYTES 37 /* 36 and the NUL */

void cairn_random(void *ret_data, size_t size);
/* Version 4, random. */
void cairn_uuid_random(char ret_text[CAIRN_UUID_TEXT_BYTES]);
/* Version 8 from the first 16 bytes of a digest (RFC 9562: our bits plus version and variant). */
void cairn_uuid_from_digest(const uint8_t digest[16], char ret_text[CAIRN_UUID_TEXT_BYTES]);
bool cairn_uuid_text_valid(struct cairn_view text);

/* ---- traces ---- */

#define CAIRN_TRACE_SAMPLED 1 /* bit of flags: the caller records this trace */

struct cairn_trace {
    char id[33];     /* 32 lower-case hexadecimal digits, not all 0; "": no trace */
    char parent[17]; /* the caller's: 16 such digits */
    uint8_t flags;
};
/* False: no valid traceparent, and *ret is no trace. */
bool cairn_trace_parse(struct cairn_view text, struct cairn_trace *ret);
/* TRACEPARENT of the environment, set by tracing programs; "" if it is invalid or absent. */
#define CAIRN_TRACE_TEXT_BYTES 56
void cairn_trace_of_environment(char ret[CAIRN_TRACE_TEXT_BYTES]);
void cairn_trace_new(struct cairn_trace *ret);
/* The trace shared by all programs that work on a version: the digits of its id, "ckpt_" and a
 * UUID. No trace if the text is no such id. */
void cairn_trace_of_version(const char *version, struct cairn_trace *ret);
/* NULL or no trace: none, the initial state. `trace` must live until it is replaced. */
void cairn_trace_set(const struct cairn_trace *trace);
const struct cairn_trace *cairn_trace_get(void); /* NULL: none */
/* "traceparent: 00-...", a header for this thread's calls; "" if it works for no trace. */
#define CAIRN_TRACE_HEADER_BYTES 72
void cairn_trace_header(char ret[CAIRN_TRACE_HEADER_BYTES]);
