// What the oldest V8 that celld runs on (10.2) lacks of ECMAScript. Each module checks for itself
// whether it is needed.

import "core-js/actual/array/at";
import "core-js/actual/array/find-last";
import "core-js/actual/array/find-last-index";
import "core-js/actual/array/from-async";
import "core-js/actual/array/to-reversed";
import "core-js/actual/array/to-sorted";
import "core-js/actual/array/to-spliced";
import "core-js/actual/array/with";
import "core-js/actual/typed-array/find-last";
import "core-js/actual/typed-array/find-last-index";
import "core-js/actual/typed-array/to-reversed";
import "core-js/actual/typed-array/to-sorted";
import "core-js/actual/typed-array/with";
import "core-js/actual/typed-array/from-base64";
import "core-js/actual/typed-array/to-base64";
import "core-js/actual/typed-array/from-hex";
import "core-js/actual/typed-array/to-hex";
import "core-js/actual/typed-array/set-from-base64";
import "core-js/actual/typed-array/set-from-hex";
import "core-js/actual/object/group-by";
import "core-js/actual/map/group-by";
import "core-js/actual/promise/with-resolvers";
import "core-js/actual/promise/try";
import "core-js/actual/set/difference";
import "core-js/actual/set/intersection";
import "core-js/actual/set/is-disjoint-from";
import "core-js/actual/set/is-subset-of";
import "core-js/actual/set/is-superset-of";
import "core-js/actual/set/symmetric-difference";
import "core-js/actual/set/union";
import "core-js/actual/iterator";
import "core-js/actual/string/is-well-formed";
import "core-js/actual/string/to-well-formed";
import "core-js/actual/symbol/dispose";
import "core-js/actual/symbol/async-dispose";
import "core-js/actual/disposable-stack";
import "core-js/actual/async-disposable-stack";
import "core-js/actual/suppressed-error";
import "core-js/actual/regexp/escape";
import "core-js/actual/error/is-error";
import "core-js/actual/math/sum-precise";

delete (globalThis as Record<string, unknown>)["__core-js_shared__"];
