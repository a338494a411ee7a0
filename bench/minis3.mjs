// A small S3 on loopback: the common bucket for comparing what hosts ask of one. Objects in memory,
// conditional writes, ranges, ListObjectsV2, multipart; signatures are not looked at. Every request
// takes --delay-ms longer. Prints its port.
//
//   node minis3.mjs [--port=0] [--delay-ms=0]
//
// GET /__stats: { requests, objects, bytes } and, by class ("PUT if-none-match 200 journal/<id>/<n>.jnl"),
// the number of requests and their bytes; counting starts anew.
import { createHash } from "node:crypto";
import http from "node:http";

const options = { port: 0, "delay-ms": 0 };
for (const arg of process.argv.slice(2)) {
  const match = /^--(port|delay-ms)=(\d+)$/.exec(arg);
  if (!match) throw new Error(`not an option: ${arg}`);
  options[match[1]] = Number(match[2]);
}

const objects = new Map(); // key -> { body, etag, modified }
const uploads = new Map(); // id -> Map(part number -> bytes)
let classes = {};
let requests = 0;

const classOf = (key) => key.replace(/[0-9a-f]{16,}/gi, "<id>").replace(/\d{3,}/g, "<n>");
const escapeXml = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
const unescapeXml = (text) => text.replace(/&lt;/g, "<").replace(/&amp;/g, "&");
const etagOf = (body) => `"${createHash("md5").update(body).digest("hex")}"`;
const XML = '<?xml version="1.0" encoding="UTF-8"?>';

// The payload of "aws-chunked" transfer: size;signature CRLF bytes CRLF, until size 0.
function unchunk(body) {
  const pieces = [];
  for (let at = 0; at < body.length; ) {
    const end = body.indexOf("\r\n", at);
    const size = parseInt(body.toString("latin1", at, end), 16);
    if (!size) break;
    pieces.push(body.subarray(end + 2, end + 2 + size));
    at = end + 2 + size + 2;
  }
  return Buffer.concat(pieces);
}

function listing(bucket, query) {
  const prefix = query.get("prefix") ?? "";
  const delimiter = query.get("delimiter") ?? "";
  const after = query.get("continuation-token") ?? query.get("start-after") ?? "";
  const max = Number(query.get("max-keys") ?? 1000);
  const keys = [...objects.keys()].filter((key) => key.startsWith(prefix) && key > after).sort();
  const folded = new Set();
  let entries = "";
  let count = 0;
  let last = "";
  for (const key of keys) {
    if (count >= max) break;
    last = key;
    const cut = delimiter ? key.indexOf(delimiter, prefix.length) : -1;
    if (cut >= 0) {
      const common = key.slice(0, cut + delimiter.length);
      if (!folded.has(common)) count++;
      folded.add(common);
      continue;
    }
    const { body, etag, modified } = objects.get(key);
    entries += `<Contents><Key>${escapeXml(key)}</Key><LastModified>${modified.toISOString()}</LastModified>` +
      `<ETag>${escapeXml(etag)}</ETag><Size>${body.length}</Size><StorageClass>STANDARD</StorageClass></Contents>`;
    count++;
  }
  const more = last !== "" && keys.at(-1) > last;
  const next = more ? `<NextContinuationToken>${escapeXml(last)}</NextContinuationToken>` : "";
  const common = [...folded].map((p) => `<CommonPrefixes><Prefix>${escapeXml(p)}</Prefix></CommonPrefixes>`).join("");
  return `${XML}<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>${bucket}</Name>` +
    `<Prefix>${escapeXml(prefix)}</Prefix><KeyCount>${count}</KeyCount><MaxKeys>${max}</MaxKeys>` +
    `<IsTruncated>${more}</IsTruncated>${next}${entries}${common}</ListBucketResult>`;
}

// [status, headers, body]
const xml = (text) => [200, { "content-type": "application/xml" }, text];
const refuse = (status, code) => [status, { "content-type": "application/xml" }, `${XML}<Error><Code>${code}</Code><Message>${code}</Message></Error>`];

function read(request, found, headOnly) {
  if (!found) return refuse(404, "NoSuchKey");
  const headers = { etag: found.etag, "last-modified": found.modified.toUTCString(), "accept-ranges": "bytes" };
  if (request.headers["if-none-match"] === found.etag) return [304, headers, ""];
  if (request.headers["if-match"] && request.headers["if-match"] !== found.etag) return refuse(412, "PreconditionFailed");
  const size = found.body.length;
  const range = /^bytes=(\d*)-(\d*)$/.exec(request.headers.range ?? "");
  if (!range) return [200, headers, headOnly ? Buffer.alloc(size) : found.body];
  const first = range[1] === "" ? Math.max(0, size - Number(range[2])) : Number(range[1]);
  const last = range[1] === "" || range[2] === "" ? size - 1 : Math.min(Number(range[2]), size - 1);
  if (first >= size) return refuse(416, "InvalidRange");
  return [206, { ...headers, "content-range": `bytes ${first}-${last}/${size}` }, found.body.subarray(first, last + 1)];
}

function write(request, key, found, body) {
  if (request.headers["if-none-match"] === "*" && found) return refuse(412, "PreconditionFailed");
  const wanted = request.headers["if-match"];
  if (wanted && found?.etag !== wanted) return refuse(412, "PreconditionFailed");
  const source = request.headers["x-amz-copy-source"];
  const copied = source && objects.get(decodeURIComponent(source).replace(/^\//, "").split("/").slice(1).join("/"));
  const object = { body: copied ? copied.body : body, modified: new Date() };
  object.etag = etagOf(object.body);
  objects.set(key, object);
  if (copied) return xml(`<CopyObjectResult><ETag>${escapeXml(object.etag)}</ETag></CopyObjectResult>`);
  return [200, { etag: object.etag }, ""];
}

function act(request, bucket, key, query, body) {
  const found = objects.get(key);
  if (key === "") {
    if (request.method !== "POST") return xml(listing(bucket, query));
    for (const [, name] of body.toString().matchAll(/<Key>([^<]*)<\/Key>/g)) objects.delete(unescapeXml(name));
    return xml("<DeleteResult/>");
  }
  switch (request.method) {
    case "GET": return read(request, found, false);
    case "HEAD": return read(request, found, true);
    case "DELETE":
      objects.delete(key);
      return [204, {}, ""];
    case "PUT":
      if (!query.has("partNumber")) return write(request, key, found, body);
      uploads.get(query.get("uploadId")).set(Number(query.get("partNumber")), body);
      return [200, { etag: etagOf(body) }, ""];
    case "POST": {
      if (query.has("uploads")) {
        const id = `u${uploads.size + 1}`;
        uploads.set(id, new Map());
        return xml(`<InitiateMultipartUploadResult><Bucket>${bucket}</Bucket><Key>${escapeXml(key)}</Key><UploadId>${id}</UploadId></InitiateMultipartUploadResult>`);
      }
      const parts = [...uploads.get(query.get("uploadId"))].sort((a, b) => a[0] - b[0]);
      const [, { etag }] = write(request, key, undefined, Buffer.concat(parts.map(([, bytes]) => bytes)));
      return xml(`<CompleteMultipartUploadResult><ETag>${escapeXml(etag)}</ETag></CompleteMultipartUploadResult>`);
    }
    default: return refuse(400, "InvalidRequest");
  }
}

function stats() {
  let bytes = 0;
  for (const { body } of objects.values()) bytes += body.length;
  const text = JSON.stringify({ requests, objects: objects.size, bytes, classes });
  classes = {};
  requests = 0;
  return text;
}

function serve(request, response, body) {
  const url = new URL(request.url, "http://localhost");
  if (url.pathname === "/__stats") return response.end(stats());
  const [, bucket, ...rest] = url.pathname.split("/");
  const key = decodeURIComponent(rest.join("/"));
  if (/STREAMING/.test(request.headers["x-amz-content-sha256"] ?? "")) body = unchunk(body);
  const [status, headers, answer] = act(request, bucket, key, url.searchParams, body);
  const condition = ["if-match", "if-none-match"].find((name) => request.headers[name]);
  const verb = key === "" && request.method === "GET" ? "LIST" : request.method;
  const name = [verb, condition, status, classOf(key || (url.searchParams.get("prefix") ?? ""))].filter(Boolean).join(" ");
  const counts = (classes[name] ??= { requests: 0, up: 0, down: 0 });
  counts.requests++;
  counts.up += body.length;
  counts.down += answer.length;
  requests++;
  response.writeHead(status, { "x-amz-request-id": "r", ...headers, "content-length": Buffer.byteLength(answer) });
  response.end(request.method === "HEAD" ? undefined : answer);
}

const server = http.createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => {
    const act = () => serve(request, response, Buffer.concat(pieces));
    if (options["delay-ms"] > 0 && !request.url.startsWith("/__")) setTimeout(act, options["delay-ms"]);
    else act();
  });
});
server.listen(options.port, "127.0.0.1", () => console.log(server.address().port));
