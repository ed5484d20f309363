/* SPDX-License-Identifier: Apache-2.0 */
/* certificate: made with libcrypto, since a certificate that has ended cannot be asked for. */
#include "tests/support/certificate.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "tests/harness.h"

static void must(int good) {
    if (good == 1) return;
    fputs("a certificate could not be made\n", stderr);
    abort();
}

static void write_file(const char *path, X509 *certificate, EVP_PKEY *key) {
    FILE *file = fopen(path, "we");
    must(file != NULL);
    must(certificate ? PEM_write_X509(file, certificate)
                     : PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL));
    must(fclose(file) == 0);
}

static void add_extension(X509 *certificate, int kind, const char *value) {
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, kind, value);
    must(extension && X509_add_ext(certificate, extension, -1));
    X509_EXTENSION_free(extension);
}

void cairn_certificate_make(const char *name, const char *subject, int64_t from_s, int64_t until_s,
                            struct cairn_certificate *ret) {
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    must(key && certificate);
    must(X509_set_version(certificate, 2));
    must(ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1));
    must(X509_gmtime_adj(X509_getm_notBefore(certificate), (long)from_s) != NULL);
    must(X509_gmtime_adj(X509_getm_notAfter(certificate), (long)until_s) != NULL);
    must(X509_set_pubkey(certificate, key));
    X509_NAME *owner = X509_get_subject_name(certificate);
    must(X509_NAME_add_entry_by_txt(owner, "CN", MBSTRING_ASC, (const unsigned char *)"s3fault", -1,
                                    -1, 0));
    must(X509_set_issuer_name(certificate, owner));
    add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE");
    add_extension(certificate, NID_subject_alt_name, subject);
    must(X509_sign(certificate, key, EVP_sha256()) > 0);
    snprintf(ret->certificate, sizeof ret->certificate, "%s/%s.crt", cairn_test_folder(), name);
    snprintf(ret->key, sizeof ret->key, "%s/%s.key", cairn_test_folder(), name);
    write_file(ret->certificate, certificate, NULL);
    write_file(ret->key, NULL, key);
    X509_free(certificate);
    EVP_PKEY_free(key);
}
