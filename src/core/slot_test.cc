#include "core/slot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/bytes.h"
#include "ltx/crc64.h"

namespace celld {
namespace {

using ::testing::HasSubstr;

const NodeId kNode("node-1");

PageRef random_page(std::mt19937& random) {
  PageRef page = PageRef::allocate();
  for (size_t i = 0; i < kPageSize; ++i) page.mutable_data()[i] = static_cast<uint8_t>(random());
  return page;
}

Commit commit_of(const std::string& cell, uint64_t epoch, uint64_t txid, unsigned pages,
                 std::mt19937& random) {
  Commit c;
  c.cell = CellId(cell);
  c.epoch = Epoch(epoch);
  c.txid = Txid(txid);
  c.page_count = pages;
  c.time = WallMs{static_cast<int64_t>(txid * 10)};
  for (Pgno p = 1; p <= pages; ++p) c.pages.push_back({p, random_page(random)});
  if (random() % 3 == 0) c.alarm = AlarmChange{WallMs{static_cast<int64_t>(random())}};
  if (random() % 3 == 0) c.alarm = AlarmChange{};
  return c;
}

void expect_equal(const Commit& a, const Commit& b) {
  EXPECT_EQ(a.cell, b.cell);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.txid, b.txid);
  EXPECT_EQ(a.page_count, b.page_count);
  EXPECT_EQ(a.alarm, b.alarm);
  EXPECT_EQ(a.time, b.time);
  ASSERT_EQ(a.pages.size(), b.pages.size());
  for (size_t i = 0; i < a.pages.size(); ++i) {
    EXPECT_EQ(a.pages[i].pgno, b.pages[i].pgno);
    EXPECT_EQ(as_chars(a.pages[i].page.bytes()), as_chars(b.pages[i].page.bytes()));
  }
}

CommitPart part(const char* cell, uint64_t epoch, uint64_t txid, uint32_t index, uint32_t count,
                std::string_view payload = "payload") {
  return {CellId(cell), Epoch(epoch), Txid(txid), index, count, std::nullopt, payload};
}

SlotContent slot_of(uint64_t slot, std::vector<CommitPart> parts) {
  return {.kind = SlotKind::kData,
          .node = kNode,
          .slot = Slot(slot),
          .fencer = {},
          .parts = std::move(parts)};
}

std::string feed_error(std::vector<SlotContent> slots) {
  CommitAssembler assembler(kNode);
  for (const SlotContent& s : slots) {
    auto commits = assembler.feed_encoded(s);
    if (!commits) {
      EXPECT_EQ(commits.error().code, ErrorCode::kCorrupt);
      return commits.error().message;
    }
  }
  return "no error";
}

TEST(Slot, parts_come_back_as_they_were) {
  std::vector<CommitPart> parts = {part("C:1", 2, 3, 0, 1), part("C:2", 1, 1, 0, 2, "x"),
                                   part("C:3", 1, 9, 4, 5, "yy")};
  parts[0].alarm = AlarmChange{WallMs{-5}};
  parts[1].alarm = AlarmChange{};
  Blob bytes = encode_slot(kNode, Slot(7), parts, Slot(5));
  auto content = decode_slot(bytes.view());
  ASSERT_TRUE(content) << content.error().message;
  EXPECT_EQ(content->kind, SlotKind::kData);
  EXPECT_EQ(content->node, kNode);
  EXPECT_EQ(content->slot, Slot(7));
  EXPECT_EQ(content->drained, Slot(5));
  ASSERT_EQ(content->parts.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const CommitPart &got = content->parts[i], &put = parts[i];
    EXPECT_EQ(
        std::tie(got.cell, got.epoch, got.txid, got.index, got.count, got.alarm, got.payload),
        std::tie(put.cell, put.epoch, put.txid, put.index, put.count, put.alarm, put.payload));
  }
  EXPECT_EQ(encode_slot(content->node, content->slot, content->parts, content->drained), bytes);
}

TEST(Slot, a_fence_names_its_journal_and_its_writer) {
  Blob bytes = encode_fence(kNode, Slot(9), NodeId("other"));
  auto content = decode_slot(bytes.view());
  ASSERT_TRUE(content) << content.error().message;
  EXPECT_EQ(content->kind, SlotKind::kFence);
  EXPECT_EQ(content->node, kNode);
  EXPECT_EQ(content->slot, Slot(9));
  EXPECT_EQ(content->fencer, NodeId("other"));
  EXPECT_TRUE(content->parts.empty());
}

TEST(Slot, every_truncation_and_every_flipped_bit_is_an_error) {
  std::vector<CommitPart> parts = {part("C:1", 2, 3, 0, 1), part("C:2", 1, 1, 0, 2, "x")};
  for (Blob blob :
       {encode_slot(kNode, Slot(7), parts), encode_fence(kNode, Slot(7), NodeId("o"))}) {
    std::string bytes(blob.view());
    for (size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(decode_slot(bytes.substr(0, n))) << n;
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
      EXPECT_FALSE(decode_slot(bytes)) << bit;
      bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
    }
    EXPECT_FALSE(decode_slot(bytes + '\0'));
  }
}

TEST(Slot, a_lie_under_a_right_checksum_is_refused_by_name) {
  std::string good(encode_slot(kNode, Slot(7), std::vector{part("C:1", 2, 3, 0, 1)}).view());
  auto error = [&](size_t at, uint64_t value, int width) {
    std::string bad = good.substr(0, good.size() - 8), field;
    put_be(field, value, width);
    bad.replace(at, field.size(), field);
    put_be(bad, crc64(0, as_bytes(bad)), 8);
    auto content = decode_slot(bad);
    return content ? "no error" : content.error().message;
  };
  const size_t node = 15, drained = node + 6, count = drained + 8, cell = count + 4 + 1, epoch = cell + 3;
  EXPECT_EQ(error(count, 1, 4), "no error");
  EXPECT_EQ(error(drained, 6, 8), "no error");
  EXPECT_THAT(error(drained, 7, 8), HasSubstr("drained through slot 7"));
  EXPECT_THAT(error(4, 1, 1), HasSubstr("format version 1"));
  EXPECT_THAT(error(5, 3, 1), HasSubstr("kind 3"));
  EXPECT_THAT(error(6, 0, 8), HasSubstr("slot number 0"));
  EXPECT_THAT(error(6, UINT64_MAX, 8), HasSubstr("slot number 18446744073709551615"));
  EXPECT_THAT(error(epoch + 8, UINT64_MAX, 8), HasSubstr("TXID 18446744073709551615"));
  EXPECT_THAT(error(node, 'A', 1), HasSubstr("node id"));
  EXPECT_THAT(error(node - 1, 255, 1), HasSubstr("ends inside the header"));
  EXPECT_THAT(error(count, 0, 4), HasSubstr("0 parts"));
  EXPECT_THAT(error(count, 2, 4), HasSubstr("part is cut off"));
  EXPECT_THAT(error(count, UINT32_MAX, 4), HasSubstr("4294967295 parts"));
  EXPECT_THAT(error(cell, '/', 1), HasSubstr("cell id"));
  EXPECT_THAT(error(epoch, 0, 8), HasSubstr("epoch 0 in a part of cell C:1"));
  EXPECT_THAT(error(epoch + 8, 0, 8), HasSubstr("TXID 0"));
  EXPECT_THAT(error(epoch + 16, 1, 4), HasSubstr("part 1 of 1"));
  EXPECT_THAT(error(epoch + 24, 3, 1), HasSubstr("alarm change 3"));
  EXPECT_THAT(error(epoch + 25, 3, 8), HasSubstr("alarm time"));
  EXPECT_THAT(error(epoch + 33, UINT32_MAX, 4), HasSubstr("part is cut off"));
  EXPECT_THAT(error(epoch + 33, 6, 4), HasSubstr("bytes after the last part"));
  EXPECT_THAT(error(epoch + 33, 0, 4), HasSubstr("no content"));
}

TEST(Slot, keys_come_back_as_they_were) {
  EXPECT_EQ(journal_key(kNode, Slot(0x1f)), "journal/node-1/000000000000001f.jnl");
  auto name = parse_journal_key("journal/node-1/000000000000001f.jnl");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->node, kNode);
  EXPECT_EQ(name->slot, Slot(0x1f));
  for (const char* bad :
       {"journal/node-1/000000000000001F.jnl", "journal/node-1/0000000000000000.jnl",
        "journal//000000000000001f.jnl", "journal/000000000000001f.jnl",
        "journal/a/b/000000000000001f.jnl", "journal/node-1/00000000000001f.jnl",
        "journal/node-1/000000000000001f.jn", "journal/N/000000000000001f.jnl"}) {
    EXPECT_FALSE(parse_journal_key(bad)) << bad;
  }
}

TEST(SlotWriter, whatever_is_written_comes_back_in_order) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const size_t slot_bytes_max = kSlotBytesMin + random() % 30000;
    SlotWriter writer(kNode, Slot(5), slot_bytes_max);
    CommitAssembler assembler(kNode);
    std::vector<Commit> written, read;
    std::map<std::string, uint64_t> txids;
    size_t ended = 0;
    for (int round = 0; round < 10; ++round) {
      for (size_t n = random() % 5; n > 0; --n) {
        std::string cell = "C:" + std::to_string(random() % 4);
        written.push_back(
            commit_of(cell, 1, ++txids[cell], random() % 8 ? random() % 4 : 20, random));
        ASSERT_TRUE(writer.add(encode_commit(written.back())));
      }
      bool drain = round == 9;
      while (!writer.empty() && (drain || random() % 3)) {
        SlotWriter::Sealed sealed = writer.seal();
        Blob bytes = sealed.draft.encode();
        EXPECT_EQ(bytes.size(), sealed.draft.bytes);
        auto content = decode_slot(bytes.view());
        ASSERT_TRUE(content) << content.error().message;
        EXPECT_EQ(content->slot, sealed.slot);
        EXPECT_LE(bytes.size(), slot_bytes_max);
        auto commits = assembler.feed(*content);
        ASSERT_TRUE(commits) << commits.error().message;
        ASSERT_EQ(commits->size(), sealed.ended.size());
        for (size_t i = 0; i < commits->size(); ++i) {
          EXPECT_EQ((*commits)[i].cell, sealed.ended[i].cell);
          EXPECT_EQ((*commits)[i].txid, sealed.ended[i].txid);
          EXPECT_LE(sealed.ended[i].first, sealed.slot);
          ++ended;
        }
        EXPECT_EQ(sealed.open_since.has_value(), assembler.incomplete().has_value());
        if (sealed.open_since) {
          EXPECT_EQ(*sealed.open_since, assembler.incomplete()->first);
        }
        for (Commit& c : *commits) read.push_back(std::move(c));
      }
    }
    EXPECT_EQ(writer.waiting_bytes(), 0u);
    EXPECT_FALSE(assembler.incomplete());
    ASSERT_EQ(read.size(), written.size());
    EXPECT_EQ(ended, written.size());
    for (size_t i = 0; i < read.size(); ++i) expect_equal(read[i], written[i]);
  }
}

TEST(SlotWriter, small_commits_share_a_slot_and_none_is_split) {
  std::mt19937 random(1);
  SlotWriter writer(kNode, Slot(1), 64 << 10);
  for (uint64_t t = 1; t <= 40; ++t)
    ASSERT_TRUE(writer.add(encode_commit(commit_of("C:1", 1, t, 1, random))));
  size_t slots = 0;
  while (!writer.empty()) {
    auto sealed = writer.seal();
    EXPECT_LE(sealed.draft.bytes, 64u << 10);
    EXPECT_FALSE(sealed.open_since);
    ++slots;
  }
  EXPECT_EQ(slots, 3u);  // 15 of about 4.3 KB fit into one
}

TEST(SlotWriter, a_large_commit_is_split_and_the_next_one_shares_its_last_slot) {
  std::mt19937 random(1);
  SlotWriter writer(kNode, Slot(1), 16 << 10);
  ASSERT_TRUE(writer.add(encode_commit(commit_of("C:1", 1, 1, 1, random))));
  ASSERT_TRUE(writer.add(encode_commit(commit_of("C:2", 1, 1, 9, random))));  // 37 KB
  ASSERT_TRUE(writer.add(encode_commit(commit_of("C:3", 1, 1, 1, random))));
  auto first = writer.seal(), second = writer.seal(), third = writer.seal(), fourth = writer.seal();
  EXPECT_TRUE(writer.empty());
  EXPECT_EQ(first.ended.size(), 1u);
  EXPECT_FALSE(first.open_since);
  EXPECT_EQ(second.open_since, Slot(2));
  EXPECT_EQ(third.open_since, Slot(2));
  EXPECT_FALSE(fourth.open_since);
  ASSERT_EQ(fourth.ended.size(), 2u);
  EXPECT_EQ(fourth.ended[0].first, Slot(2));
  EXPECT_EQ(fourth.ended[1].first, Slot(4));
}

TEST(CommitAssembler, an_incomplete_tail_is_reported_and_dropped) {
  std::mt19937 random(1);
  SlotWriter writer(kNode, Slot(1), 16 << 10);
  ASSERT_TRUE(writer.add(encode_commit(commit_of("C:2", 1, 1, 9, random))));
  CommitAssembler assembler(kNode);
  auto sealed = writer.seal();
  auto commits = assembler.feed(*decode_slot(sealed.draft.encode().view()));
  ASSERT_TRUE(commits);
  EXPECT_TRUE(commits->empty());
  ASSERT_TRUE(assembler.incomplete());
  EXPECT_EQ(assembler.incomplete()->cell, CellId("C:2"));
  EXPECT_EQ(assembler.incomplete()->first, Slot(1));
}

TEST(CommitAssembler, impossible_sequences_are_errors_that_name_slot_and_cell) {
  EXPECT_EQ(
      feed_error({slot_of(8, {part("C:1", 2, 3, 0, 1)}), slot_of(9, {part("C:1", 2, 4, 0, 1)})}),
      "no error");
  EXPECT_THAT(
      feed_error({slot_of(8, {part("C:1", 2, 3, 0, 1)}), slot_of(10, {part("C:1", 2, 4, 0, 1)})}),
      HasSubstr("journal/node-1/000000000000000a.jnl: comes after slot 8"));
  EXPECT_THAT(
      feed_error({slot_of(8, {part("C:1", 2, 3, 1, 2)})}),
      HasSubstr("journal/node-1/0000000000000008.jnl: commit 3 of cell C:1, epoch 2, part 1 of 2: "
                "its first part is missing"));
  EXPECT_THAT(feed_error({slot_of(8, {part("C:1", 2, 3, 0, 2), part("C:2", 2, 3, 0, 1)})}),
              HasSubstr("in place of part 1 of commit 3 of cell C:1"));
  EXPECT_THAT(feed_error({slot_of(8, {part("C:1", 2, 3, 0, 3), part("C:1", 2, 3, 2, 3)})}),
              HasSubstr("in place of"));
  EXPECT_THAT(feed_error({slot_of(8, {part("C:1", 2, 3, 0, 3), part("C:1", 2, 3, 1, 2)})}),
              HasSubstr("in place of"));
  EXPECT_THAT(feed_error({slot_of(8, {part("C:1", 2, 3, 0, 1), part("C:1", 2, 5, 0, 1)})}),
              HasSubstr("follows commit 3"));
  EXPECT_THAT(feed_error({slot_of(8, {part("C:1", 2, 3, 0, 1), part("C:1", 2, 3, 0, 1)})}),
              HasSubstr("follows commit 3"));
  EXPECT_THAT(feed_error({slot_of(8, {part("C:1", 2, 3, 0, 1), part("C:1", 1, 4, 0, 1)})}),
              HasSubstr("of epoch 2"));
  EXPECT_THAT(feed_error({slot_of(8, {part("C:1", 2, 3, 0, 1), part("C:1", 4, 3, 0, 1)})}),
              HasSubstr("follows commit 3"));
  // Between the epochs another node may have owned the cell.
  EXPECT_EQ(feed_error({slot_of(8, {part("C:1", 2, 3, 0, 1), part("C:1", 4, 7, 0, 1)})}),
            "no error");
  SlotContent foreign = slot_of(8, {part("C:1", 2, 3, 0, 1)});
  foreign.node = NodeId("node-2");
  EXPECT_THAT(feed_error({foreign}), HasSubstr("of node node-2"));
  EXPECT_THAT(feed_error({*decode_slot(encode_fence(kNode, Slot(8), NodeId("x")).view())}),
              HasSubstr("is a fence"));
}

TEST(CommitAssembler, a_commit_whose_pages_are_damaged_is_named) {
  std::mt19937 random(1);
  EncodedCommit encoded = encode_commit(commit_of("C:1", 1, 5, 2, random));
  CommitAssembler assembler(kNode);
  CommitPart p = part("C:1", 1, 6, 0, 1, encoded.ltx.view());
  auto commits = assembler.feed(slot_of(3, {p}));
  ASSERT_FALSE(commits);
  EXPECT_THAT(
      commits.error().message,
      HasSubstr("0000000000000003.jnl: commit 6 of cell C:1: its pages are of TXIDs 5 to 5"));
  CommitAssembler other(kNode);
  EXPECT_THAT(other.feed(slot_of(3, {part("C:1", 1, 5, 0, 1, "junk")})).error().message,
              HasSubstr("commit 5 of cell C:1: LTX file"));
}

}  // namespace
}  // namespace celld
