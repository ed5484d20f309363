/* SPDX-License-Identifier: Apache-2.0 */
/* What stores answer, what is signed, where keys are read from. */
#include "store/keys/credentials.h"
#include "store/keys/profile.h"
#include "store/keys/sigv4.h"
#include "store/xml/xml.h"
#include "tests/fuzz/fuzz.h"

static void note_key(void *owner, const char *key, const char *version, const char *code,
                     const char *message) {
    (void)version, (void)code;
    (void)message;
    ++*(uint64_t *)owner;
    FUZZ_HOLDS(key);
}

void cairn_fuzz_xml(struct cairn_view input) {
    struct cairn_error err = {0};
    struct cairn_xml_problem problem = {0};
    char id[CAIRN_UPLOAD_ID_BYTES_MAX], etag[128];
    if (cairn_xml_problem_read(input, &problem))
        FUZZ_HOLDS(cairn_utf8_valid(cairn_view_of(problem.message)));
    enum cairn_code code = cairn_xml_upload_id(input, id, &err);
    FUZZ_SAYS_WHY(code, err);
    code = cairn_xml_completed(input, etag, &err);
    FUZZ_SAYS_WHY(code, err);
    struct cairn_xml_parts parts = {0};
    code = cairn_xml_parts_read(input, &parts, &err);
    FUZZ_SAYS_WHY(code, err);
    free(parts.parts);
    const struct cairn_xml_listed listed = {"p/", 2};
    for (int i = 0; i < 3; i++) {
        struct cairn_store_listing listing = {0};
        code = i == 0   ? cairn_xml_objects(input, &listed, &listing, &err)
               : i == 1 ? cairn_xml_uploads(input, &listed, &listing, &err)
                        : cairn_xml_versions(input, &listed, &listing, &err);
        FUZZ_SAYS_WHY(code, err);
        cairn_store_listing_release(&listing);
    }
    uint64_t keys = 0;
    const struct cairn_xml_deletions deletions = {.prefix = "p/", .each = note_key, .owner = &keys};
    code = cairn_xml_deletions_read(input, &deletions, &err);
    FUZZ_SAYS_WHY(code, err);
    struct cairn_xml_session session = {0};
    code = cairn_xml_session_read(input, "AssumeRoleResponse", &session, &err);
    FUZZ_SAYS_WHY(code, err);
    cairn_xml_session_release(&session);
}

/* The input is path, one query pair and one header, each ended by a line feed. */
void cairn_fuzz_sigv4(struct cairn_view input) {
    struct cairn_error err = {0};
    CAIRN_AUTO(buf) path = {0}, query = {0}, canonical = {0}, names = {0}, plain = {0};
    char *text = cairn_fuzz_text(input), *rest = text, *field[5];
    if (text[0] != '/') { /* what the signer is promised */
        free(text);
        return;
    }
    for (size_t i = 0; i < CAIRN_COUNT(field); i++) field[i] = rest ? strsep(&rest, "\n") : NULL;
    for (size_t i = 0; i < CAIRN_COUNT(field); i++)
        if (!field[i]) field[i] = text + strlen(text);
    enum cairn_code code = cairn_sigv4_path(field[0], &path, &err);
    FUZZ_SAYS_WHY(code, err);
    if (!code && !cairn_percent_decode(cairn_buf_view(&path), &plain, &err))
        FUZZ_HOLDS(plain.size == strlen(field[0]) && !memcmp(plain.data, field[0], plain.size));
    const struct cairn_sigv4_pair pair = {field[1], field[2]};
    code = cairn_sigv4_query(&pair, 1, &query, &err);
    FUZZ_SAYS_WHY(code, err);
    const struct cairn_sigv4_pair headers[] = {{"host", "s3.example"}, {field[3], field[4]}};
    const struct cairn_sigv4_request request = {.method = "GET",
                                                .path = field[0],
                                                .query = &pair,
                                                .query_count = 1,
                                                .headers = headers,
                                                .header_count = 2,
                                                .payload = CAIRN_SIGV4_UNSIGNED};
    code = cairn_sigv4_canonical(&request, &canonical, &names, &err);
    FUZZ_SAYS_WHY(code, err);
    free(text);
}

void cairn_fuzz_profile(struct cairn_view input) {
    struct cairn_fuzz_file file;
    struct cairn_profile profile = {0};
    struct cairn_error err = {0};
    cairn_fuzz_file_begin(input, &file);
    setenv("AWS_SHARED_CREDENTIALS_FILE", file.path, 1);
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    enum cairn_code code = cairn_profile_load("job", &profile, &err);
    FUZZ_SAYS_WHY(code, err);
    for (size_t i = 0; !code && i < profile.count; i++) {
        FUZZ_HOLDS(profile.values[i].name && profile.values[i].value);
        const char *last = cairn_profile_get(&profile, profile.values[i].name);
        FUZZ_HOLDS(!last || *last);
    }
    cairn_profile_release(&profile);
    cairn_fuzz_file_end(&file);
}
