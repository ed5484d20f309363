/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aws: the names of AWS's own services.
 *
 * Why:     S3 and STS are found by the same rules: the partition of a region has its own domain,
 *          and two switches of AWS's programs choose other names.
 * Promise: 1   a region of a partition that is known leads to that partition's domain.
 * Limits:  one table; no state.
 * Threads: constants.
 * Next:    store/s3/config.c, store/keys/sts.c.
 */
#pragma once

#include "common/base.h"

struct cairn_aws_switches {
    bool fips, dual_stack; /* AWS_USE_FIPS_ENDPOINT, AWS_USE_DUALSTACK_ENDPOINT */
};
/* "amazonaws.com", of most regions. */
const char *cairn_aws_domain(const char *region);
/* false: the partition of this region has no such names. */
bool cairn_aws_has_dual_stack(const char *region);
