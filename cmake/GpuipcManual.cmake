# SPDX-License-Identifier: MIT
# The pages of the manual, from docs/man, where scdoc is installed, and the completions of the shells.
if(NOT WIN32)
  find_program(GPUIPC_SCDOC NAMES scdoc)
  find_program(GPUIPC_GZIP NAMES gzip)
endif()
# gpuipc_calls_of_headers OUT: the calls that the public headers declare, a section for each header.
function(gpuipc_calls_of_headers out)
  set(calls "")
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/gpuipc/*.h)
  foreach(path IN LISTS headers)
    get_filename_component(header ${path} NAME_WE)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(READ ${path} text)
    string(REGEX MATCHALL "GPUIPC_API[^(;]*[ *]gpuipc_[a-z0-9_]+\\(" declarations "${text}")
    if(NOT declarations)
      continue() # macros alone
    endif()
    list(TRANSFORM declarations REPLACE ".*[ *](gpuipc_[a-z0-9_]+)\\(" "*\\1*()")
    list(JOIN declarations ",\n" names)
    string(APPEND calls "## ${header}.h\n\n${names}\n\n")
  endforeach()
  set(${out} "${calls}" PARENT_SCOPE)
endfunction()

if(GPUIPC_SCDOC AND GPUIPC_GZIP)
  gpuipc_calls_of_headers(calls)
  configure_file(${PROJECT_SOURCE_DIR}/docs/man/gpuipc.3.scd.in ${PROJECT_BINARY_DIR}/man/gpuipc.3.scd @ONLY)
  set(pages "")
  foreach(page gpuipc-selftest.1 gpuipc.3 gpuipc.7)
    string(REGEX REPLACE ".*\\." "" section ${page})
    set(component development)
    if(section EQUAL 1)
      set(component tools)
      if(NOT TARGET gpuipc-selftest)
        continue()
      endif()
    endif()
    set(source ${PROJECT_SOURCE_DIR}/docs/man/${page}.scd)
    if(NOT EXISTS ${source})
      set(source ${PROJECT_BINARY_DIR}/man/${page}.scd)
    endif()
    set(made ${PROJECT_BINARY_DIR}/man/${page}.gz)
    # scdoc takes the page's date from here: the same source makes the same page.
    add_custom_command(OUTPUT ${made} DEPENDS ${source} VERBATIM
      COMMAND ${CMAKE_COMMAND} -E env SOURCE_DATE_EPOCH=1767225600
              sh -c "${GPUIPC_SCDOC} <'${source}' | ${GPUIPC_GZIP} -9n >'${made}'")
    list(APPEND pages ${made})
    install(FILES ${made} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section} COMPONENT ${component})
  endforeach()
  add_custom_target(gpuipc_manual ALL DEPENDS ${pages})
else()
  add_custom_target(gpuipc_manual) # nothing to make it with
  if(NOT WIN32 AND PROJECT_IS_TOP_LEVEL)
    message(NOTICE "The manual pages are not built: scdoc or gzip is missing (Debian: scdoc)")
  endif()
endif()

if(TARGET gpuipc-selftest)
  set(completions ${PROJECT_SOURCE_DIR}/packaging/completions)
  install(FILES ${completions}/gpuipc-selftest.bash
    DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions RENAME gpuipc-selftest COMPONENT tools)
  install(FILES ${completions}/_gpuipc-selftest
    DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/zsh/vendor-completions COMPONENT tools)
  install(FILES ${completions}/gpuipc-selftest.fish
    DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/fish/vendor_completions.d COMPONENT tools)
  install(FILES ${completions}/gpuipc-selftest.ps1 DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/gpuipc COMPONENT tools)
endif()
