/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's parent-death signal, and the race before it is set. */
#include "common/parent.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

enum cairn_code cairn_parent_follow(uint64_t parent_pid, struct cairn_error *err) {
    if (!parent_pid) return CAIRN_OK;
    if (prctl(PR_SET_PDEATHSIG, SIGTERM)) return cairn_fail_errno(err, "parent-death signal");
    /* It may have died before the line above: then somebody else is the parent now. */
    if ((uint64_t)getppid() != parent_pid)
        return cairn_fail(err, CAIRN_UNAVAILABLE, "process %llu, which started this one, has ended",
                          (unsigned long long)parent_pid);
    return CAIRN_OK;
}
