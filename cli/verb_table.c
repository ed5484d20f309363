/* SPDX-License-Identifier: Apache-2.0 */
/* All verbs, in the order in which the help lists them. */
#include "cli/verb.h"

const struct cairn_cli_verb *const cairn_cli_verbs[] = {
    &cairn_cli_verb_up,       &cairn_cli_verb_put,       &cairn_cli_verb_ls,
    &cairn_cli_verb_show,     &cairn_cli_verb_get,       &cairn_cli_verb_verify,
    &cairn_cli_verb_wait,     &cairn_cli_verb_resume,    &cairn_cli_verb_rm,
    &cairn_cli_verb_undelete, &cairn_cli_verb_nodes,     &cairn_cli_verb_bench,
    &cairn_cli_verb_doctor,   &cairn_cli_verb_reconcile, &cairn_cli_verb_inspect,
    &cairn_cli_verb_catalog,  &cairn_cli_verb_reindex,  &cairn_cli_verb_forget,
    &cairn_cli_verb_policy,
    &cairn_cli_verb_pin,      &cairn_cli_verb_unpin,     &cairn_cli_verb_label,
    &cairn_cli_verb_metric,   &cairn_cli_verb_du,        &cairn_cli_verb_export,
    &cairn_cli_verb_alias,     &cairn_cli_verb_lease,
    &cairn_cli_verb_lineage,   &cairn_cli_verb_import,
    &cairn_cli_verb_diff,      &cairn_cli_verb_events,    &cairn_cli_verb_watch,
    &cairn_cli_verb_token,     &cairn_cli_verb_operation,
    &cairn_cli_verb_promote,   &cairn_cli_verb_demote,
    &cairn_cli_verb_quota,     &cairn_cli_verb_uploads,   &cairn_cli_verb_gc,
    &cairn_cli_verb_webhooks,  &cairn_cli_verb_profile,   &cairn_cli_verb_uploader,
    &cairn_cli_verb_warmup,    &cairn_cli_verb_completion,
};
const size_t cairn_cli_verb_count = CAIRN_COUNT(cairn_cli_verbs);
