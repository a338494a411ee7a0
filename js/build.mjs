// Bundles prelude.ts into one script: node js/build.mjs OUT.js
import { build } from "esbuild";
import { fileURLToPath } from "node:url";
import { hardening } from "./hardening.mjs";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));

export async function bundle(outfile) {
  return build({
    entryPoints: [here("prelude.ts")],
    outfile,
    bundle: true,
    format: "iife",
    target: "es2022", // V8 10.2
    platform: "browser",
    legalComments: "none",
    logLevel: "warning",
    plugins: [hardening()],
    alias: {
      "@exodus/bytes/encoding.js": here("nothing.ts"),
      "@exodus/bytes/whatwg.js": here("percent.ts"),
    },
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv.length !== 3) {
    console.error("usage: node js/build.mjs OUT.js");
    process.exit(2);
  }
  await bundle(process.argv[2]);
}
