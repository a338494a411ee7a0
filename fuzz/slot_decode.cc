// Journal slots: any bytes are decoded or refused, also with a right checksum; what is decoded
// gives the same bytes again, and the assembler takes or refuses it.
// links: core
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/check.h"
#include "core/slot.h"
#include "ltx/crc64.h"

using namespace celld;

namespace {

void run(std::string_view bytes) {
  auto content = decode_slot(bytes);
  if (!content) return;
  Blob again = content->kind == SlotKind::kFence
                   ? encode_fence(content->node, content->slot, content->fencer)
                   : encode_slot(content->node, content->slot, content->parts, content->drained);
  CHECK(again.view() == bytes);
  CHECK(parse_journal_key(journal_key(content->node, content->slot)).has_value());

  CommitAssembler assembler(content->node);
  auto commits = assembler.feed_encoded(*content);
  if (!commits) return;
  CHECK(commits->size() <= content->parts.size());
  for (const EncodedCommit& c : *commits) (void)decode_commit(c);
  if (auto open = assembler.incomplete()) {
    CHECK(open->first == content->slot);
  }
  SlotContent next = *content;
  next.slot = next.slot.next();
  (void)assembler.feed_encoded(next);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes = as_chars({data, size});
  if (auto name = parse_journal_key(bytes)) {
    CHECK(journal_key(name->node, name->slot) == bytes);
  }
  run(bytes);
  // The last 8 bytes replaced by the right checksum: what lies behind it is reached as well.
  if (size < 8) return 0;
  std::string fixed(bytes.substr(0, size - 8));
  put_be(fixed, crc64(0, as_bytes(fixed)), 8);
  run(fixed);
  return 0;
}
