/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staged: what ranks have staged at a scripted uploader: a tensor's bytes in the slab, or all of it
 * kept as a store would keep it and served again as a committed version.
 *
 * Why:     a test of staging or of restore says what is saved and what is read; the way between
 *          them, from a slab to a manifest, is the same for all of them and stands once.
 * Promise: 1   shards, tables and layout of a version are what its ranks' stage and seal said, and
 *              the bytes that lay in the slab then.
 * Limits:  4 ranks, 16 shards, slab 0. What is served is borrowed from the version.
 * Threads: main thread.
 * Next:    tests/support/fake_uploader.h; tests/client/test_restore.c.
 */
#pragma once

#include "api/documents/manifest.h"
#include "tests/support/fake_uploader.h"

#define CAIRN_STAGED_RANKS_MAX 4
#define CAIRN_STAGED_SHARDS_MAX 16

/* Where a tensor of the seal number `save` (from 1) lies in its slab; NULL: there is none. */
const uint8_t *cairn_staged_tensor(struct cairn_fake_uploader *fake, const char *name, size_t save);

struct cairn_staged_version {
    struct cairn_manifest manifest; /* of kept shards */
    struct cairn_buf manifest_text, layout, tables[CAIRN_STAGED_RANKS_MAX];
    struct cairn_view shards[CAIRN_STAGED_SHARDS_MAX]; /* in the manifest's order, once served */
    void *memory[CAIRN_STAGED_SHARDS_MAX];
};
void cairn_staged_version_release(struct cairn_staged_version *version);
/* What was staged last is rank's. Each rank from 0 on is kept once, then all are served as step 40
 * of llm/7b; what else the manifest says is the caller's. */
enum cairn_code cairn_staged_keep(struct cairn_staged_version *version,
                                  struct cairn_fake_uploader *fake, uint32_t rank,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_staged_serve(struct cairn_staged_version *version,
                                   struct cairn_fake_uploader *fake, uint32_t ranks,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* A version that nobody staged: step 1 of llm/7b with these shards, in the order of their names. */
struct cairn_staged_raw {
    const char *name;
    struct cairn_view bytes;
};
enum cairn_code cairn_staged_serve_raw(struct cairn_staged_version *version,
                                       struct cairn_fake_uploader *fake,
                                       const struct cairn_staged_raw *raw, size_t count,
                                       struct cairn_error *err) CAIRN_MUST_USE;
