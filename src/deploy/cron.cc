#include "deploy/cron.h"

#include <array>
#include <charconv>
#include <chrono>
#include <fmt/format.h>
#include <span>

#include "base/check.h"

namespace celld {
namespace {

constexpr size_t kExpressionBytesMax = 256;
constexpr int kDaysAhead = 146'097;  // 400 Gregorian years

constexpr std::array<std::string_view, 12> kMonthNames = {"jan", "feb", "mar", "apr", "may", "jun",
                                                          "jul", "aug", "sep", "oct", "nov", "dec"};
constexpr std::array<std::string_view, 7> kDayNames = {"sun", "mon", "tue", "wed",
                                                       "thu", "fri", "sat"};

struct Field {
  std::string_view name;
  int low;
  int high;
  std::span<const std::string_view> names;  // names[i] means low + i
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  while (true) {
    size_t at = text.find(separator);
    out.push_back(text.substr(0, at));
    if (at == text.npos) return out;
    text.remove_prefix(at + 1);
  }
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  if (text.empty() || text.size() > 4 || text[0] < '0' || text[0] > '9') return std::nullopt;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Unexpected bad(const Field& field, std::string_view item, std::string_view why) {
  return fail(Error::invalid(fmt::format("{} field: '{}' {}", field.name, item, why)));
}

Result<int> single(const Field& field, std::string_view text, std::string_view item) {
  for (size_t i = 0; i < field.names.size(); ++i) {
    if (text == field.names[i]) return field.low + static_cast<int>(i);
  }
  auto value = number(text);
  if (!value) return bad(field, item, "is not a value of this field");
  if (*value < field.low || *value > field.high) {
    return bad(field, item, fmt::format("is outside {} to {}", field.low, field.high));
  }
  return *value;
}

// One element of a list without the letters L, W and #; calls `mark` with every value it means.
template <class Mark>
Result<void> plain_item(const Field& field, std::string_view item, size_t list_size, Mark mark) {
  auto parts = split(item, '/');
  if (parts.size() > 2) return bad(field, item, "has more than one step");
  int step = 1;
  if (parts.size() == 2) {
    auto value = number(parts[1]);
    if (!value || *value < 1 || *value > field.high - field.low) {
      return bad(field, item, fmt::format("has a step outside 1 to {}", field.high - field.low));
    }
    step = *value;
  }
  int low = field.low;
  int high = field.high;
  if (parts[0] == "*") {
    if (list_size > 1) return bad(field, item, "cannot be part of a list");
  } else {
    auto ends = split(parts[0], '-');
    if (ends.size() > 2) return bad(field, item, "is not a range");
    TRY_ASSIGN(low, single(field, ends[0], item));
    if (ends.size() == 2) {
      TRY_ASSIGN(high, single(field, ends[1], item));
      if (high < low) return bad(field, item, "is a descending range");
    } else if (parts.size() == 1) {
      high = low;
    }
  }
  for (int v = low; v <= high; v += step) mark(v);
  return {};
}

constexpr Field kMinute{"minute", 0, 59, {}};
constexpr Field kHour{"hour", 0, 23, {}};
constexpr Field kDay{"day of month", 1, 31, {}};
constexpr Field kMonth{"month", 1, 12, kMonthNames};
constexpr Field kWeekday{"day of week", 1, 7, kDayNames};

bool is_workday(int weekday) { return weekday >= 1 && weekday <= 5; }

int weekday_of(int day, int known_day, int known_weekday) {
  return ((known_weekday + day - known_day) % 7 + 7) % 7;
}

}  // namespace

Result<CronSchedule> CronSchedule::parse(std::string_view text) {
  if (text.size() > kExpressionBytesMax) {
    return fail(Error::invalid(fmt::format("longer than {} bytes", kExpressionBytesMax)));
  }
  std::string lowered = lower(text);
  std::vector<std::string_view> fields;
  for (auto part : split(lowered, ' ')) {
    if (!part.empty()) fields.push_back(part);
  }
  if (fields.size() != 5) {
    return fail(Error::invalid(fmt::format(
        "{} fields, but minute, hour, day of month, month and day of week are needed",
        fields.size())));
  }
  CronSchedule out;
  out.text_ = std::string(text);

  auto each = [](const Field& field, std::string_view list, auto item_reader) -> Result<void> {
    auto items = split(list, ',');
    for (auto item : items) {
      if (item.empty()) return bad(field, list, "has an empty element");
      TRY(item_reader(item, items.size()));
    }
    return {};
  };
  TRY(each(kMinute, fields[0], [&](std::string_view item, size_t n) {
    return plain_item(kMinute, item, n, [&](int v) { out.minutes_.set(v); });
  }));
  TRY(each(kHour, fields[1], [&](std::string_view item, size_t n) {
    return plain_item(kHour, item, n, [&](int v) { out.hours_.set(v); });
  }));
  TRY(each(kMonth, fields[3], [&](std::string_view item, size_t n) {
    return plain_item(kMonth, item, n, [&](int v) { out.months_.set(v); });
  }));
  TRY(each(kDay, fields[2], [&](std::string_view item, size_t n) -> Result<void> {
    using Kind = DayRule::Kind;
    if (item == "l" || item.starts_with("l-")) {
      int before = 0;
      if (item != "l") {
        auto value = number(item.substr(2));
        if (item.ends_with('w') || !value || *value < 1 || *value > 30) {
          return bad(kDay, item, "is not L, L-1 to L-30 or LW");
        }
        before = *value;
      }
      out.day_rules_.push_back({Kind::kLastOfMonth, before, 0});
      return {};
    }
    if (item == "lw") {
      out.day_rules_.push_back({Kind::kLastWorkday, 0, 0});
      return {};
    }
    if (item.ends_with('w')) {
      int day = 0;
      TRY_ASSIGN(day, single(kDay, item.substr(0, item.size() - 1), item));
      out.day_rules_.push_back({Kind::kNearestWorkday, day, 0});
      return {};
    }
    return plain_item(kDay, item, n, [&](int v) { out.days_.set(v); });
  }));
  TRY(each(kWeekday, fields[4], [&](std::string_view item, size_t n) -> Result<void> {
    using Kind = DayRule::Kind;
    if (size_t hash = item.find('#'); hash != item.npos) {
      int day = 0;
      TRY_ASSIGN(day, single(kWeekday, item.substr(0, hash), item));
      auto nth = number(item.substr(hash + 1));
      if (!nth || *nth < 1 || *nth > 5) return bad(kWeekday, item, "needs 1 to 5 after #");
      out.weekday_rules_.push_back({Kind::kNthWeekday, day - 1, *nth});
      return {};
    }
    if (item.size() > 1 && item.ends_with('l')) {
      int day = 0;
      TRY_ASSIGN(day, single(kWeekday, item.substr(0, item.size() - 1), item));
      out.weekday_rules_.push_back({Kind::kLastWeekday, day - 1, 0});
      return {};
    }
    return plain_item(kWeekday, item, n, [&](int v) { out.weekdays_.set(v - 1); });
  }));
  out.any_day_ = fields[2] == "*";
  out.any_weekday_ = fields[4] == "*";
  return out;
}

bool CronSchedule::rule_fits(const DayRule& rule, int day, int weekday, int month_days) {
  switch (rule.kind) {
    case DayRule::Kind::kLastOfMonth: return day == month_days - rule.a;
    case DayRule::Kind::kLastWorkday: {
      int last = month_days;
      while (!is_workday(weekday_of(last, day, weekday))) --last;
      return day == last;
    }
    case DayRule::Kind::kNearestWorkday: {
      if (rule.a > month_days) return false;
      // Saturday moves to Friday, Sunday to Monday, but never out of the month.
      int target = rule.a;
      int target_weekday = weekday_of(target, day, weekday);
      if (target_weekday == 6) target += target == 1 ? 2 : -1;
      if (target_weekday == 0) target += target == month_days ? -2 : 1;
      return day == target;
    }
    case DayRule::Kind::kLastWeekday: return weekday == rule.a && day + 7 > month_days;
    case DayRule::Kind::kNthWeekday: return weekday == rule.a && (day - 1) / 7 + 1 == rule.b;
  }
  return false;
}

bool CronSchedule::day_fits(int month, int day, int weekday, int month_days) const {
  if (!months_.test(month)) return false;
  bool by_day = days_.test(day);
  for (const auto& rule : day_rules_) by_day |= rule_fits(rule, day, weekday, month_days);
  bool by_weekday = weekdays_.test(weekday);
  for (const auto& rule : weekday_rules_) by_weekday |= rule_fits(rule, day, weekday, month_days);
  if (any_day_ || any_weekday_) return by_day && by_weekday;
  return by_day || by_weekday;
}

std::optional<WallMs> CronSchedule::next_after(WallMs after) const {
  using namespace std::chrono;
  constexpr int64_t kYear9999EndMs = 253'402'300'799'999;
  if (after.value < -kYear9999EndMs || after.value > kYear9999EndMs) return std::nullopt;
  sys_time<milliseconds> start{milliseconds(after.value)};
  sys_time<minutes> from = floor<minutes>(start) + minutes(1);
  sys_days first_day = floor<days>(from);
  int first_minute = static_cast<int>((from - first_day).count());
  for (int ahead = 0; ahead <= kDaysAhead; ++ahead) {
    sys_days day = first_day + days(ahead);
    year_month_day date(day);
    int month_days = static_cast<int>(unsigned((date.year() / date.month() / last).day()));
    int weekday = static_cast<int>(std::chrono::weekday(day).c_encoding());
    if (!day_fits(static_cast<int>(unsigned(date.month())),
                  static_cast<int>(unsigned(date.day())), weekday, month_days)) {
      continue;
    }
    for (int m = ahead == 0 ? first_minute : 0; m < 24 * 60; ++m) {
      if (hours_.test(m / 60) && minutes_.test(m % 60)) {
        return WallMs{duration_cast<milliseconds>((day + minutes(m)).time_since_epoch()).count()};
      }
    }
  }
  return std::nullopt;
}

}  // namespace celld
