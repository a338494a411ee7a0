// date: 2026-01-01
// objects: Plain Throws Breaks NoHandler Values
export * from "./errors.mjs";
export { default } from "./errors.mjs";
