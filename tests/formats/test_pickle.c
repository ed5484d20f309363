/* SPDX-License-Identifier: Apache-2.0 */
/* Pickles that Python wrote in all its protocols, and such as no pickler would write. */
#include "formats/torch/pickle.h"
#include "tests/harness.h"

static enum cairn_pickle_verdict allow_one(struct cairn_view module, struct cairn_view name,
                                           uint32_t *ret_global, const char **ret_why) {
    *ret_global = 7;
    *ret_why = "which is not run here";
    if (name.size == 6 && !memcmp(name.data, "system", 6)) return CAIRN_PICKLE_REFUSED;
    return module.size == 3 && !memcmp(module.data, "mod", 3) && name.size == 5 &&
                   !memcmp(name.data, "thing", 5)
               ? CAIRN_PICKLE_KNOWN
               : CAIRN_PICKLE_UNKNOWN;
}

static const struct cairn_pickle_value *get(const struct cairn_pickle *pickle, const char *key) {
    cairn_pickle_ref found = 0;
    cairn_test_check(cairn_pickle_find(pickle, pickle->root, key, &found), __FILE__, __LINE__,
                     "key %s", key);
    return cairn_pickle_at(pickle, found);
}
static const struct cairn_pickle_value *at(const struct cairn_pickle *pickle,
                                           const struct cairn_pickle_value *list, uint32_t index) {
    return cairn_pickle_at(pickle, index < list->count ? list->items[index] : 0);
}
static bool text_is(const struct cairn_pickle_value *value, const char *text) {
    return value->kind == CAIRN_PICKLE_TEXT && value->text.size == strlen(text) &&
           !memcmp(value->text.data, text, value->text.size);
}

static void expect_plain(const struct cairn_pickle *pickle) {
    const struct cairn_pickle_value *a = get(pickle, "a"), *b = get(pickle, "b"),
                                    *c = get(pickle, "c"), *e = get(pickle, "e");
    REQUIRE(a->kind == CAIRN_PICKLE_LIST && a->count == 7);
    const int64_t numbers[] = {1, -2, INT64_C(1) << 40};
    for (uint32_t i = 0; i < CAIRN_COUNT(numbers); i++)
        EXPECT(at(pickle, a, i)->kind == CAIRN_PICKLE_INTEGER &&
               at(pickle, a, i)->integer == numbers[i]);
    EXPECT(at(pickle, a, 3)->kind == CAIRN_PICKLE_REAL && at(pickle, a, 3)->real == 2.5);
    EXPECT(at(pickle, a, 4)->kind == CAIRN_PICKLE_NONE);
    EXPECT(at(pickle, a, 5)->kind == CAIRN_PICKLE_BOOL && at(pickle, a, 5)->truth);
    EXPECT(at(pickle, a, 6)->kind == CAIRN_PICKLE_BOOL && !at(pickle, a, 6)->truth);
    REQUIRE(b->kind == CAIRN_PICKLE_TUPLE && b->count == 4);
    EXPECT(text_is(at(pickle, b, 0), "x\u20ac\n'\"\\"));
    EXPECT(at(pickle, b, 1)->kind == CAIRN_PICKLE_TUPLE && at(pickle, b, 1)->count == 0);
    EXPECT(at(pickle, b, 3)->kind == CAIRN_PICKLE_DICT);
    REQUIRE(c->kind == CAIRN_PICKLE_DICT && c->count == 2);
    EXPECT(at(pickle, at(pickle, c, 1), 0)->integer == 2);
    EXPECT(text_is(get(pickle, "d"), "latin \u00e9"));
    EXPECT(e->count == 3 && text_is(at(pickle, e, 2), "again"));
    EXPECT(get(pickle, "f") == a); /* kept once, found twice */
}

TEST(what_python_pickled_in_any_protocol_is_the_same_values, err) {
    for (int protocol = 0; protocol <= 5; protocol++) {
        WITH_OK(buf, bytes,
                cairn_file_load(cairn_test_file(TEXT("tests/vectors/torch/plain%d.pkl", protocol)),
                                &bytes, &err));
        WITH_OK(pickle, pickle,
                cairn_pickle_read(cairn_buf_view(&bytes), allow_one, &pickle, &err));
        EXPECT_EQ_U64(pickle.read_bytes, bytes.size);
        expect_plain(&pickle);
    }
}

#define PICKLE(text)                                                                               \
    { text, sizeof(text) - 1 }
struct bytes {
    const char *data;
    size_t size;
};

static enum cairn_code read_bytes(const char *data, size_t size, struct cairn_error *err) {
    CAIRN_AUTO(pickle) pickle = {0};
    return cairn_pickle_read((struct cairn_view){data, size}, allow_one, &pickle, err);
}

TEST(what_no_pickler_writes_is_refused) {
    EACH_OF(struct bytes, one, PICKLE(""), /* nothing */
            PICKLE("."),                   /* ends with nothing on the stack */
            PICKLE("N"),                   /* no STOP */
            PICKLE("0."),                  /* takes from an empty stack */
            PICKLE("N0(N0."),              /* takes below the mark */
            PICKLE("e."),                  /* no mark */
            PICKLE("Ne."),                 /* no mark either */
            PICKLE("(]Ne."),               /* items for what lies above the mark */
            PICKLE("N(Ne."),               /* items for None */
            PICKLE("}(Nu."),               /* a key without a value */
            PICKLE("(Nd."),                /* the same */
            PICKLE("h\x05."),              /* asks for what was not kept */
            PICKLE("Nr\xff\xff\xff\x7f."), /* keeps under a number of 2^31 */
            PICKLE("Np-1\n."),             /* and of -1 */
            PICKLE("X\xff\xff\xff\xff"
                   "abc."),                                  /* a text of 4 GiB in 3 bytes */
            PICKLE("\x8d\xff\xff\xff\xff\xff\xff\xff\x7f."), /* of 2^63 */
            PICKLE("\x8b\xff\xff\xff\xff."),                 /* a number of 4 GiB */
            PICKLE("X\x02\x00\x00\x00\xff\xfe."),            /* a text that is none */
            PICKLE("Vnot \\ud800\n."),                       /* half a character */
            PICKLE("I12x\n."), PICKLE("I\n."), PICKLE("F1.2.3\n."), PICKLE("I12"),
            PICKLE("S'open\n."), PICKLE("S'\\q'\n."), PICKLE("K"), PICKLE("\x95\x01"),
            PICKLE("N)R."),                    /* calls None */
            PICKLE("cmod\nthing\nNR."),        /* arguments that are no tuple */
            PICKLE("cmod\nthing\n)RNbN\x93."), /* a name that is no text */
            PICKLE("NNb."),                    /* state for None */
            PICKLE("(o."),                     /* an instance of no class */
            PICKLE("\xff."), PICKLE("\x00."),
            /* no opcodes */) {
        struct cairn_error err = {0};
        enum cairn_code code = read_bytes(one.data, one.size, &err);
        cairn_test_check(code == CAIRN_INVALID && err.message[0], __FILE__, __LINE__,
                         "pickle %zu: %s %s", AT_OF(one), cairn_code_info(code)->name, err.message);
    }
}

TEST(a_name_that_the_judge_refuses_is_an_error_with_the_name, err) {
    EACH_OF(struct bytes, one, PICKLE("cos\nsystem\n(S'true'\ntR."),
            PICKLE("\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R."),
            PICKLE("(S'true'\nios\nsystem\n.")) {
        err = (struct cairn_error){0};
        EXPECT_FAILS(read_bytes(one.data, one.size, &err), CAIRN_UNSUPPORTED,
                     "os.system, which is not run here");
    }
    static const struct bytes unsupported[] = {PICKLE("\x82\x01."), PICKLE("\x97."),
                                               PICKLE("\x80\x06N.")};
    for (size_t i = 0; i < CAIRN_COUNT(unsupported); i++)
        EXPECT_CODE(read_bytes(unsupported[i].data, unsupported[i].size, &err), CAIRN_UNSUPPORTED);
}

/* Whatever way an instance is made: each is an object, and the values beside it are read. */
TEST(an_unknown_name_is_kept_as_its_text, err) {
    EACH_OF(struct bytes, one, PICKLE("(ca.b\nC.D\n)R}S'k'\nK\x01sbt."),
            PICKLE("\x80\x04(\x8c\x03"
                   "a.b\x8c\x03"
                   "C.D\x93)\x81}\x8c\x01kK\x01sbt."),
            PICKLE("((ia.b\nC.D\n}S'k'\nK\x01sbt."), PICKLE("((ca.b\nC.D\no}S'k'\nK\x01sbt."),
            PICKLE("(ca.b\nC.D\n)}\x92}S'k'\nK\x01sbt."),
            PICKLE("(ca.b\nC.D\n(ca.b\nE\ntR)R}S'k'\nK\x01sbt."),
            /* made by what was made */) {
        err = (struct cairn_error){0};
        cairn_pickle_ref found = 0;
        WITH_OK(
            pickle, pickle,
            cairn_pickle_read((struct cairn_view){one.data, one.size}, allow_one, &pickle, &err));
        const struct cairn_pickle_value *object =
            at(&pickle, cairn_pickle_at(&pickle, pickle.root), 0);
        REQUIRE(object->kind == CAIRN_PICKLE_OBJECT);
        EXPECT(cairn_pickle_find(&pickle, object->state, "k", &found) &&
               cairn_pickle_at(&pickle, found)->integer == 1);
        const struct cairn_pickle_value *maker = cairn_pickle_at(&pickle, object->callable);
        if (maker->kind == CAIRN_PICKLE_OBJECT) maker = cairn_pickle_at(&pickle, maker->callable);
        const struct cairn_pickle_unknown *name = cairn_pickle_unknown_at(&pickle, maker);
        REQUIRE(name != NULL);
        EXPECT(!memcmp(name->module.data, "a.b", 3) && !memcmp(name->name.data, "C.D", 3));
    }
    EXPECT_CODE(read_bytes("ca\xff\nb\n.", 7, &err), CAIRN_INVALID);
}

TEST(an_object_keeps_its_arguments_state_and_items, err) {
    static const char bytes[] = "cmod\nthing\n(K\x01K\x02tR(S'k'\nK\x03u}S's'\nK\x04sb.";
    WITH_OK(
        pickle, pickle,
        cairn_pickle_read((struct cairn_view){bytes, sizeof bytes - 1}, allow_one, &pickle, &err));
    const struct cairn_pickle_value *object = cairn_pickle_at(&pickle, pickle.root);
    REQUIRE(object->kind == CAIRN_PICKLE_OBJECT && object->count == 2);
    EXPECT_EQ_U64(cairn_pickle_at(&pickle, object->callable)->global, 7);
    EXPECT_EQ_U64(cairn_pickle_at(&pickle, object->arguments)->count, 2);
    cairn_pickle_ref found = 0;
    EXPECT(cairn_pickle_find(&pickle, pickle.root, "k", &found) &&
           cairn_pickle_at(&pickle, found)->integer == 3);
    EXPECT(cairn_pickle_find(&pickle, object->state, "s", &found) &&
           cairn_pickle_at(&pickle, found)->integer == 4);
    EXPECT(!cairn_pickle_find(&pickle, pickle.root, "s", &found));
}

TEST(numbers_of_any_length_keep_their_sign) {
    EACH(one, FIELDS(struct bytes pickle; int64_t value), {PICKLE("\x8a\x00."), 0},
         {PICKLE("\x8a\x01\xff."), -1}, {PICKLE("\x8a\x02\xff\x00."), 255},
         {PICKLE("J\xff\xff\xff\xff."), -1}, {PICKLE("M\xff\xff."), 65535},
         {PICKLE("I-12\n."), -12}, {PICKLE("L-12L\n."), -12},
         {PICKLE("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."), INT64_MIN}) {
        struct cairn_error err = {0};
        struct cairn_view bytes = {one->pickle.data, one->pickle.size};
        WITH_OK(pickle, pickle, cairn_pickle_read(bytes, allow_one, &pickle, &err));
        const struct cairn_pickle_value *value = cairn_pickle_at(&pickle, pickle.root);
        EXPECT(value->kind == CAIRN_PICKLE_INTEGER && value->integer == one->value);
    }
}

/* A reader that trusts lengths, or keeps each use of a value, dies of these. */
TEST(memory_follows_the_bytes_and_not_the_numbers_in_them, err) {
    CAIRN_AUTO(buf) bytes = {.limit = 4 * CAIRN_MIB};
    for (int i = 0; i < 1000000; i++) REQUIRE_OK(cairn_buf_append(&bytes, "(", 1, &err));
    EXPECT_CODE(read_bytes(bytes.data, bytes.size, &err), CAIRN_INVALID);
    cairn_buf_clear(&bytes);
    for (int i = 0; i < 200000; i++) REQUIRE_OK(cairn_buf_append(&bytes, "]", 1, &err));
    for (int i = 0; i < 199999; i++) REQUIRE_OK(cairn_buf_append(&bytes, "a", 1, &err));
    REQUIRE_OK(cairn_buf_append(&bytes, ".", 1, &err));
    EXPECT_CODE(read_bytes(bytes.data, bytes.size, &err), CAIRN_OK); /* 200,000 levels deep */
}
