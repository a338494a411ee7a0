// URL and URLSearchParams against the reference implementation of the standard.
import assert from "node:assert/strict";
import test from "node:test";
import reference from "whatwg-url";
import { load } from "./host.mjs";

await load();

const MEMBERS = ["href", "origin", "protocol", "username", "password", "host", "hostname", "port", "pathname",
  "search", "hash"];
const SETTERS = MEMBERS.filter((member) => member !== "origin");

function view(make) {
  let url;
  try {
    url = make();
  } catch (error) {
    assert.equal(error.constructor.name, "TypeError");
    return "invalid";
  }
  return members(url);
}

const members = (url) => Object.fromEntries([...MEMBERS.map((member) => [member, url[member]]),
  ["params", [...url.searchParams].join("&")]]);

// A small generator of its own, so that a failure can be repeated.
function random(seed) {
  let state = seed >>> 0;
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

const SCHEMES = ["http://", "https://", "http://", "https://", "HTTP://", "http:/", "http:", "ws://", "file://", "data:", "foo:", ""];
const HOSTS = ["x", "example.com", "a-b.example.com", "127.0.0.1", "127.1", "0x7f.1", "256.1.1.1", "1.2.3.08", "a.1", "1.a", "x.0x",
  "xn--nxasmq6b", "xn--", "a..b", ".a", "a.", "-a-", "a_b", "EXAMPLE.com", "ex%41mple", "[::1]", "[1::2]", "é.com", "", "a b", "a^b", "user@x",
  "u:p@x", "localhost", "face", "a.face", "0xg", "1.2.3.4.", "09", "%00", "a%2eb", "a,b", "a;b", "a+b", "a=b", "~", "a!"];
const PORTS = ["", "", "", ":80", ":443", ":8080", ":0", ":00080", ":65535", ":65536", ":99999", ":8a", ":"];
const SEGMENTS = ["", "a", "b.c", ".", "..", "...", ".well-known", "%2e", "%2E%2e", ".%2e", "%41", "%zz", "a b", "é", "a\\b", "{x}", "^", "|", "`",
  "\"", "<", "'", "[x]", "~!$&()*+,;=:@", "a.", "..a", "%2e%2e%2e", "\t", "C|", "C:"];
const QUERIES = ["", "?", "?a=1", "?a=1&b=2&a=3", "?q='x'", "?a b", "?é", "?%20+x", "?/../", "?{}|\\^`", "?<>", "?\"", "??", "?a=%zz", "?=&&=1", "?x/./y"];
const HASHES = ["", "", "#", "#h", "#a b", "#é", "#`", "#{}", "##", "#?x", "#/../", "#<\">"];

function generate(pick) {
  const of = (list) => list[pick(list.length)];
  let text = of(SCHEMES) + of(HOSTS) + of(PORTS);
  for (let i = pick(4); i > 0; i--) text += "/" + of(SEGMENTS);
  return text + of(QUERIES) + of(HASHES);
}

test("parsing equals the reference, on generated URLs", () => {
  const pick = random(1);
  for (let i = 0; i < 60000; i++) {
    const text = generate(pick);
    assert.deepEqual(view(() => new URL(text)), view(() => new reference.URL(text)), JSON.stringify(text));
  }
});

test("every short host and path of awkward characters", () => {
  const chars = "a1x.-_%2e/\\?#:@[]'\"^|`{} <>~é\0\t";
  for (const place of ["http://h/", "http://", "http://h/?", "http://h/#", "http://h/a/."]) {
    for (const x of chars) {
      for (const y of chars) {
        for (const text of [place + x + y, place + x + y + "b", place + "b" + x + y]) {
          assert.deepEqual(view(() => new URL(text)), view(() => new reference.URL(text)), JSON.stringify(text));
        }
      }
    }
  }
});

test("resolving against a base equals the reference", () => {
  const pick = random(2);
  const relative = () => {
    const of = (list) => list[pick(list.length)];
    let text = ["", "/", "//", "../", "./", "?", "#", "x"][pick(8)];
    for (let i = pick(3); i > 0; i--) text += of(SEGMENTS) + "/";
    return text + of(QUERIES) + of(HASHES);
  };
  for (let i = 0; i < 30000; i++) {
    const base = generate(pick);
    const text = relative();
    assert.deepEqual(view(() => new URL(text, base)), view(() => new reference.URL(text, base)),
      JSON.stringify([text, base]));
  }
});

test("setters equal the reference, in sequences", () => {
  const pick = random(3);
  const of = (list) => list[pick(list.length)];
  const VALUES = {
    href: () => generate(pick), protocol: () => of(["http", "https", "https:", "ws", "foo", ""]),
    username: () => of(["", "u", "u:s"]), password: () => of(["", "p"]), host: () => of(HOSTS) + of(PORTS),
    hostname: () => of(HOSTS), port: () => of(["", "80", "443", "8080", "x", "80x", "65536"]),
    pathname: () => of(["", "/", "x"]) + of(SEGMENTS) + of(["", "/y?z", "/#h", "/y"]), search: () => of([...QUERIES, "a=1", "x#y"]),
    hash: () => of([...HASHES, "h"]),
  };
  for (let i = 0; i < 20000; i++) {
    const text = "http://" + of(["x.com", "u@y:81", "127.0.0.1:443", "h:80"]) + "/" + of(SEGMENTS) + of(QUERIES) + of(HASHES);
    if (view(() => new reference.URL(text)) === "invalid") continue;
    const ours = new URL(text);
    const theirs = new reference.URL(text);
    const steps = [];
    for (let step = 0; step < 3; step++) {
      if (pick(3) === 0) {
        const name = of(["a", "é", "x y", "b&"]);
        const method = of(["append", "set", "delete"]);
        steps.push([method, name]);
        ours.searchParams[method](name, ...(method === "delete" ? [] : ["v w"]));
        theirs.searchParams[method](name, ...(method === "delete" ? [] : ["v w"]));
      } else {
        const member = of(SETTERS);
        const value = VALUES[member]();
        steps.push([member, value]);
        let failed = false;
        try {
          theirs[member] = value;
        } catch {
          failed = true;
        }
        if (failed) assert.throws(() => { ours[member] = value; }, TypeError);
        else ours[member] = value;
      }
      assert.deepEqual(members(ours), members(theirs), JSON.stringify([text, steps]));
    }
  }
});

test("URLSearchParams equals the reference", () => {
  const pick = random(4);
  const chars = ["a", "b", "=", "&", "+", "%", "%20", "%zz", "%c3%a9", "%c3", "é", "😀", "\ud800", " ", "*", "~", "'", "!", "(", "?", "#", "\0"];
  for (let i = 0; i < 30000; i++) {
    let text = "";
    for (let n = pick(8); n > 0; n--) text += chars[pick(chars.length)];
    const ours = new URLSearchParams(text);
    const theirs = new reference.URLSearchParams(text);
    assert.equal(ours.toString(), theirs.toString(), JSON.stringify(text));
    assert.deepEqual([...ours], [...theirs], JSON.stringify(text));
    ours.sort();
    theirs.sort();
    assert.deepEqual([...ours], [...theirs], JSON.stringify(text));
    assert.equal(ours.size, theirs.size);
  }
});

test("URLSearchParams from pairs, records and other parameters", () => {
  assert.equal(new URLSearchParams([["a", "1"], ["b", "2"]]).toString(), "a=1&b=2");
  assert.equal(new URLSearchParams({ a: 1, b: "x y" }).toString(), "a=1&b=x+y");
  assert.equal(new URLSearchParams(new URLSearchParams("q=1")).toString(), "q=1");
  assert.throws(() => new URLSearchParams([["a"]]), TypeError);
  const params = new URLSearchParams("a=1&a=2&b=3");
  assert.deepEqual([params.getAll("a"), params.has("a", "2"), params.has("a", "3"), params.get("z")], [["1", "2"], true, false, null]);
  params.delete("a", "1");
  assert.equal(params.toString(), "a=2&b=3");
});

test("errors and helpers", () => {
  assert.throws(() => new URL("foo"), { name: "TypeError", message: "Invalid URL string." });
  assert.throws(() => new URL("a", "b"), { name: "TypeError", message: "Invalid URL string." });
  assert.throws(() => { new URL("http://x").href = "bad"; }, TypeError);
  assert.deepEqual([URL.canParse("x:"), URL.canParse("x"), URL.parse("zz")], [true, false, null]);
  assert.equal(JSON.stringify({ u: new URL("http://x") }), '{"u":"http://x/"}');
  assert.equal(Object.prototype.toString.call(new URL("http://x")), "[object URL]");
});
