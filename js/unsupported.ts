// What Workers have and celld has not yet: each throws its own name when it is used, so that a
// program fails where it asks for it and not somewhere behind.

import { define_global, set_tag, unsupported } from "./util";

const CLASSES = [
  "WebSocketPair", "WebSocket", "HTMLRewriter", "CompressionStream", "DecompressionStream", "EventSource",
  "MessageChannel", "MessagePort", "URLPattern", "CryptoKey",
];

for (const name of CLASSES) {
  const constructor = { [name]: class {
    constructor() {
      throw unsupported(name);
    }
  } }[name]!;
  set_tag(constructor.prototype, name);
  define_global(name, constructor);
}

// caches.default is an object, as on Workers; its methods throw.
class Cache {
  match(): never {
    throw unsupported("caches");
  }
  put(): never {
    throw unsupported("caches");
  }
  delete(): never {
    throw unsupported("caches");
  }
}
class CacheStorage {
  get default(): Cache {
    return default_cache;
  }
  open(): never {
    throw unsupported("caches");
  }
}
const default_cache = new Cache();
set_tag(Cache.prototype, "Cache");
set_tag(CacheStorage.prototype, "CacheStorage");
define_global("Cache", Cache);
define_global("CacheStorage", CacheStorage);
define_global("caches", new CacheStorage());
