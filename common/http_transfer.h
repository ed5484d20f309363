/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_transfer: what the two halves of the HTTP client share; for common/http*.c alone.
 *
 * Why:     setting libcurl up and running it are two subjects and would be one long file.
 * Promise: H1  after cairn_http_transfer_prepare the easy handle calls back into this transfer
 *              only, and every refusal of a callback is in `refused` and `error`.
 * Limits:  as in common/http.h.
 * Threads: the engine's owner.
 * Next:    common/http_setup.c, common/http.c.
 */
#pragma once

#include <curl/curl.h>
#include <stdatomic.h>

#include "common/http.h"

struct cairn_http_transfer {
    struct cairn_http_transfer *next;
    struct cairn_http_engine *engine;
    struct cairn_http_request *request;
    CURL *easy;
    struct curl_slist *headers;
    bool is_active; /* known to the multi */
    uint64_t submitted_us, moved_us;
    curl_off_t sent_bytes, received_bytes;
    size_t header_bytes;
    bool resent; /* once, because the kept connection it was given was dead */
    bool headers_over, chunked;
    enum cairn_code refused; /* why a callback of ours stopped it; error holds the sentence */
    struct cairn_error error;
    char curl_text[CURL_ERROR_SIZE];
};

struct cairn_http_engine {
    CURLM *multi;
    struct cairn_http_options options;
    char *ca_bundle, *interface_name, *congestion;
    struct cairn_http_transfer *active, *waiting, *idle;
    uint32_t active_count, waiting_count;
    uint64_t ended_count;
    atomic_bool woken;
};

/* Everything libcurl must know about the request but its start. */
enum cairn_code cairn_http_transfer_prepare(struct cairn_http_transfer *transfer,
                                            struct cairn_error *err) CAIRN_MUST_USE;
