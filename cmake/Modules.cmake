# celld_module(NAME [DEPS module...] [LIBS target...] [OPTIONS flag...] [TEST_DEPS module...])
#
# Makes of src/NAME:
#   celld_NAME   a static library of its *.cc, except tests and main.cc
#   NAME_test    one GoogleTest program of its *_test.cc and *_testing.cc, registered with ctest (label "unit")
# DEPS is what it may include; TEST_DEPS is what its tests may include besides.
# Files are found by name; adding one needs no change here. Include paths start at src/.

include(GoogleTest)

function(celld_module name)
  cmake_parse_arguments(arg "" "" "DEPS;LIBS;OPTIONS;TEST_DEPS" ${ARGN})
  set(dir ${CMAKE_SOURCE_DIR}/src/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_(test|testing)\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_test|_testing|/main)\\.cc$")
  list(TRANSFORM arg_DEPS PREPEND celld_ OUTPUT_VARIABLE deps)
  list(TRANSFORM arg_TEST_DEPS PREPEND celld_ OUTPUT_VARIABLE test_deps)

  if(sources)
    add_library(celld_${name} STATIC ${sources})
    set(scope PUBLIC)
    target_compile_options(celld_${name} PRIVATE ${arg_OPTIONS})
  else()
    add_library(celld_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(celld_${name} ${scope} ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(celld_${name} ${scope} ${deps} ${arg_LIBS})

  if(tests AND NOT CELLD_FUZZ)
    add_executable(${name}_test ${tests})
    target_compile_options(${name}_test PRIVATE ${arg_OPTIONS})
    target_link_libraries(${name}_test PRIVATE celld_${name} ${test_deps}
      GTest::gmock GTest::gtest_main)
    set_target_properties(${name}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    gtest_discover_tests(${name}_test TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST
      WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} PROPERTIES LABELS unit TIMEOUT 120)
  endif()
endfunction()

# celld_links(SOURCE OUT): the libraries that a line "// links: ltx store" of SOURCE names, and base.
function(celld_links source out)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(STRINGS ${source} line REGEX "^// links:" LIMIT_COUNT 1)
  string(REGEX MATCHALL "[a-z_0-9]+" layers "${line}")
  list(REMOVE_ITEM layers links)
  list(APPEND layers base)
  list(TRANSFORM layers PREPEND celld_)
  set(${out} ${layers} PARENT_SCOPE)
endfunction()
