#include "deploy/dev_vars.h"

#include <gtest/gtest.h>

namespace celld {
namespace {

Var text(std::string name, std::string value) { return {std::move(name), VarKind::kText, value}; }

TEST(DevVars, reads_what_dotenv_reads) {
  auto vars = parse_dev_vars(
      "# comment\n\nA=1\nexport B = two words # tail\r\nC=\"x\\ny # no\"\nD='raw\\n'\n"
      "E=\"first\nsecond\" # end\nF=\nG=`a'b\"c`\nA=again",
      ".dev.vars");
  ASSERT_TRUE(vars) << vars.error().message;
  std::vector<Var> wanted = {text("A", "again"),         text("B", "two words"), text("C", "x\ny # no"),
                             text("D", "raw\\n"),        text("E", "first\nsecond"), text("F", ""),
                             text("G", "a'b\"c")};
  EXPECT_EQ(*vars, wanted);
}

TEST(DevVars, a_line_that_is_not_understood_is_named) {
  EXPECT_EQ(parse_dev_vars("A=1\nnonsense\n", ".dev.vars").error().message,
            ".dev.vars:2: not of the form NAME=value");
  EXPECT_EQ(parse_dev_vars("A='1\n", ".dev.vars").error().message,
            ".dev.vars:1: the quote of 'A' is not closed");
  EXPECT_FALSE(parse_dev_vars("A='1' x", ".dev.vars"));
}

// TOOL-06: .dev.vars ignored after an upgrade.
TEST(DevVars, dev_vars_win_over_vars) {
  std::vector<Var> vars = {{"A", VarKind::kJson, "1"}, text("B", "b")};
  auto merged = override_vars(vars, {text("A", "dev"), text("C", "new")});
  EXPECT_EQ(merged, (std::vector<Var>{text("A", "dev"), text("B", "b"), text("C", "new")}));
}

}  // namespace
}  // namespace celld
