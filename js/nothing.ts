// A module without content: stands in for imports that have only side effects.
export {};
