#include "deploy/cron.h"

#include <gtest/gtest.h>

#include <chrono>

namespace celld {
namespace {

WallMs at(int year, unsigned month, unsigned day, int hour = 0, int minute = 0, int ms = 0) {
  using namespace std::chrono;
  auto t = sys_days(std::chrono::year(year) / month / day) + hours(hour) + minutes(minute) +
           milliseconds(ms);
  return WallMs{duration_cast<milliseconds>(t.time_since_epoch()).count()};
}

std::optional<WallMs> next(std::string_view text, WallMs after) {
  auto cron = CronSchedule::parse(text);
  EXPECT_TRUE(cron) << text << ": " << cron.error().message;
  return cron ? cron->next_after(after) : std::nullopt;
}

TEST(Cron, the_next_minute_is_strictly_later) {
  EXPECT_EQ(next("* * * * *", at(2026, 1, 31, 23, 59, 30'000)), at(2026, 2, 1));
  EXPECT_EQ(next("* * * * *", at(2026, 2, 1)), at(2026, 2, 1, 0, 1));
}

TEST(Cron, steps_ranges_and_lists) {
  EXPECT_EQ(next("*/15 * * * *", at(2026, 1, 1, 0, 16)), at(2026, 1, 1, 0, 30));
  EXPECT_EQ(next("5-10/5,50 3 * * *", at(2026, 1, 1, 3, 6)), at(2026, 1, 1, 3, 10));
  EXPECT_EQ(next("5-10/5,50 3 * * *", at(2026, 1, 1, 3, 10)), at(2026, 1, 1, 3, 50));
  EXPECT_EQ(next("50/5 * * * *", at(2026, 1, 1, 3, 56)), at(2026, 1, 1, 4, 50));
}

TEST(Cron, days_of_the_week_begin_with_sunday_as_one) {
  // 2026-01-04 is a Sunday.
  EXPECT_EQ(next("0 0 * * 1", at(2026, 1, 1)), at(2026, 1, 4));
  EXPECT_EQ(next("0 0 * * sun", at(2026, 1, 1)), at(2026, 1, 4));
  EXPECT_EQ(next("0 0 * * MON-FRI", at(2026, 1, 2, 12)), at(2026, 1, 5));
}

TEST(Cron, either_day_field_is_enough_when_both_are_restricted) {
  EXPECT_EQ(next("0 0 3 * sun", at(2026, 1, 1)), at(2026, 1, 3));
  EXPECT_EQ(next("0 0 3 * sun", at(2026, 1, 3)), at(2026, 1, 4));
}

TEST(Cron, last_nearest_and_nth_days) {
  EXPECT_EQ(next("0 0 L 2 *", at(2028, 1, 1)), at(2028, 2, 29));
  EXPECT_EQ(next("0 0 L-2 * *", at(2026, 1, 1)), at(2026, 1, 29));
  EXPECT_EQ(next("0 0 LW 1 *", at(2026, 1, 1)), at(2026, 1, 30));    // the 31st is a Saturday
  EXPECT_EQ(next("0 0 15W 2 *", at(2026, 1, 1)), at(2026, 2, 16));   // the 15th is a Sunday
  EXPECT_EQ(next("0 0 1W 8 *", at(2026, 1, 1)), at(2026, 8, 3));     // the 1st is a Saturday
  EXPECT_EQ(next("0 0 * * friL", at(2026, 1, 1)), at(2026, 1, 30));
  EXPECT_EQ(next("0 0 * * 2#2", at(2026, 1, 1)), at(2026, 1, 12));
}

TEST(Cron, a_day_that_never_comes_has_no_next) {
  EXPECT_EQ(next("0 0 30 2 *", at(2026, 1, 1)), std::nullopt);
  EXPECT_EQ(next("0 0 29 2 *", at(2026, 1, 1)), at(2028, 2, 29));
  EXPECT_EQ(next("* * * * *", WallMs{INT64_MAX}), std::nullopt);
}

TEST(Cron, what_cloudflare_refuses_is_refused_with_the_field) {
  for (std::string_view text :
       {"", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *",
        "* * * 13 *", "* * * * 0", "* * * * 8", "5-1 * * * *", "*,1 * * * *", "? * * * *",
        "*/0 * * * *", "*/60 * * * *", "1,,2 * * * *", "a * * * *", "* * L-31 * *", "* * * * 1#6",
        "* * * * fri-mon", "1/2/3 * * * *", "1-2-3 * * * *", "-1 * * * *", "+1 * * * *"}) {
    auto cron = CronSchedule::parse(text);
    EXPECT_FALSE(cron) << text;
  }
  EXPECT_EQ(CronSchedule::parse("60 * * * *").error().message,
            "minute field: '60' is outside 0 to 59");
  EXPECT_FALSE(CronSchedule::parse(std::string(1000, '*')));
}

}  // namespace
}  // namespace celld
