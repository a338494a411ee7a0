// What hardening.mjs makes of the prelude's source: tests/e2e/hostile.test.mjs shows that it holds.
import assert from "node:assert/strict";
import { test } from "node:test";
import { rewrite_text } from "../hardening.mjs";
import { prelude_text } from "./host.mjs";

const becomes = (text) => rewrite_text(text).split("\n").filter((line) => !/^(import|const [{$])/.test(line)).join("\n").trim();

test("methods_and_getters_of_built-ins_become_constants", () => {
  assert.equal(becomes("export const f = (l: number[]) => l.push(1);"), "export const f = (l: number[]) => $Array_push(l, 1);");
  assert.equal(becomes("export const f = (m: Map<string, number>) => m.size;"),
    "export const f = (m: Map<string, number>) => $Map_get_size(m);");
  assert.equal(becomes("export const f = (b: Uint8Array) => b.length;"), "export const f = (b: Uint8Array) => $Uint8Array_get_length(b);");
  assert.equal(becomes("export const f = (x: any) => x.get(1);"), "export const f = (x: any) => $dyn_get(x, 1);");
  assert.equal(becomes("export const f = (x: unknown) => Object.keys(x as object);"),
    "export const f = (x: unknown) => $Object_keys(x as object);");
  assert.equal(becomes("export const f = (g: () => void) => g.call(1);"), "export const f = (g: () => void) => $Function_call(g, 1);");
  assert.equal(becomes("export const f = (x?: string) => x?.trim();"),
    "export const f = (x?: string) => (($v => $v == null ? void 0 : $String_trim($v))(x));");
});

test("members_of_the_prelude's_own_types_stay", () => {
  const text = "interface List {\n    push(x: number): void;\n}\nexport const f = (l: List) => l.push(1);";
  assert.equal(becomes(text), text);
});

test("globals_become_constants_of_the_module", () => {
  assert.match(rewrite_text("export const f = () => new Map();"), /^const \{ Map \} = globalThis;$/m);
  assert.match(rewrite_text("export const f = () => ({ Error });"), /^const \{ Error \} = globalThis;$/m);
  assert.doesNotMatch(rewrite_text("class Map {}\nexport const f = () => new Map();"), /globalThis/);
});

test("nothing_goes_through_Symbol.iterator", () => {
  assert.match(becomes("export function f(l: string[]) { for (const x of l) g(x); }\nfunction g(_: string) {}"),
    /for \(let \$i1 = 0, \$l1 = l; \$i1 < \$l1\.length; \$i1\+\+\)/);
  assert.match(becomes("export function f(l: Set<string>) { for (const x of l) g(x); }\nfunction g(_: string) {}"), /of \$each\(l\)\)/);
  assert.equal(becomes("export const f = (a: number[], b: Set<number>) => [0, ...a, ...b];"),
    "export const f = (a: number[], b: Set<number>) => $list([0], a, b);");
  assert.equal(becomes("export const f = ([a, , b]: number[]) => a! + b!;"), "export const f = ({ 0: a, 2: b }: number[]) => a! + b!;");
  assert.equal(becomes("export const f = (g: (...a: number[]) => void, l: number[]) => g(...l);"),
    "export const f = (g: (...a: number[]) => void, l: number[]) => $apply(g, void 0, $list(l));");
  assert.match(becomes("class A { constructor(_: number) {} }\nexport class B extends A {}"), /constructor\(\$p0\) \{ super\(\$p0\); \}/);
});

test("what_cannot_be_made_safe_stops_the_build", () => {
  assert.throws(() => rewrite_text("export const f = ([a, ...b]: number[]) => b;"), /example\.ts:1: a rest element in a pattern/);
  assert.throws(() => rewrite_text("export const f = (m?: Map<string, string>) => m?.size;"), /example\.ts:1: \?\.size/);
});

test("promises_are_not_resolved_with_promises", () => {
  assert.match(becomes("declare function g(): Promise<number>;\nexport async function f() { return g(); }"), /return await g\(\)/);
  assert.match(becomes("declare function g(): Promise<number>;\nexport const f = async () => g();"), /=> await g\(\)/);
  assert.match(becomes("declare function g(): Promise<number>;\nexport const f = (p: Promise<number>) => p.then(() => g());"),
    /\$adopting_then\(p, /);
});

test("descriptors_and_traps_have_no_prototype", () => {
  assert.match(becomes("export const f = (o: object) => Object.defineProperty(o, 'a', { value: 1 });"), /\{ __proto__: null, value: 1 \}/);
  assert.match(becomes("export const f = (o: object) => new Proxy(o, { get() { return 1; } });"), /\{ __proto__: null, get\(\)/);
});

test("the_bundle_has_no_loop_or_spread_over_what_it_does_not_look_at", async () => {
  const text = await prelude_text();
  // core-js brings its own; the helpers themselves are looked at by eye.
  const ours = text.split(/^ {2}\/\/ (?=js\/|node_modules\/)/m).filter((part) => !/^node_modules\/core-js|^js\/primordials/.test(part)).slice(1);
  assert.ok(ours.length > 40);
  for (const part of ours) {
    const name = part.slice(0, part.indexOf("\n"));
    for (const [loop, of] of part.matchAll(/\bfor \((?:const|let|var) [^;()]* of ([^\n]*)/g)) {
      assert.match(of, /^\$each\d*\(/, `${name}: ${loop}`);
    }
    for (const [spread] of part.matchAll(/[[(,] *\.\.\.(?!args\b|bindings\b|parts\b|added\b|more\b)[^)\]]*/g)) {
      if (/\.\.\.\w+\) (=>|\{)/.test(part.slice(part.indexOf(spread), part.indexOf(spread) + spread.length + 4))) continue;
      assert.fail(`${name}: ${spread}`);
    }
  }
});

