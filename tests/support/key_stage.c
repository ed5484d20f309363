/* SPDX-License-Identifier: Apache-2.0 */
/* key_stage: variables, files, a provider. */
#include "tests/support/key_stage.h"

static const char *const variables[] = {"AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_PROFILE",
                                        "AWS_DEFAULT_PROFILE",
                                        "AWS_SHARED_CREDENTIALS_FILE",
                                        "AWS_CONFIG_FILE",
                                        "AWS_ROLE_ARN",
                                        "AWS_WEB_IDENTITY_TOKEN_FILE",
                                        "AWS_ROLE_SESSION_NAME",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_STS",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                        "AWS_REQUEST_CHECKSUM_CALCULATION",
                                        "AWS_EC2_METADATA_DISABLED",
                                        "AWS_EC2_METADATA_SERVICE_ENDPOINT"};

void cairn_stage_clear(void) {
    for (size_t i = 0; i < CAIRN_COUNT(variables); i++) unsetenv(variables[i]);
    setenv("HOME", cairn_test_folder(), 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
}

void cairn_stage_set(const char *const *pairs, size_t count) {
    for (size_t i = 0; i + 1 < count; i += 2)
        if (!pairs[i + 1] ? unsetenv(pairs[i]) : setenv(pairs[i], pairs[i + 1], 1)) abort();
}

void cairn_stage_release(struct cairn_stage *stage) {
    cairn_credentials_provider_free(stage->provider);
    cairn_credentials_release(&stage->keys);
    cairn_responder_stop(stage->server);
    cairn_stage_clear();
}

bool cairn_stage_serve(struct cairn_stage *stage, void (*answer)(struct cairn_responder_request *),
                       void *owner) {
    struct cairn_responder_options options = {.answer = answer, .owner = owner};
    stage->server = cairn_responder_start(&options);
    return stage->server != NULL;
}

enum cairn_code cairn_stage_get(struct cairn_stage *stage,
                                const struct cairn_credentials_options *options) {
    cairn_credentials_provider_free(stage->provider);
    stage->provider = NULL;
    enum cairn_code code = cairn_credentials_provider_new(options, &stage->provider, &stage->error);
    if (code) return code;
    return cairn_credentials_get(stage->provider, 0, &stage->keys, &stage->error);
}

static const char *write_file(const char *name, const char *text, mode_t mode) {
    const char *path = TEXT("%s/%s", cairn_test_folder(), name);
    FILE *file = fopen(path, "w");
    EXPECT(file && fputs(text, file) >= 0);
    if (file) EXPECT(fclose(file) == 0);
    EXPECT(chmod(path, mode) == 0);
    return path;
}

const char *cairn_stage_file(const char *name, const char *text) {
    return write_file(name, text, 0600);
}
const char *cairn_stage_program(const char *name, const char *text) {
    return write_file(name, text, 0700);
}
