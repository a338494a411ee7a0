#include "deploy/source_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "deploy/bundle.h"

namespace celld {
namespace {

namespace fs = std::filesystem;

SourceMaps one_map(std::string name, std::string_view text) {
  SourceMaps maps;
  maps[std::move(name)] = std::make_shared<const SourceMap>(SourceMap::parse(text).value());
  return maps;
}

TEST(SourceMap, the_last_mapping_at_or_before_a_place_counts) {
  auto map = SourceMap::parse(
      R"({"version":3,"sources":["a.ts","b.ts"],"names":["f"],"mappings":"AAAA,QACE;;A,ECCFA"})");
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(map->find(1, 1)->line, 1u);
  EXPECT_EQ(map->find(1, 8)->line, 1u);
  EXPECT_EQ(map->find(1, 9)->line, 2u);
  EXPECT_EQ(map->find(1, 9)->column, 3u);
  EXPECT_EQ(map->find(1, 1000)->source, "a.ts");
  EXPECT_FALSE(map->find(2, 1));
  EXPECT_FALSE(map->find(3, 1)) << "generated code has no source";
  EXPECT_EQ(map->find(3, 3)->source, "b.ts");
  EXPECT_EQ(map->find(3, 3)->name, "f");
  EXPECT_FALSE(map->find(4, 1));
  EXPECT_FALSE(map->find(0, 1));
  EXPECT_FALSE(map->find(1, 0));
}

TEST(SourceMap, malformed_maps_are_refused) {
  for (std::string_view text :
       {"", "[]", "{}", R"({"version":2,"mappings":""})", R"({"version":3})",
        R"({"version":3,"mappings":"AAAA"})",                       // no such source
        R"({"version":3,"sources":["a"],"mappings":"A!"})",         // no digit
        R"({"version":3,"sources":["a"],"mappings":"AA"})",         // two fields
        R"({"version":3,"sources":["a"],"mappings":"AAAAAA"})",     // six fields
        R"({"version":3,"sources":["a"],"mappings":"g"})",          // cut off
        R"({"version":3,"sources":["a"],"mappings":"D"})",          // negative column
        R"({"version":3,"sources":["a"],"mappings":"gggggggggA"})"}) {
    EXPECT_FALSE(SourceMap::parse(text)) << text;
  }
  EXPECT_EQ(SourceMap::parse(R"({"version":3,"sections":[]})").error().code,
            ErrorCode::kUnsupported);
}

TEST(RemapStack, places_are_replaced_and_the_rest_stays) {
  auto maps = one_map("index.js", R"({"version":3,"sources":["src/a.ts"],"mappings":"AAAA,QACE"})");
  EXPECT_EQ(remap_stack("Error: at index.js:1:9 (not a frame)\n"
                        "    at f (index.js:1:9)\n"
                        "    at index.js:1:1\n"
                        "    at async Counter.fetch (file:///x/index.js:1:20)\n"
                        "    at async ./index.js:1:20\n"
                        "    at g (other.js:1:1)\n"
                        "    at h (index.js:99:1)\n"
                        "    at new Promise (<anonymous>)\n"
                        "    at eval (eval at f (index.js:1:9), <anonymous>:1:1)",
                        maps),
            "Error: at index.js:1:9 (not a frame)\n"
            "    at f (src/a.ts:2:3)\n"
            "    at src/a.ts:1:1\n"
            "    at async Counter.fetch (src/a.ts:2:3)\n"
            "    at async src/a.ts:2:3\n"
            "    at g (other.js:1:1)\n"
            "    at h (index.js:99:1)\n"
            "    at new Promise (<anonymous>)\n"
            "    at eval (eval at f (index.js:1:9), <anonymous>:1:1)");
  std::string huge(100'000, 'x');
  EXPECT_EQ(remap_stack(huge, maps), huge);
  EXPECT_EQ(remap_stack("", maps), "");
}

TEST(RemapStack, real_output_of_esbuild_leads_to_the_line_that_threw) {
  std::string pattern = (fs::temp_directory_path() / "celld-map-XXXXXX").string();
  fs::path dir = fs::canonical(mkdtemp(pattern.data()));
  fs::create_directory(dir / "src");
  std::ofstream(dir / "wrangler.json") << R"({"name": "a", "main": "src/index.ts"})";
  std::ofstream(dir / "src/index.ts")
      << "interface Unused { a: number }\n"
         "import { boom } from './boom';\n"
         "export default { fetch(): Response { return boom(); } };\n";
  std::ofstream(dir / "src/boom.ts") << "type T = string;\n\n\nexport function boom(): never {\n"
                                        "  const t: T = 'x';\n  throw new Error('boom' + t);\n}\n";
  auto bundle = bundle_project(read_wrangler_config(dir / "wrangler.json").value(), {});
  fs::remove_all(dir);
  ASSERT_TRUE(bundle) << bundle.error().message;
  std::string_view code = bundle->modules[0].content.view();
  auto maps = one_map("index.js", bundle->modules[1].content.view());

  size_t at = code.find("new Error");
  size_t line_begin = code.rfind('\n', at) + 1;
  auto line = 1 + std::count(code.begin(), code.begin() + static_cast<ptrdiff_t>(at), '\n');
  std::string frame = "Error: boomx\n    at boom (index.js:" + std::to_string(line) + ":" +
                      std::to_string(at - line_begin + 1) + ")";
  EXPECT_EQ(remap_stack(frame, maps), "Error: boomx\n    at boom (src/boom.ts:6:9)");
}

}  // namespace
}  // namespace celld
