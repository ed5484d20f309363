# SPDX-License-Identifier: Apache-2.0
# find_package(cairn): cairn::cairn is the shared library, cairn::static the archive, which needs jansson.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/cairn-targets.cmake)
