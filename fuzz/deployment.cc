// links: deploy
//
// The records of a deployment and source maps on any text. The first byte chooses.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "deploy/manifest.h"
#include "deploy/source_map.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'p': {
      auto pointer = celld::decode_pointer(text);
      if (pointer && celld::decode_pointer(celld::encode_pointer(*pointer)) != *pointer) std::abort();
      break;
    }
    case 'c': {
      auto registry = celld::decode_class_registry(text);
      if (registry &&
          celld::decode_class_registry(celld::encode_class_registry(*registry)) != *registry) {
        std::abort();
      }
      break;
    }
    case 's': {
      auto map = celld::SourceMap::parse(text);
      if (!map) break;
      celld::SourceMaps maps;
      maps["index.js"] = std::make_shared<const celld::SourceMap>(std::move(*map));
      for (uint32_t line = 1; line < 4; ++line) {
        for (uint32_t column : {1u, 9u, 4'000'000'000u}) (void)maps["index.js"]->find(line, column);
      }
      (void)celld::remap_stack("Error\n    at f (index.js:1:1)\n    at index.js:2:9", maps);
      break;
    }
    case 'r': {
      celld::SourceMaps maps;
      maps["a"] = std::make_shared<const celld::SourceMap>(
          celld::SourceMap::parse(R"({"version":3,"sources":["b"],"mappings":"AAAA"})").value());
      (void)celld::remap_stack(text, maps);
      break;
    }
    default: {
      auto manifest = celld::decode_manifest(text, "manifest.json");
      if (manifest &&
          celld::decode_manifest(celld::encode_manifest(*manifest), "manifest.json") != *manifest) {
        std::abort();
      }
    }
  }
  return 0;
}
