/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store: the store that --store or an argument names, for verbs that go there without a server.
 *
 * Why:     get, verify, ls and show read the same store by the same settings; export writes by
 *          them.
 * Promise: 3   a store whose store.json has another number is refused by name before anything is
 *              read of it: what counts there may be another version.
 *          1   it is opened to be read, and nothing is written or made, unless `writes` says so.
 *          2   --timeout bounds each request.
 * Limits:  one store.
 * Threads: main thread.
 * Next:    cli/bucket/source.h, cli/bucket/history.h.
 */
#pragma once

#include "cli/shell/verb.h"
#include "store/store.h"

enum cairn_code cairn_cli_store_open(const struct cairn_cli *cli, struct cairn_store **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* What `url` names; writes: an export's files go there. */
enum cairn_code cairn_cli_store_open_url(const struct cairn_cli *cli, const char *url, bool writes,
                                         struct cairn_store **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* For a store in which nothing was found: CAIRN_UNAVAILABLE where it is none of Cairn's. */
enum cairn_code cairn_cli_store_check(struct cairn_store_worker *worker,
                                      struct cairn_error *err) CAIRN_MUST_USE;
