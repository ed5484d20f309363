/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_texts: what the safetensors files of a version say beside tensors (__metadata__).
 *
 * Why:     a model folder is made of a version's tensors; the texts in the headers of the files
 *          that were kept (a LoRA's settings, the description of quantised weights) are not in its
 *          layout.
 * Promise: 1   the texts are those that `cairn export` writes: of the files in which tensors lie,
 *              in their order; of several texts under one key the first is taken.
 *          2   each version's files are read once, while the cache holds what was found.
 * Limits:  a header of 32 MiB; a file with a larger one has no texts here.
 * Threads: stateless; the cache is locked.
 * Next:    server/reads/hf.c; formats/safetensors.h.
 */
#pragma once

#include "server/http/request.h"
#include "server/reads/cache.h"

struct cairn_srv_model_from {
    struct cairn_srv_request *request;
    const struct cairn_srv_version *version;
    const struct cairn_srv_held *manifest, *layout;
};
/* *ret: an object of texts that is the caller's; empty where there are none. ret_dropped: texts
 * whose key had another text before. */
enum cairn_code cairn_srv_model_texts(const struct cairn_srv_model_from *from, json_t **ret,
                                      uint64_t *ret_dropped,
                                      struct cairn_error *err) CAIRN_MUST_USE;
