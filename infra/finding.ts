/**
 * Severity of a finding. `broken`: a process of the service cannot do its work until this is repaired. `warn`: it
 * can, and the problem may go away without action. `off`: the checked part is not configured.
 */
export type Severity = "ok" | "warn" | "broken" | "off";

/** The result of one check of this machine, for people and for scripts. */
export interface Finding {
  /** What was checked, such as `disk`, `store.public` or `control 1`. Unique in a report. */
  name: string;
  /** Severity of what was found. */
  standing: Severity;
  /** What was found, in one sentence. */
  says: string;
  /** What to do; absent when there is nothing to do. */
  todo?: string;
}

/**
 * Creates a finding of severity `ok`. The functions after this one create findings of the severity that they are named
 * after.
 * @param says what was found, in one sentence
 * @param todo what the operator should do
 */
export const ok = (name: string, says: string): Finding => ({ name, standing: "ok", says });
export const off = (name: string, says: string): Finding => ({ name, standing: "off", says });
export const warn = (name: string, says: string, todo: string): Finding => ({ name, standing: "warn", says, todo });
export const broken = (name: string, says: string, todo: string): Finding => ({
  name,
  standing: "broken",
  says,
  todo,
});

/**
 * Longest time that one check may take, ms, so that an address that never answers does not block the command
 * `doctor`.
 */
const CHECK_TIMEOUT_MS = 20_000;

/**
 * Runs one check and returns its findings. When the check throws or takes longer than 20 s, the result is one
 * `broken` finding with the error's message.
 * @param todo what the operator should do, for that `broken` finding
 */
export async function runCheck(name: string, todo: string, check: () => Promise<Finding[]>): Promise<Finding[]> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${CHECK_TIMEOUT_MS / 1000} s`)), CHECK_TIMEOUT_MS);
  });
  try {
    return await Promise.race([check(), timeout]);
  } catch (error) {
    return [broken(name, error instanceof Error ? error.message : String(error), todo)];
  } finally {
    clearTimeout(timer);
  }
}
