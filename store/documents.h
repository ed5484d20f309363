/* SPDX-License-Identifier: Apache-2.0 */
/*
 * documents: the documents of committed versions, read from a store.
 *
 * Why:     api/documents/committed.h proves documents wherever they come from; this is the store's end of it.
 * Promise: 1   a second look (S17) has a worker of its own, and so connections of its own.
 * Limits:  those of api/documents/committed.h.
 * Threads: one owner of the worker.
 * Next:    uploader/fetch/version.c, server/reads/cache.c, cli/source.c, store/audit.c.
 */
#pragma once

#include "api/documents/committed.h"
#include "store/store.h"

/* tell_again: NULL, or hears of each second look. */
struct cairn_document_source
cairn_store_documents(struct cairn_store_worker *worker,
                      void (*tell_again)(const char *key, const struct cairn_error *why));
