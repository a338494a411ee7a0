// Requests beyond GET for each listed case: program -> [{ name, method, path, headers, body }]. A
// function as body writes to the request itself.
const multipart = ["--XX", 'content-disposition: form-data; name="a"', "", "1", "--XX",
  'content-disposition: form-data; name="f"; filename="n.txt"', "content-type: text/plain", "", "file text", "--XX--", ""].join("\r\n");

const chunked = (...chunks) => (request) => {
  const left = [...chunks];
  const next = () => {
    const chunk = left.shift();
    if (chunk === undefined) request.end();
    else request.write(chunk, () => setTimeout(next, 5));
  };
  next();
};

const http = [];
const add = (name, path, rest = {}) => http.push({ name, path, ...rest });
for (const method of ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "PROPFIND"]) {
  add(`echo ${method}`, "/worker/echo", { method });
  add(`object echo ${method}`, "/worker/object_response?to=echo", { method });
}
for (const path of ["/worker/echo", "/worker/object_response?to=echo", "/worker/object_response_copied?to=echo"]) {
  add(`${path} text`, path, { method: "POST", body: "hello", headers: { "content-type": "text/plain" } });
  add(`${path} chunked`, path, { method: "POST", body: chunked("one ", "two ", "three") });
  add(`${path} empty`, path, { method: "POST", body: "" });
  add(`${path} big`, path, { method: "POST", body: "y".repeat(300_000) });
}
add("headers", "/worker/echo", { headers: { "X-Upper": "A", "x-two": ["1", "2"], cookie: "a=1; b=2", "x-empty": "", accept: "*/*", "x-latin": "caf\xe9" } });
add("query", "/worker/echo?a=1&b=%20%C3%A9&c=+");
add("odd path", "/worker/echo//../echo/%2e%2e/x y".replace(" ", "%20"));
add("host", "/worker/echo", { headers: { host: "Other.Example:8080" } });
add("mirror", "/worker/mirror", { method: "POST", body: "mirrored" });
add("mirror chunked", "/worker/mirror", { method: "POST", body: chunked("a", "b", "c") });
add("mirror nothing", "/worker/mirror", { method: "POST" });
add("mirror GET", "/worker/mirror");
add("mirror big", "/worker/mirror", { method: "POST", body: "z".repeat(2_000_000) });
add("upper", "/worker/upper", { method: "POST", body: chunked("abc", "def") });
add("length", "/worker/length", { method: "POST", body: "w".repeat(1_000_000) });
add("unread", "/worker/unread", { method: "POST", body: "v".repeat(100_000) });
add("some read", "/worker/some_read", { method: "POST", body: "v".repeat(100_000) });
add("clone", "/worker/clone", { method: "POST", body: "cloned" });
add("clone chunked", "/worker/clone", { method: "POST", body: chunked("clo", "ned") });
add("twice", "/worker/twice", { method: "POST", body: "once" });
add("form", "/worker/form", { method: "POST", body: multipart, headers: { "content-type": "multipart/form-data; boundary=XX" } });
add("form urlencoded", "/worker/form", { method: "POST", body: "a=1&b=%C3%A9+x", headers: { "content-type": "application/x-www-form-urlencoded" } });
add("form of nothing", "/worker/form", { method: "POST", body: "x", headers: { "content-type": "text/plain" } });
add("json", "/worker/json", { method: "POST", body: '{"a":[1,null]}' });
add("json empty", "/worker/json", { method: "POST", body: "" });
add("read after response", "/worker/read_after_response", { method: "POST", body: "u".repeat(200_000) });
add("pipe to", "/worker/pipe_to", { method: "POST", body: chunked("p", "q") });
for (const kind of ["string", "empty", "null", "undefined", "bytes", "buffer", "params", "blob", "number", "object", "unicode", "stream", "pulled", "slow", "empty_stream",
  "transform", "identity", "fixed", "generator", "big", "stream_of_strings", "failing", "failing_at_once", "too_short", "too_long"]) {
  add(`body ${kind}`, `/worker/body?kind=${kind}`);
  if (["string", "stream", "fixed", "null"].includes(kind)) add(`body ${kind} HEAD`, `/worker/body?kind=${kind}`, { method: "HEAD" });
}
for (const code of [200, 201, 204, 205, 299, 304, 400, 404, 418, 500, 503, 599]) add(`status ${code}`, `/worker/status?code=${code}`);
for (const code of [100, 101, 199, 600, 0, "x"]) add(`status ${code}`, `/worker/status?code=${code}`);
add("status with text", "/worker/status?code=200&text=Fine&body=b");
add("status 204 with body", "/worker/status?code=204&body=b");
add("status unknown", "/worker/status?code=299&body=b");
for (const n of ["5", "3", "10", "x"]) add(`content-length ${n}`, `/worker/length_header?n=${n}`);
for (const code of [200, 204, 304, 404]) add(`object status ${code}`, `/worker/object_response?to=status&code=${code}`);
for (const to of ["stream", "upload", "mirror", "cookies", "failing"]) {
  add(`object ${to}`, `/worker/object_response?to=${to}`, { method: "POST", body: chunked("abc", "def") });
  add(`object copied ${to}`, `/worker/object_response_copied?to=${to}`, { method: "POST", body: chunked("abc", "def") });
}
add("object big upload", "/worker/object_response?to=upload", { method: "POST", body: "t".repeat(3_000_000) });
add("object big mirror", "/worker/object_response?to=mirror", { method: "POST", body: "s".repeat(3_000_000) });
add("accepts gzip", "/worker/body?kind=big", { headers: { "accept-encoding": "gzip" } });

export const requests = { http };
