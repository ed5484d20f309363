# SPDX-License-Identifier: Apache-2.0
# The files of the page as they are sent, compressed (server/ui/files.def).
file(STRINGS server/ui/files.def rows REGEX "^UI_FILE")
set(packed)
foreach(row ${rows})
  string(REGEX REPLACE "^UI_FILE.[a-z_]+, *\"([^\"]+)\".*" "\\1" file "${row}")
  get_filename_component(below ${file} DIRECTORY)
  add_custom_command(OUTPUT ui/${file}.gz DEPENDS server/ui/${file}
    COMMAND ${CMAKE_COMMAND} -E make_directory ui/${below}
    COMMAND gzip -9nc ${CMAKE_SOURCE_DIR}/server/ui/${file} > ui/${file}.gz VERBATIM)
  list(APPEND packed ${CMAKE_BINARY_DIR}/ui/${file}.gz)
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS server/ui/files.def)
set_source_files_properties(server/ui.c PROPERTIES OBJECT_DEPENDS "${packed}"
  INCLUDE_DIRECTORIES ${CMAKE_BINARY_DIR})
set_source_files_properties(server/system.c PROPERTIES
  OBJECT_DEPENDS ${CMAKE_SOURCE_DIR}/api/openapi.yaml)
