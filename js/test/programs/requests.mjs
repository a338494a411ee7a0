// Request, Response, Headers, FormData: values and errors.
import { report, show } from "./show.mjs";
const members = (c) => Object.getOwnPropertyNames(c.prototype).filter((n) => n !== "constructor").sort();
export default { async fetch(req, env, ctx) {
  await show("req ctor none", () => new Request());
  await show("req bad url", () => new Request("foo"));
  await show("req GET body", () => new Request("http://x/", { body: "x" }));
  await show("req HEAD body", () => new Request("http://x/", { method: "HEAD", body: "x" }));
  await show("req bad method", () => new Request("http://x/", { method: "FOO" }));
  await show("req lower", () => new Request("http://x/", { method: "patch" }).method);
  await show("req connect", () => new Request("http://x/", { method: "connect" }).method);
  await show("req empty", () => new Request("http://x/", { method: "" }).method);
  await show("req hdr bad", () => new Request("http://x/", { headers: 5 }));
  await show("req hdr str", () => new Request("http://x/", { headers: "abc" }));
  await show("own keys", () => [Object.keys(new Request("http://x/")), Object.keys(new Response("x")), Object.keys(new Headers()), Object.keys(new URL("http://x/"))]);
  await show("json req", () => JSON.stringify(new Request("http://x/")));
  await show("req signal", () => [new Request("http://x/").signal instanceof AbortSignal, req.signal instanceof AbortSignal]);
  await show("req redirect bad", () => new Request("http://x/", { redirect: "foo" }));
  await show("req redirect error", () => new Request("http://x/", { redirect: "error" }).redirect);
  await show("req cache", () => new Request("http://x/", { cache: "no-store" }).cache);
  await show("req cache bad", () => new Request("http://x/", { cache: "foo" }).cache);
  await show("req mode", () => new Request("http://x/", { mode: "cors", credentials: "include", referrer: "x" }).mode);
  await show("integrity", () => new Request("http://x/", { integrity: "sha" }).integrity);
  await show("req null init", () => new Request("http://x/", null).method);
  await show("req url obj", () => new Request(new URL("http://x/y")).url);
  await show("req from req", () => new Request(new Request("http://x/", { method: "POST", body: "q", headers: { a: "b" } }), { method: "PUT" }).text());
  await show("req from used", async () => {
    const r = new Request("http://x/", { method: "POST", body: "q" });
    await r.text();
    return new Request(r);
  });
  await show("twice", async () => {
    const r = new Request("http://x/", { method: "POST", body: "q" });
    await r.text();
    return await r.text();
  });
  await show("twice res", async () => {
    const r = new Response("x");
    await r.text();
    return await r.json();
  });
  await show("twice null", async () => {
    const r = new Response(null);
    await r.text();
    await r.text();
    return r.bodyUsed;
  });
  await show("twice empty", async () => {
    const r = new Response("");
    await r.text();
    await r.text();
    return r.bodyUsed;
  });
  await show("clone used", async () => {
    const r = new Response("x");
    await r.text();
    return r.clone();
  });
  await show("locked text", async () => {
    const r = new Response("x");
    r.body.getReader();
    return r.text();
  });
  await show("locked clone", async () => {
    const r = new Response("x");
    r.body.getReader();
    return r.clone();
  });
  await show("res used body", async () => {
    const r = new Response("x");
    await r.text();
    return new Response(r.body).text();
  });
  await show("res locked body", async () => {
    const r = new Response("x");
    r.body.getReader();
    return new Response(r.body);
  });
  await show("json empty", () => new Response("").json());
  await show("json null", () => new Response(null).json());
  await show("res status", () => new Response("x", { status: 999 }));
  await show("res status 101", () => new Response(null, { status: 101 }));
  await show("res 204 body", () => new Response("x", { status: 204 }));
  await show("204 empty", () => new Response("", { status: 204 }).status);
  await show("status str", () => new Response(null, { status: "abc" }).status);
  await show('status "201"', () => new Response(null, { status: "201" }).status);
  await show("199", () => new Response(null, { status: 199 }).status);
  await show("600", () => new Response(null, { status: 600 }).status);
  await show("statusText", () => [new Response("").statusText, new Response("", { status: 404 }).statusText, new Response("", { status: 299 }).statusText, new Response("", { statusText: "yo" }).statusText]);
  await show("statusText bad", () => new Response("", { statusText: "a\nb" }));
  await show("res init 5", () => new Response("x", 5));
  await show("res obj", () => new Response({ a: 1 }).text());
  await show("res num", () => new Response(5).text());
  await show("res undefined", () => new Response(undefined).body);
  await show("res ct", () => [new Response("x").headers.get("content-type"), new Response(new URLSearchParams("a=b")).headers.get("content-type"), new Response(new Blob(["x"], { type: "a/b" })).headers.get("content-type"), new Response(new Uint8Array(1)).headers.get("content-type"), new Response("x", { headers: { "Content-Type": "q/w" } }).headers.get("content-type")]);
  await show("Response.json", async () => {
    const r = Response.json({ a: 1 }, { status: 201 });
    return [await r.text(), r.status, r.headers.get("content-type")];
  });
  await show("Response.json undef", () => Response.json(undefined));
  await show("Response.json none", () => Response.json());
  await show("Response.json ct", () => Response.json(1, { headers: { "content-type": "x/y" } }).headers.get("content-type"));
  await show("Response.redirect", async () => {
    const r = Response.redirect("http://x/y");
    return [r.status, r.headers.get("location")];
  });
  await show("redirect bad", () => Response.redirect("http://x/", 200));
  await show("redirect badurl", () => Response.redirect("/y"));
  await show("Response.error", () => Response.error().type);
  await show("redirect hdr immut", () => {
    const r = Response.redirect("http://x/y");
    r.headers.set("a", "b");
    return r.headers.get("a");
  });
  await show("immut req", () => {
    req.headers.set("a", "b");
  });
  await show("hdr bad name", () => new Headers({ "a b": "c" }));
  await show("hdr bad val", () => new Headers({ "a": "c\nd" }));
  await show("hdr uni", () => new Headers({ "a": "é€" }).get("a"));
  await show("hdr pairs", () => new Headers([["a", "b", "c"]]));
  await show("hdr pairs2", () => new Headers([["a", "b"], ["a", "c"]]).get("a"));
  await show("hdr null", () => new Headers(null));
  await show("hdr undef", () => [...new Headers(undefined)]);
  await show("hdr trim", () => [new Headers({ a: " 	x " }).get("a")]);
  await show("hdr append none", () => new Headers().append("a"));
  await show("hdr get none", () => new Headers().get());
  await show("hdr get bad", () => new Headers().get("a b"));
  await show("hdr setcookie", () => {
    const h = new Headers();
    h.append("Set-Cookie", "a=1");
    h.append("set-cookie", "b=2");
    h.append("B", "2");
    h.append("a", "1");
    return [[...h], h.getSetCookie(), h.get("set-cookie"), h.getAll("set-cookie")];
  });
  await show("hdr getAll", () => new Headers().getAll("a"));
  await show("hdr from map", () => [...new Headers(/* @__PURE__ */ new Map([["q", "w"]]))]);
  await show("hdr foreach", () => {
    const a = [];
    new Headers({ a: "b" }).forEach((v, k, h) => a.push(v, k, h instanceof Headers));
    return a;
  });
  await show("hdr mod iter", () => {
    const h = new Headers({ a: "1", b: "2" });
    const r = [];
    for (const [k] of h) {
      r.push(k);
      h.delete("b");
    }
    return r;
  });
  await show("ident", async () => {
    const r = new Response("héllo");
    return [r.body instanceof ReadableStream, r.body === r.body, r.bodyUsed, r.body.locked, (await r.body.getReader().read()).value.constructor.name];
  });
  await show("rs type", () => [new Response("x").body.constructor.name, Object.prototype.toString.call(new Response("x").body)]);
  await show("req clone", async () => {
    const r = new Request("http://x/", { method: "POST", body: "q" });
    const c = r.clone();
    return [await r.text(), await c.text()];
  });
  await show("req cf", () => [typeof req.cf, typeof new Request("http://x/").cf, JSON.stringify(new Request("http://x/", { cf: { a: 1 } }).cf)]);
  await show("bytes", async () => (await new Response("ab").bytes()).constructor.name);
  await show("blob", async () => {
    const b = await new Response("ab", { headers: { "content-type": "A/B" } }).blob();
    return [b.type, b.size];
  });
  await show("formData noct", () => new Response("ab").formData());
  await show("formData bad", () => new Response("ab", { headers: { "content-type": "a/b" } }).formData());
  await show("formData nobound", () => new Response("ab", { headers: { "content-type": "multipart/form-data" } }).formData());
  await show("formData trunc", () => new Response("--x\r\n", { headers: { "content-type": "multipart/form-data; boundary=x" } }).formData());
  await show("formData url", async () => [...await new Response("a=b&c=%20+d", { headers: { "content-type": "application/x-www-form-urlencoded" } }).formData()]);
  await show("stream body str chunk", () => new Response(new ReadableStream({ start(c) {
    c.enqueue("abc");
    c.close();
  } })).text());
  await show("stream body bytes", () => new Response(new ReadableStream({ start(c) {
    c.enqueue(new Uint8Array([97]));
    c.close();
  } })).text());
  await show("async iter body", () => new Response((async function* () {
    yield new Uint8Array([97]);
  })()).text());
  await show("illegal", () => Object.getOwnPropertyDescriptor(Request.prototype, "url").get.call({}));
  await show("illegal m", () => Request.prototype.text.call({}));
  await show("nonew", () => Request("http://x/"));
  await show("nonewH", () => Headers());
  await show("fetch bad", () => fetch("foo"));
  await show("fetch none", () => fetch());
  await show("fetch ftp", () => fetch("ftp://x/"));
  await show("fetch aborted", () => fetch("http://x/", { signal: AbortSignal.abort() }));
  await show("abort reason", () => {
    AbortSignal.abort().throwIfAborted();
  });
  await show("timeout", async () => {
    const s = AbortSignal.timeout(1);
    await new Promise((r) => s.onabort = r);
    return [s.reason.name, s.reason.message, s.reason.code];
  });
  await show("bad signal", () => new Request("http://x/", { signal: 5 }));
  await show("url bad", () => new URL("foo"));
  await show("url none", () => new URL());
  await show("url base bad", () => new URL("a", "b"));
  await show("canParse", () => URL.canParse("x:"));
  await show("URL.parse", () => URL.parse("zz"));
  await show("url set", () => {
    const u = new URL("http://x/");
    u.href = "bad";
  });
  for (const c of [Request, Response, Headers, URL, URLSearchParams, Blob, Event, EventTarget, AbortSignal, FormData, TextEncoder, TextDecoder]) await show("members of " + c.name, () => members(c));
  await show("for in", () => {
    const names = [];
    for (const name in new Request("http://x/")) names.push(name);
    return names;
  });
  await show("enumerable", () => [Object.getOwnPropertyDescriptor(Request.prototype, "url").enumerable, Object.getOwnPropertyDescriptor(globalThis, "console").enumerable]);
  await show("multipart", async () => {
    const form = new FormData();
    form.append('a"\n', "b");
    form.append("f", new File(["xx"], "n.txt", { type: "text/plain" }));
    form.append("g", new Blob(["x"]));
    const response = new Response(form);
    const boundary = response.headers.get("content-type").split("boundary=")[1];
    return (await response.text()).replaceAll(boundary, "B");
  });
  await show("iterator", () => [...new Headers({ b: "1", a: "2" }).entries()]);
  return report();
} };
