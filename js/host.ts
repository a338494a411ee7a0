// The host's object, taken from the global scope before user code can see it.

const scope = globalThis as unknown as { native?: Native };
const taken = scope.native!;
delete scope.native;

export { taken as native };
