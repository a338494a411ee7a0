// A strict S3 for tests: objects in memory, path style, signatures verified byte by byte, conditional
// PUT, ranges, ListObjectsV2, uploads in parts, deletes of many. Can be slow, and can misbehave the way real stores do.
//
//   node s3_server.mjs [--option[=value] ...]
//
// Prints its port on the first line and ends when its standard input does.
//
//   --port=0                     0: a free one
//   --bucket=NAME                the only bucket; without it every bucket exists
//   --access-key=test --secret-key=secret --session-token= --region=us-east-1
//   --delay-ms=0                 every request: half before its effect, half after
//   --etags=content|unique       MD5 of the body, as S3 (default), or new for every write
//   --if-match=any|quoted|bare   how an ETag in If-Match must be quoted to match
//   --list-max=1000              most entries on one page
// Misbehaviour, for object requests whose key does not match --spare=REGEXP:
//   --ignore-conditions --ignore-if-match --ignore-if-none-match
//   --stale-list                 lists do not know the latest write or delete
//   --ignore-range               whole objects for ranges
//   --no-such-key-on-create      404 for If-None-Match on an absent key
//   --not-implemented            501 for conditional writes
//   --no-etag                    replies without ETag
//   --fail-before-effect=N       every Nth write is dropped without effect or reply
//   --fail-after-effect=N        every Nth write has its effect, then the connection dies
//   --error-500=N --throttle=N   every Nth request is answered 500, or 503 with Retry-After: 1
//   --slow-down=P                a share of P of all requests, by chance, is answered 503 without effect
//   --retry-after=S              with that Retry-After; 0: with none
//   --loser-500                  500 instead of 412
//   --no-batch-delete            501 for deletes of many keys
//   --late-error                 every other upload is finished with 200 and an error in the body
//
// GET /__counters        requests by class and by first part of the key, and the most at one time
// POST /__counters/reset
// POST /__options        {"fail-after-effect": 3, ...}: changes options while it runs
import { createHash, createHmac, randomBytes } from "node:crypto";
import http from "node:http";

const options = {
  port: 0, bucket: "", "access-key": "test", "secret-key": "secret", "session-token": "",
  region: "us-east-1", "delay-ms": 0, etags: "content", "if-match": "any", "list-max": 1000, spare: "",
  "ignore-conditions": false, "ignore-if-match": false, "ignore-if-none-match": false,
  "ignore-range": false, "stale-list": false, "no-such-key-on-create": false, "not-implemented": false, "no-etag": false,
  "fail-before-effect": 0, "fail-after-effect": 0, "error-500": 0, throttle: 0, "slow-down": 0, "retry-after": 1, "loser-500": false,
  "no-batch-delete": false, "late-error": false,
};

function set_option(name, value) {
  if (!(name in options)) throw new Error(`unknown option ${name}`);
  const kind = typeof options[name];
  if (kind === "number") options[name] = Number(value);
  else if (kind === "boolean") options[name] = value === true || value === "true" || value === "";
  else options[name] = String(value);
}
for (const arg of process.argv.slice(2)) {
  const match = /^--([a-z0-9-]+)(?:=(.*))?$/s.exec(arg);
  if (!match) throw new Error(`not an option: ${arg}`);
  set_option(match[1], match[2] ?? "");
}

// Keys are strings of bytes (latin1 of the UTF-8), so that they sort as bytes.
const buckets = new Map();
const uploads = new Map();  // by id: { bucket, key, parts: Map of number to { body, etag } }
let finishes_seen = 0;
let counters, outstanding = 0, writes_seen = 0, requests_seen = 0;
function reset_counters() {
  counters = { total: 0, outstanding_max: 0, bytes_up: 0, bytes_down: 0, by_class: {}, by_area: {} };
}
reset_counters();

class S3Error extends Error {
  constructor(status, code, message, headers = {}) {
    super(message);
    Object.assign(this, { status, code, headers });
  }
}

const hash = (data) => createHash("sha256").update(data).digest("hex");
const hmac = (key, data) => createHmac("sha256", key).update(data).digest();

function encode(bytes, keep = "") {
  let out = "";
  for (const c of bytes) {
    if (/[A-Za-z0-9\-_.~]/.test(c) || keep.includes(c)) out += c;
    else out += "%" + c.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0");
  }
  return out;
}

function decode(text, where) {
  if (/%(?![0-9A-Fa-f]{2})/.test(text)) throw new S3Error(400, "InvalidURI", `bad escape in ${where}`);
  return text.replace(/%([0-9A-Fa-f]{2})/g, (_, h) => String.fromCharCode(parseInt(h, 16)));
}

function parse_target(url) {
  const cut = url.indexOf("?");
  const raw_path = cut < 0 ? url : url.slice(0, cut);
  const raw_query = cut < 0 ? "" : url.slice(cut + 1);
  const path = decode(raw_path, "the path");
  const query = raw_query === "" ? [] : raw_query.split("&").map((pair) => {
    const equals = pair.indexOf("=");
    if (equals < 0) return [decode(pair, "the query"), ""];
    return [decode(pair.slice(0, equals), "the query"), decode(pair.slice(equals + 1), "the query")];
  });
  return { raw_path, path, query };
}

// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
function verify_signature(request, target, body) {
  const headers = request.headers;
  const match = /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/s3\/aws4_request, ?SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})$/
    .exec(headers.authorization ?? "");
  if (!match) throw new S3Error(403, "AccessDenied", "no well-formed SigV4 authorization");
  const [, access_key, day, region, names, signature] = match;
  if (access_key !== options["access-key"]) throw new S3Error(403, "InvalidAccessKeyId", access_key);
  if (region !== options.region) {
    throw new S3Error(400, "AuthorizationHeaderMalformed", `the region '${region}' is wrong`, { region: options.region });
  }
  if ((headers["x-amz-security-token"] ?? "") !== options["session-token"]) {
    throw new S3Error(403, "InvalidToken", "the session token is wrong");
  }
  const date = headers["x-amz-date"] ?? "";
  if (!/^\d{8}T\d{6}Z$/.test(date) || !date.startsWith(day)) throw new S3Error(403, "AccessDenied", "bad x-amz-date");
  const when = Date.parse(date.replace(/^(....)(..)(..T..)(..)(..Z)$/, "$1-$2-$3:$4:$5"));
  if (!(Math.abs(when - Date.now()) < 900_000)) throw new S3Error(403, "RequestTimeTooSkewed", "too far from our clock");
  const signed = names.split(";");
  if (signed.join() !== [...signed].sort().join()) throw new S3Error(403, "AccessDenied", "SignedHeaders are not sorted");
  for (const name of Object.keys(headers)) {
    const must = name === "host" || name.startsWith("x-amz-") || name.startsWith("if-") || name === "range";
    if (must && !signed.includes(name)) throw new S3Error(403, "AccessDenied", `header ${name} is not signed`);
  }
  for (const name of signed) {
    if (!(name in headers)) throw new S3Error(403, "SignatureDoesNotMatch", `signed header ${name} was not sent`);
  }
  const payload = headers["x-amz-content-sha256"];
  if (!/^[0-9a-f]{64}$/.test(payload ?? "")) throw new S3Error(400, "InvalidRequest", "the payload is not signed");
  if (payload !== hash(body)) throw new S3Error(400, "XAmzContentSHA256Mismatch", "the payload is not what was signed");
  const query = target.query.map(([k, v]) => [encode(k), encode(v)])
    .sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1] < b[1] ? -1 : 1)).map(([k, v]) => `${k}=${v}`).join("&");
  const canonical = [request.method, encode(target.path, "/"), query,
    ...signed.map((n) => `${n}:${headers[n].trim().replace(/ +/g, " ")}`), "", names, payload].join("\n");
  const scope = `${day}/${region}/s3/aws4_request`;
  const to_sign = ["AWS4-HMAC-SHA256", date, scope, hash(canonical)].join("\n");
  const key = hmac(hmac(hmac(hmac("AWS4" + options["secret-key"], day), region), "s3"), "aws4_request");
  if (hmac(key, to_sign).toString("hex") !== signature) {
    throw new S3Error(403, "SignatureDoesNotMatch", `the canonical request is\n${canonical}`);
  }
}

const escape_xml = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const utf8 = (bytes) => Buffer.from(bytes, "latin1").toString("utf8");

function list(bucket, target) {
  const query = new Map(target.query);
  if (query.get("list-type") !== "2") throw new S3Error(501, "NotImplemented", "only ListObjectsV2");
  const prefix = query.get("prefix") ?? "", delimiter = query.get("delimiter") ?? "";
  const after = query.get("continuation-token") ?? query.get("start-after") ?? "";
  const limit = Math.min(Number(query.get("max-keys") ?? 1000), options["list-max"]);
  const url = query.get("encoding-type") === "url";
  const show = (key) => (url ? encode(key, "/").replaceAll("%20", "+") : escape_xml(utf8(key)));
  let entries = "", common = "", count = 0, truncated = false, token = "", folded = null;
  const known = options["stale-list"] ? bucket.before ?? new Map() : bucket;
  for (const key of [...known.keys()].filter((k) => k.startsWith(prefix) && k > after).sort()) {
    const cut = delimiter === "" ? -1 : key.indexOf(delimiter, prefix.length);
    if (cut >= 0 && key.slice(0, cut + delimiter.length) === folded) { token = key; continue; }
    if (count === limit) { truncated = true; break; }
    ++count;
    token = key;
    if (cut >= 0) {
      folded = key.slice(0, cut + delimiter.length);
      common += `<CommonPrefixes><Prefix>${show(folded)}</Prefix></CommonPrefixes>`;
    } else {
      const object = known.get(key);
      entries += `<Contents><Key>${show(key)}</Key><LastModified>${object.modified.toISOString()}</LastModified>` +
        `<ETag>&quot;${object.etag}&quot;</ETag><Size>${object.body.length}</Size><StorageClass>STANDARD</StorageClass></Contents>`;
    }
  }
  return `<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` +
    `<Prefix>${show(prefix)}</Prefix><KeyCount>${count}</KeyCount><MaxKeys>${limit}</MaxKeys>` +
    (url ? "<EncodingType>url</EncodingType>" : "") + `<IsTruncated>${truncated}</IsTruncated>` +
    (truncated ? `<NextContinuationToken>${escape_xml(show(token))}</NextContinuationToken>` : "") +
    `${entries}${common}</ListBucketResult>`;
}

function etag_matches(given, object) {
  const bare = given.replace(/^"(.*)"$/, "$1");
  if (options["if-match"] === "quoted" && bare === given) return false;
  if (options["if-match"] === "bare" && bare !== given) return false;
  return object !== undefined && bare === object.etag;
}

function check_conditions(headers, object, spared) {
  const if_none_match = headers["if-none-match"], if_match = headers["if-match"];
  if (if_none_match === undefined && if_match === undefined) return;
  const off = (name) => !spared && (options["ignore-conditions"] || options[name]);
  if (!spared && options["not-implemented"]) throw new S3Error(501, "NotImplemented", "a header implies functionality that is not implemented");
  const lost = (message) => (!spared && options["loser-500"])
    ? new S3Error(500, "InternalError", "please try again") : new S3Error(412, "PreconditionFailed", message);
  if (if_none_match !== undefined && !off("ignore-if-none-match")) {
    if (if_none_match !== "*") throw new S3Error(501, "NotImplemented", "If-None-Match only with *");
    if (!spared && options["no-such-key-on-create"] && !object) throw new S3Error(404, "NoSuchKey", "The specified key does not exist.");
    if (object) throw lost("the object exists");
  }
  if (if_match !== undefined && !off("ignore-if-match")) {
    if (!object) throw new S3Error(404, "NoSuchKey", "The specified key does not exist.");
    if (!etag_matches(if_match, object)) throw lost("the ETag differs");
  }
}

function read_object(headers, object, spared) {
  if (!object) throw new S3Error(404, "NoSuchKey", "The specified key does not exist.");
  const common = { "last-modified": object.modified.toUTCString(), "content-type": "application/octet-stream" };
  if (spared || !options["no-etag"]) common.etag = `"${object.etag}"`;
  const range = spared || !options["ignore-range"] ? headers.range : undefined;
  if (range === undefined) return { status: 200, headers: common, body: object.body };
  const match = /^bytes=(\d+)-(\d+)$/.exec(range);
  if (!match) throw new S3Error(400, "InvalidArgument", "only bytes=FIRST-LAST");
  const size = object.body.length, first = Number(match[1]), last = Math.min(Number(match[2]), size - 1);
  if (first >= size) throw new S3Error(416, "InvalidRange", "The requested range is not satisfiable");
  return { status: 206, headers: { ...common, "content-range": `bytes ${first}-${last}/${size}` }, body: object.body.subarray(first, last + 1) };
}

// For lists that are behind.
function remember(bucket) {
  if (options["stale-list"]) bucket.before = new Map(bucket);
  return bucket;
}

function write_object(bucket, key, headers, body, spared) {
  check_conditions(headers, bucket.get(key), spared);
  const etag = options.etags === "unique" ? randomBytes(16).toString("hex") : createHash("md5").update(body).digest("hex");
  remember(bucket).set(key, { body, etag, modified: new Date() });
  return { status: 200, headers: spared || !options["no-etag"] ? { etag: `"${etag}"` } : {} };
}

const xml = (text) => ({ status: 200, headers: { "content-type": "application/xml" },
  body: Buffer.from(`<?xml version="1.0" encoding="UTF-8"?>\n${text}`) });
const md5 = (body) => createHash("md5").update(body).digest("hex");
const unescape_xml = (text) => text.replace(/&(amp|lt|gt|quot);/g, (_, n) => ({ amp: "&", lt: "<", gt: ">", quot: '"' })[n]);

// The five requests of an upload in parts, or nothing when it is none of them.
function act_on_upload(request, target, bucket, bucket_name, key, body) {
  const query = new Map(target.query), id = query.get("uploadId");
  if (request.method === "POST" && query.has("uploads")) {
    const made = randomBytes(16).toString("hex");
    uploads.set(made, { bucket: bucket_name, key, parts: new Map() });
    return xml(`<InitiateMultipartUploadResult><Key>${escape_xml(utf8(key))}</Key><UploadId>${made}</UploadId></InitiateMultipartUploadResult>`);
  }
  if (id === undefined) return undefined;
  const upload = uploads.get(id);
  if (!upload || upload.bucket !== bucket_name || upload.key !== key) throw new S3Error(404, "NoSuchUpload", "The specified upload does not exist.");
  if (request.method === "DELETE") {
    uploads.delete(id);
    return { status: 204, headers: {} };
  }
  if (request.method === "PUT") {
    const number = Number(query.get("partNumber"));
    if (!(number >= 1 && number <= 10_000)) throw new S3Error(400, "InvalidArgument", "partNumber");
    upload.parts.set(number, { body, etag: md5(body) });
    return { status: 200, headers: { etag: `"${md5(body)}"` } };
  }
  if (request.method !== "POST") throw new S3Error(501, "NotImplemented", request.method);
  const wanted = [...body.toString().matchAll(/<Part><PartNumber>(\d+)<\/PartNumber><ETag>([^<]*)<\/ETag><\/Part>/g)];
  if (wanted.length === 0) throw new S3Error(400, "MalformedXML", "no parts");
  const bodies = wanted.map(([, number, etag], i) => {
    const part = upload.parts.get(Number(number));
    if (!part || `"${part.etag}"` !== unescape_xml(etag)) throw new S3Error(400, "InvalidPart", `part ${number}`);
    if (i + 1 < wanted.length && part.body.length < 5 << 20) throw new S3Error(400, "EntityTooSmall", `part ${number}`);
    return part.body;
  });
  if (options["late-error"] && ++finishes_seen % 2 === 1) {
    return xml("<Error><Code>InternalError</Code><Message>please try again</Message></Error>");
  }
  const whole = Buffer.concat(bodies), etag = `${md5(whole)}-${wanted.length}`;
  bucket.set(key, { body: whole, etag, modified: new Date() });
  uploads.delete(id);
  return xml(`<CompleteMultipartUploadResult><ETag>&quot;${etag}&quot;</ETag></CompleteMultipartUploadResult>`);
}

function delete_many(request, bucket, body) {
  if (options["no-batch-delete"]) throw new S3Error(501, "NotImplemented", "DeleteObjects");
  if (request.headers["content-md5"] !== createHash("md5").update(body).digest("base64")) throw new S3Error(400, "BadDigest", "Content-MD5");
  const keys = [...body.toString().matchAll(/<Object><Key>([^<]*)<\/Key><\/Object>/g)].map((m) => unescape_xml(m[1]));
  if (keys.length === 0 || keys.length > 1000) throw new S3Error(400, "MalformedXML", "1 to 1000 keys");
  for (const key of keys) bucket.delete(Buffer.from(key).toString("latin1"));
  return xml(`<DeleteResult>${keys.map((key) => `<Deleted><Key>${escape_xml(key)}</Key></Deleted>`).join("")}</DeleteResult>`);
}

function class_of(method, key, headers, query) {
  if (key === "") return method === "POST" ? "delete-many" : "list";
  if (query.has("uploads")) return "begin-upload";
  if (query.has("uploadId")) return { PUT: "put-part", POST: "finish-upload", DELETE: "abort-upload" }[method] ?? method;
  if (method === "PUT") return headers["if-match"] !== undefined || headers["if-none-match"] !== undefined ? "put-if" : "put";
  if (method === "GET") return headers.range === undefined ? "get" : "get-range";
  return method.toLowerCase();
}

function count(method, key, target, headers, body) {
  const name = class_of(method, key, headers, new Map(target.query));
  const shown = key === "" ? new Map(target.query).get("prefix") ?? "" : key;
  const area = shown.split("/")[0];
  counters.total++;
  counters.bytes_up += body.length;
  counters.by_class[name] = (counters.by_class[name] ?? 0) + 1;
  const by_area = (counters.by_area[area] ??= {});
  by_area[name] = (by_area[name] ?? 0) + 1;
}

const every = (n, seen) => n > 0 && seen % n === 0;
const DROP = Symbol("drop the connection");

function act(request, target, body) {
  const parts = target.path.split("/");
  if (parts[0] !== "" || parts.length < 2) throw new S3Error(400, "InvalidURI", "no path");
  const bucket_name = parts[1], key = parts.slice(2).join("/");
  verify_signature(request, target, body);
  count(request.method, key, target, request.headers, body);
  const spared = options.spare !== "" && new RegExp(options.spare).test(key);
  if (bucket_name === "" || (options.bucket !== "" && bucket_name !== options.bucket)) {
    throw new S3Error(404, "NoSuchBucket", "The specified bucket does not exist");
  }
  if (Buffer.byteLength(key, "latin1") > 1024) throw new S3Error(400, "KeyTooLongError", "Your key is too long");
  if (!buckets.has(bucket_name)) buckets.set(bucket_name, new Map());
  const bucket = buckets.get(bucket_name);
  ++requests_seen;
  if (!spared && every(options["error-500"], requests_seen)) throw new S3Error(500, "InternalError", "please try again");
  if (!spared && (every(options.throttle, requests_seen) || Math.random() < options["slow-down"])) {
    const pause = options["retry-after"] > 0 ? { "retry-after": String(options["retry-after"]) } : {};
    throw new S3Error(503, "SlowDown", "Please reduce your request rate.", pause);
  }
  if (key === "") {
    if (request.method === "POST" && new Map(target.query).has("delete")) return delete_many(request, bucket, body);
    if (request.method !== "GET") throw new S3Error(501, "NotImplemented", "only lists of buckets");
    return { status: 200, headers: { "content-type": "application/xml" }, body: Buffer.from(list(bucket, target)) };
  }
  if (request.method === "GET" || request.method === "HEAD") return read_object(request.headers, bucket.get(key), spared);
  const of_upload = new Map(target.query).has("uploads") || new Map(target.query).has("uploadId");
  if (request.method !== "PUT" && request.method !== "DELETE" && !of_upload) throw new S3Error(501, "NotImplemented", request.method);
  ++writes_seen;
  if (!spared && every(options["fail-before-effect"], writes_seen)) return DROP;
  let reply = { status: 204, headers: {} };
  if (of_upload) reply = act_on_upload(request, target, bucket, bucket_name, key, body);
  else if (request.method === "PUT") reply = write_object(bucket, key, request.headers, body, spared);
  else remember(bucket).delete(key);
  return !spared && every(options["fail-after-effect"], writes_seen) ? DROP : reply;
}

function error_reply(request, error) {
  if (!(error instanceof S3Error)) {
    console.error(error);
    error = new S3Error(500, "InternalError", String(error));
  }
  const { region, ...headers } = error.headers;
  const body = `<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>${error.code}</Code><Message>${escape_xml(error.message)}</Message>` +
    (region ? `<Region>${region}</Region>` : "") + `<Resource>${escape_xml(request.url)}</Resource><RequestId>test</RequestId></Error>`;
  return { status: error.status, headers: { ...headers, "content-type": "application/xml" }, body: Buffer.from(body) };
}

function control(request, body) {
  if (request.url === "/__counters") return JSON.stringify(counters, null, 1);
  if (request.method !== "POST") return undefined;
  if (request.url === "/__counters/reset") reset_counters();
  else if (request.url === "/__options") for (const [k, v] of Object.entries(JSON.parse(body))) set_option(k, v);
  else return undefined;
  return "{}";
}

const pause = (ms) => (ms > 0 ? new Promise((done) => setTimeout(done, ms)) : undefined);

async function serve(request, response) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  if (request.url.startsWith("/__")) {
    const text = control(request, body);
    response.writeHead(text === undefined ? 404 : 200, { "content-type": "application/json" }).end(text);
    return;
  }
  counters.outstanding_max = Math.max(counters.outstanding_max, ++outstanding);
  const half = options["delay-ms"] / 2;
  await pause(half);
  let reply;
  try {
    reply = act(request, parse_target(request.url), body);
  } catch (error) {
    reply = error_reply(request, error);
  }
  await pause(half);
  --outstanding;
  if (reply === DROP) {
    request.socket.destroy();
    return;
  }
  const out = reply.body ?? Buffer.alloc(0);
  counters.bytes_down += out.length;
  const length = reply.status === 204 ? {} : { "content-length": out.length };
  response.writeHead(reply.status, { "x-amz-request-id": "test", ...length, ...reply.headers }).end(out);
}

const server = http.createServer({ noDelay: true, keepAliveTimeout: 60_000 }, (request, response) => {
  serve(request, response).catch((error) => {
    if (error.code !== "ECONNRESET") console.error(error);
    request.socket.destroy();
  });
});
server.listen(options.port, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit(0)).on("error", () => process.exit(0)).resume();
