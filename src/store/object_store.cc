#include "store/object_store.h"

#include <iterator>

namespace celld {

Task<Result<std::vector<ListedObject>>> list_all(ObjectStore& store, std::string prefix,
                                                 Deadline deadline) {
  std::vector<ListedObject> all;
  ListRequest request;
  request.prefix = std::move(prefix);
  while (true) {
    ListRequest page_request = request;
    CO_TRY_ASSIGN(ListPage page, co_await store.list(std::move(page_request), deadline));
    std::move(page.objects.begin(), page.objects.end(), std::back_inserter(all));
    if (!page.more) co_return all;
    request.start_after = std::move(page.next_start_after);
  }
}

}  // namespace celld
