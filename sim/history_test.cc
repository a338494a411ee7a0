#include "sim/history.h"

#include <gtest/gtest.h>

namespace celld::sim {
namespace {

constexpr uint64_t kSteps = 1'000'000;

HistoryOp op(uint64_t id, OpKind kind, int64_t called, int64_t returned, std::optional<Content> output) {
  HistoryOp o;
  o.id = id;
  o.kind = kind;
  o.called = MonoTime{Duration(called)};
  o.returned = returned < 0 ? MonoTime::max() : MonoTime{Duration(returned)};
  o.output = output;
  return o;
}
Content after(std::initializer_list<uint64_t> ids) {
  Content c;
  for (uint64_t id : ids) c = applied(op(id, OpKind::kAppend, 0, 0, {}), c);
  return c;
}

TEST(Linearizable, operations_one_after_the_other) {
  EXPECT_EQ(linearizable({op(1, OpKind::kAppend, 0, 1, after({1})), op(2, OpKind::kRead, 2, 3, after({1}))}, kSteps),
            Linearizable::kYes);
}

TEST(Linearizable, a_read_that_goes_back_has_no_place) {
  EXPECT_EQ(linearizable({op(1, OpKind::kAppend, 0, 1, after({1})), op(2, OpKind::kRead, 2, 3, Content{})}, kSteps),
            Linearizable::kNo);
}

TEST(Linearizable, operations_that_overlap_may_have_either_order) {
  for (auto& ids : {std::vector<uint64_t>{1, 2}, std::vector<uint64_t>{2, 1}}) {
    Content first = after({ids[0]}), second = after({ids[0], ids[1]});
    EXPECT_EQ(
        linearizable({op(ids[0], OpKind::kAppend, 0, 5, first), op(ids[1], OpKind::kAppend, 1, 6, second)}, kSteps),
        Linearizable::kYes);
  }
}

TEST(Linearizable, the_order_of_time_holds_between_those_that_do_not_overlap) {
  EXPECT_EQ(
      linearizable({op(1, OpKind::kAppend, 0, 1, after({2, 1})), op(2, OpKind::kAppend, 2, 3, after({2}))}, kSteps),
      Linearizable::kNo);
}

TEST(Linearizable, an_operation_that_nobody_heard_of_may_take_effect_late) {
  EXPECT_EQ(linearizable({op(1, OpKind::kAppend, 0, -1, {}), op(2, OpKind::kRead, 1, 2, Content{}),
                          op(3, OpKind::kRead, 3, 4, after({1}))},
                         kSteps),
            Linearizable::kYes);
  EXPECT_EQ(linearizable({op(1, OpKind::kAppend, 0, -1, {}), op(2, OpKind::kRead, 1, 2, after({1})),
                          op(3, OpKind::kRead, 3, 4, Content{})},
                         kSteps),
            Linearizable::kNo);
}

TEST(Linearizable, a_lost_update_has_no_order) {
  EXPECT_EQ(linearizable({op(1, OpKind::kAppend, 0, 1, after({1})), op(2, OpKind::kAppend, 0, 2, after({2})),
                          op(3, OpKind::kRead, 3, 4, after({2}))},
                         kSteps),
            Linearizable::kNo);
}

TEST(Linearizable, gives_up_after_so_many_steps) {
  EXPECT_EQ(linearizable({op(1, OpKind::kAppend, 0, 1, after({1})), op(2, OpKind::kRead, 2, 3, after({1}))}, 1),
            Linearizable::kUndecided);
}

}  // namespace
}  // namespace celld::sim
