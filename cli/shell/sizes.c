/* SPDX-License-Identifier: Apache-2.0 */
/* The form is the command's, for all that it prints. */
#include "cli/shell/sizes.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/text.h"

static struct {
    bool si, plain;
} sizes;

void cairn_cli_sizes_as(const struct cairn_cli *cli) {
    sizes.si = cli->si_sizes;
    sizes.plain = cli->plain_sizes;
}

void cairn_cli_size(uint64_t bytes, char ret_text[24]) {
    if (sizes.plain)
        snprintf(ret_text, 24, "%" PRIu64, bytes);
    else if (sizes.si)
        cairn_size_text_si(bytes, ret_text);
    else
        cairn_size_text(bytes, ret_text);
}
