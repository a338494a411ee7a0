// Cron expressions as Cloudflare's cron triggers read them: five fields, UTC.
//
// Pure; any thread.
#pragma once

#include <bitset>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace celld {

// minute hour day-of-month month day-of-week.
//
// Values, ranges (a-b, ascending), lists, steps (/n), `*`; months jan-dec; days of the week 1-7 with
// 1 = Sunday, or sun-sat. Day of month also L, L-n, LW, nW; day of week also nL and n#k. When both day
// fields are restricted, a day that fits either one counts.
class CronSchedule {
 public:
  // kInvalid, naming the field and what is wrong with it.
  static Result<CronSchedule> parse(std::string_view text);

  const std::string& text() const { return text_; }

  // The first minute later than `after` that fits; nothing when none comes within 400 years
  // (one cycle of the calendar), as for "0 0 30 2 *".
  std::optional<WallMs> next_after(WallMs after) const;

 private:
  struct DayRule {
    enum class Kind : uint8_t {
      kLastOfMonth,     // a = days before the last one
      kLastWorkday,
      kNearestWorkday,  // a = day of month
      kLastWeekday,     // a = day of week from 0
      kNthWeekday,      // a = day of week from 0, b = 1 to 5
    };
    Kind kind;
    int a = 0;
    int b = 0;
  };

  bool day_fits(int month, int day, int weekday, int month_days) const;
  static bool rule_fits(const DayRule& rule, int day, int weekday, int month_days);

  std::string text_;
  std::bitset<60> minutes_;
  std::bitset<24> hours_;
  std::bitset<32> days_;      // from 1
  std::bitset<13> months_;    // from 1
  std::bitset<7> weekdays_;   // from 0 = Sunday
  std::vector<DayRule> day_rules_;
  std::vector<DayRule> weekday_rules_;
  bool any_day_ = false;
  bool any_weekday_ = false;
};

}  // namespace celld
