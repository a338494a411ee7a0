// Wrangler projects, as far as the tests need them.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

// Comments and trailing commas out; neither is touched inside a string.
function parseJsonc(text) {
  const plain = text.replace(/("(?:\\.|[^"\\])*")|\/\/[^\n]*|\/\*[^]*?\*\//g, (_, string) => string ?? "");
  return JSON.parse(plain.replace(/("(?:\\.|[^"\\])*")|,(?=\s*[\]}])/g, (_, string) => string ?? ""));
}

function parseToml(path) {
  const script = "import json, sys, tomllib; json.dump(tomllib.load(open(sys.argv[1], 'rb')), sys.stdout, default=str)";
  return JSON.parse(execFileSync("python3", ["-c", script, path], { encoding: "utf8" }));
}

// The configuration of the Wrangler project in `folder`.
export function readProject(folder) {
  for (const name of ["wrangler.json", "wrangler.jsonc"]) {
    const path = join(folder, name);
    if (existsSync(path)) return parseJsonc(readFileSync(path, "utf8"));
  }
  return parseToml(join(folder, "wrangler.toml"));
}
