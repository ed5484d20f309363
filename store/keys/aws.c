/* SPDX-License-Identifier: Apache-2.0 */
/* Partitions by the beginnings of their regions' names. */
#include "store/keys/aws.h"

#include <string.h>

static const struct partition {
    const char *begins, *domain;
    bool dual_stack;
} partitions[] = {
    {"cn-", "amazonaws.com.cn", true},   {"us-isob-", "sc2s.sgov.gov", false},
    {"us-isof-", "csp.hci.ic.gov", false}, {"us-iso-", "c2s.ic.gov", false},
    {"eu-isoe-", "cloud.adc-e.uk", false}, {"eusc-", "amazonaws.eu", true},
    {"", "amazonaws.com", true},
};

static const struct partition *partition_of(const char *region) {
    size_t at = 0;
    while (strncmp(region, partitions[at].begins, strlen(partitions[at].begins)) != 0) at++;
    return &partitions[at];
}

const char *cairn_aws_domain(const char *region) {
    return partition_of(region)->domain;
}

bool cairn_aws_has_dual_stack(const char *region) {
    return partition_of(region)->dual_stack;
}
