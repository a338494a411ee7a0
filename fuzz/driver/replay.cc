// Runs a fuzz target over the inputs kept in the repository, without libFuzzer.
//
// Usage: fuzz_NAME PATH...   each a file or a folder; a folder that does not exist is empty.
// The empty input always runs first.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void run_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  // An exact heap copy, so that reading one byte too far is seen by the address sanitizer.
  std::vector<uint8_t> bytes(std::istreambuf_iterator<char>(file), {});
  bytes.shrink_to_fit();
  std::fprintf(stderr, "%s: %zu bytes\n", path.filename().c_str(), bytes.size());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  const uint8_t nothing = 0;
  LLVMFuzzerTestOneInput(&nothing, 0);
  size_t count = 1;
  for (int i = 1; i < argc; ++i) {
    std::vector<std::filesystem::path> files;
    if (std::filesystem::is_directory(argv[i])) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
        if (entry.is_regular_file()) files.push_back(entry.path());
      }
    } else if (std::filesystem::exists(argv[i])) {
      files.emplace_back(argv[i]);
    }
    std::sort(files.begin(), files.end());
    for (const auto& file : files) run_file(file);
    count += files.size();
  }
  std::printf("%zu inputs\n", count);
  return 0;
}
