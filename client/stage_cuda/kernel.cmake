# SPDX-License-Identifier: Apache-2.0
# The image of the kernels: machine code for the devices of CAIRN_CUDA_ARCHITECTURES that the toolkit knows, and PTX
# of the oldest one, which the driver compiles for every other. It is not compressed, since drivers
# read only what toolkits of their time wrote. nvcc takes some releases of the host's compiler only:
# what it takes is tried once; where it takes none, the plug-in is built without kernels: CMake warns of it and tries
# again the next time, and the plug-in says so when a kernel is needed. It takes a core 17 s for all devices, so the
# builds below build/ share one image, whose name tells what it was made of.
set(kernel ${CMAKE_SOURCE_DIR}/client/stage_cuda/kernel.cu)
set(kernel_sources ${kernel} ${CMAKE_SOURCE_DIR}/client/stage_cuda/kernel.h ${CMAKE_SOURCE_DIR}/formats/rounded.h)
set(CAIRN_CUDA_ARCHITECTURES "70;75;80;86;89;90;100;120" CACHE STRING "Compute capabilities that the kernels are compiled for")
if(CAIRN_CUDA_KERNELS)
  find_program(CAIRN_NVCC nvcc HINTS /usr/local/cuda/bin)
endif()
if(CAIRN_CUDA_KERNELS AND CAIRN_NVCC AND NOT DEFINED CAIRN_NVCC_ARGUMENTS)
  execute_process(COMMAND ${CAIRN_NVCC} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
  set(arguments --fatbin --no-compress -I${CMAKE_SOURCE_DIR})
  set(oldest "")
  foreach(architecture ${CAIRN_CUDA_ARCHITECTURES})
    if(known MATCHES "compute_${architecture}[^0-9]")
      list(APPEND arguments -gencode arch=compute_${architecture},code=sm_${architecture})
      if(NOT oldest)
        set(oldest ${architecture})
      endif()
    endif()
  endforeach()
  list(APPEND arguments -gencode arch=compute_${oldest},code=compute_${oldest})
  # Tried for one device: the image for all of them takes seconds, and is made once, by the build.
  foreach(host "" -allow-unsupported-compiler "-ccbin;${CMAKE_C_COMPILER}")
    execute_process(COMMAND ${CAIRN_NVCC} --fatbin -I${CMAKE_SOURCE_DIR} ${host}
      -gencode arch=compute_${oldest},code=sm_${oldest} -o ${CMAKE_BINARY_DIR}/CMakeFiles/tried.fatbin ${kernel}
      RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE why)
    if(NOT failed)
      set(arguments ${arguments} ${host})
      break()
    endif()
  endforeach()
  if(failed)
    message(WARNING "No kernels in libcairn_cuda: ${CAIRN_NVCC} fails: ${why}")
  else()
    set(CAIRN_NVCC_ARGUMENTS "${arguments}" CACHE INTERNAL "What nvcc compiles the kernels with")
  endif()
endif()
if(CAIRN_CUDA_KERNELS AND CAIRN_NVCC AND CAIRN_NVCC_ARGUMENTS)
  execute_process(COMMAND ${CAIRN_NVCC} --version OUTPUT_VARIABLE made_of ERROR_QUIET)
  string(APPEND made_of "${CAIRN_NVCC_ARGUMENTS}")
  foreach(source ${kernel_sources})
    file(SHA256 ${source} sum)
    string(APPEND made_of ${sum})
  endforeach()
  string(SHA256 made_of "${made_of}")
  string(SUBSTRING ${made_of} 0 16 made_of)
  set(images ${CMAKE_BINARY_DIR})
  string(FIND ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR}/build/ below)
  if(below EQUAL 0)
    set(images ${CMAKE_SOURCE_DIR}/build/kernels)
  endif()
  set(image ${images}/${made_of}.fatbin)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernel_sources})
  # Ninja runs this in each build, since it knows no file that another one made. By way of a name of this build's own:
  # two may be at it at once.
  set(make_image [[test -e "$1" ||
    (image=$1 && part=$2 && shift 2 && "$@" -o "$part" && mkdir -p "${image%/*}" && mv "$part" "$image")]])
  string(REPLACE "\n" "" make_image ${make_image})
  add_custom_command(OUTPUT ${image}
    COMMAND sh -c ${make_image} make-image ${image} ${CMAKE_BINARY_DIR}/CMakeFiles/image.fatbin
    ${CAIRN_NVCC} ${CAIRN_NVCC_ARGUMENTS} ${kernel}
    COMMENT "Kernels for CUDA" VERBATIM)
  set_source_files_properties(client/stage_cuda/lane.c PROPERTIES OBJECT_DEPENDS ${image}
    COMPILE_DEFINITIONS CAIRN_CUDA_IMAGE_FILE="${image}")
endif()
