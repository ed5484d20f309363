/* SPDX-License-Identifier: Apache-2.0 */
/* Names of an assembly: each once, and found without a walk over all of them. */
#include "formats/assembly/assembly.h"

#include "api/table/dtype.h"
#include "tests/harness.h"

#define NAMES 20000

static void name_of(unsigned number, char ret[64]) {
    snprintf(ret, 64, "%u.mlp.deepspeed_moe.experts.%u.weight", number / 100, number % 100);
}

static enum cairn_code add(struct cairn_assembly *assembly, const char *name,
                           struct cairn_error *err) {
    const uint64_t shape[] = {2};
    return cairn_assembly_add_tensor(assembly, name, CAIRN_DTYPE_F32, 1, shape, err);
}

/* Slots of the table that a look-up of this name visits. */
static uint64_t steps(const struct cairn_names *names, uint32_t number) {
    uint64_t mask = names->slot_count - 1, at = names->hashes[number] & mask, count = 1;
    for (; names->slots[at] != number + 1; at = (at + 1) & mask) count++;
    return count;
}

TEST(a_look_up_among_20000_names_visits_few_of_them) { /* assembly.h#5 */
    struct cairn_assembly assembly = {0};
    char name[64];
    size_t at, wrong = 0;
    uint64_t all = 0, most = 0;
    for (unsigned i = 0; i < NAMES; i++) {
        name_of(i, name);
        REQUIRE(add(&assembly, name, NULL) == CAIRN_OK);
    }
    /* Without the tensors the table of names alone can answer. */
    struct cairn_assembly_tensor *tensors = assembly.tensors;
    assembly.tensors = NULL;
    for (unsigned i = 0; i < NAMES; i++) {
        name_of(i, name);
        wrong += !cairn_assembly_find(&assembly, name, &at) || at != i;
        uint64_t own = steps(&assembly.names, i);
        all += own;
        most = own > most ? own : most;
    }
    EXPECT(!cairn_assembly_find(&assembly, "200.mlp.deepspeed_moe.experts.0.weight", &at));
    assembly.tensors = tensors;
    EXPECT_EQ_U64(wrong, 0);
    EXPECT(all <= 2 * NAMES); /* a walk visits 200,010,000 */
    EXPECT(most <= 64);
    cairn_assembly_release(&assembly);
}

TEST(a_name_that_is_added_twice_is_refused_by_name, err) { /* assembly.h#5 */
    struct cairn_assembly assembly = {0};
    REQUIRE(add(&assembly, "a.weight", NULL) == CAIRN_OK);
    EXPECT_FAILS(add(&assembly, "a.weight", &err), CAIRN_INVALID, "a.weight is there twice");
    EXPECT(cairn_assembly_add_alias(&assembly, "a.weight", 0, NULL) == CAIRN_INVALID);
    EXPECT_EQ_U64(assembly.tensor_count, 1);
    cairn_assembly_release(&assembly);
}
