# SPDX-License-Identifier: Apache-2.0
# What tests are built of, and the entries of ctest that no file of tests declares by itself (tests/tests.cmake).

# ---- what tests start or preload ----
if(BUILD_TESTING)
  # Preloaded into programs of this build, so they bear no sanitizer themselves; nosync into PostgreSQL.
  foreach(preloaded fail record stale clock nosync)
    add_library(${preloaded} MODULE tests/support/lib${preloaded}.c)
    target_compile_options(${preloaded} PRIVATE -Wall -Wextra -fno-omit-frame-pointer -fno-builtin)
    target_compile_definitions(${preloaded} PRIVATE _GNU_SOURCE)
    target_link_libraries(${preloaded} PRIVATE ${CMAKE_DL_LIBS})
    set_target_properties(${preloaded} PROPERTIES C_VISIBILITY_PRESET default
      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  endforeach()
  # Beside them, so that what it keeps for the next test is this build's.
  configure_file(tests/support/postgres.sh ${CMAKE_BINARY_DIR}/tests/postgres.sh COPYONLY)
endif()
foreach(program trainer stream restorer tensor_reader tensor_writer) # the figures of restores need two of them
  add_executable(${program} tests/e2e/${program}.c)
  target_link_libraries(${program} PRIVATE cairn_flags cairn)
  set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(NOT BUILD_TESTING)
    set_target_properties(${program} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endforeach()

# ---- tests ----
# bench/run commit-look needs it, too, so it can be built without the tests.
file(GLOB s3fault CONFIGURE_DEPENDS tests/support/s3fault/*.c)
add_executable(s3fault ${s3fault})
target_link_libraries(s3fault PRIVATE part_common PkgConfig::libssl PkgConfig::libcrypto)
if(NOT BUILD_TESTING)
  set_target_properties(s3fault PROPERTIES EXCLUDE_FROM_ALL ON)
  return()
endif()
include(tests/tests.cmake)
cairn_test_support()
cairn_tests(common USES common common_hash)
cairn_tests(tidy USES common)
cairn_tests(docs USES api ROOMS server uploader)
cairn_tests(http USES api_rest)
cairn_tests(store USES store)
cairn_tests(s3 USES store_s3)
cairn_tests(s3faults USES uploader)
cairn_tests(formats USES formats_foreign)
cairn_tests(api USES api_digest api_policy)
cairn_tests(plan USES plan plan_retention api_digest)
cairn_tests(client USES client api_rest ROOMS uploader server store)
cairn_tests(gpu USES client EXTRA tests/client/staged.c)
cairn_tests(promise USES cairn_static PkgConfig::jansson ROOMS client plan formats api common)
cairn_tests(uploader USES uploader ROOMS server)
cairn_tests(server USES server api_rest PkgConfig::sqlite3)
cairn_tests(cli USES cli cairn)
cairn_tests(torture USES server uploader client formats
  EXTRA tests/fuzz/seeds.c tests/fuzz/file.c tests/plan/stored.c)
target_link_options(tests_torture PRIVATE -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
  -Wl,--wrap=aligned_alloc,--wrap=strdup,--wrap=strndup)
add_dependencies(tests_docs cairn-server cairn-uploader)
add_dependencies(tests_s3faults s3fault)
add_dependencies(tests_uploader cairn-uploader cairn-server s3fault clock)
add_dependencies(tests_server cairn-server clock)
add_dependencies(tests_gpu cairn_cuda)

# A runtime of CUDA that plays devices, and what the plug-in declares of CUDA compared with a toolkit's headers.
add_library(fake_cuda SHARED tests/support/fake_cuda.c tests/support/fake_cuda_driver.c)
target_link_libraries(fake_cuda PRIVATE cairn_flags)
# Kernels run here as fast as they can: what they do is compared, not watched.
set_source_files_properties(tests/support/fake_cuda_driver.c PROPERTIES
  COMPILE_OPTIONS "-O2;-fno-sanitize=all")
target_link_options(fake_cuda PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/tests/support/fake_cuda.map)
set_target_properties(fake_cuda PROPERTIES OUTPUT_NAME cudart SOVERSION 13
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake_cuda)
add_dependencies(tests_client cairn cairn_cuda fake_cuda cairn-server cairn-uploader)
find_path(CAIRN_CUDA_HEADERS cuda_runtime_api.h HINTS /usr/local/cuda/include)
if(CAIRN_CUDA_HEADERS)
  add_library(cuda_types OBJECT tests/client/cuda_types.c)
  target_include_directories(cuda_types SYSTEM PRIVATE ${CAIRN_CUDA_HEADERS})
  target_link_libraries(cuda_types PRIVATE cairn_flags)
endif()

# The same over libmicrohttpd's next release, which setup/extras.sh builds.
foreach(module http site peers reads limits faults)
  cairn_single(libmicrohttpd/${module} "labels=libmicrohttpd,full" COMMAND ${CMAKE_SOURCE_DIR}/tests/server/with_libmicrohttpd
    ${CMAKE_SOURCE_DIR}/build/libmicrohttpd ${CMAKE_BINARY_DIR}/tests_server server/${module})
endforeach()
# The same cases over connections that libcurl only opens.
cairn_single(http/http_directly "env=CAIRN_TEST_DIRECT=1" COMMAND ${CMAKE_BINARY_DIR}/tests_http http/http)

# ---- the rules of docs/protocol.md as machines: no fault with all of them, a fault without each ----
set(model ${CAIRN_PYTHON3} ${CMAKE_SOURCE_DIR}/docs/protocol_model.py)
cairn_single(docs/protocol_model "seconds=60 thirds=3" COMMAND ${model} quick)
cairn_single(model/small "labels=full seconds=60 thirds=3" COMMAND ${model} small)
cairn_single(model/walks "labels=full seconds=60 thirds=3" COMMAND ${model} walk fix all 15)

# ---- Python: pages, oracles, and clients that others wrote ----
set(python ${CAIRN_PYTHON3} ${CMAKE_SOURCE_DIR}/tests/python)
add_executable(print_api tests/api/print_api.c)
target_link_libraries(print_api PRIVATE part_api)
add_executable(print_openapi tests/api/print_openapi.c)
target_link_libraries(print_openapi PRIVATE part_api)
cairn_single(python/protocol_page "" COMMAND ${python}/check_protocol_page.py)
cairn_single(python/sigv4_oracle "labels=python" COMMAND ${python}/sigv4_oracle.py --program $<TARGET_FILE:tests_s3>)
cairn_single(python/s3fault_boto3 "labels=python" COMMAND ${python}/s3fault_boto3.py --program $<TARGET_FILE:s3fault>)
cairn_single(api/replies "" COMMAND ${python}/check_replies.py $<TARGET_FILE:print_api>)
cairn_single(docs/release "" COMMAND ${python}/check_release.py ${CMAKE_SOURCE_DIR})
# What is shipped is what is printed.
cairn_single(api/openapi_printed "" COMMAND sh -c "\"$1\" \"$2/openapi.prose.yaml\" | cmp - \"$2/openapi.yaml\""
  sh $<TARGET_FILE:print_openapi> ${CMAKE_SOURCE_DIR}/api)
cairn_single(api/openapi "" COMMAND ${python}/check_openapi.py $<TARGET_FILE:print_api> ${CMAKE_SOURCE_DIR}/api/openapi.yaml)
# A client that is generated from the page calls every operation of a real server.
cairn_single(api/generated_client "seconds=30" COMMAND ${python}/generated_client.py
  $<TARGET_FILE:cairn-server> ${CMAKE_SOURCE_DIR}/api/openapi.yaml)

# ---- names: a linker that finds one twice in archives says nothing ----
cairn_single(tidy/symbols "" COMMAND ${CAIRN_PYTHON3} ${CMAKE_SOURCE_DIR}/tests/tidy/symbols.py ${CMAKE_BINARY_DIR})

# ---- planted: faults on purpose, which the tests' own tools have to notice ----
add_executable(planted tests/planted/test_planted.c tests/harness.c tests/checks.c)
target_link_libraries(planted PRIVATE cairn_flags PkgConfig::cunit tests_support part_common)
if(CAIRN_SANITIZE MATCHES address)
  cairn_single(planted/address "rooms=common" COMMAND ${CMAKE_SOURCE_DIR}/tests/planted/run $<TARGET_FILE:planted> address)
  if(CAIRN_TSAN_DIR)
    cairn_single(tsan/planted "labels=tsan rooms=common" COMMAND ${CAIRN_SETARCH} -R ${CMAKE_SOURCE_DIR}/tests/planted/run
      ${CAIRN_TSAN_DIR}/planted thread)
  endif()
endif()

# ---- mutants: the product is broken on purpose, in a copy of the tree, and a test must notice ----
cairn_single(mutants/fit "" COMMAND ${CMAKE_SOURCE_DIR}/tests/mutants/run --check)
cairn_single(mutants/run "labels=full seconds=3600 thirds=6" COMMAND ${CMAKE_SOURCE_DIR}/tests/mutants/run)

# ---- 64-bit ARM ----
cairn_single(arm64/loops "labels=arm64" COMMAND ${CMAKE_SOURCE_DIR}/tests/arm64/run ${CMAKE_BINARY_DIR}/arm64)
cairn_single(arm64/product "labels=arm64,full seconds=400 thirds=6" COMMAND ${CMAKE_SOURCE_DIR}/tests/arm64/product
  ${CMAKE_SOURCE_DIR}/build/arm64_product)

# ---- musl: all that the product calls is there ----
cairn_single(musl/links "labels=full lacks=musl seconds=120 thirds=6" COMMAND ${CMAKE_SOURCE_DIR}/tests/musl/run ${CMAKE_BINARY_DIR}/musl
  ${CMAKE_BINARY_DIR})
# ---- the scripts: no path falls apart at a space ----
cairn_single(tidy/scripts "lacks=shellcheck" COMMAND ${CMAKE_SOURCE_DIR}/tests/tidy/scripts ${CMAKE_SOURCE_DIR})
# ---- the sources: as .clang-format says ----
cairn_single(tidy/format "lacks=clang-format seconds=15 thirds=3" COMMAND ${CMAKE_SOURCE_DIR}/tests/tidy/format ${CMAKE_SOURCE_DIR})

# ---- figures: docs/bench.md ----
# Ends with 2 where the page's table of short runs names a figure or metric that there is not.
cairn_single(docs/bench_page "" COMMAND ${CAIRN_PYTHON3} ${CMAKE_SOURCE_DIR}/bench/run --list)
# The folder for a machine with a GPU, over the runtime without one.
cairn_single(bench/gpu "labels=full" COMMAND ${CAIRN_PYTHON3} ${CMAKE_SOURCE_DIR}/tests/python/gpu_kit.py ${CMAKE_BINARY_DIR})
cairn_single(bench/smoke "labels=full seconds=1800 thirds=6" COMMAND ${CAIRN_PYTHON3} ${CMAKE_SOURCE_DIR}/bench/run --smoke)

# ---- fuzz: every parser with bytes that nobody chose ----
# In every build the corpus and seeded mutations of it are replayed. Configured with clang and
# CAIRN_FUZZ (preset `fuzz`), there is one libFuzzer program per target, too.
option(CAIRN_FUZZ "Build a libFuzzer program per row of tests/fuzz/targets.def (clang)" OFF)
file(STRINGS tests/fuzz/targets.def rows REGEX "^FUZZ")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS tests/fuzz/targets.def)
file(GLOB fuzz CONFIGURE_DEPENDS tests/fuzz/*.c)
list(FILTER fuzz EXCLUDE REGEX "/(engine|replay)\\.c$")
add_library(fuzz_targets STATIC ${fuzz})
target_link_libraries(fuzz_targets PUBLIC part_server part_uploader part_formats part_formats_foreign
  part_api_policy)
if(CAIRN_FUZZ)
  target_compile_options(cairn_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
add_executable(tests_fuzz tests/fuzz/replay.c tests/api/mutate.c)
target_link_libraries(tests_fuzz PRIVATE fuzz_targets)
foreach(row ${rows})
  string(REGEX REPLACE "^FUZZ.([a-z0-9]+),.*" "\\1" target "${row}")
  cairn_single(fuzz/${target} "labels=fuzz" COMMAND ${CMAKE_BINARY_DIR}/tests_fuzz ${target})
  if(CAIRN_FUZZ)
    add_executable(fuzz_${target} tests/fuzz/engine.c)
    target_compile_definitions(fuzz_${target} PRIVATE CAIRN_FUZZ_TARGET=cairn_fuzz_${target})
    target_link_libraries(fuzz_${target} PRIVATE fuzz_targets)
    target_link_options(fuzz_${target} PRIVATE -fsanitize=fuzzer)
  endif()
endforeach()

# ---- installing: what is installed runs from any folder, and others can build against it ----
cairn_single(install/installed "seconds=45 thirds=6" COMMAND ${CMAKE_SOURCE_DIR}/tests/install/run
  ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR} "${CAIRN_SANITIZE}")
cairn_single(install/folders "seconds=80 thirds=3" COMMAND ${CMAKE_SOURCE_DIR}/tests/install/folders ${CMAKE_SOURCE_DIR})
cairn_single(install/folders_all "labels=full seconds=300 thirds=6" COMMAND ${CMAKE_SOURCE_DIR}/tests/install/folders
  ${CMAKE_SOURCE_DIR} all)
cairn_single(install/abi "" COMMAND ${CMAKE_SOURCE_DIR}/tests/install/abi ${CMAKE_SOURCE_DIR} $<TARGET_FILE:cairn>)

# ---- simulation: the whole product in one thread, and everything that can go wrong ----
# ThreadSanitizer has nothing to see in one thread.
if(CAIRN_CRASHPOINTS AND NOT CAIRN_FUZZ AND NOT CAIRN_SANITIZE MATCHES thread)
  file(GLOB sim CONFIGURE_DEPENDS tests/sim/*.c)
  add_executable(sim ${sim})
  target_link_libraries(sim PRIVATE part_server part_uploader part_client)
  target_compile_options(sim PRIVATE -fno-strict-aliasing)
  # What of libc, SQLite and the product the simulation stands in for (tests/sim/calls.c).
  foreach(call pthread_create pthread_join pthread_setname_np setpriority clock_gettime nanosleep poll epoll_wait
      sigtimedwait getrandom getpid _exit cairn_process_fd fdatasync fsync write pwrite socket open openat
      memfd_create eventfd epoll_create1 dup fcntl close recvmsg bind connect accept4 getsockopt
      madvise sqlite3_open_v2 sqlite3_close sqlite3_close_v2 cairn_client_process_nonce
      cairn_client_process_fd cairn_up_process_name cairn_up_process_find
      cairn_net_listen_tcp cairn_store_open cairn_crc32c_copy cairn_crashpoint_pass cairn_up_metrics_late
      srv_sql_looking)
    target_link_options(sim PRIVATE -Wl,--wrap=${call})
  endforeach()
  # Each fault is met by some seed of the first hundred; optimised, a seed costs half.
  cairn_shipped_dir()
  cairn_single(sim/seeds "seconds=120 thirds=3" COMMAND ${shipped}/sim --seeds 120)
  cairn_single(sim/seeds_sanitized "seconds=15 thirds=3" COMMAND ${CMAKE_BINARY_DIR}/sim --first 121 --seeds 15)
  # Ranks whose saves are copied beside their training.
  cairn_single(sim/seeds_behind "seconds=40 thirds=3" COMMAND ${shipped}/sim --behind --seeds 40)
  cairn_single(sim/seeds_behind_long "labels=full thirds=6" COMMAND ${CMAKE_SOURCE_DIR}/tests/sim/run --behind --seeds 3000)
  cairn_single(sim/seeds_long "labels=full thirds=6" COMMAND ${CMAKE_SOURCE_DIR}/tests/sim/run --seeds 10000)
endif()

# ---- end to end: the shipped programs, driven as people and jobs drive them ----
cairn_end_to_end()
cairn_docker_tests()
cairn_python_tests()
if(NOT CAIRN_POSTGRES)
  cairn_single(postgresql/skipped "labels=postgresql" COMMAND sh -c
    "echo 'SKIPPED: the package postgresql is not installed, so nothing was run over it'; exit 77")
endif()
# What end-to-end tests start, and what ThreadSanitizer runs: for builds of which nothing else is needed.
add_custom_target(end_to_end DEPENDS $<TARGET_NAME_IF_EXISTS:sim> cairn-command cairn-server cairn-uploader cairn cairn_cuda s3fault
  trainer stream restorer tensor_reader tensor_writer transformer-save transformer-restore transformer-check
  example-job parallel-job fail record stale clock nosync fake_cuda man tests_s3 tests_server)
add_custom_target(threads DEPENDS end_to_end planted tests_common tests_store tests_http tests_client tests_uploader tests_server)

# A folder for the reports of the sanitizers of all programs that a test starts. It is empty when the
# first test starts; the last step of any ctest run looks whether it still is.
foreach(verb fresh check)
  add_test(NAME reports/${verb} COMMAND ${CMAKE_SOURCE_DIR}/tests/support/reports.sh ${verb} ${CMAKE_BINARY_DIR}/reports)
endforeach()
set_tests_properties(reports/fresh PROPERTIES FIXTURES_SETUP reports)
set_tests_properties(reports/check PROPERTIES FIXTURES_CLEANUP reports)
