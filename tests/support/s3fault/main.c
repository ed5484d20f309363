/* SPDX-License-Identifier: Apache-2.0 */
/* s3fault: reads its options, listens, and serves until it is told to end. See README.md. */
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "common/file.h"
#include "common/net.h"
#include "common/process.h"
#include "tests/support/s3fault/server.h"

static const char usage[] =
    "usage: s3fault [--address 127.0.0.1]... [--port 0] [--port-file FILE]\n"
    "    [--script FILE | --rules TEXT] [--seed N] [--journal FILE]\n"
    "    [--profile aws|minio|r2|b2|parts1000|radosgw] [--region R] [--bucket B]...\n"
    "    [--access-key K --secret-key S [--session-token T]]... (each triple adds one)\n"
    "    [--tls-cert FILE --tls-key FILE] [--memory-max SIZE] [--page-max N] [--discard]\n"
    "    [--cap-bytes-per-s N] [--cap-all-bytes-per-s N]\n"
    "    [--congestion cubic] [--etag md5|fast]\n"
    "    [--parent PID] [--receive-buffer SIZE] [-- PROGRAM ARGUMENT...]\n";

struct setup {
    struct s3f_server server;
    const char *port, *port_file;
    struct cairn_buf rules;
    uint64_t parent; /* ends with it */
    char **command;  /* is run with the server's address in its environment; NULL: none */
    uint64_t receive_buffer;
};

static const struct option options[] = {{"address", 1, 0, 'a'},
                                        {"port", 1, 0, 'p'},
                                        {"port-file", 1, 0, 'f'},
                                        {"script", 1, 0, 's'},
                                        {"rules", 1, 0, 'r'},
                                        {"seed", 1, 0, 'n'},
                                        {"profile", 1, 0, 'o'},
                                        {"journal", 1, 0, 'j'},
                                        {"access-key", 1, 0, 'k'},
                                        {"secret-key", 1, 0, 'S'},
                                        {"session-token", 1, 0, 't'},
                                        {"region", 1, 0, 'R'},
                                        {"bucket", 1, 0, 'b'},
                                        {"tls-cert", 1, 0, 'c'},
                                        {"tls-key", 1, 0, 'K'},
                                        {"memory-max", 1, 0, 'm'},
                                        {"page-max", 1, 0, 'P'},
                                        {"discard", 0, 0, 'd'},
                                        {"cap-bytes-per-s", 1, 0, 'C'},
                                        {"cap-all-bytes-per-s", 1, 0, 'A'},
                                        {"congestion", 1, 0, 'g'},
                                        {"etag", 1, 0, 'e'},
                                        {"parent", 1, 0, 'w'},
                                        {"receive-buffer", 1, 0, 'B'},
                                        {"help", 0, 0, 'h'},
                                        {0}};

static enum cairn_code take_key(struct s3f_server *server, int option, const char *value,
                                struct cairn_error *err) {
    if (option == 'k' && server->key_count == S3F_KEYS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "more than %d keys", S3F_KEYS_MAX);
    if (option == 'k') server->key_count++;
    if (server->key_count == 0) return cairn_fail(err, CAIRN_INVALID, "--access-key comes first");
    struct s3f_key *key = &server->keys[server->key_count - 1];
    bool fits = option == 'k'   ? cairn_text_copy(key->access, sizeof key->access, value)
                : option == 'S' ? cairn_text_copy(key->secret, sizeof key->secret, value)
                                : cairn_text_copy(key->token, sizeof key->token, value);
    return fits ? CAIRN_OK : cairn_fail(err, CAIRN_INVALID, "a key is too long");
}

static enum cairn_code take_bucket(struct s3f_state *state, const char *name,
                                   struct cairn_error *err) {
    if (state->bucket_count == CAIRN_COUNT(state->buckets) ||
        !cairn_text_copy(state->buckets[state->bucket_count], sizeof state->buckets[0], name))
        return cairn_fail(err, CAIRN_INVALID, "bucket %s: too many, or the name is too long", name);
    state->bucket_count++;
    return CAIRN_OK;
}

static enum cairn_code take_address(struct s3f_server *server, const char *address,
                                    struct cairn_error *err) {
    struct s3f_door *door = &server->doors[server->door_count];
    if (server->door_count == S3F_DOORS_MAX ||
        !cairn_text_copy(door->address, sizeof door->address, address))
        return cairn_fail(err, CAIRN_INVALID, "address %s: too many, or it is too long", address);
    door->server = server;
    server->door_count++;
    return CAIRN_OK;
}

static enum cairn_code take_option(struct setup *setup, int option, const char *value,
                                   struct cairn_error *err) {
    struct s3f_options *o = &setup->server.options;
    struct cairn_view view = cairn_view_of(value ? value : "");
    switch (option) {
    case 'a':
        return take_address(&setup->server, value, err);
    case 'p':
        setup->port = value;
        return CAIRN_OK;
    case 'f':
        setup->port_file = value;
        return CAIRN_OK;
    case 's':
        return cairn_file_load(value, &setup->rules, err);
    case 'r':
        s3f_say(&setup->rules, "%s\n", value);
        return CAIRN_OK;
    case 'n':
        return cairn_parse_u64(view, &o->seed, err);
    case 'j':
        o->journal = value;
        return CAIRN_OK;
    case 'R':
        o->region = value;
        return CAIRN_OK;
    case 'b':
        return take_bucket(&setup->server.state, value, err);
    case 'c':
        o->tls_certificate = value;
        return CAIRN_OK;
    case 'K':
        o->tls_key = value;
        return CAIRN_OK;
    case 'm':
        return cairn_parse_size(view, &setup->server.state.memory_max, err);
    case 'P':
        return cairn_parse_u64(view, &o->page_max, err);
    case 'd':
        o->discard = true;
        return CAIRN_OK;
    case 'B':
        return cairn_parse_size(view, &setup->receive_buffer, err);
    case 'w':
        return cairn_parse_u64(view, &setup->parent, err);
    case 'C':
        return cairn_parse_size(view, &o->cap_bytes_per_s, err);
    case 'A':
        return cairn_parse_size(view, &o->cap_all.bytes_per_s, err);
    case 'g':
        o->congestion = value;
        return CAIRN_OK;
    case 'e':
        o->md5_etags = !strcmp(value, "md5");
        return CAIRN_OK;
    case 'k':
    case 'S':
    case 't':
        return take_key(&setup->server, option, value, err);
    case 'o':
        o->profile = s3f_profile_find(value);
        if (o->profile) return CAIRN_OK;
        return cairn_fail(err, CAIRN_INVALID, "profile %s is not known", value);
    default:
        return cairn_fail(err, CAIRN_INVALID, "%s", usage);
    }
}

static enum cairn_code start_tls(struct s3f_server *server, struct cairn_error *err) {
    const char *certificate = server->options.tls_certificate, *key = server->options.tls_key;
    if (!certificate) return CAIRN_OK;
    server->tls = SSL_CTX_new(TLS_server_method());
    if (!server->tls || !key || SSL_CTX_use_certificate_chain_file(server->tls, certificate) != 1 ||
        SSL_CTX_use_PrivateKey_file(server->tls, key, SSL_FILETYPE_PEM) != 1)
        return cairn_fail(err, CAIRN_INVALID, "the certificate or its key cannot be used");
    SSL_CTX_set_mode(server->tls, SSL_MODE_AUTO_RETRY);
    return CAIRN_OK;
}

static enum cairn_code tell_port(const struct setup *setup, uint16_t port,
                                 struct cairn_error *err) {
    char text[16];
    int size = snprintf(text, sizeof text, "%u\n", port);
    printf("s3fault listens on port %u\n", port);
    fflush(stdout);
    if (!setup->port_file) return CAIRN_OK;
    return cairn_file_replace(setup->port_file, (struct cairn_view){text, (size_t)size}, 0644, err);
}

/* The command ends, and the server with it, with the same status. */
static void *wait_for_command(void *argument) {
    int status = 0;
    while (waitpid(*(pid_t *)argument, &status, 0) < 0 && errno == EINTR) continue;
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static enum cairn_code start_command(const struct setup *setup, uint16_t port,
                                     struct cairn_error *err) {
    static pid_t child;
    const struct s3f_server *server = &setup->server;
    char url[160];
    pthread_t thread;
    if (!setup->command) return CAIRN_OK;
    snprintf(url, sizeof url, "%s://%s:%u", server->tls ? "https" : "http",
             server->doors[0].address, port);
    setenv("AWS_ENDPOINT_URL", url, 1);
    setenv("AWS_ACCESS_KEY_ID", server->keys[0].access, 1);
    setenv("AWS_SECRET_ACCESS_KEY", server->keys[0].secret, 1);
    if (server->keys[0].token[0]) setenv("AWS_SESSION_TOKEN", server->keys[0].token, 1);
    setenv("AWS_REGION", server->options.region, 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    snprintf(url, sizeof url, "s3://%s/test", server->state.buckets[0]);
    setenv("CAIRN_TEST_S3_URL", url, 1);
    errno = posix_spawnp(&child, setup->command[0], NULL, NULL, setup->command, environ);
    if (errno) return cairn_fail_errno(err, "cannot start %s", setup->command[0]);
    errno = pthread_create(&thread, NULL, wait_for_command, &child);
    return errno ? cairn_fail_errno(err, "no thread") : CAIRN_OK;
}

/* The first door may take a free port; the others then take the same. */
static enum cairn_code open_door(const struct setup *setup, struct s3f_door *door,
                                 const char *wanted, uint16_t *ret_port, struct cairn_error *err) {
    const char *congestion = setup->server.options.congestion;
    char address[128];
    snprintf(address, sizeof address, "%s:%s", door->address, wanted);
    CAIRN_TRY(cairn_net_listen_tcp(address, &door->listener, ret_port, err));
    if (congestion && setsockopt(door->listener, IPPROTO_TCP, TCP_CONGESTION, congestion,
                                 (socklen_t)strlen(congestion)) != 0)
        return cairn_fail_errno(err, "congestion control %s", congestion);
    if (fcntl(door->listener, F_SETFL, 0) != 0) return cairn_fail_errno(err, "fcntl");
    int receive_buffer = (int)cairn_min_u64(setup->receive_buffer, CAIRN_GIB);
    if (receive_buffer && setsockopt(door->listener, SOL_SOCKET, SO_RCVBUF, &receive_buffer,
                                     sizeof receive_buffer) != 0)
        return cairn_fail_errno(err, "receive buffer");
    return CAIRN_OK;
}

static enum cairn_code open_doors(struct setup *setup, uint16_t *ret_port,
                                  struct cairn_error *err) {
    struct s3f_server *server = &setup->server;
    char same[16];
    if (!server->door_count) CAIRN_TRY(take_address(server, "127.0.0.1", err));
    CAIRN_TRY(open_door(setup, &server->doors[0], setup->port, ret_port, err));
    snprintf(same, sizeof same, "%u", *ret_port);
    for (size_t i = 1; i < server->door_count; i++)
        CAIRN_TRY(open_door(setup, &server->doors[i], same, NULL, err));
    return CAIRN_OK;
}

static void *keep_door(void *argument) {
    struct s3f_door *door = argument;
    s3f_serve(door);
    if (atomic_load(&door->left)) return NULL;
    perror("s3fault: accept");
    _exit(2);
}

static enum cairn_code keep_doors(struct s3f_server *server, struct cairn_error *err) {
    for (size_t i = 0; i < server->door_count; i++) {
        pthread_t thread;
        errno = pthread_create(&thread, NULL, keep_door, &server->doors[i]);
        if (errno) return cairn_fail_errno(err, "no thread");
    }
    for (;;) pause(); /* ended by a signal, by its parent's end, or by the command's */
}

static enum cairn_code run(struct setup *setup, struct cairn_error *err) {
    struct s3f_server *server = &setup->server;
    struct s3f_options *o = &server->options;
    uint16_t port = 0;
    if (!server->key_count)
        server->keys[server->key_count++] =
            (struct s3f_key){.access = "s3fault", .secret = "s3fault-secret"};
    if (!server->state.bucket_count) CAIRN_TRY(take_bucket(&server->state, "test", err));
    server->state.seed = o->seed;
    CAIRN_TRY(cairn_parent_follow(setup->parent, err));
    cairn_lock_init(&server->lock, CAIRN_LOCK_test_support);
    CAIRN_TRY(
        s3f_rules_new(setup->rules.size ? setup->rules.data : "", o->seed, &server->rules, err));
    CAIRN_TRY(start_tls(server, err));
    if (o->journal && !(server->journal_file = fopen(o->journal, "a")))
        return cairn_fail_errno(err, "open %s", o->journal);
    CAIRN_TRY(open_doors(setup, &port, err));
    CAIRN_TRY(tell_port(setup, port, err));
    CAIRN_TRY(start_command(setup, port, err));
    return keep_doors(server, err);
}

static void end(int signal_number) {
    (void)signal_number;
    _exit(0);
}

int main(int argc, char **argv) {
    static struct setup setup = {
        .server = {.options = {.region = "us-east-1", .md5_etags = true, .page_max = 1000},
                   .state = {.memory_max = 4 * CAIRN_GIB}},
        .port = "0"};
    struct cairn_error err = {0};
    enum cairn_code code = CAIRN_OK;
    setup.server.options.profile = s3f_profile_find("aws");
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, end);
    signal(SIGINT, end);
    bool fast = false;
    for (int option;
         code == CAIRN_OK && (option = getopt_long(argc, argv, "+", options, NULL)) != -1;) {
        code = take_option(&setup, option, optarg, &err);
        fast = fast || option == 'd';
    }
    if (fast) setup.server.options.md5_etags = false;
    if (optind < argc) setup.command = argv + optind;
    if (code == CAIRN_OK) code = run(&setup, &err);
    fprintf(stderr, "s3fault: %s\n", err.message);
    return 2;
}
