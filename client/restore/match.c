/* SPDX-License-Identifier: Apache-2.0 */
/* What a job wants against what a version has: by names alone. */
#include <inttypes.h>
#include <stdlib.h>

#include "client/restore/restore.h"
#include "client/session/options.h"
#include "common/text.h"

struct found {
    const struct cairn_match_options *options;
    size_t missing, surplus;
    char first_missing[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
    char first_surplus[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
};

static void note(struct found *found, enum cairn_mismatch what, const char *name) {
    bool missing = what == CAIRN_TENSOR_MISSING;
    size_t *count = missing ? &found->missing : &found->surplus;
    if (!(*count)++)
        (void)cairn_text_copy(missing ? found->first_missing : found->first_surplus,
                              sizeof found->first_missing, name);
    if (found->options->report) found->options->report(found->options->owner, what, name);
}

static enum cairn_code match(struct cairn_restore *restore, struct found *found,
                             struct cairn_error *err) {
    uint32_t count = restore->has_layout ? restore->layout.name_count : 0, index;
    CAIRN_AUTO_HEAP bool *wanted = calloc((size_t)count + 1, sizeof *wanted);
    if (!wanted) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to match names");
    for (size_t i = 0; i < found->options->name_count; i++) {
        const char *name = found->options->names[i];
        if (!name) return cairn_fail(err, CAIRN_INVALID, "name %zu is missing", i);
        if (cairn_client_restore_find(restore, name, &index))
            wanted[index] = true;
        else
            note(found, CAIRN_TENSOR_MISSING, name);
    }
    for (uint32_t place = 0; place < count; place++) {
        struct cairn_tensor_info info;
        if (wanted[cairn_client_names_at(&restore->names, place)]) continue;
        CAIRN_TRY(cairn_restore_tensor_at(restore, place, &info, err));
        note(found, CAIRN_TENSOR_SURPLUS, info.name);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_restore_match(struct cairn_restore *restore,
                                    const struct cairn_match_options *options,
                                    struct cairn_error *err) {
    struct cairn_match_options own;
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(options, &own, err));
    if (!restore || (own.name_count && !own.names))
        return cairn_fail(err, CAIRN_INVALID, "nothing to match");
    struct found found = {.options = &own};
    CAIRN_TRY(match(restore, &found, err));
    bool missing = found.missing && !own.allow_missing;
    bool surplus = found.surplus && !own.allow_surplus;
    if (missing && surplus)
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          "%s missing, the first is %s; %zu surplus, the first is %s",
                          cairn_counted(found.missing, "tensor").text,
                          cairn_short(found.first_missing).text, found.surplus,
                          cairn_short(found.first_surplus).text);
    if (missing || surplus)
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s %s, the first is %s",
                          cairn_counted(missing ? found.missing : found.surplus, "tensor").text,
                          missing ? "missing" : "surplus",
                          cairn_short(missing ? found.first_missing : found.first_surplus).text);
    return CAIRN_OK;
}
