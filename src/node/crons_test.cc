#include "node/crons.h"

#include <gtest/gtest.h>

#include "world/test_world.h"

namespace celld {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

struct Fired {
  std::string expression;
  int64_t minute;
  bool operator==(const Fired&) const = default;
};

class CronsTest : public testing::Test {
 protected:
  TestWorld root_{3};
  TestNodeWorld world_{root_};
  std::vector<Fired> fired_;
  Crons crons_{world_, [this](const std::string& expression, WallMs at) {
                 EXPECT_EQ(at.value % 60'000, 0);
                 EXPECT_GE(world_.wall_now(), at) << "early";
                 fired_.push_back({expression, at.value / 60'000});
               }};
  int64_t minute() { return world_.wall_now().value / 60'000; }
};

TEST_F(CronsTest, fire_every_minute_at_its_start) {
  int64_t first = minute() + 1;
  EXPECT_TRUE(crons_.set({"* * * * *"}).empty());
  root_.run_for(minutes(3));
  EXPECT_EQ(fired_, (std::vector<Fired>{{"* * * * *", first}, {"* * * * *", first + 1}, {"* * * * *", first + 2}}));
}

TEST_F(CronsTest, invalid_expressions_are_named_and_the_others_run) {
  EXPECT_EQ(crons_.set({"61 * * * *", "* * * * *", "nonsense"}),
            (std::vector<std::string>{"61 * * * *", "nonsense"}));
  root_.run_for(minutes(1));
  EXPECT_EQ(fired_.size(), 1u);
}

TEST_F(CronsTest, a_new_deployment_replaces_all_of_them) {
  crons_.set({"* * * * *", "*/2 * * * *"});
  crons_.set({"*/5 * * * *"});
  root_.run_for(minutes(10));
  ASSERT_EQ(fired_.size(), 2u);
  EXPECT_EQ(fired_[0].expression, "*/5 * * * *");
  crons_.set({});
  root_.run_for(minutes(10));
  EXPECT_EQ(fired_.size(), 2u);
}

TEST_F(CronsTest, a_clock_that_is_set_back_does_not_fire_the_same_minute_twice) {
  crons_.set({"* * * * *"});
  root_.run_for(seconds(61));
  ASSERT_EQ(fired_.size(), 1u);
  world_.set_wall_skew(-seconds(90));
  root_.run_for(minutes(4));
  ASSERT_GE(fired_.size(), 2u);
  for (size_t i = 1; i < fired_.size(); ++i) EXPECT_EQ(fired_[i].minute, fired_[i - 1].minute + 1);
}

TEST_F(CronsTest, minutes_that_were_slept_through_are_left_out) {
  crons_.set({"* * * * *"});
  world_.pause_until(root_.now() + minutes(30));
  root_.run_for(minutes(31));
  EXPECT_LE(fired_.size(), 3u);
  EXPECT_GE(fired_.size(), 1u);
}

TEST_F(CronsTest, nothing_fires_after_the_end) {
  {
    Crons gone(world_, [&](const std::string&, WallMs) { FAIL(); });
    gone.set({"* * * * *"});
  }
  root_.run_for(minutes(2));
}

}  // namespace
}  // namespace celld
