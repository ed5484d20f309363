/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes to the port between uploaders, before anything is believed: the head of a request, and
 * the right that it shows. A head that is taken is written again in one spelling and must be read
 * as the same; a right that is taken is signed again, and is good for that request alone.
 */
#include "tests/fuzz/fuzz.h"
#include "uploader/port/port.h"

static const uint8_t key[CAIRN_PEER_KEY_BYTES] = {1, 2, 3};

static void is_what_the_port_may_act_on(const struct cairn_up_request_head *head) {
    bool is_put = !strcmp(head->method, "PUT");
    FUZZ_HOLDS(is_put || !strcmp(head->method, "GET"));
    FUZZ_HOLDS(head->path[0] == '/');
    FUZZ_HOLDS(!strpbrk(head->path, "?#%\\ \t\r\n"));
    FUZZ_HOLDS(!head->has_range || head->first <= head->last);
    FUZZ_HOLDS(!head->has_range == !head->range[0]);
    FUZZ_HOLDS(is_put ? head->has_body && !head->has_range : !head->body_bytes);
    FUZZ_HOLDS(!strpbrk(head->right, "\r\n"));
}

static void is_read_again(const struct cairn_up_request_head *head) {
    struct cairn_up_request_head again;
    CAIRN_AUTO(buf) text = {0};
    FUZZ_HOLDS(
        !cairn_buf_printf(&text, NULL, "%s %s HTTP/1.1\r\nhost: x\r\n", head->method, head->path));
    if (head->has_range) FUZZ_HOLDS(!cairn_buf_printf(&text, NULL, "range:%s\r\n", head->range));
    if (head->right[0])
        FUZZ_HOLDS(!cairn_buf_printf(&text, NULL, "authorization: %s \r\n", head->right));
    if (head->has_body)
        FUZZ_HOLDS(!cairn_buf_printf(&text, NULL, "content-length:\t%llu\r\n",
                                     (unsigned long long)head->body_bytes));
    if (head->closes) FUZZ_HOLDS(!cairn_buf_printf(&text, NULL, "connection: close\r\n"));
    FUZZ_HOLDS(!cairn_buf_printf(&text, NULL, "\r\n"));
    FUZZ_HOLDS(cairn_up_head_read(cairn_buf_view(&text), &again) == 0);
    FUZZ_HOLDS(!strcmp(again.method, head->method) && !strcmp(again.path, head->path));
    FUZZ_HOLDS(!strcmp(again.range, head->range) && !strcmp(again.right, head->right));
    FUZZ_HOLDS(again.first == head->first && again.last == head->last);
    FUZZ_HOLDS(again.body_bytes == head->body_bytes && again.closes == head->closes);
    /* A second range, or anything behind the head, is not what the first one was. */
    FUZZ_HOLDS(!cairn_buf_printf(&text, NULL, "x"));
    FUZZ_HOLDS(cairn_up_head_read(cairn_buf_view(&text), &again) != 0);
}

static void is_good_for_one_request(const struct cairn_up_request_head *head) {
    struct cairn_peer_right right, signed_again;
    struct cairn_error err = {0};
    char text[CAIRN_PEER_RIGHT_BYTES_MAX];
    enum cairn_code code = cairn_peer_parse(head->right, &right, &err);
    FUZZ_SAYS_WHY(code, err);
    if (code) return;
    struct cairn_peer_request request = {.to = "node-1",
                                         .method = head->method,
                                         .path = head->path,
                                         .range = head->range,
                                         .body_bytes = head->body_bytes};
    cairn_peer_sign(&right, &request, key, text);
    FUZZ_HOLDS(cairn_peer_parse(text, &signed_again, &err) == CAIRN_OK);
    FUZZ_HOLDS(!strcmp(signed_again.from, right.from) && signed_again.attempt == right.attempt);
    FUZZ_HOLDS(cairn_peer_check(&signed_again, &request, key));
    request.to = "node-2";
    FUZZ_HOLDS(!cairn_peer_check(&signed_again, &request, key));
    request.to = "node-1";
    request.body_bytes++;
    FUZZ_HOLDS(!cairn_peer_check(&signed_again, &request, key));
}

void cairn_fuzz_peer(struct cairn_view input) {
    struct cairn_up_request_head head;
    bool known = false;
    int status = cairn_up_head_read(input, &head);
    EACH_OF(int, number, 400, 405, 411, 417, 501, 505) known |= status == number;
    FUZZ_HOLDS(!status || known);
    if (status) return;
    is_what_the_port_may_act_on(&head);
    is_read_again(&head);
    is_good_for_one_request(&head);
}
