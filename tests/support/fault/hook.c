/* SPDX-License-Identifier: Apache-2.0 */
/* What a build with CAIRN_CRASHPOINTS links into the uploader: CAIRN_STORE_FAULT puts a script of
 * tests/support/fault/fault.h around its store. */
#include <stdlib.h>

#include "tests/support/fault/fault.h"

enum cairn_code cairn_store_test_wrap(struct cairn_store *take_store, struct cairn_store **ret,
                                      struct cairn_error *err) {
    struct cairn_store_fault_options fault = {.script = getenv("CAIRN_STORE_FAULT")};
    if (fault.script) return cairn_store_fault_wrap(take_store, &fault, ret, err);
    *ret = take_store;
    return CAIRN_OK;
}
