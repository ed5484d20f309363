/* SPDX-License-Identifier: Apache-2.0 */
/* What a session says of its machine and its libraries. */
#include "client/session/origin.h"

#include <stdlib.h>

#include "tests/harness.h"

static const char *version_of(const json_t *origin, const char *library) {
    return json_string_value(json_object_get(json_object_get(origin, "versions"), library));
}

TEST(origin_names_the_versions_that_the_environment_tells_and_no_other) {
    setenv("PYTORCH_VERSION", "2.4.0", 1);
    setenv("CUDA_VERSION", "13.0.1", 1);
    setenv("NVIDIA_PYTORCH_VERSION", "", 1);
    unsetenv("NCCL_VERSION");
    CAIRN_AUTO_JSON json_t *origin = cairn_client_origin();
    EXPECT(version_of(origin, "cairn") != NULL);
    EXPECT_EQ_TEXT(version_of(origin, "torch"), "2.4.0");
    EXPECT_EQ_TEXT(version_of(origin, "cuda"), "13.0.1");
    EXPECT(!version_of(origin, "nccl"));
    EXPECT(!version_of(origin, "nvidia_torch"));
    EXPECT(!version_of(origin, "python")); /* this program is none */
    unsetenv("PYTORCH_VERSION");
    unsetenv("CUDA_VERSION");
}
