/* SPDX-License-Identifier: Apache-2.0 */
/*
 * others: journals of other node names beside ours.
 *
 * Why:     a node whose name was changed starts with an empty journal, and what it had staged under
 *          the old name lies in a file that nobody opens any more.
 * Promise: 1   each journal of that folder that is not empty and that no process holds is named.
 * Limits:  none of its own.
 * Threads: before any thread runs.
 * Next:    docs/runbook.md, `journal.other_node`.
 */
#pragma once

#include "common/base.h"

/* Said where our own journal is new; several nodes may share a folder on purpose. named: the
 * setting `node` gives the name; else it is the host's, which a container gets anew at each start.
 */
struct cairn_up_journal_own {
    const char *path, *node, *host;
    bool named;
};
void cairn_up_journal_tell_others(const char *folder, const struct cairn_up_journal_own *own);
