#include "store/file_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "store/file_disk.h"
#include "store/file_temp_dir.h"

namespace celld {
namespace {

namespace fs = std::filesystem;
using testing::TempDir;

const Abandoned kWanted{false};
const std::string kOtherBoot = "00000000-0000-0000-0000-000000000000";

std::string token(char c) { return std::string(32, c); }

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct OpenLog {
  TempDir dir;
  UniqueFd root{::open(dir.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  std::mutex mutex;
  std::vector<std::string> settled;  // keys
  std::shared_ptr<FileLog> log;

  OpenLog() {
    auto settle = [this](const auto& keys) {
      std::lock_guard lock(mutex);
      settled.insert(settled.end(), keys.begin(), keys.end());
      return 0;
    };
    auto made = FileLog::create(root.get(), kOtherBoot, std::make_shared<SyncHealth>(), settle);
    CHECK(made) << made.error().message;
    log = std::move(*made);
  }
  void append(const LogRecord& record) {
    auto entry = FileLog::append(log, record);
    ASSERT_TRUE(entry) << entry.error().message;
  }
  std::string bytes() const { return contents(dir.path() + "/log"); }
};

TEST(FileLog, gives_back_what_was_appended) {
  OpenLog open;
  const std::string binary("\0\n%", 3);
  open.append({LogRecord::Kind::kPut, "a/b", token('1'), "hello"});
  open.append({LogRecord::Kind::kFile, "large", token('2'), {}});
  open.append({LogRecord::Kind::kRemove, binary, {}, {}});
  open.append({LogRecord::Kind::kPut, std::string(1024, 'k'), token('3'),
               std::string(FileLog::kBodyBytesMax, 'x')});
  open.append({LogRecord::Kind::kPut, "empty", token('4'), {}});
  std::string boot;
  const auto records = read_log(open.bytes(), boot);
  EXPECT_EQ(boot, kOtherBoot);
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(records[0].key, "a/b");
  EXPECT_EQ(records[0].token, token('1'));
  EXPECT_EQ(records[0].body, "hello");
  EXPECT_EQ(records[1].kind, LogRecord::Kind::kFile);
  EXPECT_EQ(records[2].kind, LogRecord::Kind::kRemove);
  EXPECT_EQ(records[2].key, binary);
  EXPECT_EQ(records[2].token, "");
  EXPECT_EQ(records[3].body.size(), FileLog::kBodyBytesMax);
  EXPECT_EQ(records[4].body, "");
}

TEST(FileLog, ends_at_the_first_record_that_is_not_whole) {
  OpenLog open;
  for (char c : {'1', '2', '3'}) open.append({LogRecord::Kind::kPut, "k", token(c), "body"});
  const std::string whole = open.bytes();
  std::string boot;
  const size_t second = whole.find(token('2'));
  const size_t third = whole.find(token('3'));
  ASSERT_NE(third, std::string::npos);
  const size_t step = third - second;
  const size_t begin = third - step;  // within the second record, at the same place
  for (size_t i = 0; i < step; ++i) {
    std::string torn = whole;
    torn[begin + i] = static_cast<char>(torn[begin + i] ^ 0x55);
    const auto records = read_log(torn, boot);
    // The padding is nobody's; everything else ends the log.
    if (records.size() == 3) continue;
    ASSERT_LE(records.size(), 2u);
    for (const auto& record : records) ASSERT_EQ(record.body, "body");
  }
  for (size_t size = 0; size <= third + step; ++size) {
    EXPECT_LE(read_log(std::string_view(whole).substr(0, size), boot).size(), 3u);
  }
  EXPECT_TRUE(read_log("", boot).empty());
  EXPECT_TRUE(read_log(std::string(10'000, '\0'), boot).empty());
  EXPECT_EQ(boot, "");
}

// Several times around both halves: what is read back are the newest records, in order, and at
// least those of one half.
TEST(FileLog, goes_round_and_forgets_only_what_is_settled) {
  OpenLog open;
  const std::string body(100'000, 'b');
  const int count = static_cast<int>(5 * FileLog::kHalfBytes / body.size());
  for (int i = 0; i < count; ++i) {
    open.append({LogRecord::Kind::kPut, std::to_string(i), token('a'), body});
  }
  std::string boot;
  const auto records = read_log(open.bytes(), boot);
  ASSERT_GE(records.size(), FileLog::kHalfBytes / body.size() - 1);
  // What is not there any more was settled, once.
  std::lock_guard lock(open.mutex);
  std::ranges::sort(open.settled);
  EXPECT_EQ(std::ranges::adjacent_find(open.settled), open.settled.end());
  for (int i = 0; i < count - static_cast<int>(records.size()); ++i) {
    EXPECT_TRUE(std::ranges::binary_search(open.settled, std::to_string(i))) << i;
  }
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].key,
              std::to_string(count - static_cast<int>(records.size()) + static_cast<int>(i)));
  }
}

TEST(FileLog, a_half_with_an_unfinished_effect_is_kept) {
  OpenLog open;
  auto unfinished = FileLog::append(open.log, {LogRecord::Kind::kPut, "first", token('1'), "x"});
  ASSERT_TRUE(unfinished);
  const std::string body(FileLog::kBodyBytesMax, 'b');
  std::thread writer([&] {
    for (int i = 0; i < 30; ++i) open.append({LogRecord::Kind::kPut, "more", token('2'), body});
  });
  // Both halves are full once no byte changes any more; then the writer waits for "first".
  std::string before, boot;
  auto full = [&] {
    const auto records = read_log(open.bytes(), boot);
    return records.size() >= 2 * (FileLog::kHalfBytes / (body.size() + 100));
  };
  while (!full()) std::this_thread::yield();
  EXPECT_EQ(read_log(open.bytes(), boot).front().key, "first");
  unfinished = fail(Error::cancelled("done"));
  writer.join();
  EXPECT_NE(read_log(open.bytes(), boot).front().key, "first");
}

TEST(FileLog, threads_that_append_at_once_lose_nothing) {
  OpenLog open;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        open.append(
            {LogRecord::Kind::kPut, std::to_string(t) + "/" + std::to_string(i), token('a'), "b"});
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::string boot;
  std::map<std::string, int> last;
  const auto records = read_log(open.bytes(), boot);
  EXPECT_EQ(records.size(), 400u);
  for (const auto& record : records) {
    const size_t slash = record.key.find('/');
    const int number = std::stoi(record.key.substr(slash + 1));
    EXPECT_EQ(number, last[record.key.substr(0, slash)]++);
  }
}

// ---- the log of a store

std::unique_ptr<FileDisk> open_disk(const std::string& path, std::string boot = this_boot()) {
  auto disk = FileDisk::open(path, Fsync::kOn, std::move(boot));
  CHECK(disk) << disk.error().message;
  return std::move(*disk);
}

// Writes until this process has a log.
void get_log(FileDisk& disk, const std::string& path) {
  for (int i = 0; i < 100 && !fs::exists(path + "/log"); ++i) {
    ASSERT_TRUE(disk.replace("warm", Blob("up"), kWanted));
  }
  ASSERT_TRUE(fs::exists(path + "/log"));
}

std::string content(FileDisk& disk, std::string_view key) {
  auto object = disk.read(key, nullptr);
  if (object) return std::string(object->body.view());
  EXPECT_EQ(object.error().code, ErrorCode::kNotFound) << key << ": " << object.error().message;
  return "(none)";
}

TEST(FileStoreLog, only_the_only_process_has_one_and_closing_removes_it) {
  TempDir dir;
  auto first = open_disk(dir.path());
  auto second = open_disk(dir.path());
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(first->replace("k", Blob("x"), kWanted));
  EXPECT_FALSE(fs::exists(dir.path() + "/log"));
  second.reset();
  first.reset();
  first = open_disk(dir.path());
  get_log(*first, dir.path());
  first.reset();
  EXPECT_FALSE(fs::exists(dir.path() + "/log"));
}

TEST(FileStoreLog, ends_when_another_process_opens_the_directory) {
  TempDir dir;
  auto first = open_disk(dir.path());
  get_log(*first, dir.path());
  auto version = first->create("k", Blob("one"), kWanted).version;
  auto second = open_disk(dir.path());
  EXPECT_FALSE(fs::exists(dir.path() + "/log"));
  EXPECT_EQ(content(*second, "k"), "one");
  EXPECT_EQ(second->swap("k", Blob("two"), version, kWanted).outcome, SwapOutcome::kApplied);
  EXPECT_EQ(first->swap("k", Blob("three"), version, kWanted).outcome, SwapOutcome::kRejected);
  ASSERT_TRUE(first->remove("k", kWanted));
  EXPECT_EQ(content(*second, "k"), "(none)");
  EXPECT_FALSE(fs::exists(dir.path() + "/log"));
}

// It says that the log is over, and dies before it has removed it.
TEST(FileStoreLog, a_process_that_dies_while_it_opens_the_directory_leaves_no_old_log_behind) {
  TempDir dir;
  auto disk = open_disk(dir.path());
  get_log(*disk, dir.path());
  ASSERT_TRUE(disk->replace("k", Blob("old"), kWanted));
  std::ofstream(dir.path() + "/locks/table", std::ios::binary | std::ios::in)
      << std::string(8, '\0');
  ASSERT_TRUE(disk->replace("k", Blob("new"), kWanted));
  TempDir after;
  fs::copy(dir.path(), after.path(), fs::copy_options::recursive);
  auto found = open_disk(after.path(), kOtherBoot);
  EXPECT_EQ(content(*found, "k"), "new");
}

// Copies of a directory that are made of links are backups: nobody may write to them.
TEST(FileStoreLog, a_file_that_has_another_name_elsewhere_is_not_written_again) {
  TempDir dir, backup;
  auto disk = open_disk(dir.path());
  for (int i = 0; i < 30; ++i) {
    const std::string key = "k" + std::to_string(i);
    ASSERT_TRUE(disk->replace(key, Blob(key), kWanted));
    fs::create_hard_link(dir.path() + "/objects/" + key + "@", backup.path() + "/" + key);
  }
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(disk->remove("k" + std::to_string(i), kWanted));
  for (int i = 0; i < 90; ++i)
    ASSERT_TRUE(disk->replace("new" + std::to_string(i), Blob("n"), kWanted));
  for (int i = 0; i < 30; ++i) {
    const std::string key = "k" + std::to_string(i);
    EXPECT_TRUE(contents(backup.path() + "/" + key).ends_with("\n" + key)) << key;
  }
}

// A disk after a power failure: of every file any state that it had since everything was last
// durable, torn, or not there at all; the log as it was when its last record was acknowledged.
class PowerFailure {
 public:
  PowerFailure(const std::string& from, uint64_t seed) : from_(from), random_(seed) { remember(); }

  // Everything is durable now.
  void remember() {
    durable_.clear();
    collect(durable_);
  }

  void lose(const std::string& to) {
    for (const char* part : {"/locks", "/objects", "/tmp"}) fs::create_directories(to + part);
    fs::copy_file(from_ + "/celld-store", to + "/celld-store");
    if (fs::exists(from_ + "/log")) fs::copy_file(from_ + "/log", to + "/log");
    std::map<std::string, std::string> now;
    collect(now);
    std::map<std::string, std::string> all = durable_;
    all.insert(now.begin(), now.end());
    for (const auto& [path, ignored] : all) {
      const bool was = durable_.contains(path), is = now.contains(path);
      std::string bytes;
      bool there = true;
      if (is &&
          (now[path].size() > FileLog::kBodyBytesMax || (was && durable_[path] == now[path]))) {
        bytes = now[path];  // synced, with its name, before it was acknowledged
      } else {
        switch (random_() % 5) {
          case 0:  // nothing of it reached the disk
            there = was;
            bytes = was ? durable_[path] : "";
            break;
          case 1:  // the name, and a part of the bytes
            there = is || was;
            bytes = is ? now[path] : durable_[path];
            if (is) bytes.resize(random_() % (bytes.size() + 1));
            break;
          case 2:  // the name and the size
            there = is || was;
            bytes = is ? std::string(now[path].size(), '\0') : durable_[path];
            break;
          default:  // all
            there = is;
            bytes = is ? now[path] : "";
        }
      }
      if (!there) continue;
      fs::create_directories(fs::path(to + path).parent_path());
      std::ofstream(to + path, std::ios::binary) << bytes;
    }
  }

 private:
  void collect(std::map<std::string, std::string>& into) {
    for (const auto& entry : fs::recursive_directory_iterator(from_ + "/objects")) {
      if (!entry.is_regular_file()) continue;
      into[entry.path().string().substr(from_.size())] = contents(entry.path());
    }
  }

  const std::string from_;
  std::mt19937_64 random_;
  std::map<std::string, std::string> durable_;
};

// What was acknowledged, applied to a disk at random.
struct Model {
  FileDisk& disk;
  std::mt19937_64 random;
  std::map<std::string, std::string> bodies;
  std::map<std::string, Version> versions;
  int writes = 0;

  void one() {
    const std::string key =
        "d" + std::to_string(random() % 3) + "/k" + std::to_string(random() % 12);
    std::string body = "body " + std::to_string(++writes) + " ";
    body.resize(body.size() + random() % 3000, 'x');
    // Beyond what a record takes.
    if (random() % 40 == 0) body.resize(FileLog::kBodyBytesMax + 1 + random() % 1000, 'y');
    switch (random() % 4) {
      case 0: {
        SwapResult made = disk.create(key, Blob(body), kWanted);
        ASSERT_EQ(made.outcome,
                  bodies.contains(key) ? SwapOutcome::kRejected : SwapOutcome::kApplied);
        if (made.outcome == SwapOutcome::kApplied) take(key, body, made.version);
        break;
      }
      case 1: {
        auto put = disk.replace(key, Blob(body), kWanted);
        ASSERT_TRUE(put) << put.error().message;
        take(key, body, *put);
        break;
      }
      case 2: {
        if (!bodies.contains(key)) return;
        SwapResult swapped = disk.swap(key, Blob(body), versions[key], kWanted);
        ASSERT_EQ(swapped.outcome, SwapOutcome::kApplied) << swapped.error.message;
        take(key, body, swapped.version);
        break;
      }
      default: {
        std::vector<std::string> keys = {key};
        if (random() % 2) keys.push_back("d" + std::to_string(random() % 3) + "/k0");
        for (const auto& gone : disk.remove_many(keys, kWanted)) ASSERT_TRUE(gone);
        for (const auto& gone : keys) bodies.erase(gone);
      }
    }
  }
  void take(const std::string& key, const std::string& body, const Version& version) {
    bodies[key] = body;
    versions[key] = version;
  }
};

TEST(FileStoreLog, a_power_failure_at_any_moment_loses_nothing_that_was_acknowledged) {
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TempDir dir;
    auto disk = open_disk(dir.path());
    get_log(*disk, dir.path());
    PowerFailure power(dir.path(), seed);
    Model model{*disk, std::mt19937_64(seed * 1000), {}, {}, 0};
    for (int i = 0; i < 200; ++i) {
      ASSERT_NO_FATAL_FAILURE(model.one());
      if (i % 50 != 49) continue;
      TempDir after;
      power.lose(after.path());
      auto found = open_disk(after.path(), kOtherBoot);
      EXPECT_FALSE(fs::exists(after.path() + "/log"));
      for (int k = 0; k < 36; ++k) {
        const std::string key = "d" + std::to_string(k % 3) + "/k" + std::to_string(k / 3);
        auto expected = model.bodies.find(key);
        const std::string body = content(*found, key);
        ASSERT_EQ(body.substr(0, 10),
                  expected == model.bodies.end() ? "(none)" : expected->second.substr(0, 10))
            << key;
        ASSERT_TRUE(expected == model.bodies.end() || body == expected->second)
            << key << " is damaged";
      }
      // The versions are the same as well.
      if (!model.bodies.empty()) {
        const std::string key = model.bodies.begin()->first;
        ASSERT_EQ(found->stat(key)->version, model.versions[key]);
      }
    }
  }
}

// The log ends and begins again under writes; what they said is there.
TEST(FileStoreLog, threads_that_write_while_others_open_the_directory_lose_nothing) {
  TempDir dir;
  auto disk = open_disk(dir.path());
  get_log(*disk, dir.path());
  std::atomic<bool> stop{false};
  constexpr int kKeys = 50;
  std::vector<std::map<std::string, std::string>> said(3);
  std::vector<std::thread> writers;
  for (int t = 0; t < 3; ++t) {
    writers.emplace_back([&, t] {
      for (int i = 0; !stop; ++i) {
        const std::string key = "t" + std::to_string(t) + "/" + std::to_string(i % kKeys);
        ASSERT_TRUE(disk->replace(key, Blob(std::to_string(i)), kWanted));
        said[t][key] = std::to_string(i);
        if (i % 3 != 0) continue;
        ASSERT_TRUE(disk->remove(key, kWanted));
        said[t][key] = "(none)";
      }
    });
  }
  for (int i = 0; i < 40; ++i) {
    auto other = open_disk(dir.path());
    auto listed = other->list(ListRequest{});
    EXPECT_TRUE(listed) << listed.error().message;
    EXPECT_EQ(content(*other, "warm"), "up");
  }
  stop = true;
  for (auto& writer : writers) writer.join();
  auto other = open_disk(dir.path());
  for (const auto& of_thread : said) {
    for (const auto& [key, body] : of_thread) EXPECT_EQ(content(*other, key), body) << key;
  }
}

// Readers of objects whose files are written again as other objects see whole objects.
TEST(FileStoreLog, a_read_never_gets_the_bytes_of_another_object) {
  TempDir dir;
  auto disk = open_disk(dir.path());
  auto reader = open_disk(dir.path());
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> found{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&] {
      for (uint64_t i = 0; !stop; ++i) {
        const std::string key = "k" + std::to_string(i % 4);
        auto object = reader->read(key, nullptr);
        if (!object) {
          ASSERT_EQ(object.error().code, ErrorCode::kNotFound) << object.error().message;
          continue;
        }
        const std::string body(object->body.view());
        ASSERT_TRUE(body.starts_with(key + " ")) << key << " has " << body.substr(0, 20);
        ASSERT_TRUE(body.ends_with(" " + key))
            << key << " ends with " << body.substr(body.size() - 20);
        ++found;
      }
    });
  }
  std::mt19937_64 random(7);
  for (int i = 0; i < 3000 || found < 100; ++i) {
    const std::string key = "k" + std::to_string(random() % 4);
    const std::string body = key + " " + std::string(random() % 60'000, 'b') + " " + key;
    if (i % 2) {
      ASSERT_TRUE(disk->replace(key, Blob(body), kWanted));
    } else {
      ASSERT_TRUE(disk->remove(key, kWanted));
    }
  }
  stop = true;
  for (auto& thread : readers) thread.join();
}

// A large object is a file before it has its name; without the name, what was before is there.
TEST(FileStoreLog, a_file_that_never_got_its_name_leaves_what_was_before) {
  TempDir dir;
  open_disk(dir.path()).reset();
  {
    UniqueFd root(::open(dir.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    auto log = FileLog::create(root.get(), kOtherBoot, std::make_shared<SyncHealth>(),
                               [](const auto&) { return 0; });
    ASSERT_TRUE(log) << log.error().message;
    for (const LogRecord& record :
         {LogRecord{LogRecord::Kind::kPut, "k", "11111111111111111111111111111111", "small"},
          LogRecord{LogRecord::Kind::kFile, "k", "22222222222222222222222222222222", {}},
          LogRecord{LogRecord::Kind::kFile, "never", "33333333333333333333333333333333", {}},
          LogRecord{LogRecord::Kind::kRemove, "gone", {}, {}},
          LogRecord{LogRecord::Kind::kFile, "gone", "44444444444444444444444444444444", {}}}) {
      ASSERT_TRUE(FileLog::append(*log, record));
    }
  }
  auto disk = open_disk(dir.path());
  EXPECT_EQ(content(*disk, "k"), "small");
  EXPECT_EQ(disk->stat("k")->version.token, std::string(32, '1'));
  EXPECT_EQ(content(*disk, "never"), "(none)");
  EXPECT_EQ(content(*disk, "gone"), "(none)");
}

TEST(FileStoreLog, a_log_without_a_valid_head_is_dropped) {
  TempDir dir;
  open_disk(dir.path()).reset();
  std::ofstream(dir.path() + "/log") << "garbage";
  auto disk = open_disk(dir.path());
  EXPECT_FALSE(fs::exists(dir.path() + "/log"));
  EXPECT_TRUE(disk->replace("k", Blob("x"), kWanted));
}

TEST(FileStoreLog, an_older_format_is_taken_over) {
  TempDir dir;
  {
    auto disk = open_disk(dir.path());
    ASSERT_TRUE(disk->replace("k", Blob("x"), kWanted));
  }
  std::ofstream(dir.path() + "/celld-store") << "celld file store, format 1\n";
  auto disk = open_disk(dir.path());
  EXPECT_EQ(content(*disk, "k"), "x");
  EXPECT_EQ(contents(dir.path() + "/celld-store"), "celld file store, format 2\n");
}

}  // namespace
}  // namespace celld
