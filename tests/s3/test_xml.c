/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of stores: good ones of several makers, and everything that must not be believed. */
#include "store/xml/xml.h"

#include "store/time.h"
#include "tests/harness.h"

#define NAMESPACE " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\""

TEST(an_error_document_is_told_from_everything_else) { /* xml.h#2 */
    struct cairn_xml_problem problem = {0};
    EXPECT(cairn_xml_problem_read(
        CAIRN_VIEW("<?xml version=\"1.0\"?>\n<Error><Code>NoSuchUpload</Code><Message>gone\nnow"
                   "</Message><RequestId>tx1</RequestId><Region>eu-west-1</Region></Error>"),
        &problem));
    EXPECT_ALL_TEXT(problem.code, "NoSuchUpload", problem.message, "gone now", problem.region,
                    "eu-west-1", problem.request_id, "tx1");
    EACH_TEXT(text, "", "<html><body>Sign in</body></html>", "<Error><Code>Cut", "<Error></Error>",
              "nonsense",
              "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")
        EXPECT(!cairn_xml_problem_read(cairn_view_of(text), &problem));
    EXPECT_EQ_TEXT(problem.code, "NoSuchUpload"); /* untouched */
}

#define COMPLETED                                                                                  \
    "<CompleteMultipartUploadResult" NAMESPACE "><Location>http://x</Location><Bucket>b</Bucket>"  \
    "<Key>k</Key><ETag>&quot;3858f62230ac3c915f300c664312c11f-9&quot;</ETag>"                      \
    "</CompleteMultipartUploadResult>"

TEST(a_completed_upload_has_its_etag_and_white_space_in_front_is_skipped, err) { /* xml.h#3 */
    char etag[128] = "";
    REQUIRE_OK(cairn_xml_completed(
        CAIRN_VIEW("   \n\n <?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" COMPLETED), etag, &err));
    EXPECT_EQ_TEXT(etag, "\"3858f62230ac3c915f300c664312c11f-9\"");
}

TEST(what_is_no_whole_result_is_never_believed) { /* xml.h#1, S01, S04 */
    EACH_TEXT(
        text, "", "   \n", "<html/>", "<Error><Code>InternalError</Code></Error>",
        "<CompleteMultipartUploadResult><ETag>e</ETag>",
        "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>", COMPLETED "<more/>",
        "<!DOCTYPE a [<!ENTITY b \"c\">]>" COMPLETED,
        "<!DOCTYPE CompleteMultipartUploadResult SYSTEM \"file:///etc/passwd\">" COMPLETED,
        "<CompleteMultipartUploadResult><ETag>&unknown;</ETag></CompleteMultipartUploadResult>") {
        char etag[128] = "kept";
        struct cairn_error err = {0};
        EXPECT_CODE(cairn_xml_completed(cairn_view_of(text), etag, &err), CAIRN_PROTOCOL);
        EXPECT_EQ_TEXT(etag, "kept");
    }
}

TEST(depth_text_and_number_of_elements_are_bounded, err) { /* xml.h#1, S29 */
    CAIRN_AUTO(buf) deep = {0};
    char id[CAIRN_UPLOAD_ID_BYTES_MAX];
    for (int i = 0; i < 100000; i++)
        REQUIRE_OK(cairn_buf_append_text(&deep, "<InitiateMultipartUploadResult>", &err));
    EXPECT_CODE(cairn_xml_upload_id(cairn_buf_view(&deep), id, &err), CAIRN_PROTOCOL);
    WITH_OK(buf, wide, cairn_buf_append_text(&wide, "<InitiateMultipartUploadResult>", &err));
    for (int i = 0; i < 200001; i++) REQUIRE_OK(cairn_buf_append_text(&wide, "<a/>", &err));
    REQUIRE_OK(cairn_buf_append_text(&wide, "</InitiateMultipartUploadResult>", &err));
    EXPECT_CODE(cairn_xml_upload_id(cairn_buf_view(&wide), id, &err), CAIRN_PROTOCOL);
    WITH_OK(buf, longer,
            cairn_buf_append_text(&longer, "<InitiateMultipartUploadResult><UploadId>", &err));
    for (int i = 0; i < 20000; i++) REQUIRE_OK(cairn_buf_append_text(&longer, "x", &err));
    REQUIRE_OK(cairn_buf_append_text(&longer, "</UploadId></InitiateMultipartUploadResult>", &err));
    EXPECT_CODE(cairn_xml_upload_id(cairn_buf_view(&longer), id, &err), CAIRN_PROTOCOL);
}

TEST(an_upload_id_is_taken_as_it_is, err) {
    char id[CAIRN_UPLOAD_ID_BYTES_MAX] = "";
    REQUIRE_OK(cairn_xml_upload_id(
        CAIRN_VIEW("<InitiateMultipartUploadResult" NAMESPACE "><Bucket>b</Bucket><Key>k</Key>"
                   "<UploadId>2~a/b+c=&amp;d</UploadId></InitiateMultipartUploadResult>"),
        id, &err));
    EXPECT_EQ_TEXT(id, "2~a/b+c=&d");
}

TEST(parts_are_listed_with_size_etag_and_checksum, err) {
    struct cairn_store_part room[3];
    struct cairn_xml_parts parts = {room, 0, 3, 0};
    REQUIRE_OK(cairn_xml_parts_read(
        CAIRN_VIEW("<ListPartsResult" NAMESPACE "><NextPartNumberMarker>7</NextPartNumberMarker>"
                   "<IsTruncated>true</IsTruncated>"
                   "<Part><PartNumber>3</PartNumber><ETag>\"e3\"</ETag><Size>5242880</Size>"
                   "<ChecksumCRC32C>4waSgw==</ChecksumCRC32C></Part>"
                   "<Part><ETag>e7</ETag><Size>1</Size><PartNumber>7</PartNumber></Part>"
                   "</ListPartsResult>"),
        &parts, &err));
    EXPECT_ALL_U64(parts.count, 2, parts.next_marker, 7, room[0].number, 3, room[0].size_bytes,
                   5242880);
    EXPECT(room[0].has_crc32c);
    EXPECT_EQ_U64(room[0].crc32c, 0xe3069283);
    EXPECT_EQ_TEXT(room[0].etag, "\"e3\"");
    EXPECT(!room[1].has_crc32c);
    static const char more[] = "<ListPartsResult><Part><PartNumber>8</PartNumber></Part>"
                               "<Part><PartNumber>9</PartNumber></Part></ListPartsResult>";
    EXPECT_CODE(cairn_xml_parts_read(CAIRN_VIEW(more), &parts, &err), CAIRN_PROTOCOL);
    EXPECT_EQ_U64(parts.count, 2);
    EXPECT_CODE(cairn_xml_parts_read(CAIRN_VIEW("<ListPartsResult><IsTruncated>true</IsTruncated>"
                                                "</ListPartsResult>"),
                                     &parts, &err),
                CAIRN_PROTOCOL);
}

TEST(a_list_of_parts_ends_by_the_words_of_other_servers, err) {
    EACH(one, FIELDS(const char *end; uint32_t next),
         {"<IsTruncated>True</IsTruncated><NextPartNumberMarker> 7 </NextPartNumberMarker>", 7},
         {"<IsTruncated>\n 1\n</IsTruncated><NextPartNumberMarker>7</NextPartNumberMarker>", 7},
         {"<IsTruncated>False</IsTruncated><NextPartNumberMarker>7</NextPartNumberMarker>", 0},
         {"<NextPartNumberMarker>null</NextPartNumberMarker>", 0}) {
        struct cairn_store_part room[1];
        struct cairn_xml_parts parts = {room, 0, 1, 0};
        WITH_OK(buf, text,
                cairn_buf_printf(&text, &err,
                                 "<ns2:ListPartsResult xmlns:ns2=\"x\"><ns2:Part><ns2:PartNumber>"
                                 "7</ns2:PartNumber></ns2:Part>%s</ns2:ListPartsResult>",
                                 one->end));
        REQUIRE_OK(cairn_xml_parts_read(cairn_buf_view(&text), &parts, &err));
        EXPECT_ALL_U64(parts.count, 1, parts.next_marker, one->next);
    }
}

TEST(a_cut_list_of_parts_whose_marker_is_no_number_is_refused_and_read_again, err) {
#define MARKER(text) "<NextPartNumberMarker>" text "</NextPartNumberMarker>"
    EACH_TEXT(markers, "", MARKER("null"), MARKER(""), MARKER("7x"), MARKER("0"), MARKER("10001"),
              MARKER("7") MARKER("none")) {
        struct cairn_store_part room[1];
        struct cairn_xml_parts parts = {room, 0, 1, 0};
        WITH_OK(buf, text,
                cairn_buf_printf(&text, &err,
                                 "<ListPartsResult><IsTruncated>true</IsTruncated>%s<Part>"
                                 "<PartNumber>7</PartNumber></Part></ListPartsResult>",
                                 markers));
        EXPECT_FAILS(cairn_xml_parts_read(cairn_buf_view(&text), &parts, &err), CAIRN_PROTOCOL,
                     "does not say where it goes on");
        EXPECT_ALL_U64(parts.count, 0, parts.next_marker, 0);
    }
#undef MARKER
}

static const struct cairn_xml_listed below_p = {"p/", 2};

TEST(e_a_listed_key_that_was_not_asked_for_ends_the_listing, err) {
    CAIRN_AUTO(store_listing) listing = {0};
    const struct cairn_xml_listed deeper = {"p/q/", 2};
    EXPECT_CODE(cairn_xml_objects(CAIRN_VIEW("<ListBucketResult><IsTruncated>false</IsTruncated>"
                                             "<Contents><Key>p/z</Key></Contents>"
                                             "<Contents><Key>elsewhere</Key></Contents>"
                                             "</ListBucketResult>"),
                                  &below_p, &listing, &err),
                CAIRN_STORE);
    EXPECT(strstr(err.message, "below \"p/\"") && strstr(err.message, "\"elsewhere\""));
    EXPECT_EQ_U64(listing.count, 0);
    EXPECT_CODE(cairn_xml_uploads(CAIRN_VIEW("<ListMultipartUploadsResult>"
                                             "<IsTruncated>false</IsTruncated>"
                                             "<Upload><Key>p/z</Key><UploadId>u</UploadId></Upload>"
                                             "</ListMultipartUploadsResult>"),
                                  &deeper, &listing, &err),
                CAIRN_STORE);
    EXPECT(strstr(err.message, "uploads below \"p/q/\"") && strstr(err.message, "\"p/z\""));
}

TEST(objects_are_listed_without_the_prefix, err) {
    CAIRN_AUTO(store_listing) listing = {0};
    REQUIRE_OK(cairn_xml_objects(
        CAIRN_VIEW("<ListBucketResult" NAMESPACE "><IsTruncated>true</IsTruncated>"
                   "<EncodingType>url</EncodingType><Prefix>p/</Prefix>"
                   "<Contents><Key>p/a+b%2Bc%C3%A9</Key><Size>12</Size>"
                   "<LastModified>2013-05-24T00:00:00.250Z</LastModified></Contents>"
                   "<Contents><Key>p/z</Key><Size>0</Size></Contents>"
                   "<NextContinuationToken>tok+en==</NextContinuationToken></ListBucketResult>"),
        &below_p, &listing, &err));
    REQUIRE(listing.count == 2);
    EXPECT_EQ_TEXT(listing.entries[0].key, "a b+cé");
    EXPECT_EQ_U64(listing.entries[0].size_bytes, 12);
    EXPECT_EQ_U64(listing.entries[0].modified_ms, UINT64_C(1369353600250));
    EXPECT_ALL_TEXT(listing.entries[1].key, "z", listing.next_page, "tok+en==");
    EXPECT_CODE(cairn_xml_objects(CAIRN_VIEW("<ListBucketResult><Contents><Key>p/q</Key>"),
                                  &below_p, &listing, &err),
                CAIRN_PROTOCOL);
    EXPECT_EQ_U64(listing.count, 2);
}

TEST(open_uploads_are_listed_with_their_ids, err) {
    CAIRN_AUTO(store_listing) listing = {0};
    REQUIRE_OK(cairn_xml_uploads(
        CAIRN_VIEW("<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>"
                   "<NextKeyMarker>p/k</NextKeyMarker><NextUploadIdMarker>u2</NextUploadIdMarker>"
                   "<Upload><Key>p/k</Key><UploadId>u1</UploadId>"
                   "<Initiated>2013-05-24T00:00:00Z</Initiated></Upload>"
                   "</ListMultipartUploadsResult>"),
        &below_p, &listing, &err));
    REQUIRE(listing.count == 1);
    EXPECT_ALL_TEXT(listing.entries[0].key, "k", listing.entries[0].upload_id, "u1",
                    listing.next_page, "p/k\nu2");
}

TEST(versions_and_delete_markers_are_read_with_their_ids_and_where_the_next_page_begins, err) {
    static const char text[] =
        "<ListVersionsResult><IsTruncated>true</IsTruncated><EncodingType>url</EncodingType>"
        "<NextKeyMarker>p/b+c</NextKeyMarker><NextVersionIdMarker>v/2=</NextVersionIdMarker>"
        "<DeleteMarker><Owner><ID>x</ID></Owner><Key>p/a</Key><VersionId>m</VersionId>"
        "<LastModified>2024-02-29T12:00:00.000Z</LastModified></DeleteMarker>"
        "<Version><Key>p/a</Key><VersionId>null</VersionId><Size>7</Size></Version>"
        "<Version><VersionId>v/2=</VersionId><Key>p/b+c</Key><Size>8</Size></Version>"
        "</ListVersionsResult>";
    struct cairn_store_listing listing = {0};
    struct cairn_xml_listed below = {.prefix = "p/"}, elsewhere = {.prefix = "q/"};
    REQUIRE_OK(cairn_xml_versions(cairn_view_of(text), &below, &listing, &err));
    REQUIRE(listing.count == 3);
    EXPECT(listing.entries[0].is_marker && !listing.entries[1].is_marker);
    EXPECT_EQ_TEXT(listing.entries[0].version_id, "m");
    EXPECT_EQ_U64(listing.entries[0].modified_ms, 1709208000000);
    EXPECT_EQ_TEXT(listing.entries[1].version_id, "null");
    EXPECT_EQ_U64(listing.entries[1].size_bytes, 7);
    EXPECT_ALL_TEXT(listing.entries[2].key, "p/b c", listing.next_page, "p/b c\nv/2=");
    cairn_store_listing_release(&listing);
    EXPECT_CODE(cairn_xml_versions(cairn_view_of(text), &elsewhere, &listing, &err), CAIRN_STORE);
    EXPECT_EQ_U64(listing.count, 0);
    cairn_store_listing_release(&listing);
}

struct told {
    unsigned deleted, failed;
    char last[96];
};
static void on_told(void *owner, const char *key, const char *version, const char *code,
                    const char *message) {
    struct told *told = owner;
    told->deleted += !code;
    told->failed += code != NULL;
    snprintf(told->last, sizeof told->last, "%.20s%s%.8s %.20s %.20s", key, *version ? "@" : "",
             version, code ? code : "-", message);
}

TEST(deletions_are_told_one_by_one_and_only_of_whole_documents) { /* S27, xml.h#1 */
    EACH(one,
         FIELDS(const char *text; unsigned deleted, failed; const char *last; enum cairn_code code),
         {"<DeleteResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"/>", 0, 0, "", CAIRN_OK},
         {"<DeleteResult><Deleted><Key>p/a</Key></Deleted><Error><Code>AccessDenied</Code>"
          "<Key>p/b &amp; c</Key><Message>no</Message></Error></DeleteResult>",
          1, 1, "b & c AccessDenied no", CAIRN_OK},
         {"<DeleteResult><Error><Key>p/a</Key><Code>X</Code></Error><Deleted><Key>p/b</Key>"
          "<VersionId>v</VersionId><DeleteMarker>true</DeleteMarker></Deleted></DeleteResult>",
          1, 1, "b@v - ", CAIRN_OK},
         {"<DeleteResult><Deleted><Key>p/a</Key><VersionId>v</VersionId></Deleted><Error>"
          "<VersionId>w</VersionId><Key>p/a</Key><Code>AccessDenied</Code></Error></DeleteResult>",
          1, 1, "a@w AccessDenied ", CAIRN_OK},
         {"<DeleteResult><Deleted><Key>p/a</Key><VersionId>v</VersionId></Deleted><Deleted><Key>p/b"
          "</Key></Deleted></DeleteResult>",
          2, 0, "b - ", CAIRN_OK},
         {"<DeleteResult><Deleted><Key>other/a</Key></Deleted></DeleteResult>", 0, 0, "", CAIRN_OK},
         {"<DeleteResult><Deleted><Key>p/a</Key></Deleted>", 0, 0, "", CAIRN_PROTOCOL},
         {"<DeleteResult><Deleted></Deleted></DeleteResult>", 0, 0, "", CAIRN_PROTOCOL},
         {"<DeleteResult><Error><Key>p/a</Key></Error></DeleteResult>", 0, 0, "", CAIRN_PROTOCOL},
         {"<Error><Code>InternalError</Code></Error>", 0, 0, "", CAIRN_PROTOCOL},
         {"", 0, 0, "", CAIRN_PROTOCOL}) {
        struct told told = {0};
        struct cairn_error err = {0};
        struct cairn_xml_deletions reader = {"p/", on_told, &told};
        EXPECT_CODE(cairn_xml_deletions_read(cairn_view_of(one->text), &reader, &err), one->code);
        EXPECT_ALL_U64(told.deleted, one->deleted, told.failed, one->failed);
        EXPECT_EQ_TEXT(told.last, one->last);
    }
}

TEST(an_error_of_sts_is_read_like_one_of_s3) {
    struct cairn_xml_problem problem = {0};
    EXPECT(cairn_xml_problem_read(
        CAIRN_VIEW("<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error>"
                   "<Type>Sender</Type><Code>AccessDenied</Code></Error><RequestId>r</RequestId>"
                   "</ErrorResponse>"),
        &problem));
    EXPECT_EQ_TEXT(problem.code, "AccessDenied");
}

TEST(keys_of_sts_are_read, err) {
    WITH_OK(
        xml_session, session,
        cairn_xml_session_read(
            CAIRN_VIEW("<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult>"
                       "<Credentials><SessionToken>tok</SessionToken><SecretAccessKey>sec"
                       "</SecretAccessKey><Expiration>2026-01-01T00:00:00Z</Expiration>"
                       "<AccessKeyId>ASIA</AccessKeyId></Credentials>"
                       "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"),
            "AssumeRoleWithWebIdentityResponse", &session, &err));
    EXPECT_EQ_TEXT(session.access_key, "ASIA");
    EXPECT_EQ_TEXT(cairn_secret_view(&session.secret).data, "sec");
    EXPECT_EQ_TEXT(cairn_secret_view(&session.token).data, "tok");
    EXPECT_EQ_TEXT(session.expiration, "2026-01-01T00:00:00Z");
}

TEST(text_is_escaped_for_elements, err) {
    WITH_OK(buf, text, cairn_xml_escape("\"a<b>&c\"", &text, &err));
    EXPECT_EQ_TEXT(text.data, "&quot;a&lt;b&gt;&amp;c&quot;");
}

TEST(both_forms_of_time_are_read_and_others_refused, err) {
    int64_t ms = 0;
    REQUIRE_OK(cairn_s3_time_iso("2013-05-24T00:00:00Z", &ms, &err));
    EXPECT_EQ_U64(ms, UINT64_C(1369353600000));
    REQUIRE_OK(cairn_s3_time_iso("2024-02-29T23:59:59.9876Z", &ms, &err));
    EXPECT_EQ_U64(ms, UINT64_C(1709251199987));
    REQUIRE_OK(cairn_s3_time_http("Fri, 24 May 2013 00:00:00 GMT", &ms, &err));
    EXPECT_EQ_U64(ms, UINT64_C(1369353600000));
    EACH_TEXT(text, "", "2013-05-24", "2013-05-24T00:00:00", "2013-13-24T00:00:00Z",
              "2013-05-24T00:00:00+02:00", "2013-05-24T00:00:00Zx")
        EXPECT_CODE(cairn_s3_time_iso(text, &ms, &err), CAIRN_PROTOCOL);
    /* the three of RFC 9110 */
    EACH_TEXT(one, "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT",
              "Sun Nov  6 08:49:37 1994") {
        REQUIRE_OK(cairn_s3_time_http(one, &ms, &err));
        EXPECT_EQ_U64(ms, UINT64_C(784111777000));
    }
    EACH_TEXT(name, "Fri, 24 Mai 2013 00:00:00 GMT", "Fri, 24 May 2013 00:00:00 CET", "120",
              "Fri, 30 Feb 2013 00:00:00 GMT", "Fri, 29 Feb 2013 00:00:00 GMT",
              "Sun Nov  6 08:49:37 1994 GMT", "Sunday, 06-Nov-1994 08:49:37 GMT")
        EXPECT_CODE(cairn_s3_time_http(name, &ms, &err), CAIRN_PROTOCOL);
}

TEST(times_that_stores_write_beside_the_standard_are_read_or_not_known) {
    EACH(one, FIELDS(const char *text; int64_t ms /* 0: not known */),
         {"2013-05-24T00:00:00Z", 1369353600000}, {"2013-05-24T00:00:00.000Z", 1369353600000},
         {"2013-05-24T00:00:00", 1369353600000}, {"2013-05-24 00:00:00Z", 1369353600000},
         {"2013-05-24T02:00:00+02:00", 1369353600000},
         {"2013-05-23T19:00:00.5-0500", 1369353600500},
         {"Fri, 24 May 2013 00:00:00 GMT", 1369353600000}, {"0001-01-01T00:00:00Z", 0}, {"", 0},
         {"never", 0}, {"2013-05-24T00:00:00+99:00", 0}, {"2013-05-24", 0}) {
        int64_t ms = 0;
        bool known = cairn_s3_time_any(one->text, &ms);
        EXPECT_EQ_U64(known, one->ms != 0);
        if (known) EXPECT_EQ_U64(ms, one->ms);
        CAIRN_AUTO(store_listing) listing = {0};
        struct cairn_xml_listed listed = {.prefix = "p/", .cut_bytes = 2};
        struct cairn_error err = {0};
        WITH_OK(buf, text,
                cairn_buf_printf(&text, &err,
                                 "<ListBucketResult><Contents><Key>p/k</Key><LastModified>%s"
                                 "</LastModified><Size> 7 </Size></Contents>"
                                 "</ListBucketResult>",
                                 one->text));
        REQUIRE_OK(cairn_xml_objects(cairn_buf_view(&text), &listed, &listing, &err));
        EXPECT_EQ_U64(listing.entries[0].modified_ms, one->ms);
        EXPECT_EQ_U64(listing.entries[0].size_bytes, 7);
    }
}

TEST(a_listing_that_is_cut_off_without_a_token_is_the_stores_fault_and_final) {
    EACH_TEXT(one, "", "<NextContinuationToken></NextContinuationToken>") {
        CAIRN_AUTO(store_listing) listing = {0};
        struct cairn_xml_listed listed = {.prefix = "p/", .cut_bytes = 2};
        struct cairn_error err = {0};
        WITH_OK(buf, text,
                cairn_buf_printf(&text, &err,
                                 "<ListBucketResult><IsTruncated>true</IsTruncated>%s"
                                 "<Contents><Key>p/k</Key></Contents></ListBucketResult>",
                                 one));
        EXPECT_FAILS(cairn_xml_objects(cairn_buf_view(&text), &listed, &listing, &err), CAIRN_STORE,
                     "IsTruncated without NextContinuationToken");
        EXPECT_EQ_U64(listing.count, 0);
    }
}

/* A page that is taken for the last one hides what follows it. */
TEST(a_listing_goes_on_by_the_words_of_other_servers, err) {
    EACH(one, FIELDS(const char *end; const char *next),
         {"<IsTruncated>True</IsTruncated><NextContinuationToken>t</NextContinuationToken>", "t"},
         {"<IsTruncated>1</IsTruncated><NextContinuationToken>t</NextContinuationToken>", "t"},
         {"<IsTruncated>\n true\n</IsTruncated><NextContinuationToken>t</NextContinuationToken>",
          "t"},
         {"<NextContinuationToken>t</NextContinuationToken>", "t"},
         {"<IsTruncated>False</IsTruncated><NextContinuationToken>t</NextContinuationToken>", NULL},
         {"<NextContinuationToken></NextContinuationToken>", NULL}, {"", NULL}) {
        CAIRN_AUTO(store_listing) listing = {0};
        struct cairn_xml_listed listed = {.prefix = "p/", .cut_bytes = 2};
        WITH_OK(buf, text,
                cairn_buf_printf(&text, &err,
                                 "<ns2:ListBucketResult xmlns:ns2=\"x\">%s<ns2:Contents><ns2:Key>"
                                 "p/k</ns2:Key></ns2:Contents></ns2:ListBucketResult>",
                                 one->end));
        REQUIRE_OK(cairn_xml_objects(cairn_buf_view(&text), &listed, &listing, &err));
        REQUIRE(listing.count == 1);
        EXPECT_EQ_TEXT(listing.next_page ? listing.next_page : "", one->next ? one->next : "");
    }
    CAIRN_AUTO(store_listing) uploads = {0}; /* a marker may be the last key's */
    REQUIRE_OK(cairn_xml_uploads(CAIRN_VIEW("<ListMultipartUploadsResult><NextKeyMarker>p/k"
                                            "</NextKeyMarker></ListMultipartUploadsResult>"),
                                 &below_p, &uploads, &err));
    EXPECT(!uploads.next_page);
}
