/* SPDX-License-Identifier: Apache-2.0 */
/* All verbs, chapter by chapter, in the order in which the help lists them. */
#include "cli/shell/verb.h"

#define VERB(name) &cairn_cli_verb_##name

const struct cairn_cli_verb *const cairn_cli_verbs[] = {
    VERB(up), VERB(put), VERB(get), VERB(resume), VERB(wait), VERB(abort), VERB(warmup),
    VERB(bench),
    VERB(ls), VERB(show), VERB(watch), VERB(events), VERB(lineage), VERB(du), VERB(inspect),
    VERB(diff), VERB(verify),
    VERB(policy), VERB(forget), VERB(pin), VERB(unpin), VERB(label), VERB(metric), VERB(alias),
    VERB(lease), VERB(rm), VERB(undelete),
    VERB(import), VERB(export), VERB(operation),
    VERB(doctor), VERB(promote), VERB(demote), VERB(uploads), VERB(gc),
    VERB(nodes), VERB(uploader), VERB(health), VERB(token), VERB(quota), VERB(webhooks),
    VERB(reconcile), VERB(reindex), VERB(catalog),
    VERB(profile), VERB(completion),
};
const size_t cairn_cli_verb_count = CAIRN_COUNT(cairn_cli_verbs);

static const struct {
    const struct cairn_cli_verb *first;
    const char *title;
} chapters[] = {
    {VERB(up), "Save and restore"},
    {VERB(ls), "See what there is"},
    {VERB(policy), "Say what stays"},
    {VERB(import), "Other programs' files"},
    {VERB(doctor), "Stores"},
    {VERB(nodes), "The service"},
    {VERB(profile), "This command"},
};

const char *cairn_cli_chapter_of(const struct cairn_cli_verb *first) {
    for (size_t i = 0; i < CAIRN_COUNT(chapters); i++)
        if (chapters[i].first == first) return chapters[i].title;
    return NULL;
}
