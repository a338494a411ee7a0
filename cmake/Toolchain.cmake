# Compiler flags, sanitizers, compiler cache and linker.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

# What the presets switch on: a list for -fsanitize=, and whether this build is of fuzz targets.
set(CELLD_SANITIZE "" CACHE STRING "comma-separated sanitizers")
option(CELLD_FUZZ "build libFuzzer targets (needs clang 16)" OFF)

if(CELLD_SANITIZE)  # unoptimised, sanitized code is too slow to test with
  set(CMAKE_C_FLAGS_DEBUG "-O1 -g1")
  set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")
else()
  set(CMAKE_C_FLAGS_DEBUG "-O0 -g1")
  set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")
endif()
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")

# ccache, with paths relative to this tree so that several checkouts share their results.
find_program(CELLD_CCACHE ccache)
if(CELLD_CCACHE)
  foreach(language C CXX)
    set(CMAKE_${language}_COMPILER_LAUNCHER
        env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
            CCACHE_SLOPPINESS=pch_defines,time_macros ${CELLD_CCACHE})
  endforeach()
endif()

find_program(CELLD_MOLD mold)
if(CELLD_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_compile_options(-fno-omit-frame-pointer -fdiagnostics-color=auto)
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
                    # designated initializers leave fields out on purpose
                    $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>
                    $<$<COMPILE_LANGUAGE:CXX>:-Wno-psabi>)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror>)
  # g++ 12 reports these falsely in std::expected, std::variant and coroutines.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-dangling-pointer>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overread>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-mismatched-new-delete>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-free-nonheap-object>)
else()
  # Clang builds the fuzzers only; g++ is the judge of warnings. libstdc++ 12 offers std::expected
  # to a compiler that says it has all of C++20's concepts: clang 16 has what <expected> uses, but
  # says 2019.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-D__cpp_concepts=202002L>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-macro-redefined>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-builtin-macro-redefined>)
endif()

if(CMAKE_BUILD_TYPE STREQUAL "Debug" OR CELLD_SANITIZE)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()

if(CELLD_SANITIZE)
  add_compile_options(-fsanitize=${CELLD_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${CELLD_SANITIZE})
  if(CELLD_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize=vptr)  # part of the code is built without RTTI
  endif()
  if(CELLD_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
  endif()
  if(CELLD_SANITIZE MATCHES "thread")
    add_compile_options(-Wno-tsan)  # atomic_thread_fence in Asio
  endif()
endif()
