#include "ltx/restore_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace celld {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RestoreObject object(uint64_t epoch, uint64_t min, uint64_t max, unsigned level = 0) {
  return {Epoch(epoch), level, Txid(min), Txid(max), 100};
}

std::string error_of(std::vector<RestoreObject> objects) {
  auto plan = plan_restore(objects);
  return plan ? "no error" : plan.error().message;
}

TEST(RestorePlan, nothing_leads_to_an_empty_database) {
  auto plan = plan_restore({});
  ASSERT_TRUE(plan);
  EXPECT_THAT(plan->objects, IsEmpty());
  EXPECT_EQ(plan->max, Txid(0));
}

TEST(RestorePlan, takes_the_newest_snapshot_and_the_chain_above) {
  std::vector<RestoreObject> objects = {object(1, 1, 5), object(1, 6, 6), object(1, 1, 6, 9),
                                        object(1, 8, 8), object(1, 7, 7)};
  auto plan = plan_restore(objects);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(plan->objects, ElementsAre(object(1, 1, 6, 9), object(1, 7, 7), object(1, 8, 8)));
  EXPECT_EQ(plan->max, Txid(8));
  EXPECT_EQ(plan->bytes, 300u);
}

TEST(RestorePlan, prefers_few_objects_that_reach_far) {
  std::vector<RestoreObject> objects = {object(1, 1, 2, 9)};
  for (uint64_t t = 3; t <= 100; ++t) objects.push_back(object(1, t, t));
  objects.push_back(object(1, 3, 60, 1));
  objects.push_back(object(1, 50, 99, 1));
  auto plan = plan_restore(objects);
  ASSERT_TRUE(plan);
  EXPECT_THAT(plan->objects, ElementsAre(object(1, 1, 2, 9), object(1, 3, 60, 1),
                                         object(1, 50, 99, 1), object(1, 100, 100)));
}

TEST(RestorePlan, a_gap_is_an_error_that_names_it) {
  EXPECT_THAT(error_of({object(1, 1, 5), object(1, 9, 12)}), HasSubstr("TXIDs 6 to 8 are missing"));
  EXPECT_THAT(error_of({object(1, 4, 12)}), HasSubstr("TXIDs 1 to 3 are missing"));
  EXPECT_THAT(error_of({object(1, 5, 4)}), HasSubstr("TXIDs 5 to 4"));
  EXPECT_THAT(error_of({object(1, 0, 4)}), HasSubstr("TXIDs 0 to 4"));
}

TEST(RestorePlan, txids_continue_across_epochs) {
  std::vector<RestoreObject> objects = {object(10, 8, 9), object(1, 1, 3), object(2, 4, 7)};
  auto plan = plan_restore(objects);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(plan->objects, ElementsAre(object(1, 1, 3), object(2, 4, 7), object(10, 8, 9)));
}

TEST(RestorePlan, what_an_old_epoch_holds_above_its_cut_does_not_count) {
  std::vector<RestoreObject> objects = {object(1, 1, 3), object(1, 4, 9), object(2, 4, 5),
                                        object(2, 6, 6)};
  auto plan = plan_restore(objects);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(plan->objects, ElementsAre(object(1, 1, 3), object(2, 4, 5), object(2, 6, 6)));
  // Also when it is a snapshot that reaches further than all else.
  objects.push_back(object(1, 1, 20, 9));
  EXPECT_EQ(plan_restore(objects)->objects, plan->objects);
  // Also from two epochs ago, where the epoch between has written nothing.
  for (RestoreObject& o : objects) {
    if (o.epoch == Epoch(2)) o.epoch = Epoch(3);
  }
  EXPECT_EQ(plan_restore(objects)->max, Txid(6));
}

TEST(RestorePlan, an_object_that_straddles_the_cut_is_not_used_in_part) {
  EXPECT_THAT(error_of({object(1, 1, 3), object(1, 4, 9), object(2, 7, 8)}),
              HasSubstr("TXIDs 4 to 6 are missing (3 objects, 1 above the cut of their epoch)"));
}

TEST(RestorePlan, a_snapshot_of_a_later_epoch_replaces_all_before_it) {
  // Epoch 2 began at 21 and has merged that commit away.
  std::vector<RestoreObject> objects = {object(1, 1, 20, 9), object(1, 21, 30), object(2, 1, 25, 9),
                                        object(2, 26, 26)};
  auto plan = plan_restore(objects);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_THAT(plan->objects, ElementsAre(object(2, 1, 25, 9), object(2, 26, 26)));
}

TEST(RestorePlan, of_equal_ranges_the_later_epoch_wins) {
  // Epoch 1 left a first commit that never counted; epoch 2 began anew at 1.
  std::vector<RestoreObject> objects = {object(1, 1, 1), object(2, 1, 1)};
  EXPECT_THAT(plan_restore(objects)->objects, ElementsAre(object(2, 1, 1)));
}

TEST(RestorePlan, objects_listed_twice_are_taken_once) {
  std::vector<RestoreObject> objects = {object(1, 1, 3), object(1, 4, 4), object(1, 1, 3),
                                        object(1, 4, 4)};
  EXPECT_EQ(plan_restore(objects)->objects.size(), 2u);
}

TEST(RestorePlan, long_chains_with_overlaps_reach_the_end_in_any_order) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<RestoreObject> objects;
    uint64_t txid = 0;
    for (uint64_t epoch = 1; epoch <= 4; ++epoch) {
      uint64_t first = txid + 1;
      for (int i = 0; i < 10; ++i) {
        uint64_t max = txid + 1 + random() % 5;
        objects.push_back(object(epoch, txid + 1, max));
        txid = max;
        if (random() % 3 == 0)
          objects.push_back(object(epoch, first + random() % (txid - first + 1), txid, 1));
        if (random() % 8 == 0) objects.push_back(object(epoch, 1, txid, 9));
      }
    }
    std::shuffle(objects.begin(), objects.end(), random);
    auto plan = plan_restore(objects);
    ASSERT_TRUE(plan) << seed << " " << plan.error().message;
    EXPECT_EQ(plan->max, Txid(txid));
    Txid reached(0), last_min(1);
    for (const RestoreObject& o : plan->objects) {
      EXPECT_LE(o.min, reached.next());
      EXPECT_GT(o.max, reached);
      EXPECT_GE(o.min, last_min);  // as merge() wants it
      reached = o.max;
      last_min = o.min;
    }
  }
}

}  // namespace
}  // namespace celld
