// Makes the prelude deaf to what user code does to the built-ins: an esbuild plugin that rewrites
// every use of a built-in into one of what it was before user code ran.
//
// The types decide. `list.push(x)` of an Array becomes `$Array_push(list, x)`, a constant taken at
// the start; `Map` and the other globals become constants of the module; loops, spreads and
// patterns over arrays go by index instead of through Symbol.iterator. Where the type does not say
// (`any`, an Iterable of the caller), `$dyn_push` and `$each` look at the value: what is a built-in
// is treated as one, the rest is the caller's and does what it likes.
//
// Not covered, because the language itself looks: Promise.prototype.constructor and
// Promise[Symbol.species] (await and then), "then" of an object that a promise is resolved with, and
// setters for indices on Array.prototype.
//
// The helpers are in primordials.ts. Tests: test/hostile.test.mjs, test/hardening.test.mjs.
import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const here = dirname(fileURLToPath(import.meta.url));
const PRIMORDIALS = join(here, "primordials.ts");

// Interfaces of TypeScript's library by the global whose prototype has their methods.
const OWNERS = new Map(Object.entries({
  Array: "Array", ReadonlyArray: "Array", RegExpMatchArray: "Array", RegExpExecArray: "Array",
  Map: "Map", ReadonlyMap: "Map", Set: "Set", ReadonlySet: "Set", WeakMap: "WeakMap", WeakSet: "WeakSet",
  WeakRef: "WeakRef", FinalizationRegistry: "FinalizationRegistry", Promise: "Promise", String: "String",
  Number: "Number", BigInt: "BigInt", Symbol: "Symbol", Date: "Date", RegExp: "RegExp", Function: "Function",
  CallableFunction: "Function", NewableFunction: "Function", Uint8Array: "Uint8Array", DataView: "DataView",
  ArrayBuffer: "ArrayBuffer", SharedArrayBuffer: "SharedArrayBuffer",
}));
const OBJECT_METHODS = new Set(["hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable"]);
// Getters on prototypes.
const GETTERS = new Set([
  "Map.size", "Set.size", "Uint8Array.length", "Uint8Array.buffer", "Uint8Array.byteLength", "Uint8Array.byteOffset",
  "ArrayBuffer.byteLength", "SharedArrayBuffer.byteLength", "DataView.buffer", "DataView.byteLength",
  "DataView.byteOffset", "ArrayBufferView.buffer", "ArrayBufferView.byteLength", "ArrayBufferView.byteOffset",
  "RegExp.flags", "RegExp.source", "RegExp.global", "Symbol.description",
]);
const DYNAMIC_GETTERS = new Set(["size", "buffer", "byteLength", "byteOffset"]);
// Methods that look up more than their receiver: primordials.ts has its own.
const REPLACED = new Set([
  "Array.map", "Array.filter", "Array.slice", "Array.splice", "Array.concat", "Array.flat", "Array.entries", "Array.join",
  "RegExp.test", "String.match", "String.replace", "String.search", "String.split",
  "Promise.catch", "Promise.finally", "Uint8Array.slice", "Uint8Array.subarray",
]);
const REPLACED_STATICS = new Set([
  "Promise.resolve", "Promise.reject", "Promise.all", "Array.from", "Object.fromEntries", "Uint8Array.from",
]);
const DESCRIPTOR_TAKERS = new Set(["Object.defineProperty", "Reflect.defineProperty"]);
// Read-only, or not a value of its own.
const NOT_CAPTURED = new Set(["undefined", "globalThis", "arguments", "NaN", "Infinity"]);

const dynamic_names = new Set();
for (const owner of [Array, Map, Set, WeakMap, WeakSet, Promise, String, Number, RegExp, Function, Uint8Array, ArrayBuffer, Date]) {
  for (let object = owner.prototype; object !== Object.prototype && object !== null; object = Object.getPrototypeOf(object)) {
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(object))) {
      if (typeof value === "function" && name !== "constructor") dynamic_names.add(name);
    }
  }
}
for (const name of ["toString", "valueOf", "toLocaleString"]) dynamic_names.delete(name);

const is_async = (node) => node.modifiers?.some((m) => m.kind === ts.SyntaxKind.AsyncKeyword) ?? false;

class Rewriter {
  #program;
  #checker;
  #file;
  #wanted = new Map(); // constant -> how it is made
  #helpers = new Set();
  #globals = new Set();
  #temporaries = 0;
  #typed;

  constructor(program, file, typed) {
    this.#program = program;
    this.#checker = program.getTypeChecker();
    this.#file = file;
    this.#typed = typed;
  }

  rewrite() {
    const { transformed } = ts.transform(this.#file, [(context) => (root) => {
      const f = context.factory;
      const visit = (node) => this.#visit(node, visit, context, f);
      return ts.visitEachChild(root, visit, context);
    }]);
    const body = ts.createPrinter({ removeComments: true }).printFile(transformed[0]);
    const script = !ts.isExternalModule(this.#file) && !this.#typed;
    const helpers = [...this.#helpers].sort().join(", ");
    const lines = [];
    if (script) lines.push(`const { ${helpers} } = require(${JSON.stringify(PRIMORDIALS)});`);
    else if (helpers !== "") lines.push(`import { ${helpers} } from ${JSON.stringify(PRIMORDIALS)};`);
    if (this.#globals.size > 0) lines.push(`const { ${[...this.#globals].sort().join(", ")} } = globalThis;`);
    for (const [name, value] of [...this.#wanted].sort()) lines.push(`const ${name} = ${value};`);
    const strict = /^\s*["']use strict["'];/.test(body) ? '"use strict";\n' : "";
    return strict + lines.join("\n") + "\n" + body;
  }

  #fail(node, what) {
    const { line } = this.#file.getLineAndCharacterOfPosition(node.getStart(this.#file));
    throw new Error(`${this.#file.fileName}:${line + 1}: ${what}`);
  }

  #is_library(declaration) {
    return this.#program.isSourceFileDefaultLibrary(declaration.getSourceFile());
  }

  // The global that an identifier means, if it means one of the language's.
  #global_of(node) {
    if (!ts.isIdentifier(node) || NOT_CAPTURED.has(node.text)) return undefined;
    const symbol = ts.isShorthandPropertyAssignment(node.parent) && node.parent.name === node
      ? this.#checker.getShorthandAssignmentValueSymbol(node.parent) : this.#checker.getSymbolAtLocation(node);
    const declaration = symbol?.valueDeclaration ?? symbol?.declarations?.find(ts.isModuleDeclaration);
    return declaration !== undefined && this.#is_library(declaration) ? node.text : undefined;
  }

  // Whose prototypes have the member `name` of this type: "Array", "Map", ...; "?" when the type
  // does not say; none when it is no built-in's.
  #owners(access) {
    const symbol = this.#checker.getSymbolAtLocation(access.name);
    if (symbol === undefined) return ["?"];
    const declarations = symbol.declarations ?? [];
    if (declarations.length === 0) {
      const type = this.#checker.getTypeAtLocation(access.expression);
      return type.flags & ts.TypeFlags.Any ? ["?"] : [];
    }
    const owners = new Set();
    for (const declaration of declarations) {
      if (!this.#is_library(declaration)) {
        if (declaration.getSourceFile().isDeclarationFile || this.#typed) continue;
        return ["?"];
      }
      const parent = declaration.parent.name?.text ?? declaration.parent.parent?.name?.text ?? "";
      if (parent === "ArrayBufferView") owners.add("ArrayBufferView");
      else if (OWNERS.has(parent)) owners.add(OWNERS.get(parent));
      else if (parent === "Object" && OBJECT_METHODS.has(access.name.text)) owners.add("Object");
    }
    return [...owners];
  }

  #helper(f, name) {
    this.#helpers.add(name);
    return f.createIdentifier(name);
  }

  #constant(f, name, value, helper) {
    this.#helpers.add(helper);
    this.#wanted.set(name, value);
    return f.createIdentifier(name);
  }

  #method(f, owner, name) {
    if (REPLACED.has(`${owner}.${name}`)) return this.#helper(f, `$${owner}_${name}`);
    this.#global(owner);
    return this.#constant(f, `$${owner}_${name}`, `$uncurry(${owner}.prototype.${name})`, "$uncurry");
  }

  #getter(f, owner, name) {
    if (owner === "ArrayBufferView") return this.#helper(f, `$view_${name}`);
    this.#global(owner);
    return this.#constant(f, `$${owner}_get_${name}`, `$getter(${owner}.prototype, "${name}")`, "$getter");
  }

  #dynamic(f, name) {
    return this.#constant(f, `$dyn_${name}`, `$dynamic("${name}")`, "$dynamic");
  }

  #global(name) {
    this.#globals.add(name);
  }

  // Streams have views, where the URL parser has text.
  #dynamic_getter(name) {
    return DYNAMIC_GETTERS.has(name) || ((name === "length" || name === "constructor") && !this.#typed && /web-streams-polyfill/.test(this.#file.fileName));
  }

  #type_is_list(node) {
    const type = this.#checker.getTypeAtLocation(node);
    return this.#checker.isArrayType(type) || this.#checker.isTupleType(type);
  }

  #visit(node, visit, context, f) {
    if (ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node)) return node;
    if (ts.isTypeNode(node) && !ts.isExpressionWithTypeArguments(node)) return node;
    if (ts.isCallExpression(node)) return this.#call(node, visit, context, f);
    if (ts.isClassLike(node)) return this.#class(node, visit, context, f);
    if (ts.isReturnStatement(node) && node.expression !== undefined && this.#in_async(node) && this.#may_be_promise(node.expression)) {
      return f.updateReturnStatement(node, f.createAwaitExpression(ts.visitNode(node.expression, visit)));
    }
    if (ts.isArrowFunction(node) && !ts.isBlock(node.body) && is_async(node) && this.#may_be_promise(node.body)) {
      const visited = ts.visitEachChild(node, visit, context);
      return f.updateArrowFunction(visited, visited.modifiers, visited.typeParameters, visited.parameters, visited.type,
        visited.equalsGreaterThanToken, f.createAwaitExpression(visited.body));
    }
    if (ts.isNewExpression(node)) return this.#new(node, visit, context, f);
    if (ts.isPropertyAccessExpression(node)) return this.#access(node, visit, context, f);
    if (ts.isForOfStatement(node)) return this.#for_of(node, visit, context, f);
    if (ts.isArrayLiteralExpression(node) && node.elements.some(ts.isSpreadElement)) {
      return this.#spread_list(node.elements, visit, f);
    }
    if (ts.isArrayBindingPattern(node)) return this.#pattern(node, visit, f);
    if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.EqualsToken &&
        ts.isArrayLiteralExpression(node.left)) {
      return f.createParenthesizedExpression(
        f.createAssignment(this.#assignment_pattern(node.left, visit, f), ts.visitNode(node.right, visit)));
    }
    if (ts.isShorthandPropertyAssignment(node)) {
      const name = this.#global_of(node.name);
      if (name !== undefined) this.#global(name);
      return ts.visitEachChild(node, visit, context);
    }
    if (ts.isVariableDeclarationList(node)) {
      return f.updateVariableDeclarationList(node, node.declarations.flatMap((d) => this.#declaration(d, visit, f)));
    }
    if (ts.isIdentifier(node)) {
      if (!this.#typed && node.text === "queueMicrotask") this.#global(node.text);
      const { parent } = node;
      const is_name = (ts.isPropertyAssignment(parent) || ts.isMethodDeclaration(parent) || ts.isPropertyDeclaration(parent)) &&
        parent.name === node;
      const name = is_name ? undefined : this.#global_of(node);
      if (name !== undefined) this.#global(name);
      return node;
    }
    return ts.visitEachChild(node, visit, context);
  }

  // What an async function returns resolves its promise, which would call "then" of a promise.
  #in_async(node) {
    const within = ts.findAncestor(node, (at) => ts.isFunctionLike(at) || ts.isClassStaticBlockDeclaration(at));
    return within !== undefined && is_async(within) && !within.asteriskToken;
  }

  #may_be_promise(node) {
    if (ts.isAwaitExpression(node)) return false;
    const type = this.#checker.getTypeAtLocation(node);
    const may = (part) => {
      if (part.flags & (ts.TypeFlags.Any | ts.TypeFlags.Unknown | ts.TypeFlags.TypeParameter)) return true;
      if (part.isUnionOrIntersection()) return part.types.some(may);
      return part.symbol?.name === "Promise";
    };
    return may(type);
  }

  #returns_promise(node) {
    return this.#checker.getTypeAtLocation(node).getCallSignatures().some((signature) => {
      const may = (part) => part.isUnionOrIntersection() ? part.types.some(may)
        : part.symbol?.name === "Promise" || (part.flags & (ts.TypeFlags.Any | ts.TypeFlags.Unknown)) !== 0;
      return may(signature.getReturnType());
    });
  }

  // const { buffer: a, x: b } = view reads a getter.
  #declaration(node, visit, f) {
    const plain = () => f.updateVariableDeclaration(node, ts.visitNode(node.name, visit), undefined, undefined,
      ts.visitNode(node.initializer, visit));
    if (!ts.isObjectBindingPattern(node.name) || node.initializer === undefined) return [plain()];
    const key = (element) => (element.propertyName ?? element.name).text;
    const read = node.name.elements.filter((element) => DYNAMIC_GETTERS.has(key(element)) && !element.dotDotDotToken);
    if (read.length === 0) return [plain()];
    if (read.length < node.name.elements.length) this.#fail(node, "getters of built-ins among other members");
    const value = f.createIdentifier(`$o${++this.#temporaries}`);
    return [
      f.createVariableDeclaration(value, undefined, undefined, ts.visitNode(node.initializer, visit)),
      ...read.map((element) => f.createVariableDeclaration(element.name, undefined, undefined,
        f.createCallExpression(this.#helper(f, `$dyn_get_${key(element)}`), undefined, [value]))),
    ];
  }

  // A constructor that is left out spreads its arguments (V8 10.2), so it is written out.
  #class(node, visit, context, f) {
    const base = node.heritageClauses?.find((clause) => clause.token === ts.SyntaxKind.ExtendsKeyword)?.types[0].expression;
    const visited = ts.visitEachChild(node, visit, context);
    if (base === undefined || node.members.some(ts.isConstructorDeclaration)) return visited;
    const signatures = this.#checker.getTypeAtLocation(base).getConstructSignatures();
    const names = signatures.length === 0 ? [0, 1, 2, 3] : [...Array(Math.max(...signatures.map((s) => s.parameters.length))).keys()];
    const parameters = names.map((i) => f.createIdentifier(`$p${i}`));
    const constructor = f.createConstructorDeclaration(undefined,
      parameters.map((name) => f.createParameterDeclaration(undefined, undefined, name)),
      f.createBlock([f.createExpressionStatement(f.createCallExpression(f.createSuper(), undefined, parameters))]));
    return ts.isClassDeclaration(node)
      ? f.updateClassDeclaration(visited, visited.modifiers, visited.name, undefined, visited.heritageClauses, [constructor, ...visited.members])
      : f.updateClassExpression(visited, visited.modifiers, visited.name, undefined, visited.heritageClauses, [constructor, ...visited.members]);
  }

  // Elements with spreads among them, as one list.
  #spread_list(elements, visit, f) {
    const parts = [];
    let run = [];
    const flush = () => {
      if (run.length > 0) parts.push(f.createArrayLiteralExpression(run));
      run = [];
    };
    for (const element of elements) {
      if (ts.isSpreadElement(element)) {
        flush();
        parts.push(ts.visitNode(element.expression, visit));
      } else run.push(ts.visitNode(element, visit));
    }
    flush();
    return f.createCallExpression(this.#helper(f, "$list"), undefined, parts);
  }

  // [a, b] as a pattern is { 0: a, 1: b }.
  #pattern(node, visit, f) {
    const elements = [];
    node.elements.forEach((element, i) => {
      if (ts.isOmittedExpression(element)) return;
      if (element.dotDotDotToken) this.#fail(element, "a rest element in a pattern goes through Symbol.iterator: use slice");
      elements.push(f.createBindingElement(undefined, f.createNumericLiteral(i), ts.visitNode(element.name, visit),
        ts.visitNode(element.initializer, visit)));
    });
    return f.createObjectBindingPattern(elements);
  }

  #assignment_pattern(node, visit, f) {
    const members = [];
    node.elements.forEach((element, i) => {
      if (ts.isOmittedExpression(element)) return;
      if (ts.isSpreadElement(element)) this.#fail(element, "a rest element in a pattern goes through Symbol.iterator");
      members.push(f.createPropertyAssignment(f.createNumericLiteral(i), ts.visitNode(element, visit)));
    });
    return f.createObjectLiteralExpression(members);
  }

  #for_of(node, visit, context, f) {
    if (node.awaitModifier) return ts.visitEachChild(node, visit, context);
    const list = ts.visitNode(node.expression, visit);
    if (!this.#type_is_list(node.expression) || !ts.isVariableDeclarationList(node.initializer)) {
      return f.updateForOfStatement(node, undefined, ts.visitNode(node.initializer, visit),
        f.createCallExpression(this.#helper(f, "$each"), undefined, [list]), ts.visitNode(node.statement, visit));
    }
    const at = f.createIdentifier(`$i${++this.#temporaries}`);
    const all = f.createIdentifier(`$l${this.#temporaries}`);
    const declared = node.initializer.declarations[0];
    const element = f.createVariableStatement(undefined, f.createVariableDeclarationList([
      f.createVariableDeclaration(ts.visitNode(declared.name, visit), undefined, undefined,
        f.createElementAccessExpression(all, at)),
    ], node.initializer.flags & ts.NodeFlags.BlockScoped));
    return f.createForStatement(
      f.createVariableDeclarationList([
        f.createVariableDeclaration(at, undefined, undefined, f.createNumericLiteral(0)),
        f.createVariableDeclaration(all, undefined, undefined, list),
      ], ts.NodeFlags.Let),
      f.createLessThan(at, f.createPropertyAccessExpression(all, "length")),
      f.createPostfixIncrement(at),
      f.createBlock([element, ts.visitNode(node.statement, visit)], true));
  }

  // A literal that others read by name must not be completed by Object.prototype.
  #without_prototype(node, visited, f) {
    if (!ts.isObjectLiteralExpression(node) || node.properties.some((p) => p.name?.getText(this.#file) === "__proto__")) return visited;
    return f.updateObjectLiteralExpression(visited, [
      f.createPropertyAssignment("__proto__", f.createNull()), ...visited.properties]);
  }

  #arguments(node, visit) {
    return node.arguments.map((argument) => ts.visitNode(argument, visit));
  }

  #call(node, visit, context, f) {
    const callee = node.expression;
    const spread = node.arguments.some(ts.isSpreadElement);
    if (callee.kind === ts.SyntaxKind.SuperKeyword || callee.kind === ts.SyntaxKind.ImportKeyword) {
      if (spread) this.#fail(node, "a spread in super() goes through Symbol.iterator");
      return ts.visitEachChild(node, visit, context);
    }
    if (ts.isPropertyAccessExpression(callee) && ts.isIdentifier(callee.name) &&
        callee.expression.kind !== ts.SyntaxKind.SuperKeyword) {
      const name = callee.name.text;
      const static_of = this.#global_of(callee.expression);
      let target;
      let args = spread ? undefined : this.#arguments(node, visit);
      if (static_of !== undefined) {
        this.#global(static_of);
        const full = `${static_of}.${name}`;
        if (DESCRIPTOR_TAKERS.has(full) && args?.length === 3) args[2] = this.#without_prototype(node.arguments[2], args[2], f);
        if (full === "Object.create" && args?.length === 2 && ts.isObjectLiteralExpression(node.arguments[1])) {
          args[1] = f.updateObjectLiteralExpression(args[1], args[1].properties.map((p, i) => !ts.isPropertyAssignment(p) ? p :
            f.updatePropertyAssignment(p, p.name, this.#without_prototype(node.arguments[1].properties[i].initializer, p.initializer, f))));
        }
        const known = Object.hasOwn(globalThis, static_of) && typeof globalThis[static_of][name] === "function";
        if (!known) return ts.visitEachChild(node, visit, context);
        target = REPLACED_STATICS.has(full) ? this.#helper(f, `$${static_of}_${name}`)
          : this.#constant(f, `$${static_of}_${name}`, `${full}`, "$uncurry");
      } else {
        const owners = this.#owners(callee);
        // A callback's promise becomes the result's, which would call its "then".
        if (owners[0] === "Promise" && name === "then" && node.arguments.some((argument) => this.#returns_promise(argument))) {
          target = this.#helper(f, "$adopting_then");
        } else if (owners.length === 1 && owners[0] !== "?") target = this.#method(f, owners[0], name);
        else if (owners.length > 0 && (dynamic_names.has(name) || (name === "toString" && args?.length === 1))) target = this.#dynamic(f, name);
        if (target !== undefined) {
          const self = ts.visitNode(callee.expression, visit);
          if (callee.questionDotToken || node.questionDotToken) return this.#optional(node, self, target, visit, f);
          if (!spread) return f.createCallExpression(target, undefined, [self, ...args]);
          return f.createCallExpression(this.#helper(f, "$apply"), undefined, [target, f.createVoidZero(),
            this.#spread_list([callee.expression, ...node.arguments], visit, f)]);
        }
      }
      if (target !== undefined) {
        if (!spread) return f.createCallExpression(target, undefined, args);
        return f.createCallExpression(this.#helper(f, "$apply"), undefined,
          [target, f.createVoidZero(), this.#spread_list(node.arguments, visit, f)]);
      }
    }
    if (!spread) return ts.visitEachChild(node, visit, context);
    if (node.questionDotToken) this.#fail(node, "a spread in an optional call");
    // f(...list), o.f(...list)
    const list = this.#spread_list(node.arguments, visit, f);
    if (ts.isPropertyAccessExpression(callee) || ts.isElementAccessExpression(callee)) {
      if (ts.isPropertyAccessExpression(callee) && ts.isPrivateIdentifier(callee.name)) this.#fail(node, "a spread for a private method");
      const self = ts.visitNode(callee.expression, visit);
      const key = ts.isPropertyAccessExpression(callee) ? f.createStringLiteral(callee.name.text)
        : ts.visitNode(callee.argumentExpression, visit);
      return f.createCallExpression(this.#helper(f, "$invoke"), undefined, [self, key, list]);
    }
    return f.createCallExpression(this.#helper(f, "$apply"), undefined,
      [ts.visitNode(callee, visit), f.createVoidZero(), list]);
  }

  // value?.method(...)
  #optional(node, self, target, visit, f) {
    const value = f.createIdentifier("$v");
    return f.createParenthesizedExpression(f.createCallExpression(f.createParenthesizedExpression(f.createArrowFunction(
      undefined, undefined, [f.createParameterDeclaration(undefined, undefined, value)], undefined,
      undefined, f.createConditionalExpression(
        f.createBinaryExpression(value, ts.SyntaxKind.EqualsEqualsToken, f.createNull()), undefined, f.createVoidZero(), undefined,
        f.createCallExpression(target, undefined, [value, ...this.#arguments(node, visit)])))), undefined, [self]));
  }

  #new(node, visit, context, f) {
    const name = this.#global_of(node.expression);
    if (name !== undefined) this.#global(name);
    const args = node.arguments ?? [];
    if (args.some(ts.isSpreadElement)) {
      return f.createCallExpression(this.#helper(f, "$construct"), undefined,
        [ts.visitNode(node.expression, visit), this.#spread_list(args, visit, f)]);
    }
    const visited = args.map((argument) => ts.visitNode(argument, visit));
    if (name === "Proxy") visited[1] = this.#without_prototype(args[1], visited[1], f);
    if (!this.#typed && this.#checker.getTypeAtLocation(node.expression).symbol?.name === "PromiseConstructor") {
      return f.createCallExpression(this.#helper(f, "$new_Promise"), undefined, visited);
    }
    // At the top level nobody has changed anything yet.
    const at_start = ts.findAncestor(node, ts.isFunctionLike) === undefined;
    if ((name === "Map" || name === "Set") && args.length > 0 && !at_start) {
      return f.createCallExpression(this.#helper(f, `$new_${name}`), undefined, visited);
    }
    if (name === "Uint8Array" && args.length === 1 && !at_start) {
      const type = this.#checker.getTypeAtLocation(args[0]);
      if (!(type.flags & ts.TypeFlags.NumberLike)) {
        return f.createCallExpression(this.#helper(f, "$new_Uint8Array"), undefined, visited);
      }
    }
    return f.updateNewExpression(node, ts.visitNode(node.expression, visit), undefined, node.arguments && visited);
  }

  #access(node, visit, context, f) {
    if (!ts.isIdentifier(node.name)) return ts.visitEachChild(node, visit, context);
    const self = () => ts.visitNode(node.expression, visit);
    const name = node.name.text;
    const written = ts.isBinaryExpression(node.parent) && node.parent.left === node &&
      node.parent.operatorToken.kind >= ts.SyntaxKind.FirstAssignment && node.parent.operatorToken.kind <= ts.SyntaxKind.LastAssignment;
    if (!written && this.#global_of(node.expression) === undefined && node.expression.kind !== ts.SyntaxKind.SuperKeyword) {
      const owners = this.#owners(node);
      const getters = owners.filter((owner) => GETTERS.has(`${owner}.${name}`));
      let target;
      if (getters.length === 1 && owners.length === 1) target = this.#getter(f, getters[0], name);
      else if (getters.length > 0 || (owners[0] === "?" && this.#dynamic_getter(name))) target = this.#helper(f, `$dyn_get_${name}`);
      if (target !== undefined) {
        if (!node.questionDotToken) return f.createCallExpression(target, undefined, [self()]);
        this.#fail(node, `?.${name} of a built-in: look whether it is there first`);
      }
    }
    const global = this.#global_of(node.expression);
    if (global !== undefined) {
      this.#global(global);
      if (!written && name !== "prototype" && typeof globalThis[global]?.[name] === "function") {
        return this.#constant(f, `$${global}$${name}`, `${global}.${name}`, "$uncurry");
      }
    }
    // X.prototype.name
    const inner = node.expression;
    const owner = ts.isPropertyAccessExpression(inner) && inner.name.text === "prototype" ? this.#global_of(inner.expression) : undefined;
    if (!written && owner !== undefined) {
      if (owner === "Promise" && name === "then") return this.#helper(f, "$adopting_then_method");
      this.#global(owner);
      return this.#constant(f, `$${owner}_prototype_${name}`, `${owner}.prototype.${name}`, "$uncurry");
    }
    return f.updatePropertyAccessExpression(node, self(), node.name);
  }
}

// The program of the prelude's own files, made once.
function typed_program() {
  const config = ts.getParsedCommandLineOfConfigFile(join(here, "tsconfig.json"), {}, {
    ...ts.sys,
    onUnRecoverableConfigFileDiagnostic(problem) {
      throw new Error(ts.flattenDiagnosticMessageText(problem.messageText, "\n"));
    },
  });
  return ts.createProgram(config.fileNames, config.options);
}

function untyped_program(path, base) {
  const options = {
    target: ts.ScriptTarget.ES2022, lib: ["lib.es2023.d.ts"], allowJs: true, checkJs: false, noResolve: true, types: [], noEmit: true,
    moduleDetection: ts.ModuleDetectionKind.Auto,
  };
  const host = ts.createCompilerHost(options);
  const plain = host.getSourceFile;
  host.getSourceFile = (name, ...rest) => base.getSourceFile(name) ?? plain.call(host, name, ...rest);
  return ts.createProgram([path], options, host);
}

export function rewrite_untyped(path, base = typed_program()) {
  const program = untyped_program(path, base);
  return new Rewriter(program, program.getSourceFile(path), false).rewrite();
}

// For tests: what a file of the prelude becomes.
export function rewrite_text(text) {
  const path = join(here, "example.ts");
  const options = { target: ts.ScriptTarget.ES2022, lib: ["lib.es2023.d.ts"], strict: true, types: [], noEmit: true };
  const host = ts.createCompilerHost(options);
  const plain = host.getSourceFile;
  host.getSourceFile = (name, target, ...rest) => name === path
    ? ts.createSourceFile(name, text, target, true) : plain.call(host, name, target, ...rest);
  const program = ts.createProgram([path], options, host);
  return new Rewriter(program, program.getSourceFile(path), true).rewrite();
}

export function hardening() {
  return {
    name: "hardening",
    setup(build) {
      let program;
      const base = () => (program ??= typed_program());
      // core-js keeps what it uses itself, and users may replace what it brings.
      build.onLoad({ filter: /\.(ts|js|mjs)$/ }, ({ path }) => {
        if (path === PRIMORDIALS || /[\\/]core-js/.test(path)) return undefined;
        if (!/[\\/]node_modules[\\/]/.test(path)) {
          const file = base().getSourceFile(resolve(path));
          return file && { contents: new Rewriter(base(), file, true).rewrite(), loader: "ts" };
        }
        // Tables.
        if (readFileSync(path, "utf8").length > 70000) return undefined;
        return { contents: rewrite_untyped(path, base()), loader: "js" };
      });
    },
  };
}
