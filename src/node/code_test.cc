#include "node/code.h"

#include <gtest/gtest.h>

namespace celld {
namespace {

const std::string kKey(64, 'a');

LoadedDeployment deployment() {
  LoadedDeployment d;
  d.version = "0123456789abcdef";
  d.manifest.script_name = "shop";
  d.manifest.main_module = "worker.js";
  d.manifest.compatibility_date = "2026-01-01";
  d.manifest.compatibility_flags = {"nodejs_compat"};
  d.manifest.classes = {DeployedClass{"Cart", ClassStorage::kSqlite, kKey},
                        DeployedClass{"Old", ClassStorage::kKeyValue, kKey}};
  d.manifest.bindings = {DeployedBinding{"CART", "Cart"}, DeployedBinding{"OLD", "Old"}};
  d.manifest.vars = {Var{"NAME", VarKind::kText, "{\"not\": json}"}, Var{"LIST", VarKind::kJson, "[1, 2]"}};
  d.modules = {BundledModule{"worker.js", BundledKind::kEsm, Blob(std::string("export default {}"))},
               BundledModule{"page.html", BundledKind::kText, Blob(std::string("<p>"))},
               BundledModule{"data.bin", BundledKind::kData, Blob(std::string("\0\1", 2))}};
  return d;
}

TEST(WorkerCode, carries_everything_of_the_deployment) {
  auto code = worker_code(deployment());
  ASSERT_TRUE(code) << code.error().message;
  EXPECT_EQ((*code)->script_name, "shop");
  EXPECT_EQ((*code)->main, "worker.js");
  EXPECT_EQ((*code)->compatibility_flags, std::vector<std::string>{"nodejs_compat"});
  EXPECT_EQ((*code)->vars_json, R"({"NAME":"{\"not\": json}","LIST":[1,2]})");
  ASSERT_EQ((*code)->namespaces.size(), 2u);
  EXPECT_EQ((*code)->namespaces[0].binding, "CART");
  EXPECT_EQ((*code)->namespaces[0].key, std::string(32, '\xaa'));
  EXPECT_TRUE((*code)->namespaces[0].sql);
  EXPECT_FALSE((*code)->namespaces[1].sql);
  ASSERT_EQ((*code)->modules.size(), 3u);
  EXPECT_EQ((*code)->modules[1].kind, js::CodeModule::Kind::kText);
  EXPECT_EQ((*code)->modules[2].content.view(), std::string_view("\0\1", 2));
  EXPECT_FALSE((*code)->remap_stack);
}

TEST(WorkerCode, a_contradiction_is_named) {
  auto no_class = deployment();
  no_class.manifest.bindings.push_back(DeployedBinding{"GONE", "Gone"});
  auto code = worker_code(std::move(no_class));
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(code.error().message.find("GONE"), std::string::npos) << code.error().message;

  auto bad_key = deployment();
  bad_key.manifest.classes[0].namespace_key = "xyz";
  code = worker_code(std::move(bad_key));
  ASSERT_FALSE(code);
  EXPECT_NE(code.error().message.find("CART"), std::string::npos) << code.error().message;

  auto bad_var = deployment();
  bad_var.manifest.vars[1].value = "[1, ";
  code = worker_code(std::move(bad_var));
  ASSERT_FALSE(code);
  EXPECT_NE(code.error().message.find("LIST"), std::string::npos) << code.error().message;
}

TEST(WorkerCode, stacks_are_mapped_to_the_sources_and_a_damaged_map_is_left_out) {
  auto d = deployment();
  const std::string map = R"({"version":3,"sources":["src/a.ts"],"names":[],"mappings":"AAEA"})";
  d.modules.push_back(BundledModule{"worker.js.map", BundledKind::kSourceMap, Blob(map)});
  d.modules.push_back(BundledModule{"other.js.map", BundledKind::kSourceMap, Blob(std::string("{"))});
  auto code = worker_code(std::move(d));
  ASSERT_TRUE(code) << code.error().message;
  EXPECT_EQ((*code)->modules.size(), 3u) << "maps are no modules";
  ASSERT_TRUE((*code)->remap_stack);
  EXPECT_NE((*code)->remap_stack("Error: x\n    at f (worker.js:1:1)").find("src/a.ts:3"), std::string::npos)
      << (*code)->remap_stack("Error: x\n    at f (worker.js:1:1)");
}

}  // namespace
}  // namespace celld
