/* SPDX-License-Identifier: Apache-2.0 */
/* Certificate and key (owner of gnutls), read at startup and on reload. A running handshake may use
 * an older pair, so each loaded pair is kept until the end; unchanged files are not kept twice. */
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/file.h"
#include "server/http/inside.h"

#define CHAIN_MAX 16
#define FILE_BYTES_MAX (256 * CAIRN_KIB)

struct srv_tls {
    struct srv_tls *older;
    gnutls_pcert_st chain[CHAIN_MAX];
    unsigned chain_count;
    gnutls_privkey_t key;
    uint8_t digest[CAIRN_SHA256_BYTES]; /* of both files */
};

/* The library passes no context to its callback; a process has one server. */
static _Atomic(struct srv_tls *) in_use;

static enum cairn_code refused(int result, const char *what, const char *path,
                               struct cairn_error *err) {
    return cairn_fail(err, CAIRN_INVALID, "%s %s: %s", what, path, gnutls_strerror(result));
}

static void free_pair(struct srv_tls *tls) {
    for (unsigned i = 0; i < tls->chain_count; i++) gnutls_pcert_deinit(&tls->chain[i]);
    if (tls->key) gnutls_privkey_deinit(tls->key);
    free(tls);
}

/* With a mismatched certificate every handshake fails without a visible reason. */
static bool is_pair(struct srv_tls *tls) {
    uint8_t of_key[64], of_certificate[64];
    size_t size = sizeof(of_key), other = sizeof(of_certificate);
    gnutls_pubkey_t public_key = NULL;
    bool same = !gnutls_pubkey_init(&public_key) &&
                !gnutls_pubkey_import_privkey(public_key, tls->key, 0, 0) &&
                !gnutls_pubkey_get_key_id(public_key, GNUTLS_KEYID_USE_SHA256, of_key, &size) &&
                !gnutls_pubkey_get_key_id(tls->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256,
                                          of_certificate, &other) &&
                size == other && !memcmp(of_key, of_certificate, size);
    if (public_key) gnutls_pubkey_deinit(public_key);
    return same;
}

/* An unreadable file is a wrong setting, whatever errno says. */
static enum cairn_code load_one(const char *setting, const char *path, struct cairn_buf *ret,
                                bool secret, struct cairn_error *err) {
    enum cairn_code code =
        secret ? cairn_file_load_secret(path, ret, err) : cairn_file_load(path, ret, err);
    if (code == CAIRN_OK) return CAIRN_OK;
    return cairn_within(err, code == CAIRN_FORBIDDEN ? code : CAIRN_INVALID, "%s", setting);
}

static enum cairn_code make_pair(const struct srv_settings *settings,
                                 const struct cairn_buf *certificate, const struct cairn_buf *key,
                                 struct srv_tls *tls, struct cairn_error *err) {
    gnutls_datum_t chain = {(unsigned char *)certificate->data, (unsigned)certificate->size};
    gnutls_datum_t secret = {(unsigned char *)key->data, (unsigned)key->size};
    unsigned count = CHAIN_MAX;
    int result =
        gnutls_pcert_list_import_x509_raw(tls->chain, &count, &chain, GNUTLS_X509_FMT_PEM, 0);
    if (result < 0 || !count)
        return refused(result < 0 ? result : GNUTLS_E_NO_CERTIFICATE_FOUND, "tls-cert",
                       settings->tls_cert, err);
    tls->chain_count = count;
    result = gnutls_privkey_init(&tls->key);
    if (result >= 0)
        result = gnutls_privkey_import_x509_raw(tls->key, &secret, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (result < 0) return refused(result, "tls-key", settings->tls_key, err);
    if (is_pair(tls)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "tls-key %s is not the key of the certificate %s",
                      settings->tls_key, settings->tls_cert);
}

static void digest_both(const struct cairn_buf *certificate, const struct cairn_buf *key,
                        uint8_t ret[CAIRN_SHA256_BYTES]) {
    struct cairn_sha256 sha;
    cairn_sha256_init(&sha);
    cairn_sha256_update(&sha, certificate->data, certificate->size);
    cairn_sha256_update(&sha, key->data, key->size);
    cairn_sha256_final(&sha, ret);
    cairn_sha256_release(&sha);
}

enum cairn_code srv_tls_load(struct srv_http *http, struct cairn_error *err) {
    const struct srv_settings *settings = http->server->settings;
    CAIRN_AUTO(buf) certificate = {.limit = FILE_BYTES_MAX}, key = {.limit = FILE_BYTES_MAX};
    uint8_t digest[CAIRN_SHA256_BYTES];
    if (!settings->tls_cert[0]) return CAIRN_OK;
    CAIRN_TRY(load_one("tls-cert", settings->tls_cert, &certificate, false, err));
    CAIRN_TRY(load_one("tls-key", settings->tls_key, &key, true, err));
    digest_both(&certificate, &key, digest);
    struct srv_tls *tls = NULL;
    enum cairn_code code = CAIRN_OK;
    if (!http->tls || memcmp(http->tls->digest, digest, sizeof(digest)) != 0) {
        tls = calloc(1, sizeof(*tls));
        code = tls ? make_pair(settings, &certificate, &key, tls, err)
                   : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a certificate");
    }
    cairn_wipe(key.data, key.size);
    if (!tls) return code;
    if (code) {
        free_pair(tls);
        return code;
    }
    memcpy(tls->digest, digest, sizeof(digest));
    tls->older = http->tls;
    http->tls = tls;
    in_use = tls;
    return CAIRN_OK;
}

void srv_tls_free(struct srv_http *http) {
    if (http->tls) in_use = NULL;
    while (http->tls) {
        struct srv_tls *one = http->tls;
        http->tls = one->older;
        free_pair(one);
    }
}

static int pick(gnutls_session_t session, const gnutls_datum_t *names, int name_count,
                const gnutls_pk_algorithm_t *algorithms, int algorithm_count,
                gnutls_pcert_st **ret_chain, unsigned *ret_count, gnutls_privkey_t *ret_key) {
    struct srv_tls *tls = in_use;
    (void)session, (void)names, (void)name_count, (void)algorithms, (void)algorithm_count;
    if (!tls) return -1;
    *ret_chain = tls->chain;
    *ret_count = tls->chain_count;
    *ret_key = tls->key;
    return 0;
}

bool srv_tls_is_on(void) {
    return in_use != NULL;
}

void *srv_tls_picker(void) {
    gnutls_certificate_retrieve_function2 *picker = pick;
    void *pointer;
    memcpy(&pointer, &picker, sizeof(pointer)); /* the library takes a void pointer */
    return pointer;
}

bool srv_tls_send(struct MHD_Connection *connection, const void *data, size_t size) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info && info->tls_session &&
           gnutls_record_send(info->tls_session, data, size) == (ssize_t)size;
}

enum cairn_code srv_tls_ask(int fd, const char *text, char *ret_answer, size_t size,
                            struct cairn_error *err) {
    gnutls_session_t session = NULL;
    gnutls_certificate_credentials_t nobody = NULL;
    int result = gnutls_certificate_allocate_credentials(&nobody);
    if (result >= 0) result = gnutls_init(&session, GNUTLS_CLIENT);
    if (result >= 0) result = gnutls_set_default_priority(session);
    if (result >= 0) result = gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, nobody);
    if (result >= 0) {
        gnutls_transport_set_int(session, fd);
        do result = gnutls_handshake(session);
        while (result < 0 && !gnutls_error_is_fatal(result));
    }
    if (result >= 0) result = (int)gnutls_record_send(session, text, strlen(text));
    size_t used = 0;
    while (result > 0 && used < size - 1) {
        result = (int)gnutls_record_recv(session, ret_answer + used, size - 1 - used);
        if (result > 0) used += (size_t)result;
    }
    ret_answer[used] = '\0';
    if (session) gnutls_deinit(session);
    if (nobody) gnutls_certificate_free_credentials(nobody);
    if (used) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED, "self-test over TLS: %s", gnutls_strerror(result));
}
