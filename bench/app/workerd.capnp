using Workerd = import "/workerd/workerd.capnp";

# The same application on workerd. Storage directory and socket are given on the command line:
#   workerd serve workerd.capnp CONST -d do-storage=DIR -s http=127.0.0.1:PORT

# Storage on the local disk, one process.
const local :Workerd.Config = (
  services = .services,
  sockets = .sockets,
);

# Storage on a bucket that minis3.mjs serves; needs --experimental.
const cluster :Workerd.Config = (
  services = .services,
  sockets = .sockets,
  cluster = (
    bucket = "s3://bench/workerd",
    bucketOptions = [
      "aws_endpoint=http://127.0.0.1:9099", "aws_region=us-east-1",
      "aws_access_key_id=k", "aws_secret_access_key=s", "aws_allow_http=true",
    ],
    address = "127.0.0.1:0",
    key = "0123456789abcdef0123456789abcdef0123456789abcdef",
  ),
);

# Objects never leave memory: for the memory of many.
const pinned :Workerd.Config = (
  services = [ (name = "main", worker = .pinnedWorker), (name = "do-storage", disk = (writable = true)) ],
  sockets = .sockets,
);

const services :List(Workerd.Service) = [
  (name = "main", worker = .worker),
  (name = "do-storage", disk = (writable = true)),
];
const sockets :List(Workerd.Socket) = [ (name = "http", http = (), service = "main") ];

const bindings :List(Workerd.Worker.Binding) = [
  (name = "SQL", durableObjectNamespace = "SqlCounter"),
  (name = "KV", durableObjectNamespace = "KvCounter"),
  (name = "EMPTY", durableObjectNamespace = "Empty"),
  (name = "ROOM", durableObjectNamespace = "Room"),
];

const worker :Workerd.Worker = (
  modules = [ (name = "worker", esModule = embed "worker.js") ],
  compatibilityDate = "2026-08-01",
  bindings = .bindings,
  durableObjectNamespaces = [
    (className = "SqlCounter", uniqueKey = "bench-sql", enableSql = true),
    (className = "KvCounter", uniqueKey = "bench-kv", enableSql = true),
    (className = "Empty", uniqueKey = "bench-empty", enableSql = true),
    (className = "Room", uniqueKey = "bench-room", enableSql = true),
  ],
  durableObjectStorage = (localDisk = "do-storage"),
);

const pinnedWorker :Workerd.Worker = (
  modules = [ (name = "worker", esModule = embed "worker.js") ],
  compatibilityDate = "2026-08-01",
  bindings = .bindings,
  durableObjectNamespaces = [
    (className = "SqlCounter", uniqueKey = "bench-sql", enableSql = true, preventEviction = true),
    (className = "KvCounter", uniqueKey = "bench-kv", enableSql = true, preventEviction = true),
    (className = "Empty", uniqueKey = "bench-empty", enableSql = true, preventEviction = true),
    (className = "Room", uniqueKey = "bench-room", enableSql = true, preventEviction = true),
  ],
  durableObjectStorage = (localDisk = "do-storage"),
);
