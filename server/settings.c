/* SPDX-License-Identifier: Apache-2.0 */
/* The settings table of cairn-server and the relations between its rows; see settings.h. */
#include "server/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cairn/cairn.h>

#include "common/log.h"
#include "store/open.h"

static const struct cairn_config_row rows[] = {
#define CONFIG(type, name, fallback, min, max, why)                                                \
    CAIRN_CONFIG_ROW(srv_settings, type, name, fallback, min, max, why)
#include "server/settings.def"
#undef CONFIG
};

/* For servers that share a catalog: load balancers poll /readyz every second or two and react after
 * one or two failures. */
#define STOP_NOTICE_SHARED "5s"

static bool is_loopback(const char *address) {
    return cairn_text_starts(address, "127.") || cairn_text_starts(address, "[::1]:") ||
           cairn_text_starts(address, "localhost:");
}

static enum cairn_code check_folders(const char *name, const char *folders,
                                     struct cairn_error *err) {
    for (const char *at = folders; *at;) {
        size_t size = strcspn(at, ",");
        if (*at != '/')
            return cairn_fail(err, CAIRN_INVALID,
                              "%s is \"%s\": want whole paths, with commas between", name, folders);
        const char *brace = memchr(at, '{', size);
        if (brace && !cairn_text_starts(brace, SRV_FOLDERS_PROJECT))
            return cairn_fail(err, CAIRN_INVALID,
                              "%s is \"%s\": want no braces but " SRV_FOLDERS_PROJECT, name,
                              folders);
        at += size + (at[size] == ',');
    }
    return CAIRN_OK;
}

/* Removes the trailing slash, so that paths can be appended. */
static enum cairn_code check_public_url(struct srv_settings *settings, struct cairn_error *err) {
    struct cairn_url parts;
    char *url = settings->public_url;
    if (!*url) return CAIRN_OK;
    for (size_t size = strlen(url); size && url[size - 1] == '/'; size--) url[size - 1] = '\0';
    if (cairn_url_split_http(url, &parts) && !strpbrk(url, "@?#\"<> \\")) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "public-url is \"%s\": want http(s)://HOST[:PORT][/PATH]",
                      url);
}

const char *srv_public_path(const struct srv_settings *settings) {
    const char *host = strstr(settings->public_url, "://");
    const char *path = host ? strchr(host + 3, '/') : NULL;
    return path ? path : "";
}

static enum cairn_code check_origins(const char *list, struct cairn_error *err) {
    for (const char *at = list; *(at += strspn(at, ", "));) {
        size_t size = strcspn(at, ", ");
        bool web = cairn_text_starts(at, "https://") || cairn_text_starts(at, "http://");
        const char *host = web ? strstr(at, "://") + 3 : at;
        if (!web || host >= at + size || memchr(host, '/', (size_t)(at + size - host)))
            return cairn_fail(err, CAIRN_INVALID,
                              "allowed-origins: \"%.*s\" is none: want https://HOST[:PORT]",
                              (int)cairn_min_u64(size, 60), at);
        at += size;
    }
    return CAIRN_OK;
}

static enum cairn_code check_secrets(const struct srv_settings *settings, struct cairn_error *err) {
    if (settings->admin_token_file[0] && !settings->require_token)
        return cairn_fail(err, CAIRN_INVALID,
                          "admin-token-file is set, and require-token is not: without it "
                          "everybody may do everything");
    if (settings->admin_token_file[0] && settings->new_admin_token)
        return cairn_fail(err, CAIRN_INVALID,
                          "new-admin-token makes a token, and admin-token-file brings one: to "
                          "change it, write another one of `cairn token generate` into %s",
                          settings->admin_token_file);
    if (settings->catalog_password_file[0] && !settings->catalog[0])
        return cairn_fail(err, CAIRN_INVALID,
                          "catalog-password-file is set, and catalog is not: SQLite has none");
    return CAIRN_OK;
}

/* The packages make the first folder. A server that was started without it keeps its own. */
static const char *default_data_dir(void) {
    static const char *const system_wide[] = {"/var/lib/cairn/server", "/var/lib/cairn"};
    static const char *const keys[] = {"/var/lib/cairn/server/grant.key",
                                       "/var/lib/cairn/grant.key"};
    for (size_t i = 0; i < CAIRN_COUNT(keys); i++)
        if (!access(keys[i], F_OK)) return system_wide[i];
    for (size_t i = 0; i < CAIRN_COUNT(system_wide); i++)
        if (!access(system_wide[i], F_OK)) return system_wide[i];
    return "./cairn-data";
}

/* Refuses a fallback: without a usable folder a service would keep key and catalog in its working
 * directory, and in a container lose them. */
static enum cairn_code choose_data_dir(struct cairn_config *config,
                                       const struct srv_settings *settings,
                                       struct cairn_error *err) {
    const char *choice = default_data_dir();
    if (settings->data_dir[0]) return CAIRN_OK;
    if (!access(choice, F_OK) && access(choice, W_OK | X_OK))
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "data-dir is not set, and user %u may not write in %s: start the server "
                          "as that folder's owner, or give --data-dir",
                          (unsigned)geteuid(), choice);
    return cairn_config_set(config, "data_dir", choice, "default", err);
}

enum cairn_code srv_settings_data_dir(char ret[SRV_FROM_BYTES], struct cairn_error *err) {
    CAIRN_AUTO(config) config = {0};
    struct srv_settings settings = {0};
    CAIRN_TRY(cairn_config_init(&config, rows, CAIRN_COUNT(rows), &settings, err));
    const char *file = getenv("CAIRN_CONFIG");
    if (file) CAIRN_TRY(cairn_config_file(&config, file, err));
    CAIRN_TRY(cairn_config_environment(&config, err));
    if (settings.catalog[0])
        return cairn_fail(err, CAIRN_INVALID,
                          "the setting catalog names a database: PostgreSQL's own tools back it "
                          "up; of a folder with SQLite in it give --data-dir");
    const char *choice = settings.data_dir[0] ? settings.data_dir : default_data_dir();
    return cairn_text_copy(ret, SRV_FROM_BYTES, choice)
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_INVALID, "data-dir is too long");
}

static enum cairn_code check(struct cairn_config *config, struct srv_settings *settings,
                             struct cairn_error *err) {
    if (!settings->store[0])
        return cairn_fail(err, CAIRN_INVALID,
                          "store is not set: give --store FOLDER or --store s3://BUCKET/PREFIX");
    if (settings->catalog[0] && !cairn_text_starts(settings->catalog, "postgresql://") &&
        !cairn_text_starts(settings->catalog, "postgres://"))
        return cairn_fail(err, CAIRN_INVALID,
                          "catalog is \"%s\": give postgresql://..., or leave it empty for SQLite "
                          "in data-dir",
                          settings->catalog);
    struct cairn_stores stores = {0};
    enum cairn_code code = cairn_stores_parse(settings->stores, &stores, err);
    cairn_stores_release(&stores);
    if (code) return code;
    if (!settings->tls_cert[0] != !settings->tls_key[0])
        return cairn_fail(err, CAIRN_INVALID, "tls-cert and tls-key: give both or none");
    bool safe = settings->tls_cert[0] && settings->require_token;
    if (!is_loopback(settings->listen) && !safe && !settings->allow_remote)
        return cairn_fail(err, CAIRN_INVALID,
                          "listen is %s, beyond loopback: give %s%s%s, or say allow-remote=true if "
                          "something in front of it does that",
                          settings->listen, settings->tls_cert[0] ? "" : "tls-cert and tls-key",
                          settings->tls_cert[0] || settings->require_token ? "" : " and ",
                          settings->require_token ? "" : "require-token=true");
    bool operates = settings->import_folders[0] || settings->export_folders[0];
    if (operates && settings->tls_cert[0] && !settings->operations_url[0])
        return cairn_fail(err, CAIRN_INVALID,
                          "operations-url is not set: with tls-cert and import-folders or "
                          "export-folders give https://NAME:PORT, with a name of the certificate");
    CAIRN_TRY(check_folders("import-folders", settings->import_folders, err));
    CAIRN_TRY(check_folders("export-folders", settings->export_folders, err));
    CAIRN_TRY(check_public_url(settings, err));
    CAIRN_TRY(check_origins(settings->allowed_origins, err));
    CAIRN_TRY(check_secrets(settings, err));
    CAIRN_TRY(choose_data_dir(config, settings, err));
    if (settings->catalog[0] && cairn_config_is_default(config, "stop_notice"))
        CAIRN_TRY(cairn_config_set(config, "stop_notice", STOP_NOTICE_SHARED, "default", err));
    enum cairn_log_level level;
    enum cairn_log_format format;
    CAIRN_TRY(cairn_log_format_parse(settings->log_format, &format, err));
    return cairn_log_level_parse(settings->log_level, &level, err);
}

enum cairn_code srv_settings_load(int argc, char **argv, struct cairn_config *config,
                                  struct srv_settings *ret, bool *ret_done,
                                  struct cairn_error *err) {
    char version[80];
    snprintf(version, sizeof(version), "cairn-server %s, catalog schema %u", CAIRN_VERSION,
             srv_catalog_schema());
    const struct cairn_start start = {
        .version = version,
        .usage = "cairn-server: keeps the checkpoints of training jobs; REST API of Cairn.\n\n"
                 "Usage: cairn-server --store FOLDER|s3://BUCKET/PREFIX [settings]\n"
                 "       cairn-server --migrate [settings]\n"
                 "       cairn-server --copy-catalog FROM TO\n"
                 "       cairn-server --backup-catalog [FROM] FILE\n"
                 "       cairn-server --reindex [--dry-run] [settings]\n"
                 "       cairn-server --print-config | --print-docs | --version | --help\n\n"
                 "--migrate brings the catalog to this program's schema and ends; a start does so, "
                 "too.\n--copy-catalog is what `cairn catalog copy` runs, --backup-catalog what "
                 "`cairn catalog backup`, --reindex what `cairn reindex` does.\n\n",
        .rows = rows,
        .row_count = CAIRN_COUNT(rows),
        .values = ret};
    CAIRN_TRY(cairn_start_settings(&start, argc, argv, config, ret_done, err));
    if (*ret_done) return CAIRN_OK;
    return check(config, ret, err);
}
