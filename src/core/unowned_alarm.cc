// Alarms of cells that no node owns: their keys are sorted by the minute in which they are due.
#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <chrono>

#include "base/check.h"
#include "base/json.h"
#include "core/records.h"

namespace celld {

namespace {

constexpr int64_t kMinuteMs = 60'000;
constexpr int64_t kLastMinute = 4'223'371'679;  // 9999-12-31T23:59, in minutes since 1970
constexpr int64_t kTimeMax = 8'640'000'000'000'000;
constexpr size_t kEntryBytesMax = 4 << 10;
constexpr std::string_view kPattern = "0000-00-00T00:00";

int64_t minute_of(WallMs due) { return std::clamp<int64_t>(due.value / kMinuteMs, 0, kLastMinute); }

void put_digits(std::string& text, size_t at, int digits, unsigned value) {
  for (int i = digits - 1; i >= 0; --i, value /= 10)
    text[at + i] = static_cast<char>('0' + value % 10);
}

std::string minute_text(int64_t minute) {
  std::chrono::sys_time<std::chrono::minutes> t{std::chrono::minutes(minute)};
  auto day = std::chrono::floor<std::chrono::days>(t);
  std::chrono::year_month_day date(day);
  auto in_day = static_cast<unsigned>((t - day).count());
  std::string text(kPattern);
  put_digits(text, 0, 4, static_cast<unsigned>(static_cast<int>(date.year())));
  put_digits(text, 5, 2, static_cast<unsigned>(date.month()));
  put_digits(text, 8, 2, static_cast<unsigned>(date.day()));
  put_digits(text, 11, 2, in_day / 60);
  put_digits(text, 14, 2, in_day % 60);
  return text;
}

std::optional<int64_t> parse_minute(std::string_view text) {
  if (text.size() != kPattern.size()) return std::nullopt;
  for (size_t i = 0; i < text.size(); ++i) {
    bool digit = text[i] >= '0' && text[i] <= '9';
    if (kPattern[i] == '0' ? !digit : text[i] != kPattern[i]) return std::nullopt;
  }
  auto number = [&](size_t at, size_t digits) {
    unsigned value = 0;
    for (char c : text.substr(at, digits)) value = value * 10 + static_cast<unsigned>(c - '0');
    return value;
  };
  std::chrono::year_month_day date{std::chrono::year(static_cast<int>(number(0, 4))),
                                   std::chrono::month(number(5, 2)),
                                   std::chrono::day(number(8, 2))};
  unsigned hour = number(11, 2);
  unsigned minute = number(14, 2);
  if (!date.ok() || hour > 23 || minute > 59) return std::nullopt;
  int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  int64_t minutes = days * 24 * 60 + hour * 60 + minute;
  if (minutes < 0) return std::nullopt;
  return minutes;
}

}  // namespace

std::string unowned_alarm_key(const CellId& cell, WallMs due) {
  CHECK(!cell.empty());
  return std::string(kUnownedAlarmPrefix) + minute_text(minute_of(due)) + "/" + cell.value;
}

std::optional<UnownedAlarmName> parse_unowned_alarm_key(std::string_view key) {
  if (!key.starts_with(kUnownedAlarmPrefix)) return std::nullopt;
  key.remove_prefix(kUnownedAlarmPrefix.size());
  if (key.size() <= kPattern.size() || key[kPattern.size()] != '/') return std::nullopt;
  auto minute = parse_minute(key.substr(0, kPattern.size()));
  auto cell = parse_cell_id(key.substr(kPattern.size() + 1));
  if (!minute || !cell) return std::nullopt;
  return UnownedAlarmName{*cell, WallMs{*minute * kMinuteMs}};
}

std::string encode_unowned_alarm(const AlarmEntry& entry) {
  CHECK(!entry.cell.empty() && entry.due.value >= -kTimeMax && entry.due.value <= kTimeMax)
      << entry.cell << " " << entry.due;
  boost::json::object out;
  out["cell"] = entry.cell.value;
  out["due_ms"] = entry.due.value;
  return boost::json::serialize(out);
}

Result<AlarmEntry> decode_unowned_alarm(std::string_view text, std::string_view key) {
  TRY_ASSIGN(JsonDocument document,
             JsonDocument::parse(text, key, ErrorCode::kCorrupt,
                                 JsonLimits{.bytes_max = kEntryBytesMax, .depth_max = 4}));
  JsonFields f = document.fields();
  AlarmEntry entry;
  entry.cell = CellId(f.text("cell", 255));
  entry.due = WallMs{f.integer("due_ms", -kTimeMax, kTimeMax)};
  auto name = parse_unowned_alarm_key(key);
  if (!name || name->cell != entry.cell) f.reject("cell", "is not the cell that the key names");
  if (name && name->minute.value != minute_of(entry.due) * kMinuteMs) {
    f.reject("due_ms", "is not in the minute that the key names");
  }
  TRY(f.done());
  return entry;
}

}  // namespace celld
