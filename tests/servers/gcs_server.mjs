// A strict Google Cloud Storage for tests: objects in memory, the JSON API as celld needs it, uploads in parts by
// the XML API, generation preconditions, and the issuers of tokens. Whatever is not documented is refused.
//
//   node gcs_server.mjs [--port=0] [--list-max=1000] [--token-seconds=3600] [--ignore-conditions]
//
// Prints its port on the first line and ends when its standard input does. Every bucket exists but "missing".
//
// Tokens are checked on every request but those that carry none and go to a bucket whose name starts with "open".
// They come from
//   POST /token             a service account's JWT (RS256, verified) or a refresh token ("refresh-ok")
//   GET  /computeMetadata/v1/instance/service-accounts/default/token
//   POST /sts               the subject's token "subject-ok"; what it gives serves only to
//   POST /impersonate       act as a service account
//   GET  /subject           the subject's token, as JSON, with the header x-ask: please
// GET /__key                a service account's key file
// POST /__revoke            all tokens so far are refused
// GET /__counters           requests by what they are
import { createHash, createVerify, generateKeyPairSync, randomBytes } from "node:crypto";
import http from "node:http";

const options = { port: 0, "list-max": 1000, "token-seconds": 3600, "ignore-conditions": false };
for (const arg of process.argv.slice(2)) {
  const match = /^--([a-z-]+)(?:=(\d+))?$/.exec(arg);
  if (!match || !(match[1] in options)) throw new Error(`not an option: ${arg}`);
  options[match[1]] = match[2] === undefined ? true : Number(match[2]);
}

class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const scope = "https://www.googleapis.com/auth/devstorage.read_write";
const keys = generateKeyPairSync("rsa", { modulusLength: 2048 });
const email = "tester@project.iam.gserviceaccount.com";
const tokens = new Map();  // token -> { expires, kind }
let generations = 1_700_000_000_000_000n;
let counters = {};
const buckets = new Map();  // name -> Map(key -> { body, generation, updated })
const uploads = new Map();  // id -> { bucket, key, parts }

const json = (status, value, headers = {}) =>
  ({ status, headers: { "content-type": "application/json; charset=UTF-8", ...headers }, body: Buffer.from(JSON.stringify(value)) });
const count = (what) => (counters[what] = (counters[what] ?? 0) + 1);

function issue(kind) {
  const token = `ya29.${randomBytes(16).toString("hex")}`;
  tokens.set(token, { kind, expires: Date.now() + options["token-seconds"] * 1000 });
  return token;
}
const token_reply = (kind) => json(200, { access_token: issue(kind), expires_in: options["token-seconds"], token_type: "Bearer" });
const oauth_error = (error, error_description) => json(400, { error, error_description });

function check_token(request, bucket, kind) {
  const header = request.headers.authorization;
  if (header === undefined && bucket.startsWith("open")) return;
  const token = tokens.get(/^Bearer (\S+)$/.exec(header ?? "")?.[1]);
  if (!token || token.expires < Date.now() || token.kind !== kind) throw new Refusal(401, "Invalid Credentials");
}

// https://developers.google.com/identity/protocols/oauth2/service-account#httprest
function service_account(assertion, audience) {
  const [head, claims, signature, more] = assertion.split(".");
  const parse = (text) => JSON.parse(Buffer.from(text ?? "", "base64url").toString());
  if (more !== undefined || /[^A-Za-z0-9._-]/.test(assertion)) return oauth_error("invalid_grant", "Invalid JWT: not three parts.");
  if (parse(head).alg !== "RS256" || parse(head).kid !== "key-1") return oauth_error("invalid_grant", "Invalid JWT header.");
  const verifier = createVerify("RSA-SHA256").update(`${head}.${claims}`);
  if (!verifier.verify(keys.publicKey, signature, "base64url")) return oauth_error("invalid_grant", "Invalid JWT Signature.");
  const { iss, aud, iat, exp, scope: asked } = parse(claims);
  const now = Date.now() / 1000;
  if (iss !== email || aud !== audience || asked !== scope) return oauth_error("invalid_grant", "Invalid JWT claims.");
  if (!(iat <= now + 60 && iat > now - 600 && exp > now && exp <= iat + 3600)) {
    return oauth_error("invalid_grant", "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe.");
  }
  return token_reply("storage");
}

function issuer(request, url, body, origin) {
  const form = new URLSearchParams(body.toString());
  const is_form = request.headers["content-type"] === "application/x-www-form-urlencoded";
  if (url.pathname.startsWith("/computeMetadata/")) {
    count("metadata");
    if (request.headers["metadata-flavor"] !== "Google") throw new Refusal(403, "Missing Metadata-Flavor:Google header.");
    if (url.pathname !== "/computeMetadata/v1/instance/service-accounts/default/token") throw new Refusal(404, "Not Found");
    return token_reply("storage");
  }
  if (url.pathname === "/subject") {
    if (request.headers["x-ask"] !== "please") throw new Refusal(403, "ask nicely");
    return json(200, { id_token: "subject-ok" });
  }
  if (request.method !== "POST") return undefined;
  if (url.pathname === "/token") {
    count("token");
    if (!is_form) throw new Refusal(400, "not a form");
    if (form.get("grant_type") === "urn:ietf:params:oauth:grant-type:jwt-bearer") {
      return service_account(form.get("assertion"), `${origin}/token`);
    }
    const good = form.get("grant_type") === "refresh_token" && form.get("client_id") === "client" &&
      form.get("client_secret") === "client-secret" && form.get("refresh_token") === "refresh-ok";
    return good ? token_reply("storage") : oauth_error("invalid_grant", "Bad Request");
  }
  if (url.pathname === "/sts") {
    count("sts");
    const good = is_form && form.get("grant_type") === "urn:ietf:params:oauth:grant-type:token-exchange" &&
      form.get("requested_token_type") === "urn:ietf:params:oauth:token-type:access_token" &&
      form.get("subject_token_type") === "urn:ietf:params:oauth:token-type:jwt" && form.get("audience") === "//iam/pool";
    if (!good || form.get("subject_token") !== "subject-ok") return oauth_error("invalid_request", "Invalid subject token.");
    return token_reply(form.get("scope") === scope ? "storage" : "cloud");
  }
  if (url.pathname === "/impersonate") {
    count("impersonate");
    check_token(request, "", "cloud");
    if (JSON.parse(body).scope[0] !== scope) throw new Refusal(400, "scope");
    return json(200, { accessToken: issue("storage"), expireTime: new Date(Date.now() + options["token-seconds"] * 1000).toISOString() });
  }
  return undefined;
}

function parameters(url, allowed) {
  const out = {};
  for (const [name, value] of url.searchParams) {
    if (!allowed.includes(name) || name in out) throw new Refusal(400, `Unknown parameter '${name}'`);
    out[name] = value;
  }
  return out;
}

function write(bucket, key, body) {
  const object = { body, generation: String(++generations), updated: new Date() };
  bucket.set(key, object);
  return object;
}

// https://cloud.google.com/storage/docs/request-preconditions
function check_condition(bucket, key, wanted) {
  if (wanted === undefined || options["ignore-conditions"]) return;
  if (!/^\d+$/.test(wanted)) throw new Refusal(400, `Invalid value '${wanted}' for ifGenerationMatch`);
  const have = bucket.get(key)?.generation ?? "0";
  if (have !== wanted) throw new Refusal(412, "At least one of the pre-conditions you specified did not hold.");
}

function check_name(key) {
  if (key === "" || Buffer.byteLength(key) > 1024 || /[\r\n]/.test(key) || key === "." || key === "..") {
    throw new Refusal(400, `Invalid object name: ${key}`);
  }
}

const by_bytes = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b));

// https://cloud.google.com/storage/docs/json_api/v1/objects/list
function list(bucket, url) {
  const p = parameters(url, ["fields", "maxResults", "prefix", "delimiter", "startOffset", "pageToken"]);
  const prefix = p.prefix ?? "", delimiter = p.delimiter ?? "";
  const after = p.pageToken === undefined ? undefined : Buffer.from(p.pageToken, "base64url").toString();
  const limit = Math.min(Number(p.maxResults ?? 1000), options["list-max"]);
  const items = [], prefixes = [];
  let last;
  for (const key of [...bucket.keys()].sort(by_bytes)) {
    if (!key.startsWith(prefix) || by_bytes(key, p.startOffset ?? "") < 0) continue;
    const cut = delimiter === "" ? -1 : key.indexOf(delimiter, prefix.length);
    const shown = cut < 0 ? key : key.slice(0, cut + delimiter.length);
    if ((after !== undefined && by_bytes(shown, after) <= 0) || shown === last) continue;
    if (items.length + prefixes.length === limit) {
      return json(200, { nextPageToken: Buffer.from(last).toString("base64url"), prefixes, items });
    }
    last = shown;
    const { body, updated } = bucket.get(key);
    if (cut < 0) items.push({ name: key, size: String(body.length), updated: updated.toISOString() });
    else prefixes.push(shown);
  }
  const out = { prefixes, items };
  for (const name of ["prefixes", "items"]) if (out[name].length === 0) delete out[name];  // as Google does
  return json(200, out);
}

function download(request, object) {
  const headers = { "x-goog-generation": object.generation, "content-type": "application/octet-stream" };
  const match = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "");
  if (!match) {
    if (request.headers.range) throw new Refusal(400, "only bytes=FIRST-LAST");
    return { status: 200, headers, body: object.body };
  }
  const size = object.body.length, first = Number(match[1]), last = Math.min(Number(match[2]), size - 1);
  if (first >= size) throw new Refusal(416, "Request range not satisfiable");
  return { status: 206, headers: { ...headers, "content-range": `bytes ${first}-${last}/${size}` }, body: object.body.subarray(first, last + 1) };
}

const no_such_object = (name, key) => new Refusal(404, `No such object: ${name}/${key}`);

function json_api(request, url, body) {
  const upload = /^\/upload\/storage\/v1\/b\/([^/]+)\/o$/.exec(url.pathname);
  const one = /^\/storage\/v1\/b\/([^/]+)\/o(?:\/([^/]+))?$/.exec(url.pathname);
  const name = upload?.[1] ?? one?.[1];
  if (name === undefined) return undefined;
  check_token(request, name, "storage");
  if (name === "missing") throw new Refusal(404, "The specified bucket does not exist.");
  if (!buckets.has(name)) buckets.set(name, new Map());
  const bucket = buckets.get(name);
  if (upload) {
    if (request.method !== "POST") throw new Refusal(405, "Method Not Allowed");
    const p = parameters(url, ["uploadType", "name", "fields", "ifGenerationMatch"]);
    if (p.uploadType !== "media" || p.fields !== "generation,size") throw new Refusal(400, "only media uploads");
    check_name(p.name);
    count(p.ifGenerationMatch === undefined ? "put" : "put-if");
    check_condition(bucket, p.name, p.ifGenerationMatch);
    const object = write(bucket, p.name, body);
    return json(200, { generation: object.generation, size: String(object.body.length) });
  }
  if (one[2] === undefined) {
    count("list");
    return list(bucket, url);
  }
  const key = decodeURIComponent(one[2]);
  const object = bucket.get(key);
  if (request.method === "DELETE") {
    count("delete");
    parameters(url, []);
    if (!bucket.delete(key)) throw no_such_object(name, key);
    return { status: 204, headers: {}, body: Buffer.alloc(0) };
  }
  if (request.method !== "GET") throw new Refusal(405, "Method Not Allowed");
  const { alt } = parameters(url, ["alt", "fields"]);
  count(alt === "media" ? "get" : "head");
  if (!object) {
    if (alt !== "media") throw no_such_object(name, key);
    return { status: 404, headers: { "content-type": "text/html; charset=UTF-8" }, body: Buffer.from(`No such object: ${name}/${key}`) };
  }
  return alt === "media" ? download(request, object)
    : json(200, { generation: object.generation, size: String(object.body.length) });
}

const xml = (status, text, headers = {}) => ({ status, headers: { "content-type": "application/xml", ...headers }, body: Buffer.from(text) });
const md5 = (bytes) => createHash("md5").update(bytes).digest("hex");

// https://cloud.google.com/storage/docs/xml-api/overview, uploads in parts alone.
function xml_api(request, url, body) {
  const [, name, ...rest] = url.pathname.split("/");
  const key = decodeURIComponent(rest.join("/"));
  check_token(request, name, "storage");
  if (request.method === "POST" && url.search === "?uploads") {
    check_name(key);
    const id = randomBytes(12).toString("base64url");
    uploads.set(id, { name, key, parts: new Map() });
    return xml(200, `<?xml version='1.0' encoding='UTF-8'?><InitiateMultipartUploadResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>` +
      `<Bucket>${name}</Bucket><Key>k</Key><UploadId>${id}</UploadId></InitiateMultipartUploadResult>`);
  }
  const { uploadId, partNumber } = parameters(url, ["uploadId", "partNumber"]);
  const upload = uploads.get(uploadId);
  if (!upload || upload.name !== name || upload.key !== key) {
    return xml(404, "<?xml version='1.0' encoding='UTF-8'?><Error><Code>NoSuchUpload</Code></Error>");
  }
  if (request.method === "PUT") {
    upload.parts.set(Number(partNumber), body);
    return { status: 200, headers: { etag: `"${md5(body)}"` }, body: Buffer.alloc(0) };
  }
  if (request.method === "DELETE") {
    uploads.delete(uploadId);
    return { status: 204, headers: {}, body: Buffer.alloc(0) };
  }
  const listed = [...body.toString().matchAll(/<Part><PartNumber>(\d+)<\/PartNumber><ETag>"([0-9a-f]{32})"<\/ETag><\/Part>/g)];
  const bodies = listed.map(([, number, etag]) => {
    const part = upload.parts.get(Number(number));
    if (!part || md5(part) !== etag) throw new Refusal(400, "InvalidPart");
    return part;
  });
  if (bodies.slice(0, -1).some((part) => part.length < 5 << 20)) throw new Refusal(400, "EntityTooSmall");
  uploads.delete(uploadId);
  if (!buckets.has(name)) buckets.set(name, new Map());
  write(buckets.get(name), key, Buffer.concat(bodies));
  return xml(200, "<?xml version='1.0' encoding='UTF-8'?><CompleteMultipartUploadResult></CompleteMultipartUploadResult>");
}

function act(request, body) {
  const origin = `http://127.0.0.1:${server.address().port}`;
  const url = new URL(origin + request.url);
  if (url.pathname + url.search !== request.url) throw new Refusal(400, "the URL is not normal");
  if (url.pathname === "/__key") {
    return json(200, { type: "service_account", client_email: email, private_key_id: "key-1", token_uri: `${origin}/token`,
      private_key: keys.privateKey.export({ type: "pkcs8", format: "pem" }) });
  }
  if (url.pathname === "/__counters") return json(200, counters);
  if (url.pathname === "/__revoke") return json(200, tokens.clear() ?? {});
  return issuer(request, url, body, origin) ?? json_api(request, url, body) ?? xml_api(request, url, body);
}

const server = http.createServer({ noDelay: true, keepAliveTimeout: 60_000, maxHeaderSize: 64 << 10 }, async (request, response) => {
  const chunks = [];
  let reply;
  try {
    for await (const chunk of request) chunks.push(chunk);
    reply = act(request, Buffer.concat(chunks));
  } catch (error) {
    if (error.code === "ECONNRESET") return;
    if (!(error instanceof Refusal)) console.error(error);
    const status = error.status ?? 500;
    reply = json(status, { error: { code: status, message: error.message, errors: [{ message: error.message }] } });
  }
  const length = reply.status === 204 ? {} : { "content-length": reply.body.length };
  response.writeHead(reply.status, { ...length, ...reply.headers }).end(reply.body);
});
server.listen(options.port, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit(0)).on("error", () => process.exit(0)).resume();
