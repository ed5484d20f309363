# SPDX-License-Identifier: Apache-2.0
# libcairn: shared, as one archive, the plug-in for CUDA, and what others build against them with.
# libcairn.so is the client part with what it uses of the others; only public functions show.
# It has its own answer to a broken promise; what programs of Cairn do then is not linked.
add_library(cairn_promise OBJECT client/promise.c)
target_link_libraries(cairn_promise PUBLIC cairn_flags)
add_library(cairn SHARED $<TARGET_OBJECTS:cairn_promise> $<TARGET_OBJECTS:part_client>)
target_link_libraries(cairn PRIVATE part_formats part_plan part_api part_common ${CMAKE_DL_LIBS})
target_link_options(cairn PRIVATE -Wl,--as-needed
  -Wl,--version-script=${CMAKE_SOURCE_DIR}/client/libcairn.map)
if(NOT CAIRN_SANITIZE) # clang does not link its sanitizers' runtime into a shared library
  target_link_options(cairn PRIVATE -Wl,--no-undefined)
endif()
set_target_properties(cairn PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${CAIRN_SOVERSION}
  LINK_DEPENDS ${CMAKE_SOURCE_DIR}/client/libcairn.map)
# The plug-in for CUDA. It finds the process's own runtime, so it needs no toolkit to be built; where
# there is nvcc, it has the kernels that convert, gather and sum on a device.
file(GLOB stage_cuda CONFIGURE_DEPENDS client/stage_cuda/*.c)
add_library(cairn_cuda SHARED ${stage_cuda} $<TARGET_OBJECTS:cairn_promise>)
include(client/stage_cuda/kernel.cmake)
target_link_libraries(cairn_cuda PRIVATE part_common ${CMAKE_DL_LIBS})
target_link_options(cairn_cuda PRIVATE -Wl,--as-needed
  -Wl,--version-script=${CMAKE_SOURCE_DIR}/client/libcairn_cuda.map)
set_target_properties(cairn_cuda PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0
  LINK_DEPENDS ${CMAKE_SOURCE_DIR}/client/libcairn_cuda.map)
install(TARGETS cairn_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cairn-cuda)
# The same as one archive, for trainers that link statically; it needs jansson and pthread.
add_library(cairn_static STATIC $<TARGET_OBJECTS:cairn_promise> $<TARGET_OBJECTS:part_client> $<TARGET_OBJECTS:part_formats>
  $<TARGET_OBJECTS:part_plan> $<TARGET_OBJECTS:part_api>
  $<FILTER:$<TARGET_OBJECTS:part_common>,EXCLUDE,/base\\.c>)
set_target_properties(cairn_static PROPERTIES OUTPUT_NAME cairn EXPORT_NAME static)
target_link_libraries(cairn_static INTERFACE $<INSTALL_INTERFACE:jansson> Threads::Threads)
target_include_directories(cairn INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_include_directories(cairn_static INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS cairn cairn_static EXPORT cairn LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  COMPONENT libcairn1 NAMELINK_COMPONENT libcairn-dev
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libcairn-dev)
install(DIRECTORY include/cairn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT libcairn-dev
  FILES_MATCHING PATTERN "*.h")
# For pkg-config and find_package(cairn): cairn::cairn, cairn::static. Both say where they are
# relative to their own place, so that an installed tree can be moved.
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH prefix_to_lib ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH prefix_to_include ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(client/cairn.pc.in cairn.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/cairn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT libcairn-dev)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cairn-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES client/cairn-config.cmake ${CMAKE_BINARY_DIR}/cairn-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cairn COMPONENT libcairn-dev)
install(EXPORT cairn FILE cairn-targets.cmake NAMESPACE cairn::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cairn COMPONENT libcairn-dev)
if(NOT CAIRN_PACKAGES) # those have their own file of it
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/cairn COMPONENT libcairn-dev)
endif()
