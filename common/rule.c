/* SPDX-License-Identifier: Apache-2.0 */
/* One word of bits; the top one says that the environment was looked at. */
#include "common/rule.h"

#ifdef CAIRN_CRASHPOINTS
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define LOOKED (UINT64_C(1) << 63)
_Static_assert(CAIRN_RULES < 63, "one bit a rule");

static const char *const names[] = {
#define RULE(name, what) #name,
#include "common/rules.def"
#undef RULE
};
static _Atomic uint64_t out; /* bits of the rules that do not hold */

static bool bits_of(const char *text, uint64_t *ret) {
    uint64_t bits = LOOKED;
    while (*text) {
        size_t size = strcspn(text, ","), i = 0;
        while (i < CAIRN_RULES && (strlen(names[i]) != size || memcmp(names[i], text, size))) i++;
        if (i == CAIRN_RULES) return false;
        bits |= UINT64_C(1) << i;
        text += size;
        if (*text == ',') text++;
    }
    *ret = bits;
    return true;
}

bool cairn_rule_take_out(const char *text) {
    uint64_t bits = 0;
    if (text && !bits_of(text, &bits)) return false;
    atomic_store(&out, bits);
    return true;
}

bool cairn_rule_holds(enum cairn_rule rule) {
    uint64_t bits = atomic_load_explicit(&out, memory_order_relaxed);
    if (!(bits & LOOKED)) {
        const char *text = getenv("CAIRN_WITHOUT");
        if (!bits_of(text ? text : "", &bits)) {
            fprintf(stderr, "cairn: no such rule in CAIRN_WITHOUT: \"%s\"\n", text);
            abort();
        }
        atomic_store(&out, bits);
    }
    return !(bits >> rule & 1);
}
#endif
