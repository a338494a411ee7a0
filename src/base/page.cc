#include "base/page.h"

#include <cstdlib>
#include <mutex>

#include "base/check.h"

namespace celld {

namespace {

constexpr size_t kSlabBytes = 256u << 10;  // also its alignment, so that a page finds its slab

struct FreeSlot {
  FreeSlot* next;
};

struct Slab {
  Slab* previous;  // in the list of slabs with free slots
  Slab* next;
  FreeSlot* free;
  size_t used;
};

// The slabs with free slots, the one used last first. Any thread.
class Slabs {
 public:
  void* take(size_t slot_bytes) {
    std::lock_guard lock(mutex_);
    if (!first_) add(slot_bytes);
    Slab* slab = first_;
    FreeSlot* slot = slab->free;
    slab->free = slot->next;
    ++slab->used;
    if (!slab->free) unlink(slab);
    return slot;
  }

  void give(void* page) {
    std::lock_guard lock(mutex_);
    auto* slab = reinterpret_cast<Slab*>(reinterpret_cast<uintptr_t>(page) & ~(kSlabBytes - 1));
    CHECK(slab->used > 0);
    if (!slab->free) link(slab);
    slab->free = new (page) FreeSlot{slab->free};
    --slab->used;
    // One stays for the next page.
    if (slab->used == 0 && (slab->previous || slab->next)) {
      unlink(slab);
      std::free(slab);
    }
  }

 private:
  void add(size_t slot_bytes) {
    void* memory = std::aligned_alloc(kSlabBytes, kSlabBytes);
    CHECK(memory) << "out of memory";
    Slab* slab = new (memory) Slab{};
    size_t at = (sizeof(Slab) + alignof(std::max_align_t) - 1) & ~(alignof(std::max_align_t) - 1);
    for (; at + slot_bytes <= kSlabBytes; at += slot_bytes) {
      slab->free = new (static_cast<char*>(memory) + at) FreeSlot{slab->free};
    }
    link(slab);
  }
  void link(Slab* slab) {
    slab->previous = nullptr;
    slab->next = first_;
    if (first_) first_->previous = slab;
    first_ = slab;
  }
  void unlink(Slab* slab) {
    (slab->previous ? slab->previous->next : first_) = slab->next;
    if (slab->next) slab->next->previous = slab->previous;
    slab->previous = slab->next = nullptr;
  }

  std::mutex mutex_;
  Slab* first_ = nullptr;
};

Slabs& slabs() {
  static auto* all = new Slabs();  // pages may outlive every other static
  return *all;
}

}  // namespace

void* PageRef::allocate_bytes(size_t bytes) { return slabs().take(bytes); }
void PageRef::free_bytes(void* page) { slabs().give(page); }

}  // namespace celld
