# SPDX-License-Identifier: Apache-2.0
# Finds the tests by their folders. A file of tests says how it is run in a line of its first comment;
# nothing here names one. tests/README.md explains the words of that line.
#
#   labels=A,B        full: only with --full; tsan: also under ThreadSanitizer, where threads share memory;
#                     others choose with -L
#   races="full: WHY" under ThreadSanitizer with --full only, since another entry has the same threads
#   engines=WORD      sqlite (default), postgresql, both, or again: over PostgreSQL with --full
#   sanitized=short   an end-to-end test: its programs with sanitizers in ./test, too, not only with --full
#   as=NAME           the entry's name, where a file has several such lines
#   with="ARGUMENTS"  what the program is started with
#   under=s3fault:KIND  the program is started below an S3 server of the tests that plays this kind
#   seconds=N         about how long it takes by itself; the longest are started first
#   thirds=N          thirds of a core that it keeps busy; 1 where it mostly waits
#   rooms=A,B         folders of the product that it covers, where that is less than all it is linked with
#   on=disk           it writes to the disk also where others write to memory: it is about files of a disk
#   env=NAME=VALUE    one variable of its environment
#   lacks=WORD        what a machine may lack, so that nothing of it can run: skipped as a whole it fails ./test otherwise

# The last resort against a test that polls for ever; tests/support/watched.py finds hangs long before.
set(CAIRN_TEST_LIMIT_S 3600)
set(CAIRN_TSAN_DIR "" CACHE PATH "The build with ThreadSanitizer whose tests run among this build's")
set(CAIRN_SHIPPED_DIR "" CACHE PATH "The build whose programs end-to-end tests start; this one if empty")

# Debian's package; where it is not installed nothing is run over it, which is said.
file(GLOB CAIRN_POSTGRES /usr/lib/postgresql/*/bin/initdb)
find_program(CAIRN_PYTHON3 python3)
find_program(CAIRN_SETARCH setarch)

# cairn_read_lines(FILE): sets `lines` to the words behind each `ctest:` of the file's first lines.
function(cairn_read_lines file)
  set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} found REGEX "^[/* #]*ctest:" LIMIT_INPUT 4096)
  set(lines)
  foreach(line ${found})
    string(REGEX REPLACE "^[/* #]*ctest: *" "" line "${line}")
    string(REGEX REPLACE " *[*]/ *$" "" line "${line}")
    list(APPEND lines "${line}")
  endforeach()
  if(NOT found)
    set(lines "as=")
  endif()
  set(lines "${lines}" PARENT_SCOPE)
endfunction()

# cairn_parse_line(LINE NAME): sets W_<word> for each word; an unknown word stops the configuration.
function(cairn_parse_line line name)
  foreach(word labels races engines sanitized as with under seconds thirds rooms on env lacks)
    set(W_${word} "" PARENT_SCOPE)
  endforeach()
  separate_arguments(words UNIX_COMMAND "${line}")
  foreach(word ${words})
    if(NOT word MATCHES "^(labels|races|engines|sanitized|as|with|under|seconds|thirds|rooms|on|env|lacks)=(.*)$")
      message(FATAL_ERROR "${name}: the line `ctest: ${line}` has no word `${word}`; "
        "tests/tests.cmake lists the words")
    endif()
    set(key ${CMAKE_MATCH_1})
    set(value "${CMAKE_MATCH_2}")
    if(key STREQUAL "labels" OR key STREQUAL "rooms")
      string(REPLACE "," ";" value "${value}")
    endif()
    set(W_${key} "${value}" PARENT_SCOPE)
  endforeach()
  file(RELATIVE_PATH source ${CMAKE_SOURCE_DIR} ${name})
  set(W_source ${source} PARENT_SCOPE)
endfunction()

# cairn_entry(NAME COMMAND ... LABELS ... ENVIRONMENT ... [FOLDER DIR]): one entry of ctest, with the cost and rooms of the
# line that was parsed last.
function(cairn_entry name)
  cmake_parse_arguments(E "" "FOLDER" "COMMAND;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT E_FOLDER)
    set(E_FOLDER ${CMAKE_BINARY_DIR})
  endif()
  set(seconds ${W_seconds})
  set(thirds ${W_thirds})
  if(NOT thirds)
    set(thirds 1)
  endif()
  if(NOT seconds)
    set(seconds 5)
  endif()
  # What takes most is started first: as long as small ones are left ctest starts these in each gap,
  # which would leave the wide ones to the end.
  math(EXPR cost "1000 * ${thirds} + ${seconds}")
  string(REPLACE ";" "," rooms "${W_rooms}")
  string(REPLACE "/" "_" reports ${name})
  add_test(NAME ${name} COMMAND ${CAIRN_PYTHON3} -I -S ${CMAKE_SOURCE_DIR}/tests/support/watched.py ${E_COMMAND})
  set_tests_properties(${name} PROPERTIES LABELS "${E_LABELS}" SKIP_RETURN_CODE 77
    TIMEOUT ${CAIRN_TEST_LIMIT_S} COST ${cost} PROCESSORS ${thirds} WORKING_DIRECTORY ${E_FOLDER}
    FIXTURES_REQUIRED reports
    ENVIRONMENT "CAIRN_TEST_REPORTS=${CMAKE_BINARY_DIR}/reports/${reports};CAIRN_TEST_ROOMS=${rooms};CAIRN_TEST_SOURCE=${W_source};CAIRN_SOURCE_DIR=${CMAKE_SOURCE_DIR};CAIRN_TEST_ON=${W_on};CAIRN_TEST_LACKS=${W_lacks};${W_env};${E_ENVIRONMENT}")
  if("docker" IN_LIST E_LABELS) # who starts the engine also ends it
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK docker)
  endif()
endfunction()

# The support of the tests: each program takes from it what it refers to.
function(cairn_test_support)
  file(GLOB support CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/support/*.c)
  list(FILTER support EXCLUDE REGEX "/(lib|fake_cuda)[a-z_]*\\.c$")
  file(GLOB fault CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/support/fault/*.c)
  list(FILTER fault EXCLUDE REGEX "/hook\\.c$")
  add_library(tests_support STATIC ${support} ${fault} tests/reports.c)
  cairn_quick_to_compile(${support} ${fault} tests/reports.c)
  target_link_libraries(tests_support PUBLIC cairn_flags)
  target_include_directories(tests_support SYSTEM PRIVATE
    $<TARGET_PROPERTY:PkgConfig::libpq,INTERFACE_INCLUDE_DIRECTORIES>)
endfunction()

# cairn_quick_to_compile(SOURCE...): the tests' own code in a sanitized build. A test spends its time in the product, whose
# undefined behaviour is looked for; its own code would be half of what there is to compile.
function(cairn_quick_to_compile)
  if(CAIRN_SANITIZE)
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -O0 -g1 -fno-sanitize=undefined)
  endif()
endfunction()

# cairn_tests(NAME USES ... [ROOMS ...] [EXTRA ...]): one program for a folder of tests, one entry of ctest
# for each file test_*.c in it. ROOMS: of programs that it starts. EXTRA: sources of other folders.
function(cairn_tests name)
  cmake_parse_arguments(T "" "" "USES;ROOMS;EXTRA" ${ARGN})
  if(NOT BUILD_TESTING)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${name}/*.c)
  list(FILTER sources EXCLUDE REGEX "/(print_api|print_openapi|cuda_types)\\.c$")
  add_executable(tests_${name} ${sources} ${T_EXTRA} tests/harness.c tests/checks.c)
  cairn_quick_to_compile(${sources})
  target_link_libraries(tests_${name} PRIVATE cairn_flags PkgConfig::cunit tests_support)
  target_compile_options(tests_${name} PRIVATE -fno-strict-aliasing) # dlsym fills pointers to functions
  foreach(use ${T_USES})
    target_link_libraries(tests_${name} PRIVATE $<IF:$<TARGET_EXISTS:part_${use}>,part_${use},${use}>)
    get_property(rooms GLOBAL PROPERTY cairn_rooms_${use})
    list(APPEND T_ROOMS ${rooms})
  endforeach()
  list(REMOVE_DUPLICATES T_ROOMS)
  foreach(source ${sources})
    get_filename_component(module ${source} NAME_WE)
    if(NOT module MATCHES "^test_")
      continue()
    endif()
    string(REPLACE "test_" "" module ${module})
    cairn_read_lines(${source})
    foreach(line IN LISTS lines)
      cairn_parse_line("${line}" ${source})
      if(NOT W_rooms)
        set(W_rooms ${T_ROOMS})
      endif()
      set(entry ${module})
      if(W_as)
        set(entry ${W_as})
      endif()
      cairn_c_entries(${name} ${module} ${entry})
    endforeach()
  endforeach()
endfunction()

# The entries of one line of a C file: this build's, over PostgreSQL, and under ThreadSanitizer.
function(cairn_c_entries part module entry)
  set(labels ${W_labels})
  list(REMOVE_ITEM labels tsan)
  if(W_engines STREQUAL "postgresql")
    list(APPEND labels postgresql)
    if(NOT CAIRN_POSTGRES)
      return()
    endif()
  endif()
  set(program tests_${part} ${part}/${module} ${W_with})
  cairn_under(${CMAKE_BINARY_DIR})
  cairn_entry(${part}/${entry} COMMAND ${under} ${CMAKE_BINARY_DIR}/${program} LABELS ${labels} ENVIRONMENT CAIRN_BIN_DIR=${CMAKE_BINARY_DIR})
  if(W_engines MATCHES "^(both|again)$" AND CAIRN_POSTGRES)
    set(twin ${labels} postgresql)
    if(W_engines STREQUAL "again")
      list(APPEND twin full)
    endif()
    cairn_entry(postgresql/${entry} COMMAND ${CMAKE_BINARY_DIR}/${program} LABELS ${twin}
      ENVIRONMENT CAIRN_BIN_DIR=${CMAKE_BINARY_DIR} CAIRN_TEST_CATALOG=postgresql)
  endif()
  if(W_races MATCHES "^full: .")
    list(APPEND labels full)
    list(REMOVE_DUPLICATES labels)
  elseif(W_races)
    message(FATAL_ERROR "${W_source}: `races=${W_races}`: write races=\"full: WHY\"")
  endif()
  if(("tsan" IN_LIST W_labels OR W_races) AND CAIRN_TSAN_DIR)
    # ThreadSanitizer of gcc 12 cannot start where addresses are fully randomised.
    cairn_entry(tsan/${part}/${entry} COMMAND ${CAIRN_SETARCH} -R ${CAIRN_TSAN_DIR}/${program}
      LABELS ${labels} tsan ENVIRONMENT CAIRN_BIN_DIR=${CAIRN_TSAN_DIR})
  endif()
endfunction()

# cairn_under(DIR): sets `under` to what the line's program is started below.
function(cairn_under folder)
  set(under)
  if(W_under MATCHES "^s3fault:(.*)$")
    set(under ${folder}/s3fault --profile ${CMAKE_MATCH_1} --bucket lab --)
  endif()
  set(under ${under} PARENT_SCOPE)
endfunction()

# cairn_shipped_dir(): sets `shipped` to the build as shipped, or to this one.
function(cairn_shipped_dir)
  if(CAIRN_SHIPPED_DIR)
    set(shipped ${CAIRN_SHIPPED_DIR} PARENT_SCOPE)
  else()
    set(shipped ${CMAKE_BINARY_DIR} PARENT_SCOPE)
  endif()
endfunction()

# End-to-end tests: the programs of one build, driven as people and jobs drive them.
function(cairn_end_to_end)
  cairn_shipped_dir()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/e2e/*.py)
  foreach(source ${sources})
    get_filename_component(file ${source} NAME)
    string(REGEX REPLACE "^(test_)?(.*)\\.py$" "\\2" module ${file})
    cairn_read_lines(${source})
    if(lines STREQUAL "as=" AND NOT file MATCHES "^test_")
      continue() # a helper
    endif()
    foreach(line IN LISTS lines)
      cairn_parse_line("${line}" ${source})
      if(NOT W_rooms)
        set(W_rooms api cli client common formats plan server store uploader)
      endif()
      set(entry ${module})
      if(W_as)
        set(entry ${W_as})
      endif()
      separate_arguments(arguments UNIX_COMMAND "${W_with}")
      set(command ${CAIRN_PYTHON3} ${file} ${arguments})
      cairn_under(${shipped})
      cairn_end_to_end_entries(${entry} ${shipped} ${under} ${command})
    endforeach()
  endforeach()
endfunction()

function(cairn_end_to_end_entries entry shipped)
  set(labels e2e ${W_labels})
  set(full ${labels} full)
  list(REMOVE_DUPLICATES full)
  set(where FOLDER ${CMAKE_SOURCE_DIR}/tests/e2e COMMAND ${ARGN})
  set(environment PYTHONDONTWRITEBYTECODE=1)
  if(NOT W_engines STREQUAL "postgresql")
    cairn_entry(e2e/${entry} ${where} LABELS ${labels} ENVIRONMENT ${environment} CAIRN_BIN_DIR=${shipped})
  elseif(CAIRN_POSTGRES)
    cairn_entry(e2e/${entry} ${where} LABELS ${labels} postgresql
      ENVIRONMENT ${environment} CAIRN_BIN_DIR=${shipped} CAIRN_TEST_CATALOG=postgresql)
  endif()
  if(W_engines MATCHES "^(both|again)$" AND CAIRN_POSTGRES)
    set(twin ${labels})
    if(W_engines STREQUAL "again")
      set(twin ${full})
    endif()
    cairn_entry(e2e/${entry}_postgresql ${where} LABELS ${twin} postgresql
      ENVIRONMENT ${environment} CAIRN_BIN_DIR=${shipped} CAIRN_TEST_CATALOG=postgresql)
  endif()
  if(CAIRN_SHIPPED_DIR AND NOT "full" IN_LIST W_labels AND NOT W_engines STREQUAL "postgresql")
    if(NOT W_sanitized STREQUAL "short")
      set(labels ${full})
    endif()
    cairn_entry(sanitized/${entry} ${where} LABELS ${labels} ENVIRONMENT ${environment} CAIRN_BIN_DIR=${CMAKE_BINARY_DIR})
  endif()
endfunction()

# The Python package over the libcairn of the build as shipped: a sanitized one cannot be loaded into Python. Entries
# labelled torch run with the Python that CAIRN_TEST_TORCH names where that is set.
function(cairn_python_tests)
  if(CAIRN_SHIPPED_DIR)
    set(shipped ${CAIRN_SHIPPED_DIR})
  else()
    set(shipped ${CMAKE_BINARY_DIR})
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/python/test_*.py)
  foreach(source ${sources})
    get_filename_component(file ${source} NAME)
    string(REGEX REPLACE "^test_(.*)\\.py$" "\\1" module ${file})
    cairn_read_lines(${source})
    foreach(line IN LISTS lines)
      cairn_parse_line("${line}" ${source})
      set(entry ${module})
      if(W_as)
        set(entry ${W_as})
      endif()
      set(python ${CAIRN_PYTHON3})
      if("torch" IN_LIST W_labels AND DEFINED ENV{CAIRN_TEST_TORCH})
        set(python $ENV{CAIRN_TEST_TORCH})
      endif()
      cairn_entry(package/${entry} FOLDER ${CMAKE_SOURCE_DIR}/tests/python COMMAND ${python} ${file} LABELS python ${W_labels}
        ENVIRONMENT PYTHONDONTWRITEBYTECODE=1 CAIRN_BIN_DIR=${shipped})
    endforeach()
  endforeach()
endfunction()

# Tests that are neither: a program or a script, and its words.
# cairn_single(NAME "WORDS" COMMAND ...)
function(cairn_single name line)
  cmake_parse_arguments(S "" "" "COMMAND" ${ARGN})
  cairn_parse_line("${line}" ${CMAKE_SOURCE_DIR}/tests/${name})
  if(NOT W_rooms)
    set(W_rooms api cli client common formats plan server store uploader)
  endif()
  cairn_entry(${name} COMMAND ${S_COMMAND} LABELS ${W_labels}
    ENVIRONMENT PYTHONDONTWRITEBYTECODE=1 CAIRN_BIN_DIR=${CMAKE_BINARY_DIR})
endfunction()

# Tests of images and of a site of containers. They share one engine, so one runs at a time.
function(cairn_docker_tests)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/docker/test_*.py)
  foreach(source ${sources})
    get_filename_component(file ${source} NAME)
    string(REGEX REPLACE "^test_(.*)\\.py$" "docker/\\1" name ${file})
    cairn_read_lines(${source})
    cairn_single(${name} "${lines}" COMMAND ${CAIRN_PYTHON3} ${source})
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK docker)
  endforeach()
endfunction()
