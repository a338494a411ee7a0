// What console prints of values of every kind. The lines are on standard output, not in the answer.
class Foo {
  constructor() {
    this.x = 1;
  }
}
class Bar extends Map {
}
export default { async fetch() {
  const vals = ["str", 1, -0, 1n, true, null, undefined, /* @__PURE__ */ Symbol("s"), { a: 1 }, { a: { b: { c: { d: 1 } } } }, [1, 2, 3], [1, [2, [3, [4, [5]]]]], /* @__PURE__ */ new Map([[1, { a: 2 }], ["k", "v"]]), /* @__PURE__ */ new Set([1, "a"]), new Foo(), new Bar([[1, 2]]), class A {
  }, class B extends Foo {
  }, function f() {
  }, () => {
  }, async () => {
  }, function* g() {
  }, /* @__PURE__ */ new Date(0), /x/g, new Error("msg").message, [undefined, null], [, 1, ,], { a: "x\ny", b: "it's", c: `"'` }, new Uint8Array([1, 2, 3]), new ArrayBuffer(3), { get a() {
    return 1;
  }, set a(v) {
  }, get b() {
    return 1;
  } }, /* @__PURE__ */ Object.create(null), /* @__PURE__ */ Object.create({ a: 1 }), /* @__PURE__ */ new WeakMap(), ["a".repeat(30), "b".repeat(30), "c".repeat(30)], { aaaaaaaaaaaaaaaaaaaa: 1, bbbbbbbbbbbbbbbbbbbbbbbb: 2, cccccccccccccccccccc: 3, ddddddddddddd: 4 }, Array.from({ length: 120 }, (_, i) => i), Array.from({ length: 10 }, (_, i) => "s" + i), new String("x"), new Number(3), [1.5, "x", true], { "a-b": 1, [/* @__PURE__ */ Symbol("q")]: 2 }, new URL("http://x/y?z=1"), new URLSearchParams("a=1&b=2"), JSON, Math, globalThis === 1, { f() {
  }, g: () => {
  }, h: class {
  } }, "multi\nline", [["a", 1], ["b", 2]], { x: [{ a: 1, b: { c: [] } }] }, [{}], { a: [] }, { a: {} }, /* @__PURE__ */ new Set(), /* @__PURE__ */ new Map(), [[]], { u: undefined, n: null }, new Blob(["x"]), new class extends Error {
    constructor() {
      super("sub");
      this.name = "Sub";
      this.extra = 1;
      this.stack = "STACK";
    }
  }(), Object.assign(new Error("e2"), { stack: "Error: e2\n    at x", code: 5 }), new Error("c", { cause: "why" }).cause, { e: Object.assign(new Error("inner"), { stack: "Error: inner\n    at y" }) }, new TextEncoder(), new AbortController().signal, /* @__PURE__ */ new Date(NaN), [1, 2, 3, 4, 5, 6, 7], ["aaaaaaa", "b", "cc", "ddd", "eeee", "fffff", "g"], { k: "v".repeat(100) }, /* @__PURE__ */ (function() {
    return arguments;
  })(1, 2), Array.from({ length: 30 }, (_, i) => i * 1e3), "%s", new DataView(new ArrayBuffer(2)), [1n, 2n, 3n, 4n, 5n, 6n, 7n, 8n]];
  for (let i = 0; i < vals.length; i++) console.log("#" + i, vals[i]);
  const c = { n: 1 };
  c.self = c;
  c.l = [c];
  console.log("circ", c);
  console.log("%s is %d and %i %f %j %o %O %%", "x", 1.5, 1.5, "2.5", { a: 1 }, { b: 2 }, { c: 3 }, "rest", { d: 4 });
  console.log("%s", { a: 1 }, "%s");
  console.log("100%", 5);
  console.log("%c styled", "color:red");
  console.log();
  console.log("a", "b", 1, {});
  console.log(new Error("x").message);
  console.log("%d", "abc");
  console.log("%s", null, undefined, 5n, /* @__PURE__ */ Symbol("z"));
  console.log("%s", () => 1, class Q {
  });
  console.log("%i", "42.9px");
  console.log("%x", 1);
  console.log({ a: 1 }, "%s", 5);
  console.log("%s");
  console.log("%s", [1, 2, { a: 3 }]);
  console.log("%s", /* @__PURE__ */ new Date(0));
  console.log("%s", new Foo());
  console.log(-0, [-0]);
  console.log("%d", -0);
  console.log("%s", "a\nb", ["a\nb"]);
  return new Response("");
} };
