// The prelude in a bare context: what a startup snapshot is made of.
import assert from "node:assert/strict";
import test from "node:test";
import vm from "node:vm";
import { prelude_text } from "./host.mjs";

const text = await prelude_text();

function run() {
  let hooks;
  const context = vm.createContext({
    native: new Proxy({}, {
      get(_target, name) {
        if (name === "install") return (given) => { hooks = given; };
        throw new Error(`the prelude touched native.${String(name)} at its start`);
      },
    }),
  });
  // core-js draws one Math.random() for names of hidden properties; V8 draws anew for every context.
  vm.runInContext("Date.now = () => { throw new Error('asked for the time at the start') }", context);
  vm.runInContext(text, context);
  return { hooks, eval: (code) => vm.runInContext(code, context) };
}

test("asks the host for nothing but install, nor for the time", () => {
  const { hooks } = run();
  assert.equal(typeof hooks.fetch, "function");
});

test("leaves no trace of native, and no enumerable global", () => {
  const { eval: run_code } = run();
  assert.equal(run_code("typeof native"), "undefined");
  assert.equal(run_code("Object.keys(globalThis).join()"), "");
});

test("classes have their names, tags and prototype accessors", () => {
  const { eval: run_code } = run();
  const wrong = run_code(`Object.getOwnPropertyNames(globalThis).filter((name) => {
    const value = globalThis[name];
    if (typeof value !== "function") return false;
    return value.name !== name;
  }).join()`);
  assert.equal(wrong, "");
  assert.equal(run_code("String([new URL('http://x'), new Headers(), new Response(), new Request('http://x')].map((o) => Object.keys(o).length))"), "0,0,0,0");
  assert.equal(run_code("[Response, Request, Headers, URL, Blob, AbortSignal].map((c) => c.prototype[Symbol.toStringTag]).join()"),
    "Response,Request,Headers,URL,Blob,AbortSignal");
});

test("what the oldest V8 lacks is there", () => {
  const { eval: run_code } = run();
  assert.equal(run_code(`[
    [3, 1].toSorted().join(), [1].with(0, 2).join(), new Set([1]).union(new Set([2])).size, Object.groupBy([1], () => "a").a.length,
    typeof Promise.withResolvers, typeof Promise.try, Iterator.from([1, 2]).map((x) => x * 2).toArray().join(), "a".isWellFormed(),
    typeof Array.fromAsync, typeof Symbol.dispose, [1, 2].findLast(Boolean), new Map([[1, 2]]).size,
  ].join(" ")`), "1,3 2 2 1 function function 2,4 true function symbol 2 1");
});
