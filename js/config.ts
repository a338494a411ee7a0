// What the deployment says about how the APIs behave. Set once, by setWorker.

export const config = {
  // deleteAll() removes the alarm too: from compatibility date 2026-02-24, or by flag.
  delete_all_deletes_alarm: false,
  // Errors keep their own properties on their way between objects: from 2026-04-21, or by flag.
  enhanced_errors: false,
  // Stubs have methods besides fetch(): from 2024-04-03, or by flag.
  rpc: true,
};

export function configure(spec: EnvSpec): void {
  config.delete_all_deletes_alarm = has_flag(
    spec, "delete_all_deletes_alarm", "delete_all_preserves_alarm", "2026-02-24");
  config.rpc = has_flag(spec, "rpc", "no_rpc", "2024-04-03");
  config.enhanced_errors = has_flag(
    spec, "enhanced_error_serialization", "legacy_error_serialization", "2026-04-21");
}

function has_flag(spec: EnvSpec, enable: string, disable: string, since: string): boolean {
  if (spec.compatibilityFlags.includes(disable)) return false;
  return spec.compatibilityFlags.includes(enable) || spec.compatibilityDate >= since;
}
