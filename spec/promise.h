/* For all models: which variant is checked, and which promise is watched, is said when the checker starts, so that
 * all variants of a model share one program. With -DTRACE=variant they are fixed instead, since spin replays a
 * counterexample only where there is no C.                                                             */
#ifdef TRACE
#define promise(name) byte name = 1
#define broken(name) (TRACE == name)
#define must(promise, holds) promise = (holds); assert(WATCH)
#else
c_decl {
  static char is_variant[100];
  __attribute__((constructor)) static void choose_variant(void) {
    const char* number = getenv("SPEC_VARIANT");
    if (number) is_variant[atoi(number)] = 1;
  }
}
#define promise(name) hidden byte name = 1; c_decl { static char ignored_##name; \
  __attribute__((constructor)) static void watch_##name(void) { \
    const char* watched = getenv("SPEC_PROMISE"); ignored_##name = watched && strcmp(watched, #name); } }
#define broken(name) c_expr { is_variant[name] }
#define must(promise, holds) promise = (holds); assert(promise || c_expr { ignored_##promise })
#endif
