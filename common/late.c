/* SPDX-License-Identifier: Apache-2.0 */
/* How a finding is told; see late.h. */
#include "common/late.h"

#include "common/log.h"

void cairn_late_tell(const char *wait) {
    cairn_log(WARN, "wait.late", "wait=%s hint=\"a wake was forgotten: please report it\"", wait);
}
