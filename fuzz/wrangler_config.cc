// links: deploy
//
// The configuration reader, .dev.vars, cron expressions and globs on any text. The first byte chooses.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "deploy/cron.h"
#include "deploy/dev_vars.h"
#include "deploy/glob.h"
#include "deploy/wrangler_config.h"

namespace {

void read_config(std::string_view text, celld::ConfigFormat format) {
  auto config = celld::parse_wrangler_config(text, format, "wrangler.jsonc");
  if (!config) {
    if (config.error().message.empty()) std::abort();
    return;
  }
  // What was accepted keeps its promises.
  if (config->name.empty() || config->main.empty() || config->rules.empty()) std::abort();
  for (const auto& c : config->crons) {
    if (!celld::CronSchedule::parse(c)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 't': read_config(text, celld::ConfigFormat::kToml); break;
    case 'v': (void)celld::parse_dev_vars(text, ".dev.vars"); break;
    case 'c':
      if (auto cron = celld::CronSchedule::parse(text)) {
        auto next = cron->next_after(celld::WallMs{1'800'000'000'000});
        if (next && next->value <= 1'800'000'000'000) std::abort();
      }
      break;
    case 'g': {
      size_t half = text.find('\n');
      if (half != text.npos) {
        (void)celld::glob_matches(text.substr(0, half), text.substr(half + 1));
        (void)celld::glob_extension(text.substr(0, half));
      }
      break;
    }
    default: read_config(text, celld::ConfigFormat::kJsonc); break;
  }
  return 0;
}
