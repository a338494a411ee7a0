// LIST over a file store's object tree, in byte order of the keys.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "store/file_disk.h"
#include "store/file_layout.h"

namespace celld {

namespace {

// What the keys below one name of a directory begin with, or the key itself of an object.
struct Candidate {
  std::string key;
  LayoutName::Kind kind;
  std::string path;
  // For a heap whose top is the smallest key.
  bool operator<(const Candidate& o) const { return key > o.key; }
};

class TreeWalk {
 public:
  TreeWalk(int objects_fd, const ListRequest& request) : root_(objects_fd), request_(request) {}

  Result<ListPage> run() {
    TRY(walk(".", ""));
    if (page_.more) page_.next_start_after = last_;
    return std::move(page_);
  }

 private:
  // Emits what is below the directory `path`, whose keys all begin with `covered`.
  Result<void> walk(const std::string& path, const std::string& covered) {
    TRY_ASSIGN(auto heap, candidates(path, covered));
    std::make_heap(heap.begin(), heap.end());
    while (!heap.empty() && !page_.more) {
      std::pop_heap(heap.begin(), heap.end());
      Candidate next = std::move(heap.back());
      heap.pop_back();
      if (next.kind == LayoutName::Kind::kObject) {
        TRY(emit_object(next));
      } else if (folds(next)) {
        TRY_ASSIGN(bool occupied, has_object(next.path));
        if (occupied) emit_prefix(next.key);
      } else {
        TRY(walk(next.path, next.key));
      }
    }
    return {};
  }

  Result<std::vector<Candidate>> candidates(const std::string& path, const std::string& covered) {
    std::vector<Candidate> out;
    TRY(for_each_name(path, [&](LayoutName name, std::string_view file_name) {
      Candidate c{covered + name.part, name.kind, path + "/" + std::string(file_name)};
      if (name.kind == LayoutName::Kind::kDirectory) c.key += '/';
      if (may_match(c)) out.push_back(std::move(c));
      return true;
    }));
    return out;
  }

  bool may_match(const Candidate& c) const {
    const std::string& prefix = request_.prefix;
    const std::string& after = request_.start_after;
    if (c.kind == LayoutName::Kind::kObject) return c.key.starts_with(prefix) && c.key > after;
    if (!c.key.starts_with(prefix) && !prefix.starts_with(c.key)) return false;
    if (folds(c)) return c.key > after;
    return c.key > after || after.starts_with(c.key);
  }

  // Whether the keys of this directory show as one common prefix.
  bool folds(const Candidate& c) const {
    return c.kind == LayoutName::Kind::kDirectory && !request_.delimiter.empty() &&
           c.key.size() > request_.prefix.size() && c.key.starts_with(request_.prefix);
  }

  bool full() {
    if (page_.objects.size() + page_.common_prefixes.size() < request_.keys_max) return false;
    page_.more = true;
    return true;
  }

  Result<void> emit_object(Candidate& c) {
    struct stat st;
    if (::fstatat(root_, c.path.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) return {};  // removed meanwhile
      return fail(errno_error("stat " + c.path, errno));
    }
    if (!S_ISREG(st.st_mode) || static_cast<uint64_t>(st.st_size) < kObjectHeaderBytes) {
      return fail(Error::corrupt("object file " + c.path + " is damaged"));
    }
    if (full()) return {};
    last_ = c.key;
    ListedObject object;
    object.key = std::move(c.key);
    object.bytes = static_cast<uint64_t>(st.st_size) - kObjectHeaderBytes;
    object.modified = WallMs{st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000};
    page_.objects.push_back(std::move(object));
    return {};
  }

  void emit_prefix(std::string prefix) {
    if (full()) return;
    last_ = prefix;
    page_.common_prefixes.push_back(std::move(prefix));
  }

  // Whether an object is anywhere below: removed objects leave empty directories for a while.
  Result<bool> has_object(const std::string& path) {
    std::vector<std::string> directories;
    bool found = false;
    TRY(for_each_name(path, [&](LayoutName name, std::string_view file_name) {
      found = name.kind == LayoutName::Kind::kObject;
      if (!found) directories.push_back(path + "/" + std::string(file_name));
      return !found;
    }));
    for (size_t i = 0; i < directories.size() && !found; ++i) {
      TRY_ASSIGN(found, has_object(directories[i]));
    }
    return found;
  }

  // Until `visit` returns false. A directory that is gone has no names; foreign names are skipped.
  template <class Visit>
  Result<void> for_each_name(const std::string& path, Visit visit) {
    int fd = ::openat(root_, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
      if (errno == ENOENT || errno == ENOTDIR) return {};
      return fail(errno_error("open " + path, errno));
    }
    std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(fd), ::closedir);
    while (true) {
      errno = 0;
      dirent* entry = ::readdir(dir.get());
      if (entry == nullptr) break;
      auto name = parse_layout_name(entry->d_name);
      if (name && !visit(std::move(*name), std::string_view(entry->d_name))) return {};
    }
    if (errno != 0) return fail(errno_error("read of " + path, errno));
    return {};
  }

  const int root_;
  const ListRequest& request_;
  ListPage page_;
  std::string last_;
};

}  // namespace

Result<ListPage> list_object_tree(int objects_fd, const ListRequest& request) {
  return TreeWalk(objects_fd, request).run();
}

}  // namespace celld
