# SPDX-License-Identifier: Apache-2.0
# Debian packages, made by `cpack` of a build with -DCAIRN_PACKAGES=ON (the preset `packages`): one for each
# component that install() names. packaging/build makes all of them, and a tar of the programs.
set(packages libcairn1 libcairn-dev cairn cairn-server cairn-uploader cairn-cuda)
set(CPACK_COMPONENTS_ALL ${packages})
set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_PACKAGE_NAME cairn)
set(CPACK_PACKAGE_CONTACT "The Cairn authors <maintainers@cairn.example>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "checkpoint service for training jobs")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS OFF)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)

# cairn_package(NAME SECTION DEPENDS SUMMARY TEXT): TEXT is lines of at most 78 characters.
function(cairn_package name section depends summary text)
  string(TOUPPER ${name} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(CPACK_COMPONENT_${key}_DESCRIPTION "${summary}\n${text}" PARENT_SCOPE)
  install(FILES packaging/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${name})
  install(FILES ${CMAKE_BINARY_DIR}/packaging/changelog.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name}
    COMPONENT ${name})
endfunction()

set(same "(>= ${PROJECT_VERSION})")
cairn_package(libcairn1 libs "" "library that saves and restores training checkpoints"
  "Trainers hand their tensors to this library and train on; an uploader of the\nsame node brings them to a folder or to object storage.")
cairn_package(libcairn-dev libdevel "libcairn1 ${same}, libjansson-dev" "headers and static library of libcairn"
  "What is needed to build trainers that save with Cairn: headers, a static\nlibrary, and files for pkg-config and CMake.")
cairn_package(cairn utils "libcairn1 ${same}, ca-certificates" "command of the checkpoint service Cairn"
  "Shows, saves, restores and verifies checkpoints, at a server or in a store\nalone, and administers servers and uploaders.")
cairn_package(cairn-server net "cairn ${same}, ca-certificates" "server of the checkpoint service Cairn"
  "Decides when a checkpoint is complete, keeps the catalog in SQLite or\nPostgreSQL, and serves verified ranges over HTTP.")
cairn_package(cairn-uploader net "cairn ${same}, ca-certificates" "uploader of the checkpoint service Cairn"
  "Takes the checkpoints of a node's trainers over shared memory and sends them\nto a folder or to S3-compatible object storage.")
cairn_package(cairn-cuda libs "libcairn1 ${same}" "CUDA plug-in of libcairn"
  "Copies tensors out of the memory of CUDA devices. It finds the runtime that\nthe process has loaded, and needs none to be installed.")

# Debian's tools want these compressed, without a name or a time in them.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/packaging)
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/packaging/changelog.gz
  COMMAND sh -c "gzip -9nc '${CMAKE_SOURCE_DIR}/packaging/changelog' > '${CMAKE_BINARY_DIR}/packaging/changelog.gz'"
  DEPENDS packaging/changelog VERBATIM)
foreach(shell bash zsh fish)
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/packaging/completion.${shell}
    COMMAND sh -c "\"$<TARGET_FILE:cairn-command>\" completion ${shell} > '${CMAKE_BINARY_DIR}/packaging/completion.${shell}'"
    DEPENDS cairn-command VERBATIM)
  list(APPEND made ${CMAKE_BINARY_DIR}/packaging/completion.${shell})
endforeach()
add_custom_target(packaging ALL DEPENDS ${CMAKE_BINARY_DIR}/packaging/changelog.gz ${made})
set(share ${CMAKE_INSTALL_DATADIR})
install(FILES ${CMAKE_BINARY_DIR}/packaging/completion.bash DESTINATION ${share}/bash-completion/completions
  RENAME cairn COMPONENT cairn)
install(FILES ${CMAKE_BINARY_DIR}/packaging/completion.zsh DESTINATION ${share}/zsh/vendor-completions
  RENAME _cairn COMPONENT cairn)
install(FILES ${CMAKE_BINARY_DIR}/packaging/completion.fish DESTINATION ${share}/fish/vendor_completions.d
  RENAME cairn.fish COMPONENT cairn)

install(PROGRAMS packaging/slurm/prolog.sh packaging/slurm/epilog.sh packaging/slurm/job.sbatch
  DESTINATION ${share}/cairn/slurm COMPONENT cairn-uploader)

# A daemon's unit, user, folders and file of settings.
foreach(daemon server uploader)
  set(PACKAGE cairn-${daemon})
  set(STATE ${daemon})
  install(FILES packaging/cairn-${daemon}.service DESTINATION /lib/systemd/system COMPONENT ${PACKAGE})
  install(FILES packaging/cairn.sysusers DESTINATION lib/sysusers.d RENAME ${PACKAGE}.conf COMPONENT ${PACKAGE})
  install(FILES packaging/cairn.tmpfiles DESTINATION lib/tmpfiles.d RENAME ${PACKAGE}.conf COMPONENT ${PACKAGE})
  install(FILES packaging/${daemon}.conf DESTINATION /etc/cairn COMPONENT ${PACKAGE})
  set(scripts ${CMAKE_BINARY_DIR}/packaging/${PACKAGE})
  foreach(script postinst prerm postrm)
    configure_file(packaging/${script}.in ${scripts}/${script} @ONLY FILE_PERMISSIONS
      OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  endforeach()
  file(WRITE ${scripts}/conffiles "/etc/cairn/${daemon}.conf\n")
  string(TOUPPER ${PACKAGE} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_CONTROL_EXTRA
    ${scripts}/postinst ${scripts}/prerm ${scripts}/postrm ${scripts}/conffiles)
endforeach()
file(WRITE ${CMAKE_BINARY_DIR}/packaging/triggers "activate-noawait ldconfig\n")
file(WRITE ${CMAKE_BINARY_DIR}/packaging/libcairn1/shlibs "libcairn 1 libcairn1 (>= ${PROJECT_VERSION})\n")
file(WRITE ${CMAKE_BINARY_DIR}/packaging/cairn-cuda/shlibs "libcairn_cuda 0 cairn-cuda (>= ${PROJECT_VERSION})\n")
set(CPACK_DEBIAN_LIBCAIRN1_PACKAGE_CONTROL_EXTRA
  ${CMAKE_BINARY_DIR}/packaging/triggers ${CMAKE_BINARY_DIR}/packaging/libcairn1/shlibs)
set(CPACK_DEBIAN_CAIRN-CUDA_PACKAGE_CONTROL_EXTRA
  ${CMAKE_BINARY_DIR}/packaging/triggers ${CMAKE_BINARY_DIR}/packaging/cairn-cuda/shlibs)
include(CPack)
